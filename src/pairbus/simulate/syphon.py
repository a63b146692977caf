"""Simulated syphons: a mover for each backlog queue, which does the steps of ``core/moving.py`` in simulated time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import TypeVar

from pairbus.core.backoff import Backoff
from pairbus.core.burst import Parked
from pairbus.core.ledger import Kind
from pairbus.core.moving import Account, Browse, Limits, Moving, Pace, Receive, Renew, Send, Settle, Step
from pairbus.core.reconciliation import Reconciliation
from pairbus.core.routing import DeadLetter, Destinations
from pairbus.core.verdict import ErrorFacts
from pairbus.simulate.brokers import EPOCH, MESSAGE_BYTES, Locked, Queue
from pairbus.simulate.clients import Pair
from pairbus.simulate.history import COMPLETED, NOT_COMPLETED, NOT_TAKEN, TRIED
from pairbus.simulate.kernel import Future, Process, Running, Wait

T = TypeVar("T")

ATTEMPT_SECONDS = 15.0
PACE = Pace(burst=32, batch_bytes=4 * MESSAGE_BYTES, room=64)


class Syphon:
    """One process with a mover for every backlog queue. What it remembers is gone when it crashes."""

    def __init__(self, name: str, pair: Pair, random: Random) -> None:
        self.name = name
        self._pair = pair
        destinations = Destinations(Backoff(PACE.retry_interval, 30.0), random)
        self._movers = [SimulatedMover(name, queue, pair, destinations) for queue in pair.backlog]

    def crash(self) -> None:
        """End the syphon where it stands."""
        self._pair.history.add(self.name, "crashes")
        for mover in self._movers:
            mover.process.kill()
        self._pair.checker.syphon_crashed(self.name)

    def process_of(self, queue: int) -> Process:
        """Return the process of one mover."""
        return self._movers[queue % len(self._movers)].process

    def reconciliation(self) -> Reconciliation:
        """Tell what it has done so far, and what waits."""
        told = Reconciliation()
        for mover in self._movers:
            told.add(mover.moving.reconciliation())
        return told


class SimulatedMover:
    """Moves the messages of one backlog queue: a process, and a child of it for each step that is under way."""

    def __init__(self, who: str, queue: str, pair: Pair, destinations: Destinations) -> None:
        self.moving = Moving[Locked](destinations, PACE)
        self._who = who
        self._queue = queue
        self._pair = pair
        self._ended = Future[None]()
        self.process = pair.kernel.spawn(self._run())

    @property
    def _now(self) -> float:
        return self._pair.kernel.now

    @property
    def _utc(self) -> datetime:
        return EPOCH + timedelta(seconds=self._now)

    def _run(self) -> Running[None]:
        self.moving.begin(self._now, Limits())
        while True:
            for step in self.moving.steps(self._now, self._utc):
                self._pair.kernel.spawn(self._do(step), parent=self.process)
            self._ended = Future[None]()
            yield Wait(self._ended, None if self.moving.wake_at == math.inf else self.moving.wake_at)

    def _do(self, step: Step[Locked]) -> Running[None]:
        match step:
            case Receive():
                yield from self._receive(step)
            case Browse():
                yield from self._browse(step)
            case Send():
                yield from self._send(step)
            case Account():
                yield 0.0  # a crash here finds them sent and not completed
                self.moving.accounted(step)
            case Settle():
                yield from self._settle(step)
            case Renew():
                for message in step.messages:
                    yield from self._call(Kind.RENEW, lambda queue, token=message.token: queue.renew(token))
                self.moving.renewed(step, self._now)
        self._pair.kernel.after(0, lambda: self._ended.resolve(None))

    def _receive(self, step: Receive) -> Running[None]:
        def receive(queue: Queue) -> Future[Sequence[Locked] | ErrorFacts]:
            return queue.receive(step.most, step.wait)

        deadline = self._now + step.wait + ATTEMPT_SECONDS
        received = yield from self._pair.secondary.call(self._queue, Kind.RECEIVE, receive, deadline)
        if isinstance(received, ErrorFacts):
            self.moving.failed(step, _error(received), self._now)
            return
        if received:
            numbers = ", ".join(str(message.sequence_number) for message in received)
            self._pair.history.add(self._who, "receives {} of {}", numbers, self._queue)
        self.moving.received(step, received, self._now, self._utc)

    def _browse(self, step: Browse) -> Running[None]:
        def peek(queue: Queue) -> Sequence[Parked]:
            return [Parked(number, message.label) for number, message in queue.peek(step.up_to)]

        seen = yield from self._call(Kind.PEEK, peek)
        if isinstance(seen, ErrorFacts):
            self.moving.failed(step, _error(seen), self._now)
        else:
            self.moving.browsed(step, seen, self._now)

    def _send(self, step: Send[Locked]) -> Running[None]:
        pair, destination = self._pair, step.ordered.destination
        messages = [replace(each.message, label=each.unparked) for each in step.messages]

        def store(_queue: Queue) -> None:
            for message, each in zip(messages, step.messages, strict=True):
                pair.checker.arrived(destination, message, each.origin)

        pair.checker.carrying(self._who, messages)
        ids = ", ".join(message.id for message in messages)
        pair.history.add(self._who, TRIED, ids, destination)
        answer = yield from pair.primary.call(destination, Kind.SEND, store, self._now + ATTEMPT_SECONDS)
        if answer is None:
            self.moving.sent(step, self._now)
        else:
            pair.history.add(self._who, NOT_TAKEN, ids, answer.error)
            pair.checker.carry_failed(self._who, messages, answer)
            self.moving.send_failed(step, answer, self._now)

    def _settle(self, step: Settle[Locked]) -> Running[None]:
        answers: list[Exception | None] = []
        for message in step.messages:
            answer = yield from self._settle_one(message, step)
            answers.append(None if answer is None else _error(answer))
        self.moving.settled(step, answers, self._now)

    def _settle_one(self, locked: Locked, step: Settle[Locked]) -> Running[ErrorFacts | None]:
        settlement, message = step.settlement, locked.message
        if isinstance(settlement, DeadLetter):
            answer = yield from self._call(Kind.DEAD_LETTER, lambda queue: queue.dead_letter(locked.token, settlement))
            self._pair.history.add(self._who, "dead-letters {}: {}", message.id, settlement.reason.value)
        elif settlement == "abandon":
            answer = yield from self._call(Kind.ABANDON, lambda queue: queue.abandon(locked.token))
        else:
            answer = yield from self._complete(locked)
        return answer if isinstance(answer, ErrorFacts) else None

    def _complete(self, locked: Locked) -> Running[ErrorFacts | None]:
        def complete(queue: Queue) -> ErrorFacts | None:
            completed = queue.complete(locked.token)
            if isinstance(completed, ErrorFacts):
                return completed
            self._pair.checker.completed(queue.origin(completed))
            return None

        message = locked.message
        answer: ErrorFacts | None = yield from self._call(Kind.COMPLETE, complete)
        self._pair.checker.carried(self._who, message, answer)
        if answer is None:
            self._pair.history.add(self._who, COMPLETED, message.id)
        else:
            self._pair.history.add(self._who, NOT_COMPLETED, message.id, answer.error)
        return answer

    def _call(self, kind: Kind, operation: Callable[[Queue], T | ErrorFacts]) -> Running[T | ErrorFacts]:
        return self._pair.secondary.call(self._queue, kind, operation, self._now + ATTEMPT_SECONDS)


def _error(answer: ErrorFacts) -> Exception:
    assert isinstance(answer.error, Exception)  # noqa: S101 (a broker's)
    return answer.error
