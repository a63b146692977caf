"""The mover's steps: what comes after what, and what a failure means (Y1 to Y5)."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# (asked for by its class, a generic step has lost what it is of)

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

import pytest

from pairbus.core.backoff import Backoff
from pairbus.core.burst import LockedMessage, Parked
from pairbus.core.envelope import Label, park
from pairbus.core.moving import Account, Browse, Limits, Moving, Pace, Receive, Renew, Send, Settle, Step, oldest
from pairbus.core.routing import DeadLetter, DeadLetterReason, Destinations, WaitReason
from pairbus.core.verdict import Cause, ErrorFacts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOCK = timedelta(seconds=60)
LOST = OSError("the lock is lost")
DRAIN = Limits(until_empty=True, wait=5.0)

S = TypeVar("S", bound=Step[Any])


class World:
    """A mover's steps, and the time."""

    def __init__(self, limits: Limits | None = None, **pace: Any) -> None:  # noqa: ANN401 (handed on)
        self.now = 0.0
        self.moving = Moving[LockedMessage](Destinations(Backoff(2.0, 8.0, jitter=0.0), Random(0)), Pace(**pace))
        self.moving.begin(self.now, limits or Limits())

    @property
    def utc(self) -> datetime:
        return NOON + timedelta(seconds=self.now)

    def message(self, number: int, destination: str | None = "orders", session: str | None = None) -> LockedMessage:
        label = Label() if destination is None else park(Label(session_id=session), destination)
        return LockedMessage(number, label, 10, enqueued_at=NOON, locked_until=self.utc + LOCK)

    def steps(self) -> Sequence[Step[LockedMessage]]:
        return self.moving.steps(self.now, self.utc)

    def only(self, kind: type[S]) -> S:
        (step,) = self.steps()
        assert isinstance(step, kind)
        return step

    def receive(self, *messages: LockedMessage) -> None:
        self.moving.received(self.only(Receive), messages, self.now, self.utc)

    def send(self, step: Send[LockedMessage]) -> None:
        self.moving.sent(step, self.now)

    def refuse(self, step: Send[LockedMessage], cause: Cause) -> None:
        self.moving.send_failed(step, ErrorFacts(cause, OSError("no")), self.now)

    def settle(self, step: Settle[LockedMessage], *errors: Exception | None) -> None:
        self.moving.settled(step, errors or [None] * len(step.messages), self.now)

    def complete(self, *errors: Exception | None) -> None:
        self.moving.accounted(self.only(Account))
        step = self.only(Settle)
        assert step.settlement == "complete"
        self.settle(step, *errors)


def numbers(messages: Sequence[Parked]) -> list[int]:
    return [each.sequence_number for each in messages]


def test_y1_messages_are_received_sent_accounted_for_and_completed_one_step_after_the_other() -> None:
    world = World()
    assert world.moving.ended is False
    receive = world.only(Receive)
    assert (receive.most, receive.wait) == (200, 900.0)
    assert world.steps() == []
    world.moving.received(receive, [world.message(1), world.message(2)], world.now, world.utc)
    send = world.only(Send)
    assert numbers(send.messages) == [1, 2]
    assert world.steps() == []
    world.send(send)
    account = world.only(Account)
    assert world.moving.completing is account.messages
    world.moving.accounted(account)
    complete = world.only(Settle)
    assert (numbers(complete.messages), complete.settlement) == ([1, 2], "complete")
    world.settle(complete)
    assert world.moving.completing == ()
    assert world.only(Receive).most == 200
    total = world.moving.reconciliation().total()
    assert (total.delivered, total.found, total.oldest_at) == (2, 2, NOON)


def test_y4_destinations_are_served_at_the_same_time_and_completed_together() -> None:
    world = World()
    world.receive(world.message(1), world.message(2, "bills"), world.message(3, "news"))
    first, second, third = world.steps()
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert isinstance(third, Send)
    world.send(first)
    account = world.only(Account)
    world.send(second)
    world.send(third)
    assert world.steps() == [], "one completion at a time"
    world.moving.accounted(account)
    world.settle(world.only(Settle))
    assert numbers(world.only(Account).messages) == [2, 3]


def test_y5_batches_of_one_session_are_sent_one_after_the_other() -> None:
    world = World(batch_bytes=10)
    world.receive(world.message(1, session="s"), world.message(2, session="s"))
    browse = world.only(Browse)
    assert browse.up_to == 2
    world.moving.browsed(browse, [], world.now)
    send = world.only(Send)
    assert numbers(send.messages) == [1]
    world.send(send)
    send, account = world.steps()
    assert isinstance(account, Account)
    assert isinstance(send, Send)
    assert numbers(send.messages) == [2]


def test_y5_without_a_browse_all_wait() -> None:
    world = World()
    world.receive(world.message(1, session="s"), world.message(2))
    world.moving.failed(world.only(Browse), LOST, world.now)
    assert world.moving.problem is None
    assert world.moving.reconciliation().of("orders").waiting == {WaitReason.UNEXPECTED: 2}
    assert world.only(Receive).wait == 1.0


