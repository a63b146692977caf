"""What a durable broker keeps when it is stopped, and when it is killed."""

import asyncio
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from tests.contract.conftest import TIMEOUT, Run, play
from tests.contract.lab import Lab, bodies, nothing, one, peek, receive, send
from tests.contract.sdk import Sdk

from pairbus.testing import EmbeddedBroker, QueueSettings

SESSIONS = QueueSettings(requires_session=True)
DUPLICATES = QueueSettings(requires_duplicate_detection=True)


async def fill(lab: Lab) -> list[int]:
    """Leave a message in each state, and return the sequence numbers of the queue's messages."""
    (sender, receiver), (to_session, in_session), to_unique = await asyncio.gather(
        lab.both(), lab.both("sessions", session_id="red"), lab.sender("unique")
    )
    await send(sender, "completed", "abandoned", "deferred", "dead", "locked", "active", correlation_id="kept")
    completed, abandoned, deferred, dead, locked = await receive(receiver, 5)
    await receiver.complete_message(completed)
    await receiver.abandon_message(abandoned)
    await receiver.defer_message(deferred)
    await receiver.dead_letter_message(dead, reason="why", error_description="because")
    due = datetime.now(UTC) + timedelta(days=1)
    numbers = await sender.schedule_messages([ServiceBusMessage("scheduled"), ServiceBusMessage("cancelled")], due)
    await sender.cancel_scheduled_messages(numbers[1])
    await send(to_session, "a", "b", session_id="red")
    await in_session.complete_message(await one(in_session))
    await in_session.session.set_state("state")
    await send(to_unique, "unique", message_id="1")
    received = (completed, abandoned, deferred, dead, locked)
    return [*(message.sequence_number or 0 for message in received), *numbers]


async def check(lab: Lab, numbers: list[int]) -> None:
    """See that all is there as it was left."""
    (sender, receiver), dead, in_session, (to_unique, of_unique) = await asyncio.gather(
        lab.both(),
        lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER),
        lab.receiver("sessions", session_id="red"),
        lab.both("unique"),
    )
    seen = await peek(receiver)
    assert [(str(each), each.state.name, each.delivery_count) for each in seen] == [
        ("abandoned", "ACTIVE", 1),
        ("deferred", "DEFERRED", 1),
        ("locked", "ACTIVE", 1),
        ("active", "ACTIVE", 0),
        ("scheduled", "SCHEDULED", 0),
    ]
    assert [each.sequence_number for each in seen[:3]] == [numbers[1], numbers[2], numbers[4]]
    assert {each.correlation_id for each in seen[:4]} == {"kept"}
    got = await receive(receiver, 3)
    assert [(str(each), each.delivery_count) for each in got] == [("abandoned", 1), ("locked", 1), ("active", 0)]
    assert bodies(await receiver.receive_deferred_messages(numbers[2])) == ["deferred"]
    buried = await one(dead)
    assert (str(buried), buried.dead_letter_reason, buried.dead_letter_error_description) == ("dead", "why", "because")
    assert bodies(await receive(in_session, 1)) == ["b"]
    assert await in_session.session.get_state() == b"state"
    await send(to_unique, "again", message_id="1")
    assert bodies(await peek(of_unique)) == ["unique"]
    await sender.cancel_scheduled_messages(numbers[5])
    await send(sender, "new")
    new = await one(receiver)
    assert (new.sequence_number or 0) > max(numbers)


def test_a_durable_broker_keeps_everything_when_it_is_stopped(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        numbers = await fill(lab)
        await lab.restart()
        await check(lab, numbers)

    run_durable(scenario, orders=QueueSettings(), sessions=SESSIONS, unique=DUPLICATES)


@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize("end", [EmbeddedBroker.kill, EmbeddedBroker.stop])
def test_a_durable_broker_keeps_everything_when_its_process_ends(
    kind: str, end: Callable[[EmbeddedBroker], None], tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        numbers = await fill(lab)
        await asyncio.to_thread(end, lab.broker)
        await lab.close_clients()
        await asyncio.to_thread(lab.broker.start)
        await check(lab, numbers)

    queues = {"orders": QueueSettings(), "sessions": SESSIONS, "unique": DUPLICATES}
    play(scenario, Sdk(kind), queues, tmp_path, process=True)


def test_numbers_never_repeat_even_when_nothing_is_left(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        numbers: list[int] = []
        for _ in range(3):
            sender, receiver = await lab.both()
            await send(sender, "a", "b")
            for message in await receive(receiver, 2):
                numbers.append(message.sequence_number or 0)
                await receiver.complete_message(message)
            assert await peek(receiver) == []
            await lab.restart()
        assert numbers == sorted(set(numbers))

    run_durable(scenario)


def test_what_was_due_or_expired_meanwhile_is_dealt_with_after_the_start(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        await send(sender, "short", time_to_live=timedelta(seconds=30))
        await sender.schedule_messages(ServiceBusMessage("due"), lab.clock.utc(30))
        await lab.close_clients()
        await asyncio.to_thread(lab.broker.stop)
        lab.clock.advance(60)
        await asyncio.to_thread(lab.broker.start)
        receiver, dead = await asyncio.gather(lab.receiver(), lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER))
        assert str(await one(receiver)) == "due"
        assert str(await one(dead)) == "short"
        assert await nothing(receiver)

    run_durable(scenario, orders=QueueSettings(dead_lettering_on_message_expiration=True))


def test_max_deliveries_are_counted_across_restarts(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        await send(await lab.sender(), "a")
        for count in range(2):
            message = await one(await lab.receiver())
            assert message.delivery_count == count
            await lab.restart()
        receiver, dead = await asyncio.gather(lab.receiver(), lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER))
        assert await nothing(receiver)
        assert (await one(dead)).dead_letter_reason == "MaxDeliveryCountExceeded"

    run_durable(scenario, orders=QueueSettings(max_delivery_count=2))


def test_an_ordinary_client_gets_over_a_restart(tmp_path: Path) -> None:
    """The SDK's own retries, with a broker that comes back on the same port."""

    async def scenario() -> None:
        broker = EmbeddedBroker(namespaces=[f"localhost:{free_port()}"], queues=["orders"], data=tmp_path)
        with broker:
            async with Sdk("aio").client(broker.connection_string, retry_total=5, retry_backoff_factor=0.1) as client:
                sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
                async with sender, receiver:
                    await send(sender, "before")
                    await asyncio.to_thread(broker.stop)
                    await asyncio.to_thread(broker.start)
                    await send(sender, "after")
                    assert bodies(await receive(receiver, 2)) == ["before", "after"]

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
