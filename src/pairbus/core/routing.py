"""What the syphon does with one parked message: deliver it, let it wait, or dead-letter it (Y3).

A policy returns a value. What cannot ever be delivered is dead-lettered with a reason and a description;
what can be delivered later stays in its backlog queue, and its destination is left alone for a while.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from pairbus.core.backoff import Backoff
from pairbus.core.envelope import PATH, Label, NotParked, unpark
from pairbus.core.naming import entity_key
from pairbus.core.verdict import Cause, ErrorFacts


class WaitReason(enum.Enum):
    """Why a message stays in its backlog queue for now."""

    OUTAGE = "the destination cannot be reached"
    BUSY = "the destination is throttled"
    FULL = "the destination is full"
    DISABLED = "the destination is disabled"
    DENIED = "the destination denies access"
    SET_ASIDE = "the destination failed a moment ago"
    UNEXPECTED = "an unexpected error"
    EARLIER = "an earlier message of its session is still in the backlog"


class DeadLetterReason(enum.Enum):
    """Why a message can never be delivered; the value is the dead letter's reason."""

    NO_DESTINATION = "NoDestination"
    BAD_PROPERTY = "BadProperty"
    DESTINATION_GONE = "DestinationGone"
    DESTINATION_DISABLED = "DestinationDisabled"
    TOO_LARGE = "MessageTooLarge"
    REFUSED = "MessageRefused"


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send it there, with this label."""

    destination: str
    label: Label


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave it in the backlog queue, and look at it again then."""

    reason: WaitReason
    until: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move it to the backlog queue's dead-letter queue."""

    reason: DeadLetterReason
    description: str


AFTER_FAILURE: Mapping[Cause, WaitReason | DeadLetterReason] = MappingProxyType(
    {
        Cause.TIMEOUT: WaitReason.OUTAGE,
        Cause.CONNECTION: WaitReason.OUTAGE,
        Cause.INTERNAL: WaitReason.OUTAGE,
        Cause.SETTLEMENT: WaitReason.OUTAGE,  # says nothing about the message: keep it
        Cause.UNEXPECTED: WaitReason.UNEXPECTED,  # a bug of ours loses no message
        Cause.BUSY: WaitReason.BUSY,
        Cause.FULL: WaitReason.FULL,
        Cause.DISABLED: WaitReason.DISABLED,  # for good after a while, see Destinations
        Cause.UNAUTHORIZED: WaitReason.DENIED,  # the syphon's credential is at fault, not the message
        Cause.NOT_FOUND: DeadLetterReason.DESTINATION_GONE,
        Cause.TOO_LARGE: DeadLetterReason.TOO_LARGE,
        Cause.BAD_ARGUMENT: DeadLetterReason.REFUSED,
    }
)

DISABLED_FOR_GOOD = 24 * 3600.0
"""A destination that was disabled each time it was tried, for so many seconds, is disabled for good."""


def route(label: Label) -> Deliver | DeadLetter:
    """Decide about a message by its label alone."""
    unparked = unpark(label)
    if isinstance(unparked, NotParked):
        path_is_missing = unparked.property == PATH
        reason = DeadLetterReason.NO_DESTINATION if path_is_missing else DeadLetterReason.BAD_PROPERTY
        return DeadLetter(reason, f"application property {unparked.property} {unparked.problem}")
    return Deliver(unparked.destination, unparked.label)


Ruling: TypeAlias = Wait | DeadLetter


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    until: float = 0.0
    disabled_since: float | None = None


@dataclass(slots=True)
class Destinations:
    """What a syphon has learnt about the entities it delivers to.

    :param pauses: how long a destination in trouble is left alone while the others go on.
    """

    pauses: Backoff
    random: Random
    disabled_for_good: float = DISABLED_FOR_GOOD
    _troubles: dict[str, _Trouble] = field(default_factory=dict[str, _Trouble], init=False)

    def set_aside_until(self, destination: str, now: float) -> float | None:
        """Return until when a destination is left alone, None if it may be tried."""
        trouble = self._troubles.get(entity_key(destination))
        return trouble.until if trouble is not None and now < trouble.until else None

    def accepted(self, destination: str) -> None:
        """Note that a destination took messages."""
        self._troubles.pop(entity_key(destination), None)

    def failed(self, destination: str, facts: ErrorFacts, now: float) -> Ruling:
        """Note that a destination did not take a message, and decide about that message."""
        outcome = AFTER_FAILURE[facts.cause]
        if isinstance(outcome, DeadLetterReason):
            return DeadLetter(outcome, f"{destination}: {facts.cause.value}: {facts.error}")
        trouble = self._troubles.setdefault(entity_key(destination), _Trouble())
        trouble.failures += 1
        pause = self.pauses.pause(trouble.failures, self.random)
        if facts.retry_after is not None:
            pause = max(pause, facts.retry_after.total_seconds())
        trouble.until = now + pause
        if outcome is not WaitReason.DISABLED:
            trouble.disabled_since = None
            return Wait(outcome, trouble.until)
        if trouble.disabled_since is None:
            trouble.disabled_since = now
        if now - trouble.disabled_since < self.disabled_for_good:
            return Wait(outcome, trouble.until)
        hours = (now - trouble.disabled_since) / 3600
        return DeadLetter(
            DeadLetterReason.DESTINATION_DISABLED,
            f"{destination}: disabled for {hours:.1f} hours: {facts.error}",
        )
