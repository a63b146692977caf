"""How the messages of one backlog queue get home: the mover's steps, without the I/O (Y1 to Y5).

:class:`Moving` is the procedure. Its driver asks :meth:`Moving.steps` what is to be done now, does all of it at the
same time, and reports each step as it ends; a step that ends may let others begin. ``syphon/mover.py`` drives it over a
transport, in the application and in a Spark task, and ``simulate/syphon.py`` drives the same object through simulated
time. A driver decides nothing: not what comes first, and not what a failure means.

One burst goes like this; every line is a step, and steps that do not wait for each other run at the same time:

1. ``Settle(..., "abandon")`` messages that have waited long enough, so that they can be received again.
2. ``Receive`` a burst under lock.
3. ``Browse`` the queue, only if the burst has messages of sessions: one may have to wait for an earlier message of its
   session that another mover holds (Y5).
4. :func:`~pairbus.core.burst.plan` sorts the burst. What waits is kept under its lock, what can never be delivered is
   dead-lettered, and the others are sent: one ``Send`` at a time for each destination, session and partition key.
5. ``Renew`` the locks of all messages that are under way, each time a third of a lock's time has passed (Y4).
6. ``Account`` for messages that a destination has accepted: their records must be kept before they leave the backlog.
7. ``Settle(..., "complete")`` them, only then (Y1). All that were sent while others were being completed are accounted
   for and completed together.

The burst is over when no step is under way and none is left to begin; then the next one is received. What fails:

============  ==========================================================================================================
step          what a failure means
============  ==========================================================================================================
Receive       the queue is tried again after ``retry_interval``; a drain gives up when it has failed for ``patience``
Browse        the whole burst waits: without it the order of sessions cannot be kept
Send          :mod:`pairbus.core.routing` decides: the messages wait, or are dead-lettered. Without an answer they may
              have arrived, and count as suspected duplicates when they are delivered later
Account       nothing is completed that cannot be accounted for, and nothing more of this burst is sent
complete      the message comes again when its lock ends. It is remembered, and is then completed without being sent
dead-letter   the message waits and is dead-lettered the next time
Renew         nothing: if the lock is lost, the completion fails
abandon       nothing: the message comes again when its lock ends
============  ==========================================================================================================

What a :class:`Moving` remembers may be lost at any time: a message that was sent and not completed is then sent again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from pairbus.core.burst import (
    Decided,
    LockedMessage,
    OrderedMessages,
    Parked,
    RememberedMessages,
    WaitingMessages,
    keeps_order,
    plan,
)
from pairbus.core.forecast import LONG_POLL
from pairbus.core.reconciliation import Reconciliation
from pairbus.core.routing import DeadLetter, Destinations, Wait, WaitReason
from pairbus.core.verdict import ErrorFacts

BURST: Final = 200
BATCH_BYTES: Final = 240 * 1024
"""The most that is sent at once: the least of the tiers takes 256 KB, and a batch adds a few bytes to each message."""
LONGEST_RENEWAL: Final = 20.0
SHORTEST_RENEWAL: Final = 1.0

P = TypeVar("P", bound=LockedMessage)

_sequence_number = attrgetter("sequence_number")
_locked_until = attrgetter("locked_until")
_enqueued_at = attrgetter("enqueued_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much a mover does at once.

    :ivar burst: how many messages are received at once, which bounds its memory.
    :ivar batch_bytes: how large a batch may be.
    :ivar room: how many messages may wait under lock while those behind them are looked at.
    :ivar retry_interval: how long, in seconds, a queue is left alone that failed.
    """

    burst: int = BURST
    batch_bytes: int = BATCH_BYTES
    room: int = 2 * BURST
    retry_interval: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a mover ends by itself.

    :ivar quota: after so many messages.
    :ivar seconds: after so long, and the burst that is then under way.
    :ivar wait: how long one receive waits for messages, in seconds (Y2).
    :ivar until_empty: when no message comes that is not waiting already.
    :ivar patience: with ``until_empty``, for how many seconds a queue that fails is tried again.
    """

    quota: float = math.inf
    seconds: float = math.inf
    wait: float = LONG_POLL
    until_empty: bool = False
    patience: float = 30.0


Settlement: TypeAlias = Literal["complete", "abandon"] | DeadLetter
"""How a receiver ends with a message: remove it, put it back, or move it to the dead-letter queue."""


@dataclass(slots=True, eq=False)
class Receive:
    """Receive up to ``most`` messages under lock, waiting up to ``wait`` seconds for the first."""

    most: int
    wait: float


@dataclass(slots=True, eq=False)
class Browse:
    """Look at all messages of the queue up to this sequence number, those under lock too."""

    up_to: int


@dataclass(slots=True, eq=False)
class Send(Generic[P]):
    """Send messages, all or none, with the labels that they had before they were parked."""

    ordered: OrderedMessages[P]
    messages: Sequence[P]


@dataclass(slots=True, eq=False)
class Account(Generic[P]):
    """Have it kept that these messages were delivered."""

    messages: Sequence[P]


@dataclass(slots=True, eq=False)
class Settle(Generic[P]):
    """End with messages; a destination is named if all of them belong there."""

    messages: Sequence[P]
    settlement: Settlement
    destination: str | None = None


@dataclass(slots=True, eq=False)
class Renew(Generic[P]):
    """Renew the locks of messages."""

    messages: Sequence[P]


Step: TypeAlias = Receive | Browse | Send[P] | Account[P] | Settle[P] | Renew[P]


class Moving(Generic[P]):
    """Moves the messages of one backlog queue, from :meth:`begin` until :attr:`ended`, and may begin again.

    Times are seconds of a monotonic clock; ``utc`` is compared with what the broker says about locks.

    :param destinations: what is known about the destinations, shared by all movers of a process.
    """

    def __init__(self, destinations: Destinations, pace: Pace) -> None:
        self.received_count = 0
        """How many messages were received since it began."""
        self.completing: Sequence[P] = ()
        """Messages that were delivered and are being accounted for or completed."""
        self.problem: Exception | None = None
        """Why the last attempt failed at what is no fault of a destination; None: it did not."""
        self.ended = True
        self.wake_at = math.inf
        """When :meth:`steps` has something new although nothing has ended."""
        self._destinations = destinations
        self._pace = pace
        self._limits = Limits()
        self._ends = math.inf
        self._stopped = False
        self._failing_since: float | None = None
        self._retry_at = -math.inf
        self._waiting = WaitingMessages[P](pace.room)
        self._sent = RememberedMessages()
        """What was sent and could not be completed."""
        self._doubtful = RememberedMessages()
        """What may have arrived already: no answer came to a send, or it was sent and could not be completed."""
        self._counted = Reconciliation()
        self._burst: dict[int, P] = {}
        """The messages that are under way, whose locks are kept."""
        self._next: list[Step[P]] = []
        """What is to begin."""
        self._begun: set[Step[P]] = set()
        """What has begun and has not ended."""
        self._delivered: list[P] = []
        """What was sent and is to be accounted for."""
        self._renewal_period = LONGEST_RENEWAL
        self._renew_at = math.inf
        self._burst_failed = False

    def begin(self, now: float, limits: Limits) -> None:
        """Begin, or begin again where it ended."""
        self._limits = limits
        self._ends = now + limits.seconds
        self.received_count = 0
        self.ended = self._stopped = False
        self._failing_since = None

    def stop(self) -> None:
        """End as soon as the burst that is under way is finished."""
        self._stopped = True

    def interrupt(self, now: float) -> None:
        """Note that the driver ends in the midst of steps: what was sent and not completed is remembered."""
        self._sent.add([*self.completing, *self._delivered], now)
        self._next.clear()
        self._begun.clear()
        self._end_burst()
        self.ended = True

    def steps(self, now: float, utc: datetime) -> Sequence[Step[P]]:
        """Return the steps that are to begin now. Ask again when one has ended, and at :attr:`wake_at`."""
        if self._delivered and not self.completing:
            self.completing, self._delivered = self._delivered, []
            self._next.append(Account(self.completing))
        if not self._next and not self._begun:
            self._end_burst()
            self._next.extend(self._between_bursts(now, utc))
        elif self._burst and now >= self._renew_at:
            self._next.append(Renew(list(self._burst.values())))
            self._renew_at = math.inf  # until this renewal has ended
        if self._begun or self._next:
            self.wake_at = self._renew_at if self._burst else math.inf
        steps, self._next = self._next, []
        self._begun.update(steps)
        return steps

    def reconciliation(self) -> Reconciliation:
        """Tell what was done so far, and what waits."""
        told = Reconciliation()
        told.add(self._counted)
        for message, reason in self._waiting.messages():
            counts = told.of(message.destination)
            counts.waiting[reason] += 1
            counts.note_age(message.enqueued_at)
        return told

    def release(self, utc: datetime) -> Settle[P] | None:
        """Let go of what waits, once it has ended, so that other movers can have it: put back what this returns."""
        return self._put_back(math.inf, utc)

    # --- between bursts ------------------------------------------------------------------------------------------

    def _end_burst(self) -> None:
        self._burst.clear()
        self._delivered, self.completing = [], ()
        self._renew_at = math.inf
        self._burst_failed = False

    def _between_bursts(self, now: float, utc: datetime) -> Sequence[Step[P]]:
        limits = self._limits
        if self._stopped or now >= self._ends or self.received_count >= limits.quota or self._is_out_of_patience(now):
            self.ended = True
        if self.ended:
            return ()
        if now < self._retry_at:
            self.wake_at = min(self._retry_at, self._ends)
            return ()
        put_back = self._put_back(now, utc)
        if put_back is not None:
            return (put_back,)
        self.wake_at = min(self._waiting.wake_at, self._ends)
        if self._waiting.full:
            self.ended = limits.until_empty
            return ()
        most = min(self._pace.burst, limits.quota - self.received_count)
        return (Receive(int(most), max(0.0, min(limits.wait, self.wake_at - now))),)

    def _is_out_of_patience(self, now: float) -> bool:
        since, limits = self._failing_since, self._limits
        return since is not None and limits.until_empty and now - since >= limits.patience

    def _put_back(self, now: float, utc: datetime) -> Settle[P] | None:
        due = self._waiting.take_due(now)
        locked = [message for message in due if message.locked_until > utc]  # the others are back already
        return Settle(locked, "abandon") if locked else None

    # --- a burst is received -------------------------------------------------------------------------------------

    def received(self, step: Receive, messages: Sequence[P], now: float, utc: datetime) -> None:
        """Note what was received."""
        self._begun.remove(step)
        self.problem = self._failing_since = None
        if not messages:
            self.ended = self._limits.until_empty
            return
        self.received_count += len(messages)
        self._burst = dict(zip(map(_sequence_number, messages), messages, strict=True))
        self._waiting.forget(self._burst)  # one whose lock ran out while it waited may be here again
        third = (min(map(_locked_until, messages)) - utc).total_seconds() / 3
        self._renewal_period = min(LONGEST_RENEWAL, max(SHORTEST_RENEWAL, third))
        self._renew_at = now + self._renewal_period
        if keeps_order(messages):
            self._next.append(Browse(max(self._burst)))
        else:
            self._plan((), now)

    def browsed(self, step: Browse, others: Iterable[Parked], now: float) -> None:
        """Note what is in the queue, the burst included."""
        self._begun.remove(step)
        self._plan(others, now)

    def _plan(self, others: Iterable[Parked], now: float) -> None:
        planned = plan(
            self._burst.values(),
            others=others,
            sent_before=self._sent,
            destinations=self._destinations,
            batch_limit=self._pace.batch_bytes,
            now=now,
        )
        for ordered in planned.ordered:
            self._send_next(ordered)
        self._delivered.extend(planned.sent_before)
        self._decide(planned.decided)

    # --- sending -------------------------------------------------------------------------------------------------

    def _send_next(self, ordered: OrderedMessages[P]) -> None:
        batch = ordered.next_batch()
        if batch and not self._burst_failed:
            self._next.append(Send(ordered, batch))

    def sent(self, step: Send[P], now: float) -> None:
        """Note that a destination has accepted messages."""
        self._begun.remove(step)
        ordered, messages = step.ordered, step.messages
        ordered.accepted(messages, self._destinations)
        counts = self._counted.of(ordered.destination)
        counts.delivered += len(messages)
        counts.note_age(oldest(messages))
        if self._doubtful:
            for message in messages:
                if self._doubtful.has(message, now):
                    self._doubtful.discard(message)
                    counts.duplicates_suspected += 1
        self._delivered.extend(messages)
        self._send_next(ordered)

    def send_failed(self, step: Send[P], facts: ErrorFacts, now: float) -> None:
        """Note that a destination has not accepted messages, or has not answered."""
        self._begun.remove(step)
        if facts.in_doubt:
            self._doubtful.add(step.messages, now)
        self._decide(step.ordered.failed(step.messages, facts, self._destinations, now))
        self._send_next(step.ordered)

    def _decide(self, decided: Iterable[Decided[P]]) -> None:
        """Let messages wait, or have them dead-lettered."""
        dead: dict[tuple[DeadLetter, str], list[P]] = {}
        for each in decided:
            if isinstance(each.ruling, DeadLetter):
                dead.setdefault((each.ruling, each.parked.destination), []).append(each.parked)
            else:
                self._wait(each.parked, each.ruling)
        for (ruling, destination), messages in dead.items():
            self._next.append(Settle(messages, ruling, destination or None))

    def _wait(self, message: P, ruling: Wait) -> None:
        self._burst.pop(message.sequence_number, None)
        self._waiting.put(message, ruling)

    # --- settling ------------------------------------------------------------------------------------------------

    def accounted(self, step: Account[P]) -> None:
        """Note that it is kept that messages were delivered: they may be completed."""
        self._begun.remove(step)
        self._next.append(Settle(step.messages, "complete"))

    def settled(self, step: Settle[P], answers: Sequence[Exception | None], now: float) -> None:
        """Note how messages were settled; None: well."""
        self._begun.remove(step)
        if step.settlement == "complete":
            self._completed(step.messages, answers, now)
        elif isinstance(step.settlement, DeadLetter):
            self._dead_lettered(step, step.settlement, answers, now)

    def renewed(self, step: Renew[P], now: float) -> None:
        """Note that locks were renewed, or that it was tried."""
        self._begun.remove(step)
        self._renew_at = now + self._renewal_period

    def _completed(self, messages: Sequence[P], answers: Sequence[Exception | None], now: float) -> None:
        self.completing = ()
        left = [message for message, error in zip(messages, answers, strict=True) if error is not None]
        self._sent.add(left, now)  # they come again, and are not sent again
        for number in map(_sequence_number, messages):
            self._burst.pop(number, None)
        if left or self._sent or self._doubtful:
            for message, error in zip(messages, answers, strict=True):
                self._note_completed(message, error, now)

    def _note_completed(self, message: P, error: Exception | None, now: float) -> None:
        if error is None:
            self._sent.discard(message)
            self._doubtful.discard(message)
        elif not self._doubtful.has(message, now):  # it may come to another syphon, which would send it
            self._doubtful.add([message], now)
            self._counted.of(message.destination).duplicates_suspected += 1

    def _dead_lettered(
        self, step: Settle[P], ruling: DeadLetter, answers: Sequence[Exception | None], now: float
    ) -> None:
        for message, error in zip(step.messages, answers, strict=True):
            if error is not None:
                self._wait(message, self._again(now))
                continue
            self._burst.pop(message.sequence_number, None)
            counts = self._counted.of(message.destination)
            counts.dead_lettered[ruling.reason] += 1
            counts.note_age(message.enqueued_at)

    def _again(self, now: float) -> Wait:
        return Wait(WaitReason.UNEXPECTED, now + self._pace.retry_interval)

    # --- what fails ----------------------------------------------------------------------------------------------

    def failed(self, step: Step[P], error: Exception, now: float) -> None:
        """Note that a step could not be done at all, for a reason that says nothing about a destination."""
        self._begun.remove(step)
        if isinstance(step, Browse):
            for message in list(self._burst.values()):
                self._wait(message, self._again(now))
            return
        self.problem = error
        self._retry_at = now + self._pace.retry_interval
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._burst_failed = True
        if isinstance(step, Account | Settle) and self.completing is step.messages:
            self._sent.add(step.messages, now)
            self.completing = ()


def oldest(messages: Iterable[Parked]) -> datetime | None:
    """Return when the oldest of messages was parked, if any of them says so."""
    parked_at: Iterable[datetime] = filter(None, map(_enqueued_at, messages))
    return min(parked_at, default=None)