def test_y4_locks_are_renewed_each_third_of_their_time_as_long_as_messages_are_under_way() -> None:
    world = World()
    world.receive(world.message(1))
    send = world.only(Send)
    assert world.moving.wake_at == 20.0
    world.now = 19.9
    assert world.steps() == []
    world.now = 20.0
    renew = world.only(Renew)
    assert numbers(renew.messages) == [1]
    assert world.moving.wake_at == math.inf
    world.now = 25.0
    world.moving.renewed(renew, world.now)
    assert world.steps() == []
    assert world.moving.wake_at == 45.0
    world.send(send)
    world.complete()
    world.now = 50.0
    assert world.only(Receive)


@pytest.mark.parametrize(("seconds", "period"), [(0.5, 1.0), (30.0, 10.0), (300.0, 20.0)])
def test_y4_the_lock_that_ends_first_says_how_often(seconds: float, period: float) -> None:
    world = World()
    first, second = world.message(1), world.message(2)
    second.locked_until = world.utc + timedelta(seconds=seconds)
    first.locked_until = world.utc + timedelta(seconds=400)
    world.receive(first, second)
    world.steps()
    assert world.moving.wake_at == period


def test_a_renewal_that_could_not_be_tried_leaves_the_send_alone() -> None:
    world = World()
    world.receive(world.message(1))
    send = world.only(Send)
    world.now = 20.0
    world.moving.failed(world.only(Renew), LOST, world.now)
    world.send(send)
    world.complete()
    assert world.steps() == [], "the queue rests"
    assert world.moving.wake_at == 21.0


def test_y3_a_destination_that_fails_lets_its_messages_wait_under_lock_until_they_are_put_back() -> None:
    world = World()
    world.receive(world.message(1))
    world.refuse(world.only(Send), Cause.CONNECTION)
    assert world.moving.reconciliation().of("orders").waiting == {WaitReason.OUTAGE: 1}
    receive = world.only(Receive)
    assert receive.wait == 2.0
    world.now = 2.0
    world.moving.received(receive, [], world.now, world.utc)
    put_back = world.only(Settle)
    assert (numbers(put_back.messages), put_back.settlement) == ([1], "abandon")
    world.settle(put_back)
    world.receive(world.message(1))
    world.send(world.only(Send))
    assert world.moving.reconciliation().of("orders").duplicates_suspected == 1, "no answer came to the first send"


def test_y3_what_waited_beyond_its_lock_is_not_put_back() -> None:
    world = World()
    world.receive(world.message(1))
    world.refuse(world.only(Send), Cause.FULL)
    world.moving.received(world.only(Receive), [], world.now, world.utc)
    world.now = 60.0
    assert world.only(Receive)


def test_y3_no_more_is_received_than_there_is_room_for() -> None:
    world = World(room=1)
    world.receive(world.message(1))
    world.refuse(world.only(Send), Cause.FULL)
    assert world.steps() == []
    assert (world.moving.wake_at, world.moving.ended) == (2.0, False)
    drain = World(DRAIN, room=1)
    drain.receive(drain.message(1))
    drain.refuse(drain.only(Send), Cause.FULL)
    assert drain.steps() == []
    assert drain.moving.ended


def test_y3_what_can_never_be_delivered_is_dead_lettered_and_counted_once_it_is() -> None:
    world = World()
    world.receive(world.message(1, None), world.message(2), world.message(3, None))
    send, dead = world.steps()
    assert isinstance(dead, Settle)
    assert isinstance(dead.settlement, DeadLetter)
    assert (numbers(dead.messages), dead.destination) == ([1, 3], None)
    world.settle(dead, LOST, None)
    counts = world.moving.reconciliation().of("")
    assert counts.dead_lettered == {DeadLetterReason.NO_DESTINATION: 1}
    assert counts.waiting == {WaitReason.UNEXPECTED: 1}
    assert isinstance(send, Send)
    world.refuse(send, Cause.NOT_FOUND)
    gone = world.only(Settle)
    assert gone.destination == "orders"
    world.settle(gone)
    assert world.moving.reconciliation().of("orders").dead_lettered == {DeadLetterReason.DESTINATION_GONE: 1}


def test_y1_what_was_sent_and_not_completed_is_completed_and_not_sent_when_it_comes_again() -> None:
    world = World()
    world.receive(world.message(1), world.message(2))
    world.send(world.only(Send))
    world.complete(LOST, None)
    assert world.moving.reconciliation().of("orders").duplicates_suspected == 1
    world.receive(world.message(1))
    world.complete(LOST)
    world.receive(world.message(1))
    world.complete()
    total = world.moving.reconciliation().total()
    assert (total.delivered, total.duplicates_suspected) == (2, 1)


def test_what_is_delivered_besides_a_doubt_is_no_duplicate() -> None:
    world = World()
    world.receive(world.message(1), world.message(2, "bills"))
    first, second = world.steps()
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    world.refuse(first, Cause.TIMEOUT)
    world.send(second)
    assert world.moving.reconciliation().total().duplicates_suspected == 0


