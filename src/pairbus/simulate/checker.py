"""The oracle: it watches what happens, knows each message's fate, and says which rule was broken.

It sees what an observer with no access to the rules' own state would see: attempts and their answers, what
brokers stored, delivered and removed. Its arithmetic is its own, so that a mistake in ``core/`` cannot hide in it.
"""

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pairbus.core.naming import entity_key
from pairbus.core.reconciliation import Counts
from pairbus.core.routing import DeadLetter, DeadLetterReason
from pairbus.core.sending import Done, Failed
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.errors import BacklogUnavailableError
from pairbus.simulate.brokers import Fault, Message, Origin
from pairbus.simulate.kernel import Kernel

_TOLERANCE = 1e-6
_OUTAGES = (Cause.TIMEOUT, Cause.CONNECTION, Cause.INTERNAL, Cause.DISABLED, Cause.FULL)
_SHORTEST_COOL_DOWN = 8.0  # 10 s less 20 % jitter
_LOCKS_LAST = 180.0  # a burst takes less, and what went wrong before it does not excuse the loss of a lock
_BETWEEN_TRIES = 3.0  # 2 s at most, and the time that an answer takes


class KnownOutcome(enum.Enum):
    """What the sender of a message knows of it."""

    UNDER_WAY = "under way"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken.

    :ivar about: the message, queue or entity, by which the history can be read.
    """

    rule: str
    at: float
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.at:.3f} s: {self.text}"


@dataclass(slots=True)
class _Sent:
    message: Message
    entity: str
    fate: KnownOutcome = KnownOutcome.UNDER_WAY


@dataclass(slots=True)
class _Outage:
    """An entity as one client has met it."""

    failing_since: float | None = None
    last_ping: float | None = None


@dataclass(slots=True)
class Checker:
    """Watches one world; durations in seconds."""

    kernel: Kernel
    failover_interval: float
    ping_interval: float
    attempt_timeout: float
    secondary_faults: Sequence[Fault] = ()
    violations: list[Violation] = field(default_factory=list[Violation])
    sent: dict[str, _Sent] = field(default_factory=dict[str, _Sent])
    arrivals: Counter[str] = field(default_factory=Counter[str])
    foreign: set[str] = field(default_factory=set[str])
    """Ids of messages that a stranger put into a backlog queue."""
    ping_count: int = 0
    _may_repeat: set[str] = field(default_factory=set[str])
    _outages: defaultdict[tuple[str, str], _Outage] = field(
        default_factory=lambda: defaultdict[tuple[str, str], _Outage](_Outage)
    )
    _barred: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    _stored: dict[Origin, Message] = field(default_factory=dict[Origin, Message])
    _delivered: dict[Origin, int] = field(default_factory=dict[Origin, int])
    _dead: dict[str, DeadLetterReason] = field(default_factory=dict[str, DeadLetterReason])
    _settled: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _dead_letters: int = 0
    """How many messages are in dead-letter queues: one that was parked twice may be there twice."""
    _carried_count: int = 0
    """How many messages destinations have stored that came from backlog queues, repeated ones included."""
    _clock_stepped_at: float = -math.inf
    _carried: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))

    def broken(self, rule: str, about: str, text: str) -> None:
        """Note that a rule was broken."""
        self.violations.append(Violation(rule, self.kernel.now, about, text))

    @property
    def parked_count(self) -> int:
        """How many messages backlog queues have stored."""
        return len(self._stored)

    @property
    def failing_over(self) -> Sequence[tuple[str, str]]:
        """The clients and entities for which failover is engaged."""
        return [key for key in self._outages if self._is_engaged(*key)]

    # What senders do

    def created(self, message: Message, entity: str) -> None:
        """A client is about to send a message."""
        self.sent[message.id] = _Sent(message, entity)

    def ended(self, message: Message, outcome: Done | Failed, *, parked: bool) -> None:
        """A client was told how its send ended, and whether this message was parked before that."""
        failed = KnownOutcome.UNKNOWN if outcome.in_doubt else KnownOutcome.REFUSED
        self.sent[message.id].fate = KnownOutcome.ACCEPTED if parked or isinstance(outcome, Done) else failed
        if isinstance(outcome, Failed) and isinstance(outcome.error, BacklogUnavailableError):
            self._check_unavailable(message)

    def _check_unavailable(self, message: Message) -> None:
        since = self.kernel.now - self.attempt_timeout - _BETWEEN_TRIES
        if not any(fault.begins <= self.kernel.now and fault.ends >= since for fault in self.secondary_faults):
            self.broken("S13", message.id, f"{message.id} was not parked, and the secondary took messages meanwhile")

    def client_crashed(self, client: str, sending: Iterable[Message]) -> None:
        """A client crashed, in the middle of these sends."""
        for message in sending:
            self.sent[message.id].fate = KnownOutcome.UNKNOWN
        for key in [key for key in self._outages if key[0] == client]:
            del self._outages[key]

    def to_primary(self, client: str, entity: str, message: Message) -> None:
        """An application's send goes to the primary."""
        engaged_at = self._engaged_at(client, entity)
        if engaged_at is not None and self.kernel.now > engaged_at + _TOLERANCE:
            self.broken(
                "S3, S4", message.id, f"{client} sends to {entity}, for which failover engaged at {engaged_at:.3f} s"
            )

    def primary_answered(
        self, client: str, entity: str, messages: Iterable[Message], answer: ErrorFacts | None
    ) -> None:
        """An application's send to the primary has ended."""
        outage = self._outage(client, entity)
        if answer is not None:
            self._note_doubt(messages, answer)
            if answer.cause in _OUTAGES and outage.failing_since is None:
                outage.failing_since = self.kernel.now
        elif not self._is_engaged(client, entity):
            outage.failing_since = None

    def to_backlog(self, client: str, entity: str, queue: str, message: Message, queues: Sequence[str]) -> None:
        """An application's send goes to a backlog queue, one of these."""
        engaged_at = self._engaged_at(client, entity)
        if engaged_at is None or self.kernel.now < engaged_at - _TOLERANCE:
            self.broken("S3", message.id, f"{client} parks a message for {entity}, which is not failing over")
        barred = {name for name in queues if self.kernel.now < self._barred.get((client, name), 0.0) - _TOLERANCE}
        if queue in barred and len(barred) < len(queues):  # S13: unless all of them are
            self.broken("S5", message.id, f"{client} uses {queue}, which it pulled from the rotation a moment ago")

    def backlog_answered(
        self, client: str, queue: str, messages: Iterable[Message], answer: ErrorFacts | None, began: float
    ) -> None:
        """An application's send to a backlog queue has ended, which began then."""
        is_news = began >= self._barred.get((client, queue), 0.0) - _SHORTEST_COOL_DOWN - _TOLERANCE
        if answer is None:
            if is_news:
                self._barred.pop((client, queue), None)
            return
        self._note_doubt(messages, answer)
        if answer.cause is not Cause.BUSY and is_news:
            self._barred[client, queue] = self.kernel.now + _SHORTEST_COOL_DOWN

    def pinged(self, client: str, entity: str) -> None:
        """A client pings an entity."""
        outage, now = self._outage(client, entity), self.kernel.now
        engaged_at = self._engaged_at(client, entity)
        if engaged_at is None or now < engaged_at - _TOLERANCE:
            self.broken("G1", entity, f"{client} pings {entity}, which is not failing over")
            return
        waited = now - max(engaged_at, outage.last_ping if outage.last_ping is not None else engaged_at)
        longest = max(self.ping_interval, self.attempt_timeout)
        if not self.ping_interval - _TOLERANCE <= waited <= longest + _TOLERANCE:
            self.broken("G1", entity, f"{client} pings {entity} {waited:.3f} s after the last time or failover")
        outage.last_ping = now
        self.ping_count += 1

    def ping_answered(self, client: str, entity: str, answer: ErrorFacts | None) -> None:
        """A ping has ended."""
        if answer is None:
            self._outages[client, entity_key(entity)] = _Outage()

    # What brokers do

    def parked(self, origins: Iterable[Origin], messages: Iterable[Message]) -> None:
        """A backlog queue has stored messages."""
        self._stored.update(zip(origins, messages, strict=True))

    def arrived(self, entity: str, message: Message, origin: Origin | None) -> None:
        """A destination has stored a message, which came from a backlog queue or, with None, directly."""
        if message.id not in self.sent:
            self.broken("Y1", message.id, f"{message.id} appeared at {entity} and was never sent")
            return
        sent = self.sent[message.id]
        if message != sent.message or entity_key(entity) != entity_key(sent.entity):
            self.broken("E2", message.id, f"{message.id} arrived at {entity} changed: {message} was {sent.message}")
        self.arrivals[message.id] += 1
        self._carried_count += origin is not None
        if origin is not None and origin not in self._delivered:
            self._check_order(entity, message, origin)
            self._delivered[origin] = len(self._delivered)

    def _check_order(self, entity: str, message: Message, origin: Origin) -> None:
        session = message.label.session_id
        if session is None:
            return
        for other in self._delivered:
            if other.queue == origin.queue and _place(other) > _place(origin):
                later = self.sent.get(self._stored[other].id)
                if (
                    later is not None
                    and later.message.label.session_id == session
                    and entity_key(later.entity) == entity_key(entity)
                ):
                    self.broken("Y5", message.id, f"{message.id} arrived after {later.message.id} of its session")

    def completed(self, origin: Origin) -> None:
        """A message was removed from a backlog queue."""
        if origin not in self._delivered:
            about = self._stored[origin].id
            self.broken("Y1", about, f"{about} was removed from {origin.queue} before any broker had accepted it")

    def dead_lettered(self, message: Message, ruling: DeadLetter, *, allowed: bool) -> None:
        """A message was moved to a backlog queue's dead-letter queue."""
        self._dead[message.id] = ruling.reason
        self._dead_letters += 1
        if not allowed:
            self.broken("Y3", message.id, f"{message.id} was dead-lettered: {ruling.reason.value}")

    # What syphons do

    def carrying(self, syphon: str, messages: Iterable[Message]) -> None:
        """A syphon sends messages."""
        self._carried[syphon].update(message.id for message in messages)

    def carried(self, syphon: str, message: Message, answer: ErrorFacts | None) -> None:
        """A syphon was told that a message is completed, or not."""
        if answer is None:
            self._carried[syphon].discard(message.id)
            self._settled.add((syphon, message.id))
        elif (syphon, message.id) not in self._settled:  # it cannot complete twice what it sent twice for no reason
            self._may_repeat.add(message.id)
            if answer.cause is Cause.SETTLEMENT and not self._may_lose_locks:
                self.broken("Y4", message.id, f"{syphon} has lost the lock of {message.id}")

    def clock_stepped(self) -> None:
        """The secondary's clock was set: locks end sooner or later than was said."""
        self._clock_stepped_at = self.kernel.now

    @property
    def _may_lose_locks(self) -> bool:
        since = self.kernel.now - _LOCKS_LAST
        return self._clock_stepped_at > since or any(
            fault.begins <= self.kernel.now and fault.ends > since for fault in self.secondary_faults
        )

    def carry_failed(self, syphon: str, messages: Sequence[Message], answer: ErrorFacts) -> None:
        """A syphon was told that a destination did not take messages."""
        for message in messages:
            self._carried[syphon].discard(message.id)
        self._note_doubt(messages, answer)

    def syphon_crashed(self, syphon: str) -> None:
        """A syphon crashed; what it had sent and not completed will be sent again."""
        self._may_repeat |= self._carried.pop(syphon, set())

    # At the end

    def finish(self, left: Mapping[str, int], told: Counts) -> None:
        """Account for every message, once the faults are over and the syphon has run.

        :param left: backlog queues that are not empty, and how many messages each has.
        :param told: what the syphons say that they have done. An answer that was lost makes them say less.
        """
        if told.dead_lettered.total() > self._dead_letters or told.delivered > self._carried_count:
            self.broken("Y6", "the backlog", f"the syphons say that they have done more than brokers know of: {told}")
        for queue, count in left.items():
            self.broken("Y1", queue, f"{queue} still has {count} messages")
        for client, entity in self.failing_over:
            self.broken("G2", entity, f"{client} still fails over for {entity}")
        for about, sent in self.sent.items():
            arrived, dead = self.arrivals[about], about in self._dead
            match sent.fate:
                case KnownOutcome.ACCEPTED if not arrived and not dead:
                    self.broken("Y1", about, f"{about} was accepted and is missing")
                case KnownOutcome.REFUSED if arrived or dead:
                    self.broken("S5", about, f"{about} was refused and appeared all the same")
                case KnownOutcome.UNDER_WAY:
                    self.broken("S10", about, f"{about} is still under way")
                case _:
                    pass
            if arrived + dead > 1 and about not in self._may_repeat:
                self.broken("S7", about, f"{about} arrived {arrived} times, and every answer was heard")
        for about in self.foreign - self._dead.keys():
            self.broken("Y3", about, f"{about} has no destination and was not dead-lettered")

    def _note_doubt(self, messages: Iterable[Message], answer: ErrorFacts) -> None:
        if answer.in_doubt:
            self._may_repeat.update(message.id for message in messages)

    def _outage(self, client: str, entity: str) -> _Outage:
        return self._outages[client, entity_key(entity)]

    def _engaged_at(self, client: str, entity: str) -> float | None:
        since = self._outage(client, entity).failing_since
        return None if since is None else since + self.failover_interval

    def _is_engaged(self, client: str, entity: str) -> bool:
        engaged_at = self._engaged_at(client, entity)
        return engaged_at is not None and self.kernel.now >= engaged_at


def _place(origin: Origin) -> tuple[int, int]:
    return origin.creation, origin.sequence_number
