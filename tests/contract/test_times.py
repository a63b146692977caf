"""Times to live, schedules, and duplicate detection."""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, eventually, nothing, one, peek, receive, send

from pairbus.testing import QueueSettings

HOUR = 3_600_000


def test_a_message_expires_and_is_gone(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "short", time_to_live=timedelta(seconds=10))
        await send(sender, "long", time_to_live=timedelta(seconds=100))
        await send(sender, "forever")
        assert bodies(await peek(receiver)) == ["short", "long", "forever"]
        await lab.pass_time(11)
        assert bodies(await eventually(lambda: peek(receiver), lambda seen: len(seen) == 2)) == ["long", "forever"]
        message = await one(receiver)
        assert str(message) == "long"
        await lab.pass_time(50)
        await receiver.complete_message(message)
        dead = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert await peek(dead) == []

    run(scenario)


def test_an_expired_message_is_never_given_out(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", time_to_live=timedelta(seconds=10))
        await send(sender, "b")
        lab.clock.advance(11)  # and the broker has not noticed yet
        assert str(await one(receiver)) == "b"

    run(scenario)


def test_a_locked_message_expires_when_its_lock_ends(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b", time_to_live=timedelta(seconds=30))
        a, b = await receive(receiver, 2)
        await lab.pass_time(40)
        await receiver.complete_message(a)
        await receiver.abandon_message(b)
        assert await nothing(receiver)
        assert await eventually(lambda: peek(receiver), lambda seen: not seen) == []

    run(scenario)


def test_a_queue_caps_the_time_to_live(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "none")
        await send(sender, "longer", time_to_live=timedelta(days=1))
        await send(sender, "shorter", time_to_live=timedelta(minutes=1))
        assert [(str(each), each.time_to_live) for each in await peek(receiver)] == [
            ("none", timedelta(hours=1)),
            ("longer", timedelta(hours=1)),
            ("shorter", timedelta(minutes=1)),
        ]
        await lab.pass_time(61)
        assert len(await eventually(lambda: peek(receiver), lambda seen: len(seen) == 2)) == 2
        await lab.pass_time(3600)
        assert await eventually(lambda: peek(receiver), lambda seen: not seen) == []

    run(scenario, orders=QueueSettings(default_message_time_to_live=HOUR))


def test_expired_messages_are_dead_lettered_where_so_set(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        dead = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        await send(sender, "a", "b", "deferred", time_to_live=timedelta(seconds=10))
        messages = await receive(receiver, 3)
        await receiver.abandon_message(messages[0])
        await receiver.abandon_message(messages[1])
        await receiver.defer_message(messages[2])
        await lab.pass_time(11)
        buried = await receive(dead, 3)
        assert sorted(bodies(buried)) == ["a", "b", "deferred"]
        assert {each.dead_letter_reason for each in buried} == {"TTLExpiredException"}
        assert buried[0].dead_letter_error_description == "The message expired and was dead lettered."
        assert buried[0].dead_letter_source == "orders"
        await lab.pass_time(50)
        for each in buried:  # a dead letter does not expire
            await dead.abandon_message(each)
        assert len(await receive(dead, 3)) == 3
        assert await peek(receiver) == []

    run(scenario, orders=QueueSettings(dead_lettering_on_message_expiration=True))


def test_a_scheduled_message_comes_in_time(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        due = lab.clock.utc(100).replace(microsecond=0)
        messages = [ServiceBusMessage("b", message_id="1", time_to_live=timedelta(minutes=1)), ServiceBusMessage("c")]
        numbers = await sender.schedule_messages(messages, due)
        assert len(numbers) == len(set(numbers)) == 2
        await sender.send_messages(ServiceBusMessage("d", scheduled_enqueue_time_utc=due))
        await send(sender, "a")
        assert [(str(each), each.state.name) for each in await peek(receiver)] == [
            ("b", "SCHEDULED"),
            ("c", "SCHEDULED"),
            ("d", "SCHEDULED"),
            ("a", "ACTIVE"),
        ]
        assert (await peek(receiver))[0].scheduled_enqueue_time_utc == due
        await receiver.complete_message(await one(receiver))
        assert await nothing(receiver)
        await lab.pass_time(101)
        came = await receive(receiver, 3)
        assert sorted(bodies(came)) == ["b", "c", "d"]
        for message in came:
            assert message.state.name == "ACTIVE"
            assert message.scheduled_enqueue_time_utc == due
            assert message.enqueued_time_utc is not None
            assert message.enqueued_time_utc >= due
            assert (message.sequence_number or 0) > max(numbers)
        assert {each.message_id for each in came} >= {"1"}

    run(scenario)


def test_a_schedule_of_the_past_is_now(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await sender.schedule_messages(ServiceBusMessage("a"), lab.clock.utc(-100))
        assert str(await one(receiver)) == "a"

    run(scenario)


def test_a_cancelled_message_never_comes(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        first, second, third = await sender.schedule_messages(
            [ServiceBusMessage(body) for body in "abc"], lab.clock.utc(100)
        )
        await sender.cancel_scheduled_messages(first)
        await sender.cancel_scheduled_messages([second])
        assert bodies(await peek(receiver)) == ["c"]
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(first)
        with pytest.raises(ServiceBusError):
            await sender.cancel_scheduled_messages([third, 4711])
        await lab.pass_time(101)
        assert str(await one(receiver)) == "c"
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(third)

    run(scenario)


def test_a_time_to_live_counts_from_when_a_message_is_due(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        message = ServiceBusMessage("a", time_to_live=timedelta(seconds=30))
        await sender.schedule_messages(message, lab.clock.utc(100))
        await lab.pass_time(90)
        assert bodies(await peek(receiver)) == ["a"]
        await lab.pass_time(15)
        assert str(await one(receiver)) == "a"

    run(scenario)


def test_a_duplicate_is_accepted_and_dropped_within_the_window(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "first", message_id="1")
        await send(sender, "second", message_id="1")
        await sender.send_messages([ServiceBusMessage("x", message_id=name) for name in ("2", "2", "1", "3")])
        await sender.schedule_messages(ServiceBusMessage("late", message_id="3"), lab.clock.utc(10))
        await send(sender, "upper", message_id="A")
        await send(sender, "lower", message_id="a")
        await send(sender, "none", "none")
        expected = ["first", "x", "x", "upper", "lower", "none", "none"]
        assert bodies(await peek(receiver)) == expected
        for message in await receive(receiver, 7):
            await receiver.complete_message(message)
        await send(sender, "after completion", message_id="1")
        assert await nothing(receiver)
        await lab.pass_time(31)
        await send(sender, "after the window", message_id="1")
        assert str(await one(receiver)) == "after the window"

    settings = QueueSettings(requires_duplicate_detection=True, duplicate_detection_history_time_window=30_000)
    run(scenario, orders=settings)


def test_without_duplicate_detection_an_id_may_come_twice(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b", message_id="1")
        assert bodies(await receive(receiver, 2)) == ["a", "b"]

    run(scenario)
