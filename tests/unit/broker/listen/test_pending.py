"""Those who wait: cut in time, and the longest first when there are too many."""

import asyncio

from pairbus.broker.listen.pending import PendingClients


def test_who_stays_too_long_is_cut_in_order_and_who_leaves_is_not() -> None:
    async def scenario() -> None:
        pending = PendingClients(asyncio.get_running_loop(), patience=0.05)
        cut: list[int] = []
        last = asyncio.Event()
        tickets = [pending.enter(lambda number=number: cut.append(number)) for number in range(200)]
        pending.leave(tickets[7])
        pending.leave(tickets[7])
        pending.enter(last.set)
        await asyncio.wait_for(last.wait(), 5)
        assert cut == [number for number in range(200) if number != 7]
        assert len(pending) == 0
        again = asyncio.Event()
        pending.enter(again.set)
        await asyncio.wait_for(again.wait(), 5)

    asyncio.run(scenario())


def test_when_there_are_too_many_the_longest_is_cut() -> None:
    async def scenario() -> None:
        pending = PendingClients(asyncio.get_running_loop(), limit=3)
        cut: list[int] = []
        for number in range(5):
            pending.enter(lambda number=number: cut.append(number))
        assert (cut, len(pending)) == ([0, 1], 3)
        pending.close()
        assert (cut, len(pending)) == ([0, 1, 2, 3, 4], 0)
        assert not pending.cut_longest()

    asyncio.run(scenario())
