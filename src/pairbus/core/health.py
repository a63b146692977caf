"""One entity's health, as a state machine. Everything that affects it lives in this file.

.. code-block:: text

    HEALTHY ── an attempt failed ──► SUSPECT ── failover interval passed ──► ENGAGED
       ▲                                │                                       │
       ├────── an attempt accepted ─────┘                                       │
       └──────────────────────────── a ping accepted ───────────────────────────┘

:data:`TRANSITIONS` is the whole of it: a pair of state and event that is missing there cannot happen.
The documentation's diagram is drawn from it. :class:`EntityHealth` adds the two clocks: the failover
timer and the pings. It is told what happened and when, and answers what is to be done; it does nothing itself.

``now`` is a monotonic clock's time in seconds, so that a step of the wall clock changes nothing.
"""

import enum
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from pairbus.core.naming import entity_key
from pairbus.core.options import OnOutage
from pairbus.errors import IllegalMoveError


class State(enum.Enum):
    """Where an entity's health stands."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """An attempt has failed and none was accepted since: the failover timer runs (S3)."""
    ENGAGED = "engaged"
    """Failover: messages are parked and the entity is pinged (S4)."""


HEALTHY: Final = State.HEALTHY  # looking a member up in its enum takes longer than all else about it
ENGAGED: Final = State.ENGAGED


class Event(enum.Enum):
    """What can happen to an entity."""

    ATTEMPT_ACCEPTED = "attempt accepted"
    ATTEMPT_FAILED = "attempt failed"
    """An attempt met an outage failure (3.1); other failures say nothing about the entity."""
    INTERVAL_PASSED = "failover interval passed"
    PING_DUE = "ping due"
    PING_ACCEPTED = "ping accepted"
    PING_FAILED = "ping failed"


class Action(enum.Enum):
    """What is to be done about it."""

    PREPARE_BACKLOG = "prepare backlog"
    """Open links to a backlog queue, so that failing over costs no connection set-up."""
    ENGAGE = "engage"
    """Tell whoever waits that messages are parked from now on."""
    PING = "ping"
    """Send one ping to the primary entity, past the failover logic."""
    RESUME = "resume"
    """Tell whoever waits that messages go to the primary again."""


S, E, A = State, Event, Action

TRANSITIONS: Mapping[tuple[State, Event], tuple[State, tuple[Action, ...]]] = MappingProxyType(
    {
        (S.HEALTHY, E.ATTEMPT_ACCEPTED): (S.HEALTHY, ()),  # S2
        (S.HEALTHY, E.ATTEMPT_FAILED): (S.SUSPECT, (A.PREPARE_BACKLOG,)),  # S3: the timer starts
        (S.SUSPECT, E.ATTEMPT_ACCEPTED): (S.HEALTHY, (A.RESUME,)),  # S3: any success cancels it
        (S.SUSPECT, E.ATTEMPT_FAILED): (S.SUSPECT, ()),  # S3: later failures do not restart it
        (S.SUSPECT, E.INTERVAL_PASSED): (S.ENGAGED, (A.ENGAGE,)),  # S3, S4
        (S.ENGAGED, E.ATTEMPT_ACCEPTED): (S.ENGAGED, ()),  # a late answer; only a ping ends failover (G2)
        (S.ENGAGED, E.ATTEMPT_FAILED): (S.ENGAGED, ()),  # a late answer
        (S.ENGAGED, E.PING_DUE): (S.ENGAGED, (A.PING,)),  # G1
        (S.ENGAGED, E.PING_FAILED): (S.ENGAGED, ()),  # G1: as long as failover is engaged
        (S.ENGAGED, E.PING_ACCEPTED): (S.HEALTHY, (A.RESUME,)),  # G2
    }
)

del S, E, A


class Next(enum.Enum):
    """What a send does after an attempt at the primary has met an outage failure."""

    RETRY = "retry"
    PARK = "park"
    RAISE = "raise"


class EntityHealth:
    """The health of one entity of one factory, shared by all its senders (S1).

    Whoever drives it calls :meth:`tick` at :attr:`wake_at`, and sends a ping for each
    :attr:`Action.PING` it is given, reporting how it ended with :meth:`ping_accepted` or :meth:`ping_failed`.
    """

    def __init__(self, entity: str, *, failover_interval: float, ping_interval: float) -> None:
        self.entity = entity
        self.state = State.HEALTHY
        self.wake_at: float | None = None
        """When :meth:`tick` has something to do; None: not before something else happens."""
        self.last_failure: BaseException | None = None
        """What the last attempt or ping failed with, since the entity was last healthy."""
        self.ping_bytes = 0
        """How large a ping must be to prove that the entity takes messages: as large as the one that did not fit."""
        self.answers = False
        """Whether the broker answered the attempt that failed last. Then it answers what else is under way, too, which
        is not given up when failover engages: that would put it in doubt (S4, S7)."""
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._pinged_at: float | None = None

    @property
    def engaged(self) -> bool:
        """Whether messages are parked (S4)."""
        return self.state is ENGAGED

    def attempt_accepted(self) -> tuple[Action, ...]:
        """Note that the primary took a message."""
        actions = self._move(Event.ATTEMPT_ACCEPTED)
        if self.state is State.HEALTHY:
            self.wake_at = None
            self._forget_failures()
        return actions

    def attempt_failed(
        self, now: float, error: BaseException | None = None, *, did_not_fit: int = 0, answered: bool = False
    ) -> tuple[Action, ...]:
        """Note that an attempt at the primary met an outage failure.

        :param answered: whether the broker said so itself.
        :param did_not_fit: the size of what a full entity had no room for, in bytes. Where a small ping still fits and
            the message does not, a small ping would end failover, only for the next message to engage it again.
        """
        self.last_failure, self.answers = error, answered
        self.ping_bytes = max(self.ping_bytes, did_not_fit)
        was = self.state
        actions = self._move(Event.ATTEMPT_FAILED)
        if was is State.HEALTHY:
            self.wake_at = now + self._failover_interval
        return actions + self.tick(now)  # an interval of 0 redirects the failing send itself

    def tick(self, now: float) -> tuple[Action, ...]:
        """Do what is due by ``now``."""
        if self.wake_at is None or now < self.wake_at:
            return ()
        if self.state is State.SUSPECT:
            actions = self._move(Event.INTERVAL_PASSED)
            self.wake_at = now + self._ping_interval  # G1: the first one after one interval
            return actions
        actions = self._move(Event.PING_DUE)
        self.wake_at, self._pinged_at = None, now  # one ping at a time
        return actions

    def ping_accepted(self) -> tuple[Action, ...]:
        """Note that the primary took a ping."""
        self._ping_ended(Event.PING_ACCEPTED)
        self._forget_failures()
        return self._move(Event.PING_ACCEPTED)

    def ping_failed(self, now: float, error: BaseException | None = None) -> tuple[Action, ...]:
        """Note that the primary did not take a ping, for whatever reason."""
        self.last_failure = error
        pinged_at = self._ping_ended(Event.PING_FAILED)
        self.wake_at = max(now, pinged_at + self._ping_interval)
        return self._move(Event.PING_FAILED)

    def _ping_ended(self, event: Event) -> float:
        if self._pinged_at is None:
            raise IllegalMoveError(self.state, event)
        pinged_at, self._pinged_at = self._pinged_at, None
        return pinged_at

    def _forget_failures(self) -> None:
        self.last_failure, self.ping_bytes, self.answers = None, 0, False

    def _move(self, event: Event) -> tuple[Action, ...]:
        try:
            self.state, actions = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalMoveError(self.state, event) from None
        return actions

    def after_failure(self, on_outage: OnOutage) -> Next:
        """Say what a send does whose attempt at the primary has just met an outage failure (S6)."""
        if self.engaged:
            return Next.PARK
        return Next.RETRY if on_outage == "hold" else Next.RAISE


class HealthBook:
    """The health of every entity of one factory; names are compared case-insensitively (S1)."""

    def __init__(self, *, failover_interval: float, ping_interval: float) -> None:
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval
        self._entities: dict[str, EntityHealth] = {}

    def __getitem__(self, entity: str) -> EntityHealth:
        """Return the entity's health, which begins as healthy."""
        key = entity_key(entity)
        if key not in self._entities:
            self._entities[key] = EntityHealth(
                entity, failover_interval=self._failover_interval, ping_interval=self._ping_interval
            )
        return self._entities[key]

    def __iter__(self) -> Iterator[EntityHealth]:
        return iter(self._entities.values())
