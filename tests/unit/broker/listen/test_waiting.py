"""Those who wait: cut in time, and the longest first when there are too many."""

import asyncio

from pairbus.broker.listen.waiting import WaitingRoom


def test_who_stays_too_long_is_cut_in_order_and_who_leaves_is_not() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop(), patience=0.05)
        cut: list[int] = []
        last = asyncio.Event()
        tickets = [room.enter(lambda number=number: cut.append(number)) for number in range(200)]
        room.leave(tickets[7])
        room.leave(tickets[7])
        room.enter(last.set)
        await asyncio.wait_for(last.wait(), 5)
        assert cut == [number for number in range(200) if number != 7]
        assert len(room) == 0
        again = asyncio.Event()
        room.enter(again.set)
        await asyncio.wait_for(again.wait(), 5)

    asyncio.run(scenario())


def test_when_there_are_too_many_the_longest_is_cut() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop(), seats=3)
        cut: list[int] = []
        for number in range(5):
            room.enter(lambda number=number: cut.append(number))
        assert (cut, len(room)) == ([0, 1], 3)
        room.close()
        assert (cut, len(room)) == ([0, 1, 2, 3, 4], 0)
        assert not room.cut_longest()

    asyncio.run(scenario())
