"""Simulated brokers: queues with peek-lock semantics, behind a network that can fail in every way."""

import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeVar, cast

from pairbus.core.burst import LockedMessage
from pairbus.core.envelope import Label
from pairbus.core.ledger import Kind
from pairbus.core.naming import entity_key
from pairbus.core.routing import DeadLetter
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.simulate.kernel import TIMED_OUT, Future, Kernel, Running, Wait

T = TypeVar("T")

LOCK_SECONDS = 60.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

_ROUNDING = 1e-6
"""A lock is looked at just when it runs out, and a clock that was set adds up a little differently."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its id stands for all that parking leaves alone."""

    id: str
    label: Label


@dataclass(frozen=True, slots=True)
class Origin:
    """Which message of which backlog queue a delivery came from. Only the checker sees it.

    :ivar creation: how often the queue had been created by then.
    """

    queue: str
    creation: int
    sequence_number: int


@dataclass(slots=True, eq=False, kw_only=True)
class Locked(LockedMessage):
    """A message received under lock."""

    token: int
    message: Message
    origin: Origin

    @property
    def message_id(self) -> object:
        """The id that its sender gave it."""
        return self.message.id


class FaultKind(enum.Enum):
    """What can go wrong with a namespace or an entity."""

    REFUSED = "connections refused"
    SILENT = "connections accepted, nothing answered"
    CUT = "connections cut after the broker has accepted"
    ANSWERS_LOST = "answers lost after the broker has accepted"
    SETTLEMENTS_LOST = "links lost after the broker has settled a message"
    SLOW = "slow"
    BROKEN = "internal errors"
    BUSY = "throttled"
    FULL = "full"
    NEARLY_FULL = "full, but for messages without a body"
    DISABLED = "disabled"
    DENIED = "access denied"
    GONE = "deleted"


REPLIES = {
    FaultKind.BROKEN: Cause.INTERNAL,
    FaultKind.BUSY: Cause.BUSY,
    FaultKind.FULL: Cause.FULL,
    FaultKind.NEARLY_FULL: Cause.FULL,
    FaultKind.DISABLED: Cause.DISABLED,
    FaultKind.DENIED: Cause.UNAUTHORIZED,
    FaultKind.GONE: Cause.NOT_FOUND,
}
"""Faults that are an answer."""

ONLY_SENDS = frozenset({FaultKind.FULL, FaultKind.NEARLY_FULL, FaultKind.DISABLED, FaultKind.GONE})
_SENDS = frozenset({Kind.SEND, Kind.PING})
_SETTLEMENTS = frozenset({Kind.COMPLETE, Kind.ABANDON, Kind.DEAD_LETTER})

MESSAGE_BYTES = 1000
"""How large every simulated message is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong for a while, for an entity or, with None, the whole namespace."""

    kind: FaultKind
    entity: str | None
    begins: float
    ends: float

    def hits(self, entity: str, kind: Kind, now: float, size: int = MESSAGE_BYTES) -> bool:
        """Tell whether an operation on an entity meets this fault."""
        return (
            self.begins <= now < self.ends
            and (self.entity is None or self.entity == entity_key(entity))
            and (self.kind not in ONLY_SENDS or kind in _SENDS)
            and (self.kind is not FaultKind.SETTLEMENTS_LOST or kind in _SETTLEMENTS)
            and (self.kind is not FaultKind.NEARLY_FULL or size > 0)
        )


class SimulatedError(Exception):
    """The error of a simulated broker."""


def facts(cause: Cause, text: str, retry_after: timedelta | None = None) -> ErrorFacts:
    """Make the facts of a simulated error."""
    did_not_fit = MESSAGE_BYTES if cause is Cause.FULL else 0
    return ErrorFacts(cause, SimulatedError(text), retry_after, did_not_fit=did_not_fit)


@dataclass(slots=True)
class _Lock:
    token: int
    until: float  # by the broker's wall clock


