"""Simulated queues have the semantics of peek-lock."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from pairbus.core.envelope import Label
from pairbus.core.ledger import Kind
from pairbus.core.routing import DeadLetter, DeadLetterReason
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.simulate.brokers import LOCK_SECONDS, Fault, FaultKind, Locked, Message, Namespace, Origin, Queue
from pairbus.simulate.kernel import Kernel, Running


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("here", Kernel(), Random(0))


@pytest.fixture
def queue(namespace: Namespace) -> Queue:
    queue = namespace["Queue"]
    queue.send([Message("a", Label()), Message("b", Label())])
    return queue


def receive(queue: Queue, most: int = 10) -> list[Locked]:
    received: list[Locked] = []
    queue.receive(most, wait=0.0).then(lambda answer: received.extend(messages_of(answer)))
    return received


def messages_of(answer: Sequence[Locked] | ErrorFacts) -> Sequence[Locked]:
    assert not isinstance(answer, ErrorFacts)
    return answer


def ids(received: list[Locked]) -> list[str]:
    return [locked.message.id for locked in received]


def test_a_locked_message_is_hidden_until_it_is_put_back_into_its_place(queue: Queue) -> None:
    first = receive(queue, most=1)
    assert ids(first) == ["a"]
    assert ids(receive(queue, most=1)) == ["b"]
    queue.abandon(first[0].token)
    queue.send([Message("c", Label())])
    assert ids(receive(queue)) == ["a", "c"]


def test_a_message_comes_back_when_its_lock_has_run_out(namespace: Namespace, queue: Queue) -> None:
    (stale, _) = receive(queue)
    namespace.kernel.run(until=LOCK_SECONDS / 2)
    assert queue.renew(stale.token) == 1
    namespace.kernel.run(until=LOCK_SECONDS)
    assert ids(receive(queue)) == ["b"]
    namespace.kernel.run(until=1.5 * LOCK_SECONDS)
    assert ids(receive(queue)) == ["a"]
    lost = queue.complete(stale.token)
    assert isinstance(lost, ErrorFacts)
    assert lost.cause is Cause.SETTLEMENT


def test_settling_removes_a_message(queue: Queue) -> None:
    a, b = receive(queue)
    assert queue.complete(a.token) == 1
    ruling = DeadLetter(DeadLetterReason.REFUSED, "why")
    assert queue.dead_letter(b.token, ruling) == 2
    assert queue.messages == {}
    assert queue.dead_letters == [(2, b.message, ruling)]


def test_browsing_shows_locked_messages_too(queue: Queue) -> None:
    receive(queue, most=1)
    assert [message.id for _, message in queue.peek(up_to=2)] == ["a", "b"]
    assert [message.id for _, message in queue.peek(up_to=1)] == ["a"]


def test_a_long_poll_ends_with_the_first_message_or_with_none(namespace: Namespace) -> None:
    queue = namespace["empty"]
    answers: list[tuple[float, int]] = []
    for wait in (5.0, 50.0):
        queue.receive(10, wait).then(lambda got: answers.append((namespace.kernel.now, len(messages_of(got)))))
    namespace.kernel.at(20.0, lambda: queue.send([Message("m", Label())]))
    namespace.kernel.run(until=100.0)
    assert answers == [(5.0, 0), (20.0, 1)]


def test_a_clock_that_is_set_forward_lets_locks_run_out_and_one_set_back_prolongs_them(namespace: Namespace) -> None:
    queue = namespace["queue"]
    queue.send([Message("a", Label())])
    receive(queue)
    namespace.step_clock(-30.0)
    namespace.kernel.run(until=LOCK_SECONDS + 29)
    assert receive(queue) == []
    namespace.kernel.run(until=LOCK_SECONDS + 31)
    assert ids(receive(queue)) == ["a"]
    namespace.step_clock(LOCK_SECONDS)
    assert ids(receive(queue)) == ["a"]


def call(namespace: Namespace, fault: FaultKind | None, kind: Kind = Kind.SEND) -> tuple[object, bool, float]:
    """Return the answer, whether the broker has done it, and when the answer came."""
    if fault is not None:
        namespace.faults.append(Fault(fault, None, 0.0, 100.0))
    answers: list[tuple[object, float]] = []

    def operation(queue: Queue) -> list[Origin]:
        return queue.send([Message("m", Label())])

    def process(work: Callable[[Queue], Any]) -> Running[None]:
        answer = yield from namespace.call("q", kind, work, deadline=15.0)
        answers.append((answer.cause if isinstance(answer, ErrorFacts) else answer, namespace.kernel.now))

    namespace.kernel.spawn(process(operation))
    namespace.kernel.run(until=100.0)
    ((answer, at),) = answers
    return answer, bool(namespace["q"].messages), at


@pytest.mark.parametrize(
    ("fault", "cause", "done"),
    [
        (FaultKind.REFUSED, Cause.CONNECTION, False),
        (FaultKind.SILENT, Cause.TIMEOUT, False),
        (FaultKind.CUT, Cause.CONNECTION, True),
        (FaultKind.ANSWERS_LOST, Cause.TIMEOUT, True),
        (FaultKind.BROKEN, Cause.INTERNAL, False),
        (FaultKind.BUSY, Cause.BUSY, False),
        (FaultKind.FULL, Cause.FULL, False),
        (FaultKind.DISABLED, Cause.DISABLED, False),
        (FaultKind.DENIED, Cause.UNAUTHORIZED, False),
        (FaultKind.GONE, Cause.NOT_FOUND, False),
    ],
)
def test_what_each_fault_does_to_a_send(namespace: Namespace, fault: FaultKind, cause: Cause, *, done: bool) -> None:
    answer, was_done, at = call(namespace, fault)
    assert (answer, was_done) == (cause, done)
    assert (at == 15.0) == (cause is Cause.TIMEOUT)


def test_a_slow_broker_may_do_what_nobody_waits_for_any_more(namespace: Namespace) -> None:
    results = {
        call(Namespace("slow", Kernel(), Random(seed)), FaultKind.SLOW)[:2] == (Cause.TIMEOUT, True)
        for seed in range(20)
    }
    assert results == {True, False}
    assert call(namespace, None)[1]


def test_a_full_entity_still_lets_others_receive(namespace: Namespace) -> None:
    assert call(namespace, FaultKind.FULL, kind=Kind.RECEIVE)[1]


def test_a_queue_that_is_created_again_is_empty_counts_from_one_and_knows_no_old_lock(
    namespace: Namespace, queue: Queue
) -> None:
    (stale, _) = receive(queue)
    answers: list[object] = []
    queue.receive(10, wait=50.0).then(answers.append)
    namespace.kernel.run(until=5.0)
    namespace.recreate("QUEUE")
    assert [each.cause for each in answers if isinstance(each, ErrorFacts)] == [Cause.NOT_FOUND]
    again = namespace["queue"]
    assert isinstance(again.complete(stale.token), ErrorFacts)
    again.send([Message("c", Label())])
    (new,) = receive(again)
    assert new.sequence_number == stale.sequence_number
    assert new.enqueued_at is not None
    assert stale.enqueued_at is not None
    assert new.enqueued_at > stale.enqueued_at
    assert new.origin != stale.origin
    assert isinstance(again.complete(stale.token), ErrorFacts)


def test_only_settlements_are_lost_after_the_broker_has_done_them(namespace: Namespace) -> None:
    assert not isinstance(call(namespace, FaultKind.SETTLEMENTS_LOST, kind=Kind.SEND)[0], Cause)
    other = Namespace("other", Kernel(), Random(0))
    assert call(other, FaultKind.SETTLEMENTS_LOST, kind=Kind.COMPLETE)[:2] == (Cause.CONNECTION, True)