def test_y8_what_cannot_be_accounted_for_is_not_completed_and_no_more_is_sent() -> None:
    world = World(batch_bytes=10)
    world.receive(world.message(1), world.message(2))
    world.send(world.only(Send))
    send, account = world.steps()
    world.moving.failed(account, LOST, world.now)
    assert (world.moving.problem, world.moving.completing) == (LOST, ())
    assert isinstance(send, Send)
    world.moving.failed(send, LOST, world.now)
    assert world.steps() == []
    assert world.moving.wake_at == 1.0
    world.now = 60.0
    world.receive(world.message(1), world.message(2))
    assert world.moving.problem is None
    send, account = world.steps()
    assert isinstance(send, Send)
    assert isinstance(account, Account)
    assert (numbers(send.messages), numbers(account.messages)) == ([2], [1])


def test_a_burst_that_failed_sends_no_further_batch() -> None:
    world = World(batch_bytes=10)
    world.receive(world.message(1), world.message(2), world.message(3, None))
    send, dead = world.steps()
    world.moving.failed(dead, LOST, world.now)
    assert isinstance(send, Send)
    world.send(send)
    assert world.only(Account)


def test_a_completion_that_could_not_be_tried_is_remembered() -> None:
    world = World()
    world.receive(world.message(1))
    world.send(world.only(Send))
    world.moving.accounted(world.only(Account))
    world.moving.failed(world.only(Settle), LOST, world.now)
    world.now = 60.0
    world.receive(world.message(1))
    assert world.only(Account)


def test_a_queue_that_fails_is_tried_again_until_patience_ends() -> None:
    world = World(Limits(until_empty=True, patience=1.5))
    world.moving.failed(world.only(Receive), LOST, world.now)
    assert world.moving.problem is LOST
    assert world.steps() == []
    assert (world.moving.wake_at, world.moving.ended) == (1.0, False)
    world.now = 1.0
    world.moving.failed(world.only(Receive), LOST, world.now)
    world.now = 2.0
    assert world.steps() == []
    assert world.moving.ended
    assert world.moving.problem is LOST


def test_a_queue_that_fails_is_tried_for_ever_unless_it_is_to_be_drained() -> None:
    world = World(Limits(patience=0.0))
    for _ in range(3):
        world.moving.failed(world.only(Receive), LOST, world.now)
        assert world.steps() == []
        world.now += 1.0
    assert world.only(Receive)


def test_a_drain_ends_when_nothing_comes() -> None:
    world = World(DRAIN)
    assert world.only(Receive).wait == 5.0
    again = World(DRAIN)
    again.receive()
    assert again.steps() == []
    assert again.moving.ended


def test_a_quota_ends_it_and_it_may_begin_again() -> None:
    world = World(Limits(quota=3), burst=2)
    world.receive(world.message(1, None), world.message(2, None))
    world.settle(world.only(Settle))
    receive = world.only(Receive)
    assert receive.most == 1
    world.moving.received(receive, [world.message(3, None)], world.now, world.utc)
    world.settle(world.only(Settle))
    assert world.steps() == []
    assert (world.moving.ended, world.moving.received_count) == (True, 3)
    world.moving.begin(world.now, Limits())
    assert world.moving.received_count == 0
    assert world.only(Receive)


def test_a_time_budget_bounds_the_receive_and_ends_it() -> None:
    world = World(Limits(seconds=10.0))
    receive = world.only(Receive)
    assert receive.wait == 10.0
    world.now = 10.0
    world.moving.received(receive, [], world.now, world.utc)
    assert world.steps() == []
    assert world.moving.ended


def test_stop_finishes_the_burst_and_release_puts_back_what_waits() -> None:
    world = World()
    world.receive(world.message(1), world.message(2, "bills"))
    first, second = world.steps()
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    world.moving.stop()
    world.refuse(first, Cause.BUSY)
    world.send(second)
    world.complete()
    assert world.steps() == []
    assert world.moving.ended
    put_back = world.moving.release(world.utc)
    assert put_back is not None
    assert numbers(put_back.messages) == [1]
    assert world.moving.release(world.utc) is None


def test_a_driver_that_is_interrupted_does_not_send_again_what_was_sent() -> None:
    world = World()
    world.receive(world.message(1), world.message(2, "bills"), world.message(3, "news"))
    first, second, _ = world.steps()
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    world.send(first)
    assert world.only(Account)
    world.send(second)
    world.moving.interrupt(world.now)
    assert world.moving.ended
    assert world.steps() == []
    world.moving.begin(world.now, Limits())
    world.receive(world.message(1), world.message(2, "bills"), world.message(3, "news"))
    send, account = world.steps()
    assert isinstance(send, Send)
    assert isinstance(account, Account)
    assert (numbers(send.messages), numbers(account.messages)) == ([3], [1, 2])


def test_the_oldest_message_is_told_if_any_says_when_it_was_parked() -> None:
    assert oldest([]) is None
    assert oldest([Parked(1, Label()), Parked(2, Label(), enqueued_at=NOON)]) == NOON