class Queue:
    """A queue with peek-lock semantics. A message keeps its place until it is settled."""

    def __init__(self, path: str, namespace: "Namespace", creation: int = 1) -> None:
        self.path = path
        self.creation = creation
        self.messages: dict[int, Message] = {}
        self.dead_letters: list[tuple[int, Message, DeadLetter]] = []
        self._namespace = namespace
        self._locks: dict[int, _Lock] = {}
        self._enqueued_at: dict[int, datetime] = {}
        self._waiting: list[tuple[Future[Sequence[Locked] | ErrorFacts], int]] = []
        self._next_sequence_number = 1

    def send(self, messages: Sequence[Message]) -> list[Origin]:
        """Store messages and return where they are."""
        origins: list[Origin] = []
        for message in messages:
            number = self._next_sequence_number
            origins.append(self.origin(number))
            self.messages[number] = message
            self._enqueued_at[number] = EPOCH + timedelta(seconds=self._namespace.wall)
            self._next_sequence_number += 1
        self._serve()
        return origins

    def origin(self, number: int) -> Origin:
        """Return what tells a message of this queue from all others."""
        return Origin(self.path, self.creation, number)

    def end(self) -> None:
        """Be deleted: receivers that wait are told so."""
        waiting, self._waiting = self._waiting, []
        for future, _ in waiting:
            future.resolve(facts(Cause.NOT_FOUND, f"{self.path}: deleted"))

    def receive(self, most: int, wait: float) -> Future[Sequence[Locked] | ErrorFacts]:
        """Lock the first messages that are not locked, waiting for one if need be."""
        future = Future[Sequence[Locked] | ErrorFacts]()
        self._waiting.append((future, most))
        self._serve()
        self._namespace.kernel.after(wait, lambda: future.resolve(()))
        return future

    def complete(self, token: int) -> ErrorFacts | int:
        """Remove a locked message for good."""
        return self._settle(token, self.messages.pop)

    def abandon(self, token: int) -> ErrorFacts | int:
        """Put a locked message back into its place."""
        return self._settle(token, lambda _number: None)

    def dead_letter(self, token: int, ruling: DeadLetter) -> ErrorFacts | int:
        """Move a locked message to the dead-letter queue."""
        return self._settle(token, lambda number: self.dead_letters.append((number, self.messages.pop(number), ruling)))

    def renew(self, token: int) -> ErrorFacts | int:
        """Lock a locked message for another while."""
        number = self._number_of(token)
        if isinstance(number, int):
            self._lock(number, token)
        return number

    def peek(self, up_to: int) -> list[tuple[int, Message]]:
        """Browse the messages, locked or not, in order."""
        return [(number, message) for number, message in self.messages.items() if number <= up_to]

    def expire_locks(self) -> None:
        """Free the messages whose lock has run out."""
        wall = self._namespace.wall + _ROUNDING
        for number in [number for number, lock in self._locks.items() if lock.until <= wall]:
            del self._locks[number]
        self._serve()

    def clock_stepped(self) -> None:
        """Look at all locks again, now and when they run out by the new clock."""
        self.expire_locks()
        for lock in self._locks.values():
            self._namespace.kernel.after(lock.until - self._namespace.wall, self.expire_locks)

    def _settle(self, token: int, effect: Callable[[int], object]) -> ErrorFacts | int:
        number = self._number_of(token)
        if isinstance(number, int):
            del self._locks[number]
            effect(number)
            self._serve()
        return number

    def _number_of(self, token: int) -> ErrorFacts | int:
        for number, lock in self._locks.items():
            if lock.token == token and lock.until > self._namespace.wall:
                return number
        return facts(Cause.SETTLEMENT, f"{self.path}: the lock has run out")

    def _lock(self, number: int, token: int) -> None:
        self._locks[number] = _Lock(token, self._namespace.wall + LOCK_SECONDS)
        self._namespace.kernel.after(LOCK_SECONDS, self.expire_locks)

    def _serve(self) -> None:
        while self._waiting:
            future, most = self._waiting[0]
            if future.done:
                self._waiting.pop(0)
                continue
            free = [number for number in self.messages if number not in self._locks][:most]
            if not free:
                return
            self._waiting.pop(0)
            locked: list[Locked] = []
            for number in free:
                token = next(self._namespace.tokens)
                self._lock(number, token)
                message = self.messages[number]
                locked.append(
                    Locked(
                        number,
                        message.label,
                        MESSAGE_BYTES,
                        enqueued_at=self._enqueued_at[number],
                        locked_until=EPOCH + timedelta(seconds=self._namespace.wall + LOCK_SECONDS),
                        token=token,
                        message=message,
                        origin=self.origin(number),
                    )
                )
            future.resolve(locked)


