"""Several receivers, prefetch, iteration, and locks that are renewed in the background."""

import asyncio
import itertools

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode, ServiceBusSession
from azure.servicebus.aio import ServiceBusSession as AsyncServiceBusSession
from azure.servicebus.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from tests.contract.conftest import Run
from tests.contract.lab import DEADLINE, Lab, bodies, eventually, nothing, one, peek, receive, send

from pairbus.testing import QueueSettings

SHORT = 5_000


def test_a_receiver_that_waits_gets_a_message_when_it_comes(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        waiting = asyncio.create_task(one(receiver))
        await send(sender, "a")
        assert str(await waiting) == "a"

    run(scenario)


def test_competing_receivers_share_the_messages_and_nobody_gets_one_twice(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receivers = await asyncio.gather(lab.sender(), asyncio.gather(*(lab.receiver() for _ in range(3))))
        left = 90
        got: list[list[str]] = [[], [], []]

        async def consume(index: int) -> None:
            nonlocal left
            receiver = receivers[index]
            while left > 0:
                for message in await receiver.receive_messages(5, max_wait_time=1):
                    got[index].append(str(message))
                    await receiver.complete_message(message)
                    left -= 1

        consumers = [asyncio.create_task(consume(index)) for index in range(3)]
        await sender.send_messages([ServiceBusMessage(str(i)) for i in range(90)])
        await asyncio.gather(*consumers)
        assert sorted(itertools.chain(*got), key=int) == [str(i) for i in range(90)]
        assert all(got)
        assert await peek(receivers[0]) == []

    run(scenario)


def test_prefetched_messages_are_locked_and_come_in_order(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        await sender.send_messages([ServiceBusMessage(str(i)) for i in range(49)])
        receiver = await lab.receiver(prefetch_count=20)
        got: list[ServiceBusReceivedMessage] = []
        while len(got) < 49:
            batch = await receiver.receive_messages(7, max_wait_time=DEADLINE)
            assert 1 <= len(batch) <= 7
            for message in batch:
                await receiver.complete_message(message)
            got += batch
        assert bodies(got) == [str(i) for i in range(49)]
        assert await nothing(receiver)

    run(scenario)


def test_a_receiver_asks_for_no_more_than_it_wants(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        await send(sender, "a", "b", "c")
        assert bodies(await receive(receiver, 2)) == ["a", "b"]
        assert bodies(await peek(receiver)) == ["c"]

    run(scenario)


def test_messages_can_be_iterated_over(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(max_wait_time=2)
        await send(sender, "a", "b", "c")
        seen: list[str] = []
        async for message in receiver:
            seen.append(str(message))
            await receiver.complete_message(message)
        assert seen == ["a", "b", "c"]
        assert await peek(receiver) == []

    run(scenario)


def test_locks_are_kept_in_the_background(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver, other = await asyncio.gather(lab.sender(), lab.receiver(), lab.receiver())
        in_session, to_session = await asyncio.gather(
            lab.receiver("sessions", session_id="red"), lab.sender("sessions")
        )
        await send(sender, "a")
        await send(to_session, "b", session_id="red")
        async with lab.sdk.renewer(max_lock_renewal_duration=60) as renewer:
            message, session_message = await asyncio.gather(one(receiver), one(in_session))
            renewer.register(receiver, message)
            renewer.register(in_session, in_session.session)
            assert await other.receive_messages(1, max_wait_time=SHORT / 1000 + 1.5) == []  # longer than the lock
            await receiver.complete_message(message)
            await in_session.complete_message(session_message)
        assert message.delivery_count == 0
        assert await peek(receiver) == []
        assert await peek(in_session) == []

    run(
        scenario,
        orders=QueueSettings(lock_duration=SHORT),
        sessions=QueueSettings(lock_duration=SHORT, requires_session=True),
    )


def test_the_renewer_tells_when_it_gives_up(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        loop = asyncio.get_running_loop()
        failures: asyncio.Queue[object] = asyncio.Queue()

        def told(
            renewable: ServiceBusReceivedMessage | ServiceBusSession | AsyncServiceBusSession, error: Exception | None
        ) -> None:
            del error
            loop.call_soon_threadsafe(failures.put_nowait, renewable)

        async def told_later(
            renewable: ServiceBusReceivedMessage | ServiceBusSession | AsyncServiceBusSession, error: Exception | None
        ) -> None:
            told(renewable, error)

        sender, receiver = await lab.both()
        await send(sender, "a", "b")
        async with lab.sdk.renewer(on_lock_renew_failure=told_later if lab.sdk.kind == "aio" else told) as renewer:
            lost, late = await receive(receiver, 2)
            renewer.register(receiver, lost, max_lock_renewal_duration=60)
            await lab.pass_time(30)
            assert await asyncio.wait_for(failures.get(), DEADLINE) is lost
            assert isinstance(lost.auto_renew_error, AutoLockRenewFailed)
            again, late = await receive(receiver, 2)
            renewer.register(receiver, late, max_lock_renewal_duration=1)

            async def look() -> Exception | None:
                return late.auto_renew_error

            await eventually(look, lambda error: isinstance(error, AutoLockRenewTimeout))
            await receiver.complete_message(again)

    run(scenario, orders=QueueSettings(lock_duration=SHORT))
