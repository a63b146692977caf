"""One burst of parked messages, from receipt to settlement (Y1, Y3, Y4, Y5), without the I/O.

:mod:`pairbus.core.moving` asks :func:`plan` what to do with the messages that were received. Those for one destination,
session and partition key are :class:`OrderedMessages`, whose batches are sent one after the other, so that their order
holds; batches of different ones are sent at the same time.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Generic, TypeAlias, TypeVar

from pairbus.core.envelope import PATH, SESSION_ID, Label
from pairbus.core.naming import entity_key
from pairbus.core.routing import DeadLetter, Deliver, Destinations, Ruling, Wait, WaitReason, route
from pairbus.core.verdict import Cause, ErrorFacts

_sequence_number = attrgetter("sequence_number")
_size = attrgetter("size")

EARLIER_PAUSE = 1.0
"""How long, in seconds, a message waits before it is looked at whether the earlier ones of its session are gone."""
REMEMBERED = 100_000
"""How many messages are remembered that were sent and could not be completed."""
REMEMBERED_SECONDS = 24 * 3600.0
"""For how long they are remembered. A message comes back when its lock ends, or when its queue can be reached again."""


@dataclass(slots=True)
class Parked:
    """One message of a backlog queue.

    :ivar sequence_number: counts from 1 again in a queue that was deleted and created again.
    :ivar size: its encoded size in bytes.
    :ivar enqueued_at: when the backlog queue took it, if the broker says so.
    """

    sequence_number: int
    label: Label
    size: int = 0
    partition_key: str | None = None
    enqueued_at: datetime | None = None
    _routed: Deliver | DeadLetter | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def message_id(self) -> object:
        """The id that its sender gave it, of whatever type; None: it has none, or that is not known."""
        return None

    @property
    def routed(self) -> Deliver | DeadLetter:
        """What its label says is to be done with it."""
        if self._routed is None:
            self._routed = route(self.label)
        return self._routed

    @property
    def destination(self) -> str:
        """Where it belongs; empty if it does not say so."""
        routed = self.routed
        if isinstance(routed, Deliver):
            return routed.destination
        named = self.label.application_properties.get(PATH)
        return named if isinstance(named, str) else ""

    @property
    def unparked(self) -> Label:
        """The label with which it is delivered, if it is."""
        routed = self.routed
        assert isinstance(routed, Deliver)  # noqa: S101 (nothing else is sent)
        return routed.label

    @property
    def names_session(self) -> bool:
        """Whether its label says that it is of a session; most are not, and need not be unparked to see it."""
        properties = self.label.application_properties
        return SESSION_ID in properties or SESSION_ID.encode() in properties


@dataclass(slots=True, eq=False, kw_only=True)
class LockedMessage(Parked):
    """A message of a backlog queue that was received under lock."""

    locked_until: datetime


P = TypeVar("P", bound=Parked)
L = TypeVar("L", bound=LockedMessage)


@dataclass(frozen=True, slots=True)
class Decided(Generic[P]):
    """A message that is not sent, and what becomes of it instead."""

    parked: P
    ruling: Ruling


@dataclass(slots=True)
class OrderedMessages(Generic[P]):
    """The messages of a burst for one destination that must keep their order, sent in batches."""

    destination: str
    batch_limit: int
    _waiting: list[P] = field(default_factory=list[P], init=False)
    _one_by_one: int = field(default=0, init=False)

    def add(self, message: P) -> None:
        """Append a message."""
        self._waiting.append(message)

    def next_batch(self) -> Sequence[P]:
        """Return the messages to send now, none when all are done. The same until told how it ended."""
        if self._one_by_one:
            return self._waiting[:1]
        if sum(map(_size, self._waiting)) <= self.batch_limit:
            return self._waiting[:]  # as a rule
        end = total = 0
        for message in self._waiting:
            total += message.size
            if end and total > self.batch_limit:
                break
            end += 1
        return self._waiting[:end]

    def accepted(self, batch: Sequence[P], destinations: Destinations) -> None:
        """Note that the destination took the batch; its messages may be completed."""
        destinations.accepted(self.destination)
        self._drop(len(batch))

    def failed(
        self, batch: Sequence[P], facts: ErrorFacts, destinations: Destinations, now: float
    ) -> Sequence[Decided[P]]:
        """Note how a batch failed, and return the messages about which that decides."""
        about_one_message = facts.cause in (Cause.TOO_LARGE, Cause.BAD_ARGUMENT)
        if about_one_message and len(batch) > 1:
            self._one_by_one = len(batch)  # one of them is at fault; the others are good
            return ()
        ruling = destinations.failed(self.destination, facts, now)
        if about_one_message:
            self._drop(1)
            return [Decided(batch[0], ruling)]
        decided = [Decided(message, ruling) for message in self._waiting]
        self._drop(len(decided))
        return decided

    def _drop(self, count: int) -> None:
        del self._waiting[:count]
        self._one_by_one = max(0, self._one_by_one - count)


@dataclass(frozen=True, slots=True)
class Plan(Generic[P]):
    """What to do with a burst.

    :ivar sent_before: messages that an earlier burst of this syphon sent and could not complete: complete them.
    :ivar decided: messages that wait or are dead-lettered.
    :ivar ordered: messages to send.
    """

    sent_before: Sequence[P]
    decided: Sequence[Decided[P]]
    ordered: Sequence[OrderedMessages[P]]


class WaitingMessages(Generic[L]):
    """Messages that wait, kept under their locks so that those behind them in the queue come forward (Y3).

    A message that was put back at once would come again at once, at the head of its queue. One whose time has
    come is put back, to be received again; one whose lock runs out while it waits comes back by itself.

    :param room: how many messages may wait before no more are received.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._waits: dict[int, tuple[L, Wait]] = {}

    def put(self, message: L, ruling: Wait) -> None:
        """Let a message wait."""
        self._waits[message.sequence_number] = message, ruling

    def take_due(self, now: float) -> list[L]:
        """Take out the messages that have waited long enough."""
        due = [message for message, ruling in self._waits.values() if ruling.until <= now]
        self.forget(map(_sequence_number, due))
        return due

    def forget(self, sequence_numbers: Iterable[int]) -> None:
        """Take out messages whose locks ran out and which were received again."""
        if self._waits:
            for number in sequence_numbers:
                self._waits.pop(number, None)

    def messages(self) -> Iterable[tuple[L, WaitReason]]:
        """Return the messages, and why each waits."""
        return ((message, ruling.reason) for message, ruling in self._waits.values())

    @property
    def wake_at(self) -> float:
        """When the first message is due; infinite: none waits."""
        return min((ruling.until for _, ruling in self._waits.values()), default=math.inf)

    @property
    def full(self) -> bool:
        """Whether no more messages should be received."""
        return len(self._waits) >= self._room


