"""Entities that change while clients use them: status, deletion, idleness, forwarding."""

import asyncio
from datetime import timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError, ServiceBusError
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, eventually, one, peek, receive, send

from pairbus.errors import OptionError, PairbusError
from pairbus.testing import EmbeddedBroker, EntityStatus, QueueSettings

MINUTES = 60_000


async def update(lab: Lab, settings: QueueSettings, queue: str = "orders") -> None:
    await asyncio.to_thread(lab.broker.update_queue, queue, settings)


def test_a_queue_can_be_disabled_and_enabled_under_its_clients(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "before")
        await update(lab, QueueSettings(status=EntityStatus.SEND_DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await send(sender, "refused")
        assert str(await one(receiver)) == "before"
        await update(lab, QueueSettings(status=EntityStatus.DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await receiver.receive_messages(1, max_wait_time=5)
        with pytest.raises(MessagingEntityDisabledError):
            await lab.receiver()
        await update(lab, QueueSettings(status=EntityStatus.RECEIVE_DISABLED))
        sender = await lab.sender()
        await send(sender, "while receiving is disabled")
        await update(lab, QueueSettings())
        await lab.pass_time(61)
        assert bodies(await receive(await lab.receiver(), 2)) == ["before", "while receiving is disabled"]

    run(scenario)


def test_settings_stay_changed_after_a_restart(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        await update(lab, QueueSettings(status=EntityStatus.SEND_DISABLED))
        await lab.restart()
        with pytest.raises(MessagingEntityDisabledError):
            await send(await lab.sender(), "a")

    run_durable(scenario)


def test_one_who_waits_for_a_session_hears_that_the_queue_is_disabled(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        waiting = asyncio.create_task(lab.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30))
        done, _ = await asyncio.wait({waiting}, timeout=1.5)
        assert not done
        await update(lab, QueueSettings(requires_session=True, status=EntityStatus.DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await waiting

    run(scenario, orders=QueueSettings(requires_session=True))


def test_what_a_queue_was_made_with_cannot_be_changed(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(OptionError, match="requires_session"):
            await update(lab, QueueSettings(requires_session=True))
        with pytest.raises(PairbusError, match="could not be found"):
            await update(lab, QueueSettings(), "nowhere")

    run(scenario)


def test_a_queue_can_be_deleted_and_made_again_under_its_clients(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "old", "older")
        await one(receiver)
        await asyncio.to_thread(lab.broker.delete_queue, "orders")
        with pytest.raises(ServiceBusError):  # of a link that was detached between sends, the SDK tells no cause
            await send(sender, "too late")
        with pytest.raises(MessagingEntityNotFoundError):
            await send(sender, "too late")
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive_messages(1, max_wait_time=5)
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.sender()
        await asyncio.to_thread(lab.broker.create_queue, "orders", QueueSettings(max_delivery_count=7))
        sender, receiver = await lab.both()
        await send(sender, "new")
        assert bodies(await peek(receiver)) == ["new"]
        await lab.restart()
        assert bodies(await peek(await lab.receiver())) == ["new"]

    run_durable(scenario)


def test_an_idle_queue_deletes_itself(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        await send(sender, "a")
        await lab.pass_time(4 * 60)
        await send(sender, "b")
        await lab.pass_time(4 * 60)
        receiver = await lab.receiver()
        await lab.pass_time(6 * 60)  # one who receives keeps it
        assert len(await peek(receiver)) == 2
        await receiver.close()
        sender = await lab.sender()  # the other one was idle for ten minutes
        number = (await sender.schedule_messages(ServiceBusMessage("c"), lab.clock.utc(3600)))[0]
        await lab.pass_time(6 * 60)  # so does what is scheduled
        await sender.cancel_scheduled_messages(number)
        await lab.pass_time(6 * 60)
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.sender()
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.receiver()

    run(scenario, orders=QueueSettings(auto_delete_on_idle=5 * MINUTES))


def test_messages_are_forwarded_in_order_and_cannot_be_received_before(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.sender("first"), lab.receiver("third"))
        await send(sender, "a", "b", message_id="id", time_to_live=timedelta(hours=1))
        await sender.schedule_messages(ServiceBusMessage("c"), lab.clock.utc(30))
        messages = await receive(receiver, 2)
        assert bodies(messages) == ["a", "b"]
        assert {message.message_id for message in messages} == {"id"}
        assert [message.enqueued_sequence_number for message in messages] == [1, 2]
        assert messages[0].time_to_live is not None
        assert timedelta(minutes=59) < messages[0].time_to_live <= timedelta(hours=1)
        await lab.pass_time(31)
        assert str(await one(receiver)) == "c"
        with pytest.raises(ServiceBusError, match="forwarded to 'second'"):
            await lab.receiver("first")

    run(
        scenario,
        first=QueueSettings(forward_to="second"),
        second=QueueSettings(forward_to="third"),
        third=QueueSettings(),
    )


def test_messages_are_forwarded_to_their_sessions(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.sender("first"), lab.receiver("second", session_id="red"))
        await send(sender, "a", session_id="red")
        assert str(await one(receiver)) == "a"

    run(scenario, first=QueueSettings(forward_to="second"), second=QueueSettings(requires_session=True))


def test_dead_letters_are_forwarded(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        (sender, receiver), grave = await asyncio.gather(lab.both(), lab.receiver("grave"))
        await send(sender, "a")
        await receiver.dead_letter_message(await one(receiver), reason="why", error_description="because")
        buried = await one(grave)
        assert (str(buried), buried.dead_letter_reason, buried.dead_letter_source) == ("a", "why", "orders")
        await eventually(lambda: peek(receiver), lambda seen: not seen)
        with pytest.raises(ServiceBusError, match="forwarded to 'grave'"):
            await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    run(scenario, orders=QueueSettings(forward_dead_lettered_messages_to="grave"), grave=QueueSettings())


def test_a_broker_in_another_process_takes_no_orders() -> None:
    with EmbeddedBroker(process=True) as broker, pytest.raises(PairbusError, match="runs in this process"):
        broker.delete_queue("orders")
