"""Simulated syphons: one pump per backlog queue, driven by the rules of ``core/``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from pairbus.core.backoff import Backoff
from pairbus.core.burst import Decided, Lane, Parked, RememberedMessages, Shelf, keeps_order, plan
from pairbus.core.forecast import LONG_POLL
from pairbus.core.ledger import Kind
from pairbus.core.routing import DeadLetter, Destinations
from pairbus.core.verdict import ErrorFacts
from pairbus.simulate.brokers import LOCK_SECONDS, Locked, Queue
from pairbus.simulate.clients import Pair
from pairbus.simulate.history import COMPLETED, NOT_COMPLETED, NOT_TAKEN, TRIED
from pairbus.simulate.kernel import Future, Process, Running

T = TypeVar("T")

ATTEMPT_SECONDS = 15.0
RETRY_SECONDS = 1.0
RENEW_SECONDS = LOCK_SECONDS / 3
BURST = 8
MESSAGE_BYTES = 1024
BATCH_BYTES = 4 * MESSAGE_BYTES


class Syphon:
    """One process with a pump for every backlog queue. What it remembers is gone when it crashes."""

    def __init__(self, name: str, pair: Pair, random: Random) -> None:
        self.name = name
        self._pair = pair
        self._destinations = Destinations(Backoff(RETRY_SECONDS, 30.0), random)
        self._pumps = [Pump(self, queue, pair, self._destinations) for queue in pair.backlog]
        self._processes = [pair.kernel.spawn(pump.run()) for pump in self._pumps]

    def crash(self) -> None:
        """End the syphon where it stands."""
        self._pair.history.add(self.name, "crashes")
        for process in self._processes:
            process.kill()
        for pump in self._pumps:
            pump.crashed()
        self._pair.checker.syphon_crashed(self.name)

    def crash_after(self, steps: int, queue: int) -> Process:
        """Let one pump's process take so many more steps; whoever calls hears of it and ends the others."""
        process = self._processes[queue % len(self._processes)]
        process.steps_left = steps
        return process

    def spare(self, queue: int) -> None:
        """Take back :meth:`crash_after`."""
        self._processes[queue % len(self._processes)].steps_left = None