class RememberedMessages:
    """Messages of one backlog queue that a syphon remembers from one burst to the next.

    A sequence number does not identify a message: in a queue that is deleted and created again the numbers begin at 1
    again, and a new message would be taken for the one that had its number in the old queue. Completed because that
    one was sent, it would be lost. So a message is the same only if its sequence number, its enqueued time and its
    message id are all the same. One with neither a time nor an id is not remembered: sent twice is better than lost.

    :param most: how many are remembered; the ones that were added first are forgotten first.
    :param seconds: for how long each is remembered.
    """

    def __init__(self, most: int = REMEMBERED, seconds: float = REMEMBERED_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._known: dict[tuple[int, datetime | None], tuple[object, float]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, messages: Iterable[Parked], now: float) -> None:
        """Remember messages from now on."""
        for message in messages:
            message_id = message.message_id
            if message.enqueued_at is None and message_id is None:
                continue
            self.discard(message)
            self._known[message.sequence_number, message.enqueued_at] = message_id, now + self._seconds
        self._forget_the_first(now)

    def has(self, message: Parked, now: float) -> bool:
        """Tell whether this very message is remembered."""
        known = self._known.get((message.sequence_number, message.enqueued_at))
        return known is not None and known[1] > now and known[0] == message.message_id

    def discard(self, message: Parked) -> None:
        """Forget a message, if it is remembered."""
        self._known.pop((message.sequence_number, message.enqueued_at), None)

    def _forget_the_first(self, now: float) -> None:
        while self._known:
            first = next(iter(self._known))
            if len(self._known) <= self._most and self._known[first][1] > now:
                return
            del self._known[first]


_Session: TypeAlias = tuple[str, str]


def keeps_order(burst: Iterable[Parked]) -> bool:
    """Tell whether the burst has messages of sessions, so that :func:`plan` needs to know what else is there (Y5)."""
    return any(message.names_session and _session_of(message) is not None for message in burst)


def plan(
    burst: Iterable[P],
    *,
    others: Iterable[Parked] = (),
    sent_before: RememberedMessages | None = None,
    destinations: Destinations,
    batch_limit: int,
    now: float,
) -> Plan[P]:
    """Plan a burst.

    :param others: what a browse of the queue shows beside the burst, up to the burst's last message: messages
        under another syphon's lock, or under that of one that crashed. A message of a session waits for the
        earlier ones of its session, whoever has them (Y5).
    :param sent_before: the messages that this syphon has sent and not yet completed.
    """
    messages = sorted(burst, key=_sequence_number)
    earliest = _earliest(others, set(map(_sequence_number, messages))) if others else {}
    done: list[P] = []
    decided: list[Decided[P]] = []
    ordered: dict[tuple[str, str | None, str | None], OrderedMessages[P]] = {}
    last: tuple[Deliver, str | None, OrderedMessages[P]] | None = None
    for message in messages:
        if sent_before and sent_before.has(message, now):
            done.append(message)
            continue
        routed = message.routed
        if last is not None and routed is last[0] and message.partition_key == last[1]:
            last[2].add(message)  # as the one before it
            continue
        if isinstance(routed, DeadLetter):
            decided.append(Decided(message, routed))
            continue
        key = entity_key(routed.destination)
        session = routed.label.session_id
        set_aside = destinations.set_aside_until(routed.destination, now)
        if set_aside is not None:
            decided.append(Decided(message, Wait(WaitReason.SET_ASIDE, set_aside)))
        elif session is not None and earliest.get((key, session), message.sequence_number) < message.sequence_number:
            decided.append(Decided(message, Wait(WaitReason.EARLIER, now + EARLIER_PAUSE)))
        else:
            same = ordered.get((key, session, message.partition_key))
            if same is None:
                same = ordered[key, session, message.partition_key] = OrderedMessages[P](
                    routed.destination, batch_limit
                )
            same.add(message)
            if session is None:
                last = routed, message.partition_key, same
    return Plan(done, decided, tuple(ordered.values()))


def _earliest(others: Iterable[Parked], own: Collection[int]) -> dict[_Session, int]:
    """Return the first message of each session that another mover has."""
    earliest: dict[_Session, int] = {}
    for message in others:
        session = _session_of(message)
        if session is not None and message.sequence_number not in own:
            earliest[session] = min(earliest.get(session, message.sequence_number), message.sequence_number)
    return earliest


def _session_of(message: Parked) -> _Session | None:
    if not message.names_session:
        return None
    routed = message.routed
    if not isinstance(routed, Deliver) or routed.label.session_id is None:
        return None
    return entity_key(routed.destination), routed.label.session_id
