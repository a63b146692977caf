"""Sessions: accepting, order, state, locks, and what is refused."""

import asyncio
from datetime import timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, nothing, one, peek, receive, send

from pairbus.testing import QueueSettings

SESSIONS = QueueSettings(requires_session=True)


def test_a_session_gets_its_own_messages_in_order(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        for i in range(3):
            await send(sender, f"red {i}", session_id="red")
            await send(sender, f"blue {i}", session_id="blue")
        red, blue = await asyncio.gather(lab.receiver(session_id="red"), lab.receiver(session_id="blue"))
        assert (red.session.session_id, blue.session.session_id) == ("red", "blue")
        messages = await receive(red, 3)
        assert bodies(messages) == ["red 0", "red 1", "red 2"]
        assert {message.session_id for message in messages} == {"red"}
        await red.abandon_message(messages[0])
        await red.complete_message(messages[1])
        await red.defer_message(messages[2])
        again = await one(red)
        assert (str(again), again.delivery_count) == ("red 0", 1)
        assert bodies(await red.receive_deferred_messages(messages[2].sequence_number or 0)) == ["red 2"]
        assert bodies(await receive(blue, 3)) == ["blue 0", "blue 1", "blue 2"]
        assert await nothing(red)

    run(scenario, orders=SESSIONS)


def test_peeking_in_a_session_shows_only_that_session(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        for name in ("red", "blue", "red"):
            await send(sender, name, session_id=name)
        red = await lab.receiver(session_id="red")
        assert bodies(await peek(red)) == ["red", "red"]

    run(scenario, orders=SESSIONS)


def test_a_session_without_messages_can_be_accepted_and_gets_those_that_come(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="later")
        assert await nothing(receiver)
        await send(sender, "other", session_id="other")
        await send(sender, "mine", session_id="later")
        assert str(await one(receiver)) == "mine"

    run(scenario, orders=SESSIONS)


def test_the_next_available_session_is_one_that_nobody_has(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        for name in ("one", "two", "three"):
            await send(sender, name, session_id=name)
        receivers = await asyncio.gather(*(lab.receiver(session_id=NEXT_AVAILABLE_SESSION) for _ in range(3)))
        assert sorted(str(receiver.session.session_id) for receiver in receivers) == ["one", "three", "two"]
        for receiver in receivers:
            assert str(await one(receiver)) == receiver.session.session_id

    run(scenario, orders=SESSIONS)


def test_waiting_for_a_session_ends_when_a_message_comes(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        waiting = asyncio.create_task(lab.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30))
        done, _ = await asyncio.wait({waiting}, timeout=1)
        assert not done
        await send(sender, "hello", session_id="new")
        receiver = await waiting
        assert receiver.session.session_id == "new"
        assert str(await one(receiver)) == "hello"

    run(scenario, orders=SESSIONS)


def test_waiting_for_a_session_times_out(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(OperationTimeoutError):
            await lab.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)

    run(scenario, orders=SESSIONS)


def test_a_session_that_another_receiver_has_cannot_be_locked(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        first = await lab.receiver(session_id="red")
        with pytest.raises(SessionCannotBeLockedError):
            await lab.receiver(session_id="red")
        await first.close()
        again = await lab.receiver(session_id="red")
        assert again.session.session_id == "red"

    run(scenario, orders=SESSIONS)


def test_a_session_remembers_its_state(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        receiver, other = await asyncio.gather(lab.receiver(session_id="red"), lab.receiver(session_id="blue"))
        assert await receiver.session.get_state() is None
        await receiver.session.set_state("grün")
        assert await receiver.session.get_state() == "grün".encode()
        await receiver.session.set_state(b"\x00\xff")
        assert await receiver.session.get_state() == b"\x00\xff"
        assert await other.session.get_state() is None
        await receiver.close()
        receiver = await lab.receiver(session_id="red")
        assert await receiver.session.get_state() == b"\x00\xff"
        await receiver.session.set_state(None)
        assert await receiver.session.get_state() is None

    run(scenario, orders=SESSIONS)


def test_sessions_can_be_listed(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        client = lab.client()
        assert [name async for name in client.list_queue_sessions("orders")] == []
        sender, receiver = await lab.both(session_id="with state")
        await sender.send_messages([ServiceBusMessage("x", session_id=f"{i:03}") for i in range(120)])
        before = lab.clock.utc(-1)
        await receiver.session.set_state("state")
        names = [name async for name in client.list_queue_sessions("orders")]
        assert sorted(names) == [*(f"{i:03}" for i in range(120)), "with state"]
        updated = client.list_queue_sessions("orders", state_updated_after=before)
        assert [name async for name in updated] == ["with state"]
        updated = client.list_queue_sessions("orders", state_updated_after=lab.clock.utc(60))
        assert [name async for name in updated] == []

    run(scenario, orders=SESSIONS)


def test_a_session_lock_is_renewed_with_its_messages(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red")
        await send(sender, "a", session_id="red")
        message = await one(receiver)
        for _ in range(3):
            await lab.pass_time(40)
            until = await receiver.session.renew_lock()
            assert until == receiver.session.locked_until_utc
            assert timedelta(seconds=55) < until - lab.clock.utc() <= timedelta(seconds=60)
        await receiver.complete_message(message)
        assert await peek(receiver) == []

    run(scenario, orders=SESSIONS)


def test_a_session_lock_that_has_ended_cannot_be_used_and_the_messages_come_back(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red")
        await send(sender, "a", "b", session_id="red")
        messages = await receive(receiver, 2)
        await lab.pass_time(61)
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(messages[0])
        with pytest.raises(SessionLockLostError):
            await receiver.session.renew_lock()
        with pytest.raises(SessionLockLostError):
            await receiver.session.get_state()
        again = await lab.receiver(session_id=NEXT_AVAILABLE_SESSION)
        assert [(str(each), each.delivery_count) for each in await receive(again, 2)] == [("a", 1), ("b", 1)]

    run(scenario, orders=SESSIONS)


def test_receiving_in_a_lost_session_is_refused(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red")
        await send(sender, "deferred", session_id="red")
        message = await one(receiver)
        await receiver.defer_message(message)
        await lab.pass_time(61)
        with pytest.raises(SessionLockLostError):
            await receiver.receive_deferred_messages(message.sequence_number or 0)
        with pytest.raises(SessionLockLostError):
            await receiver.receive_messages(1, max_wait_time=2)

    run(scenario, orders=SESSIONS)


def test_closing_a_session_gives_its_messages_back_at_once(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red")
        await send(sender, "a", "b", "c", session_id="red")
        await receive(receiver, 2)
        await receiver.close()
        again = await lab.receiver(session_id="red")
        assert bodies(await receive(again, 3)) == ["a", "b", "c"]

    run(scenario, orders=SESSIONS)


def test_a_dead_lettered_message_of_a_session_is_received_without_one(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red")
        await send(sender, "a", session_id="red")
        await receiver.dead_letter_message(await one(receiver), reason="why")
        dead = await lab.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        buried = await one(dead)
        assert (str(buried), buried.session_id, buried.dead_letter_reason) == ("a", "red", "why")
        await dead.complete_message(buried)

    run(scenario, orders=SESSIONS)


def test_a_session_can_receive_and_delete(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        await send(sender, "a", "b", session_id="red")
        assert bodies(await receive(receiver, 2)) == ["a", "b"]
        assert await peek(receiver) == []

    run(scenario, orders=SESSIONS)


def test_scheduled_messages_reach_their_sessions(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both(session_id="red")
        await sender.schedule_messages(ServiceBusMessage("a", session_id="red"), lab.clock.utc(20))
        await sender.schedule_messages(ServiceBusMessage("b", session_id="blue"), lab.clock.utc(20))
        await lab.pass_time(21)
        assert str(await one(receiver)) == "a"
        other = await lab.receiver(session_id=NEXT_AVAILABLE_SESSION)
        assert other.session.session_id == "blue"

    run(scenario, orders=SESSIONS)


def test_what_does_not_fit_the_queues_sessions_is_refused(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(ServiceBusError, match="requires sessions"):
            await lab.receiver()
        with pytest.raises(ServiceBusError, match="has no sessions"):
            await lab.receiver("plain", session_id="red")
        with pytest.raises(ServiceBusError, match="has no sessions"):
            await lab.receiver("plain", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)
        sender = await lab.sender()
        with pytest.raises(ServiceBusError, match="session id"):
            await send(sender, "without")
        await send(sender, "with", session_id="red")

    run(scenario, orders=SESSIONS, plain=QueueSettings())
