"""One send from the caller's hand to a broker's acceptance: which attempt comes next (S2 to S7, S10).

:class:`Sending` is the procedure without the I/O. Its driver asks :meth:`Sending.step` what to do, does it, and
reports how it ended, until the step is :class:`Done` or :class:`Failed`. The paired sender and the
simulation drive the same object.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from pairbus.core.backoff import Backoff
from pairbus.core.health import Action, EntityHealth, Next
from pairbus.core.options import OnOutage
from pairbus.core.rotation import Rotation
from pairbus.core.verdict import Cause, Classify, ErrorFacts, Verdict, verdict_of
from pairbus.errors import BacklogUnavailableError, SendTimeoutError

HELD = Backoff(first=0.1, cap=2)
"""Between the attempts of a send that is held."""

THROTTLED = Backoff(first=1, cap=30)
"""Between the attempts of a send that is throttled by a broker that does not say for how long."""

ABOUT_THE_MESSAGE = frozenset({Cause.TOO_LARGE, Cause.BAD_ARGUMENT, Cause.UNEXPECTED})
"""After these the backlog queue is in order, and another one would not take the message either."""


@dataclass(frozen=True, slots=True)
class ToPrimary:
    """Send the message, untouched, to the primary entity; the attempt ends by ``deadline``."""

    deadline: float


@dataclass(frozen=True, slots=True)
class ToBacklog:
    """Send the parked message to this backlog queue; the attempt ends by ``deadline``."""

    queue: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until then, or until the entity's health changes, whichever comes first."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """A broker has accepted the message.

    :ivar parked_in: the backlog queue that has it, None when the primary has it.
    :ivar in_doubt: an earlier attempt was never answered, so the message may have arrived twice.
    """

    parked_in: str | None
    in_doubt: bool


TAKEN: Final = Done(None, in_doubt=False)
"""The primary has taken it at once."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No broker has accepted the message, as far as is known.

    :ivar in_doubt: an attempt was never answered, so the message may have arrived all the same.
    """

    error: BaseException
    in_doubt: bool


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

    def deadline(self, now: float, started: float, timeout: float | None) -> float:
        """Return when an attempt ends that begins now, of a send that its caller may have bounded."""
        ends = now + self.attempt_timeout
        return ends if timeout is None else min(ends, started + timeout)


@dataclass(slots=True)
class Sending:
    """One send of one message or batch to one entity.

    :param timeout: the caller's, bounding the whole in seconds; None: no bound but the pairing's own.
    """

    health: EntityHealth
    rotation: Rotation
    choice: BacklogChoice
    policy: SendPolicy
    random: Random
    started: float
    timeout: float | None = None
    _pause: Pause | None = field(default=None, init=False)
    _outcome: Done | Failed | None = field(default=None, init=False)
    _in_doubt: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _primary_cause: BaseException | None = field(default=None, init=False)
    _backlog_cause: BaseException | None = field(default=None, init=False)

    def step(self, now: float) -> Step:
        """Return what to do next."""
        if self._outcome is not None:
            return self._outcome
        if self.timeout is not None and now >= self.started + self.timeout:
            return self._fail(self._timed_out(self.timeout))
        if self._pause is not None and now < self._pause.until:
            return self._pause
        self._pause = None
        deadline = self.policy.deadline(now, self.started, self.timeout)
        if not self.health.engaged:
            return ToPrimary(deadline)
        queue = self.choice.queue = self.rotation.choose(self.choice.queue, now)
        if queue is None:
            return self._fail(BacklogUnavailableError(self.health.entity, self._primary_cause, self._backlog_cause))
        return ToBacklog(queue, deadline)

    def health_changed(self) -> None:
        """Note that the entity's failover has engaged or ended: a send that is held need not wait longer."""
        self._pause = None

    def primary_accepted(self) -> tuple[Action, ...]:
        """Note that the primary took the message."""
        self._outcome = Done(None, in_doubt=True) if self._in_doubt else TAKEN
        return self.health.attempt_accepted()

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
        actions = self.health.attempt_failed(now)
        then = self.health.after_failure(self.policy.on_outage)
        if then is Next.RAISE:
            self._fail(facts.error)
        elif then is Next.RETRY:
            self._pause = Pause(self._bounded(now + HELD.pause(self._failures, self.random)))
        return actions

    def backlog_accepted(self, queue: str) -> None:
        """Note that a backlog queue took the parked message."""
        self.rotation.accepted(queue)
        self._outcome = Done(queue, self._in_doubt)

    def backlog_failed(self, queue: str, facts: ErrorFacts, now: float) -> None:
        """Note how an attempt at a backlog queue failed."""
        self._note(facts)
        self._backlog_cause = facts.error
        if facts.cause in ABOUT_THE_MESSAGE:
            self._fail(facts.error)
        elif facts.cause is Cause.BUSY:
            self._wait_as_told(facts, now)
        else:
            self.rotation.pull(queue, now)

    def _note(self, facts: ErrorFacts) -> None:
        self._failures += 1
        self._in_doubt = self._in_doubt or facts.in_doubt

    def _wait_as_told(self, facts: ErrorFacts, now: float) -> None:
        told = facts.retry_after
        pause = told.total_seconds() if told is not None else THROTTLED.pause(self._failures, self.random)
        self._pause = Pause(self._bounded(now + pause))

    def _bounded(self, until: float) -> float:
        return until if self.timeout is None else min(until, self.started + self.timeout)

    def _fail(self, error: BaseException) -> Failed:
        failed = Failed(error, self._in_doubt)
        self._outcome = failed
        return failed

    def _timed_out(self, timeout: float) -> SendTimeoutError:
        cause = self._backlog_cause or self._primary_cause
        return SendTimeoutError(self.health.entity, timeout, cause, maybe_sent=self._in_doubt)
