"""Peek-lock and receive-and-delete, the ways to settle, locks, and the order that follows."""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, MessageNotFoundError
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, nothing, one, peek, receive, send

from pairbus.testing import QueueSettings


def test_a_completed_message_is_gone_and_an_unsettled_one_is_not(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b")
        first, second = await receive(receiver, 2)
        assert bodies([first, second]) == ["a", "b"]
        await receiver.complete_message(first)
        assert bodies(await peek(receiver)) == ["b"]
        await receiver.complete_message(second)
        assert await peek(receiver) == []

    run(scenario)


def test_receive_and_delete_leaves_nothing_to_settle(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        await send(sender, "a", "b", "c")
        messages = await receive(receiver, 3)
        assert bodies(messages) == ["a", "b", "c"]
        assert [message.delivery_count for message in messages] == [0, 0, 0]
        assert messages[0].lock_token is None
        assert await peek(receiver) == []
        with pytest.raises(ValueError, match="RECEIVE_AND_DELETE"):
            await receiver.complete_message(messages[0])

    run(scenario)


def test_an_abandoned_message_comes_back_to_its_place_and_counts_its_deliveries(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b", "c")
        first = await one(receiver)
        assert (str(first), first.delivery_count) == ("a", 0)
        await receiver.abandon_message(first)
        assert [(str(each), each.delivery_count) for each in await peek(receiver)] == [("a", 1), ("b", 0), ("c", 0)]
        again = await receive(receiver, 3)
        assert [(str(each), each.delivery_count) for each in again] == [("a", 1), ("b", 0), ("c", 0)]
        for message in reversed(again):
            await receiver.abandon_message(message)
        assert bodies(await receive(receiver, 3)) == ["a", "b", "c"]

    run(scenario)


def test_a_message_is_dead_lettered_after_its_last_delivery(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        dead = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        await send(sender, "a", application_properties={"color": "red"})
        for count in range(3):
            message = await one(receiver)
            assert message.delivery_count == count
            await receiver.abandon_message(message)
        buried = await one(dead)
        assert buried.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert "3 delivery attempts" in str(buried.dead_letter_error_description)
        assert buried.dead_letter_source == "orders"
        assert buried.delivery_count == 3
        assert dict(buried.application_properties or {})[b"color"] == b"red"
        await dead.complete_message(buried)
        assert await nothing(receiver)
        assert await peek(receiver) == []
        assert await peek(dead) == []

    run(scenario, orders=QueueSettings(max_delivery_count=3))


def test_a_deferred_message_is_received_by_its_number_only(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b", "c", "d", "e")
        messages = await receive(receiver, 5)
        for message in messages:
            await receiver.defer_message(message)
        assert await nothing(receiver)
        numbers = [message.sequence_number or 0 for message in messages]
        one_of_them = await receiver.receive_deferred_messages(numbers[0])
        assert [(str(each), each.delivery_count) for each in one_of_them] == [("a", 1)]
        await receiver.complete_message(one_of_them[0])
        b, c, d, e = await receiver.receive_deferred_messages(numbers[1:])
        await receiver.abandon_message(b)
        await receiver.dead_letter_message(c, reason="why", error_description="because")
        await receiver.defer_message(d)
        assert [(str(each), each.state.name) for each in await peek(receiver)] == [
            ("b", "DEFERRED"),
            ("d", "DEFERRED"),
            ("e", "DEFERRED"),
        ]
        assert await nothing(receiver)  # an abandoned one stays deferred
        await receiver.complete_message((await receiver.receive_deferred_messages(numbers[1]))[0])
        await receiver.renew_message_lock(e)
        await receiver.complete_message(e)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(numbers[4])
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([numbers[3], 4711])
        dead = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        buried = await one(dead)
        assert (buried.dead_letter_reason, buried.dead_letter_error_description) == ("why", "because")

    run(scenario)


def test_a_deferred_message_can_be_received_and_deleted(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a")
        message = await one(receiver)
        await receiver.defer_message(message)
        deleting = await lab.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        assert bodies(await deleting.receive_deferred_messages(message.sequence_number or 0)) == ["a"]
        assert await peek(receiver) == []

    run(scenario)


def test_a_dead_lettered_message_says_why_and_can_be_settled_in_its_subqueue(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        dead = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        await send(sender, "a", "b", message_id="id", subject="subject")
        for reason in ("no good", None):
            await receiver.dead_letter_message(await one(receiver), reason=reason, error_description=reason)
        first, second = await receive(dead, 2)
        assert (str(first), first.message_id, first.subject) == ("a", "id", "subject")
        assert (first.dead_letter_reason, first.dead_letter_error_description) == ("no good", "no good")
        assert (str(second), second.dead_letter_reason) == ("b", None)
        assert first.delivery_count == 1
        await dead.abandon_message(first)
        first = await one(dead)
        assert (str(first), first.delivery_count) == ("a", 2)
        await dead.defer_message(first)
        first = (await dead.receive_deferred_messages(first.sequence_number or 0))[0]
        await dead.renew_message_lock(first)
        await dead.complete_message(first)
        await dead.dead_letter_message(second, reason="again")  # it stays where it is
        assert bodies(await peek(dead)) == ["b"]

    run(scenario)


def test_settling_twice_is_refused(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a")
        message = await one(receiver)
        await receiver.complete_message(message)
        for settle in (
            receiver.complete_message,
            receiver.abandon_message,
            receiver.defer_message,
            receiver.dead_letter_message,
            receiver.renew_message_lock,
        ):
            with pytest.raises(MessageAlreadySettled):
                await settle(message)

    run(scenario)


def test_a_lock_that_has_ended_gives_the_message_back_and_cannot_be_used(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b", "c", "d", "e", "f")
        messages = await receive(receiver, 5)
        assert messages[0].locked_until_utc is not None
        assert timedelta(seconds=55) < messages[0].locked_until_utc - lab.clock.utc() <= timedelta(seconds=60)
        await lab.pass_time(61)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(messages[0])
        with pytest.raises(MessageLockLostError):
            await receiver.abandon_message(messages[1])
        with pytest.raises(MessageLockLostError):
            await receiver.defer_message(messages[2])
        with pytest.raises(MessageLockLostError):
            await receiver.dead_letter_message(messages[3])
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(messages[4])
        again = await receive(receiver, 6)
        assert [(str(each), each.delivery_count) for each in again] == [
            ("a", 1),
            ("b", 1),
            ("c", 1),
            ("d", 1),
            ("e", 1),
            ("f", 0),
        ]
        await receiver.complete_message(again[0])

    run(scenario)


def test_a_renewed_lock_holds_on(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        other = await lab.receiver()
        await send(sender, "a")
        message = await one(receiver)
        for _ in range(3):
            await lab.pass_time(20)
            until = await receiver.renew_message_lock(message)
            assert until == message.locked_until_utc
            assert timedelta(seconds=25) < until - lab.clock.utc() <= timedelta(seconds=30)
        assert await nothing(other)
        await receiver.complete_message(message)
        assert await peek(receiver) == []

    run(scenario, orders=QueueSettings(lock_duration=30_000))


def test_a_lock_ends_by_the_real_clock(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        other = await lab.receiver()
        await send(sender, "a")
        message = await one(receiver)
        again: ServiceBusReceivedMessage = await one(other)
        assert again.sequence_number == message.sequence_number
        assert again.delivery_count == 1
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        await other.complete_message(again)

    run(scenario, orders=QueueSettings(lock_duration=5_000))


def test_a_lock_outlives_the_receiver_that_has_it(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b")
        assert str(await one(receiver)) == "a"
        await receiver.close()
        other = await lab.receiver()
        b = await one(other)
        assert str(b) == "b"
        await other.complete_message(b)
        assert await nothing(other)
        await lab.pass_time(61)
        assert str(await one(other)) == "a"

    run(scenario)