class Pump:
    """Carries the messages of one backlog queue."""

    def __init__(self, syphon: Syphon, queue: str, pair: Pair, destinations: Destinations) -> None:
        self._who = syphon.name
        self._queue = queue
        self._pair = pair
        self._destinations = destinations
        self._shelf = Shelf(room=4 * BURST)
        self._locked: dict[int, Locked] = {}
        self._sent_before = RememberedMessages()
        self._renewer: Process | None = None

    def crashed(self) -> None:
        """End what runs beside the pump."""
        if self._renewer is not None:
            self._renewer.kill()

    def run(self) -> Running[None]:
        """Pump for ever."""
        while True:
            now = self._pair.kernel.now
            for number in self._shelf.take_due(now):
                yield from self._abandon(number)
            wake_at = self._shelf.wake_at
            if self._shelf.full and wake_at is not None:
                yield wake_at - now
                continue
            wait = LONG_POLL if wake_at is None else min(LONG_POLL, max(0.0, wake_at - now))
            received = yield from self._receive(wait)
            if isinstance(received, ErrorFacts):
                yield RETRY_SECONDS
            elif received:
                yield from self._burst(received)

    def _receive(self, wait: float) -> Running[Sequence[Locked] | ErrorFacts]:
        def receive(queue: Queue) -> Future[Sequence[Locked] | ErrorFacts]:
            return queue.receive(BURST, wait)

        now = self._pair.kernel.now
        return (yield from self._pair.secondary.call(self._queue, Kind.RECEIVE, receive, now + wait + ATTEMPT_SECONDS))

    def _burst(self, received: Sequence[Locked]) -> Running[None]:
        self._pair.history.add(self._who, "receives {} of {}", _numbers(received), self._queue)
        for locked in received:
            self._shelf.forget(locked.sequence_number)
            self._locked[locked.sequence_number] = locked
        burst = [_parked(locked) for locked in received]
        others: Sequence[Parked] = ()
        if keeps_order(burst):
            browsed = yield from self._browse(burst[-1].sequence_number)
            if isinstance(browsed, ErrorFacts):
                for message in burst:
                    self._shelf.put(message.sequence_number, self._pair.kernel.now + RETRY_SECONDS)
                return
            others = browsed
        planned = plan(
            burst,
            others=others,
            sent_before=self._sent_before,
            destinations=self._destinations,
            batch_limit=BATCH_BYTES,
            now=self._pair.kernel.now,
        )
        under_way = {message.sequence_number for message in burst}
        renewer = self._renewer = self._pair.kernel.spawn(self._renew(under_way))
        for message in planned.sent_before:
            yield from self._complete(message.sequence_number)
        yield from self._settle(planned.decided, under_way)
        for lane in planned.lanes:
            yield from self._deliver(lane, under_way)
        renewer.kill()

    def _browse(self, up_to: int) -> Running[Sequence[Parked] | ErrorFacts]:
        def peek(queue: Queue) -> Sequence[Parked]:
            return [Parked(number, message.label) for number, message in queue.peek(up_to)]

        return (yield from self._call(Kind.PEEK, peek))

    def _deliver(self, lane: Lane[Parked], under_way: set[int]) -> Running[None]:
        while batch := lane.next_batch():
            answer = yield from self._send(lane.destination, batch)
            if answer is not None:
                decided = lane.failed(batch, answer, self._destinations, self._pair.kernel.now)
                yield from self._settle(decided, under_way)
                continue
            lane.accepted(batch, self._destinations)
            yield 0.0  # a crash here finds them sent and not completed
            for message in batch:
                yield from self._complete(message.sequence_number)
                under_way.discard(message.sequence_number)

    def _send(self, destination: str, batch: Sequence[Parked]) -> Running[ErrorFacts | None]:
        pair = self._pair
        locked = [self._locked[out.sequence_number] for out in batch]
        messages = [replace(each.message, label=out.unparked) for each, out in zip(locked, batch, strict=True)]

        def store(_queue: Queue) -> None:
            for message, each in zip(messages, locked, strict=True):
                pair.checker.arrived(destination, message, each.origin)

        pair.checker.carrying(self._who, messages)
        ids = ", ".join(message.id for message in messages)
        pair.history.add(self._who, TRIED, ids, destination)
        answer = yield from pair.primary.call(destination, Kind.SEND, store, pair.kernel.now + ATTEMPT_SECONDS)
        if answer is None:
            self._sent_before.add(batch, pair.kernel.now)
        else:
            pair.history.add(self._who, NOT_TAKEN, ids, answer.error)
            pair.checker.carry_failed(self._who, messages, answer)
        return answer

    def _complete(self, number: int) -> Running[None]:
        locked = self._locked[number]
        message = locked.message

        def complete(queue: Queue) -> ErrorFacts | None:
            completed = queue.complete(locked.token)
            if isinstance(completed, ErrorFacts):
                return completed
            self._pair.checker.completed(queue.origin(completed))
            return None

        answer: ErrorFacts | None = yield from self._call(Kind.COMPLETE, complete)
        self._pair.checker.carried(self._who, message, answer)
        if answer is None:
            self._pair.history.add(self._who, COMPLETED, message.id)
            self._sent_before.discard(_parked(locked))
        else:
            self._pair.history.add(self._who, NOT_COMPLETED, message.id, answer.error)

    def _settle(self, decided: Iterable[Decided[Parked]], under_way: set[int]) -> Running[None]:
        for each in decided:
            number, ruling = each.parked.sequence_number, each.ruling
            under_way.discard(number)
            if isinstance(ruling, DeadLetter):
                yield from self._dead_letter(number, ruling)
            else:
                self._shelf.put(number, ruling.until)

    def _dead_letter(self, number: int, ruling: DeadLetter) -> Running[None]:
        token = self._locked[number].token

        def dead_letter(queue: Queue) -> ErrorFacts | None:
            answer = queue.dead_letter(token, ruling)
            return answer if isinstance(answer, ErrorFacts) else None

        yield from self._call(Kind.DEAD_LETTER, dead_letter)
        self._pair.history.add(self._who, "dead-letters {}: {}", self._locked[number].message.id, ruling.reason.value)

    def _abandon(self, number: int) -> Running[None]:
        token = self._locked[number].token
        yield from self._call(Kind.ABANDON, lambda queue: queue.abandon(token))

    def _renew(self, numbers: set[int]) -> Running[None]:
        while True:
            yield RENEW_SECONDS
            for number in sorted(numbers):
                token = self._locked[number].token
                yield from self._call(Kind.RENEW, lambda queue, token=token: queue.renew(token))

    def _call(self, kind: Kind, operation: Callable[[Queue], T | ErrorFacts]) -> Running[T | ErrorFacts]:
        return self._pair.secondary.call(self._queue, kind, operation, self._pair.kernel.now + ATTEMPT_SECONDS)


def _parked(locked: Locked) -> Parked:
    return Parked(locked.sequence_number, locked.message.label, MESSAGE_BYTES, enqueued_at=locked.enqueued_at)


def _numbers(received: Sequence[Locked]) -> str:
    return ", ".join(str(locked.sequence_number) for locked in received)