@dataclass(slots=True)
class Namespace:
    """A namespace with its queues, its faults and its wall clock."""

    name: str
    kernel: Kernel
    random: Random
    faults: list[Fault] = field(default_factory=list[Fault])
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    clock_offset: float = 0.0
    operations: Counter[Kind] = field(default_factory=Counter[Kind])
    tokens: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def wall(self) -> float:
        """The broker's wall clock, which may be stepped."""
        return self.kernel.now + self.clock_offset

    def step_clock(self, seconds: float) -> None:
        """Set the broker's wall clock forward or back."""
        self.clock_offset += seconds
        for queue in self.queues.values():
            queue.clock_stepped()

    def recreate(self, path: str) -> None:
        """Delete a queue and create it again: it is empty, its sequence numbers begin at 1, and all locks are gone."""
        old = self[path]
        self.queues[entity_key(path)] = Queue(path, self, old.creation + 1)
        old.end()

    def __getitem__(self, path: str) -> Queue:
        """Return a queue, making it where there is none."""
        key = entity_key(path)
        if key not in self.queues:
            self.queues[key] = Queue(path, self)
        return self.queues[key]

    def call(
        self,
        path: str,
        kind: Kind,
        operation: Callable[[Queue], T | ErrorFacts | Future[T]],
        deadline: float,
        *,
        size: int = MESSAGE_BYTES,
    ) -> Running[T | ErrorFacts]:
        """Have the broker carry out an operation, over the network, and return its answer or an error's facts.

        A request that is on its way arrives whatever becomes of its sender.
        """
        answer = Future[T | ErrorFacts]()
        fault = self._fault(path, kind, size)
        slow = fault is not None and fault.kind is FaultKind.SLOW

        def latency() -> float:
            return self.random.uniform(0.5, 12.0) if slow else self.random.uniform(0.001, 0.02)

        def give(result: T | ErrorFacts) -> None:
            if fault is not None and fault.kind in (FaultKind.CUT, FaultKind.SETTLEMENTS_LOST):
                result = facts(Cause.CONNECTION, f"{self.name}: connection reset")
            elif fault is not None and fault.kind is FaultKind.ANSWERS_LOST:
                return
            self.kernel.after(latency(), lambda: answer.resolve(result))

        def arrive() -> None:
            if fault is not None and fault.kind in REPLIES:
                give(self._refuse(path, fault))
                return
            self.operations[kind] += 1
            result = operation(self[path])
            if isinstance(result, Future):
                cast("Future[T]", result).then(give)
            else:
                give(result)

        if fault is not None and fault.kind is FaultKind.REFUSED:
            self.kernel.after(latency(), lambda: answer.resolve(facts(Cause.CONNECTION, f"{self.name}: refused")))
        elif fault is None or fault.kind is not FaultKind.SILENT:
            self.kernel.after(latency(), arrive)
        result = yield Wait(answer, deadline)
        return facts(Cause.TIMEOUT, f"{self.name}/{path}: no answer") if result is TIMED_OUT else result

    def _fault(self, path: str, kind: Kind, size: int) -> Fault | None:
        now = self.kernel.now
        return next((fault for fault in self.faults if fault.hits(path, kind, now, size)), None)

    def _refuse(self, path: str, fault: Fault) -> ErrorFacts:
        told = timedelta(seconds=self.random.choice((1, 4))) if fault.kind is FaultKind.BUSY else None
        return facts(REPLIES[fault.kind], f"{self.name}/{path}: {fault.kind.value}", told)
