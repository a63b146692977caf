"""G3: a ping is accepted and leaves no trace."""

from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusError
from tests.contract.conftest import Run, play
from tests.contract.lab import Lab, bodies, nothing, peek, receive, send
from tests.contract.sdk import Sdk

from pairbus.testing import EntityStatus, QueueSettings


def ping(session_id: str | None = None) -> ServiceBusMessage:
    return ServiceBusMessage(
        b"",
        content_type="application/vnd.ms-servicebus-ping",
        time_to_live=timedelta(seconds=1),
        session_id=session_id,
    )


def test_a_ping_is_accepted_and_never_seen(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await sender.send_messages(ping())
        assert await peek(receiver) == []
        assert await nothing(receiver)
        await sender.send_messages([ping(), ServiceBusMessage("a"), ping(), ServiceBusMessage("b")])
        assert await sender.schedule_messages(ping(), lab.clock.utc(10)) == [0]
        await send(sender, "c", content_type="application/vnd.ms-servicebus-pinger")
        seen = await peek(receiver)
        assert bodies(seen) == ["a", "b", "c"]
        first = seen[0].sequence_number or 0
        assert [each.sequence_number for each in seen] == [first, first + 1, first + 2]
        await lab.pass_time(11)
        assert bodies(await receive(receiver, 3)) == ["a", "b", "c"]
        assert await nothing(receiver)

    run(scenario)


def test_a_ping_needs_a_session_where_messages_do(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="ping")
        with pytest.raises(ServiceBusError, match="session id"):
            await sender.send_messages(ping())
        await sender.send_messages(ping("ping"))
        assert await nothing(receiver)
        assert [name async for name in lab.client().list_queue_sessions("orders")] == []

    run(scenario, orders=QueueSettings(requires_session=True))


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_g3_a_topic_stores_no_ping(store: str, tmp_path: Path) -> None:
    """Neither for a subscription that takes everything, nor until it is due; and its size stays what it was."""

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.topic_sender("events"), await lab.subscriber("all", "events")
        await sender.send_messages(ping())
        await sender.send_messages([ping(), ServiceBusMessage("a"), ping(), ServiceBusMessage("b")])
        assert await sender.schedule_messages(ping(), lab.clock.utc(10)) == [0]
        await lab.pass_time(11)
        seen = await peek(receiver)
        assert bodies(seen) == ["a", "b"]
        first = seen[0].sequence_number or 0
        assert [each.sequence_number for each in seen] == [first, first + 1]
        assert bodies(await receive(receiver, 2)) == ["a", "b"]
        assert await nothing(receiver)
        async with lab.manager() as manager:
            assert (await manager.get_topic_runtime_properties("events")).scheduled_message_count == 0
            counts = await manager.get_subscription_runtime_properties("events", "all")
            assert (counts.total_message_count, counts.dead_letter_message_count) == (2, 0)

    play(scenario, Sdk("aio"), {}, tmp_path if store == "sqlite" else None, topics={"events": ["all"]})


def test_a_ping_meets_the_same_refusals_as_a_message(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ping())

    run(scenario, orders=QueueSettings(status=EntityStatus.SEND_DISABLED))
