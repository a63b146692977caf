"""One send from the caller's hand to a broker's acceptance: which attempt comes next (S2 to S7, S10, S13, S14).

:class:`Sending` is the procedure without the I/O. Its driver asks :meth:`Sending.step` what to do, does it, and
reports how it ended, until the step is :class:`Done` or :class:`Failed`. The paired sender and the
simulation drive the same object.

Two deadlines are kept apart. An *attempt* has its own, the same for all (S10): if the broker has not answered by then,
that is a failure of the entity or of the backlog queue. The *caller's* time-out (:attr:`Sending.ends`) bounds the whole
send; if it ends while an attempt is under way, the driver reports :meth:`Sending.gave_up`, and nothing is held against
whoever was to answer: an impatient caller does not fail others over, nor pull a backlog queue for them. The attempt
itself goes on without the caller, and its end is noted by :func:`note_primary_failure` or :func:`note_backlog_failure`.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from pairbus.core.backoff import Backoff
from pairbus.core.health import ENGAGED, HEALTHY, Action, EntityHealth, Next
from pairbus.core.options import OnOutage
from pairbus.core.rotation import Rotation
from pairbus.core.verdict import Cause, Classify, ErrorFacts, Verdict, verdict_of
from pairbus.errors import BacklogUnavailableError, SendTimeoutError

HELD = Backoff(first=0.1, cap=2)
"""Between the attempts of a send that is held, and of one that tries queues which have failed (S13)."""

THROTTLED = Backoff(first=1, cap=30)
"""Between the attempts of a send that is throttled by a broker that does not say for how long."""

ABOUT_THE_MESSAGE = frozenset({Cause.TOO_LARGE, Cause.BAD_ARGUMENT, Cause.UNEXPECTED})
"""After these the backlog queue is in order, and another one would not take the message either."""


@dataclass(frozen=True, slots=True)
class ToPrimary:
    """Send the messages from the ``first`` on, untouched, to the primary entity; the attempt ends by ``deadline``."""

    deadline: float
    first: int = 0


@dataclass(frozen=True, slots=True)
class ToBacklog:
    """Park messages from the ``first`` on, as many as fit in one batch; the attempt ends by ``deadline``."""

    queue: str
    deadline: float
    first: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until then, or until the entity's health changes, whichever comes first."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """Brokers have accepted all messages.

    :ivar parked_in: the backlog queue that has the last of them, None when the primary has it.
    :ivar in_doubt: an earlier attempt was never answered, so a message may have arrived twice.
    :ivar parked: how many were parked, the first ones; the primary has the others.
    """

    parked_in: str | None
    in_doubt: bool
    parked: int = 0


TAKEN: Final = Done(None, in_doubt=False)
"""The primary has taken it at once."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No broker has accepted the messages that are missing, as far as is known.

    :ivar in_doubt: an attempt was never answered, so they may have arrived all the same.
    :ivar parked: how many were parked before it failed, the first ones; the others are missing (S14).
    """

    error: BaseException
    in_doubt: bool
    parked: int = 0


Step: TypeAlias = ToPrimary | ToBacklog | Pause | Done | Failed


@dataclass(slots=True)
class BacklogChoice:
    """The backlog queue that one sender has picked and keeps (S5)."""

    queue: str | None = None


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """The options of a pairing that a send needs; durations in seconds."""

    attempt_timeout: float
    on_outage: OnOutage = "hold"
    classify: Classify = verdict_of


def note_primary_failure(health: EntityHealth, policy: SendPolicy, facts: ErrorFacts, now: float) -> tuple[Action, ...]:
    """Note how an attempt at the primary failed whose caller may have gone."""
    if policy.classify(facts) is not Verdict.OUTAGE:
        return ()
    return health.attempt_failed(now, facts.error, did_not_fit=facts.did_not_fit, answered=facts.answered)


def note_backlog_failure(rotation: Rotation, queue: str, facts: ErrorFacts, *, began: float, now: float) -> None:
    """Note how an attempt at a backlog queue failed whose caller may have gone."""
    if facts.cause not in ABOUT_THE_MESSAGE and facts.cause is not Cause.BUSY:
        rotation.pull(queue, now, began=began, error=facts.error)


@dataclass(slots=True)
class Sending:
    """One send of one message, list or batch to one entity.

    :param timeout: the caller's, bounding the whole in seconds; None: no bound but the pairing's own.
    :param count: how many messages it sends.
    """

    health: EntityHealth
    rotation: Rotation
    choice: BacklogChoice
    policy: SendPolicy
    random: Random
    started: float
    timeout: float | None = None
    count: int = 1
    parked: int = field(default=0, init=False)
    """How many are parked, the first ones: they are not sent again (S14)."""
    in_doubt: bool = field(default=False, init=False)
    """Whether an attempt was never answered, so that messages which are missing may have arrived (S7)."""
    _pause: Pause | None = field(default=None, init=False)
    _outcome: Done | Failed | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _began: float = field(default=0.0, init=False)
    _retries_end: float | None = field(default=None, init=False)
    """Until when queues that have failed are tried again (S13). It is set when none is in play for the first time, and
    forgotten when a queue takes something."""
    _retries: int = field(default=0, init=False)
    _primary_cause: BaseException | None = field(default=None, init=False)
    _backlog_cause: BaseException | None = field(default=None, init=False)

    @property
    def ends(self) -> float | None:
        """When the caller's time is over; None: never."""
        return None if self.timeout is None else self.started + self.timeout

    def step(self, now: float) -> Step:
        """Return what to do next."""
        if self._outcome is not None:
            return self._outcome
        if self.timeout is not None and now >= self.started + self.timeout:
            return self._fail(self._timed_out(self.timeout))
        if self._pause is not None and now < self._pause.until:
            return self._pause
        self._pause, self._began = None, now
        deadline = now + self.policy.attempt_timeout
        if self.health.state is not ENGAGED:
            self._retries_end = None
            return ToPrimary(deadline, self.parked)
        queue = self._next_queue(now)
        if queue is None:
            return self._fail(BacklogUnavailableError(self.health.entity, *self._causes(), maybe_sent=self.in_doubt))
        return ToBacklog(queue, deadline, self.parked)

    def _next_queue(self, now: float) -> str | None:
        queue = self.choice.queue = self.rotation.choose(self.choice.queue, now)
        if queue is not None:
            return queue
        if self._retries_end is None:
            self._retries_end = self.ends if self.ends is not None else now + self.policy.attempt_timeout
        if now >= self._retries_end:
            return None
        self._retries += 1
        return self.rotation.longest_resting()

    def health_changed(self) -> None:
        """Note that the entity's failover has engaged or ended: a send that is held need not wait longer."""
        self._pause = None

    def gave_up(self, *, begun: bool) -> None:
        """Note that the caller's time ended in the midst of an attempt.

        :param begun: whether anything of the attempt may have been sent.
        """
        assert self.timeout is not None  # noqa: S101 (only a caller's time-out ends like this)
        self.in_doubt = self.in_doubt or begun
        self._fail(self._timed_out(self.timeout))

    def primary_accepted(self) -> tuple[Action, ...]:
        """Note that the primary took the messages that were missing."""
        self._outcome = Done(None, self.in_doubt, self.parked) if self.in_doubt or self.parked else TAKEN
        return self.health.attempt_accepted() if self.health.state is not HEALTHY else ()

    def primary_failed(self, facts: ErrorFacts, now: float) -> tuple[Action, ...]:
        """Note how an attempt at the primary failed."""
        self._note(facts)
        self._primary_cause = facts.error
        verdict = self.policy.classify(facts)
        if verdict is Verdict.CALLERS:
            self._fail(facts.error)
            return ()
        if verdict is Verdict.BUSY:
            self._wait_as_told(facts, now)
            return ()
        actions = self.health.attempt_failed(now, facts.error, did_not_fit=facts.did_not_fit, answered=facts.answered)
        then = self.health.after_failure(self.policy.on_outage)
        if then is Next.RAISE:
            self._fail(facts.error)
        elif then is Next.RETRY:
            self._pause = Pause(self._bounded(now + HELD.pause(self._failures, self.random)))
        return actions

    def backlog_accepted(self, queue: str, count: int = 1) -> None:
        """Note that a backlog queue took so many of the messages that were missing."""
        self.rotation.accepted(queue, began=self._began)
        self.parked += count
        self._retries_end, self._retries = None, 0
        if self.parked >= self.count:
            self._outcome = Done(queue, self.in_doubt, self.parked)

    def backlog_failed(self, queue: str, facts: ErrorFacts, now: float) -> None:
        """Note how an attempt at a backlog queue failed."""
        self._note(facts)
        self._backlog_cause = facts.error
        note_backlog_failure(self.rotation, queue, facts, began=self._began, now=now)
        if facts.cause in ABOUT_THE_MESSAGE:
            self._fail(facts.error)
        elif facts.cause is Cause.BUSY:
            self._retries_end = None  # it is there, and will take the message later
            self._wait_as_told(facts, now)
        elif self._retries:
            self._pause = Pause(self._bounded(now + HELD.pause(self._retries, self.random)))

    def _note(self, facts: ErrorFacts) -> None:
        self._failures += 1
        self.in_doubt = self.in_doubt or facts.in_doubt

    def _wait_as_told(self, facts: ErrorFacts, now: float) -> None:
        told = facts.retry_after
        pause = told.total_seconds() if told is not None else THROTTLED.pause(self._failures, self.random)
        self._pause = Pause(self._bounded(now + pause))

    def _bounded(self, until: float) -> float:
        return until if self.timeout is None else min(until, self.started + self.timeout)

    def _fail(self, error: BaseException) -> Failed:
        failed = Failed(error, self.in_doubt, self.parked)
        self._outcome = failed
        return failed

    def _timed_out(self, timeout: float) -> SendTimeoutError:
        return SendTimeoutError(self.health.entity, timeout, *self._causes(), maybe_sent=self.in_doubt)

    def _causes(self) -> tuple[BaseException | None, BaseException | None]:
        """What the primary and the backlog last failed with: in this send, or else in others before it."""
        primary = self._primary_cause or self.health.last_failure
        if self._backlog_cause is not None or self._retries_end is None:
            return primary, self._backlog_cause
        return primary, self.rotation.last_failure
