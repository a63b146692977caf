"""What an error means for the sends of an entity: the table of rule 3.1, in one place.

It works on facts about an error, not on the error's class, so that it needs no SDK. An error is
first given a :class:`Cause` by the names of its classes and the AMQP condition it carries, then a
:class:`Verdict` by its cause. A user replaces the second step with the option ``classify``.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TypeAlias


class Cause(enum.Enum):
    """What went wrong, as far as an error tells."""

    TIMEOUT = "timed out"
    CONNECTION = "connection failed"
    INTERNAL = "service failed"
    DISABLED = "entity disabled"
    FULL = "entity full"
    BUSY = "throttled"
    UNAUTHORIZED = "access denied"
    NOT_FOUND = "entity not found"
    TOO_LARGE = "message too large"
    BAD_ARGUMENT = "request not valid"
    SETTLEMENT = "lock lost or settled"
    UNEXPECTED = "unexpected error"
    """Nothing that a broker or a network does: a bug, here or in the application."""


class Verdict(enum.Enum):
    """What an error means for the entity's health."""

    OUTAGE = "outage"
    """The entity cannot take messages now: the failover timer runs."""
    BUSY = "busy"
    """The entity asks for patience: wait as told and retry; its health is untouched."""
    CALLERS = "caller's"
    """The request is at fault, not the entity: raised as it is; the entity's health is untouched."""


VERDICTS: Mapping[Cause, Verdict] = MappingProxyType(
    {
        Cause.TIMEOUT: Verdict.OUTAGE,
        Cause.CONNECTION: Verdict.OUTAGE,
        Cause.INTERNAL: Verdict.OUTAGE,
        Cause.DISABLED: Verdict.OUTAGE,  # the message is good and can go later
        Cause.FULL: Verdict.OUTAGE,
        Cause.BUSY: Verdict.BUSY,
        Cause.UNAUTHORIZED: Verdict.CALLERS,
        Cause.NOT_FOUND: Verdict.CALLERS,
        Cause.TOO_LARGE: Verdict.CALLERS,
        Cause.BAD_ARGUMENT: Verdict.CALLERS,
        Cause.SETTLEMENT: Verdict.CALLERS,
        Cause.UNEXPECTED: Verdict.CALLERS,
    }
)

IN_DOUBT = frozenset({Cause.TIMEOUT, Cause.CONNECTION, Cause.INTERNAL})
"""After these nobody knows whether the broker took the message: unknown, not failed (S7)."""

ANSWERED = frozenset({Cause.DISABLED, Cause.FULL})
"""The broker says so itself: it works, and what else is under way there will be answered, too."""

CAUSE_OF_CONDITION: Mapping[str, Cause] = MappingProxyType(
    {
        "com.microsoft:timeout": Cause.TIMEOUT,
        "amqp:socket-error": Cause.CONNECTION,
        "amqp:connection:forced": Cause.CONNECTION,
        "amqp:connection:framing-error": Cause.CONNECTION,
        "amqp:connection:redirect": Cause.CONNECTION,
        "amqp:link:redirect": Cause.CONNECTION,
        "amqp:link:stolen": Cause.CONNECTION,
        "amqp:link:detach-forced": Cause.CONNECTION,
        "amqp:session:errant-link": Cause.CONNECTION,
        "amqp:session:handle-in-use": Cause.CONNECTION,
        "amqp:session:unattached-handle": Cause.CONNECTION,
        "amqp:session:window-violation": Cause.CONNECTION,
        "amqp:internal-error": Cause.INTERNAL,
        "com.microsoft:container-close": Cause.INTERNAL,
        "com.microsoft:entity-disabled": Cause.DISABLED,
        "amqp:resource-limit-exceeded": Cause.FULL,
        "com.microsoft:server-busy": Cause.BUSY,
        "amqp:unauthorized-access": Cause.UNAUTHORIZED,
        "com.microsoft:auth-failed": Cause.UNAUTHORIZED,
        "amqp:not-found": Cause.NOT_FOUND,
        "amqp:resource-deleted": Cause.NOT_FOUND,
        "amqp:link:message-size-exceeded": Cause.TOO_LARGE,
        "amqp:decode-error": Cause.BAD_ARGUMENT,
        "amqp:invalid-field": Cause.BAD_ARGUMENT,
        "amqp:not-allowed": Cause.BAD_ARGUMENT,
        "amqp:not-implemented": Cause.BAD_ARGUMENT,
        "amqp:precondition-failed": Cause.BAD_ARGUMENT,
        "com.microsoft:precondition-failed": Cause.BAD_ARGUMENT,
        "com.microsoft:argument-error": Cause.BAD_ARGUMENT,
        "com.microsoft:argument-out-of-range": Cause.BAD_ARGUMENT,
        "com.microsoft:entity-already-exists": Cause.BAD_ARGUMENT,
        "com.microsoft:message-lock-lost": Cause.SETTLEMENT,
        "com.microsoft:message-not-found": Cause.SETTLEMENT,
        "com.microsoft:session-cannot-be-locked": Cause.SETTLEMENT,
        "com.microsoft:session-lock-lost": Cause.SETTLEMENT,
    }
)

CAUSE_OF_TYPE: Mapping[str, Cause] = MappingProxyType(
    {
        # azure.servicebus.exceptions
        "OperationTimeoutError": Cause.TIMEOUT,
        "ServiceBusConnectionError": Cause.CONNECTION,
        "ServiceBusCommunicationError": Cause.CONNECTION,
        "MessagingEntityDisabledError": Cause.DISABLED,
        "ServiceBusQuotaExceededError": Cause.FULL,
        "ServiceBusServerBusyError": Cause.BUSY,
        "ServiceBusAuthenticationError": Cause.UNAUTHORIZED,
        "ServiceBusAuthorizationError": Cause.UNAUTHORIZED,
        "MessagingEntityNotFoundError": Cause.NOT_FOUND,
        "MessageSizeExceededError": Cause.TOO_LARGE,
        "MessagingEntityAlreadyExistsError": Cause.BAD_ARGUMENT,
        "MessageAlreadySettled": Cause.SETTLEMENT,
        "MessageLockLostError": Cause.SETTLEMENT,
        "MessageNotFoundError": Cause.SETTLEMENT,
        "SessionCannotBeLockedError": Cause.SETTLEMENT,
        "SessionLockLostError": Cause.SETTLEMENT,
        "AutoLockRenewFailed": Cause.SETTLEMENT,
        "AutoLockRenewTimeout": Cause.SETTLEMENT,
        # azure.core.exceptions
        "ClientAuthenticationError": Cause.UNAUTHORIZED,
        "ResourceNotFoundError": Cause.NOT_FOUND,
        "ServiceRequestError": Cause.CONNECTION,
        "ServiceResponseError": Cause.CONNECTION,
        "ResourceExistsError": Cause.BAD_ARGUMENT,
        "HttpResponseError": Cause.BAD_ARGUMENT,  # a service that fails says so with its status
        # the standard library
        "TimeoutError": Cause.TIMEOUT,
        "OSError": Cause.CONNECTION,  # refused, reset, name resolution, TLS
        "EOFError": Cause.CONNECTION,
        "ValueError": Cause.BAD_ARGUMENT,
        "TypeError": Cause.BAD_ARGUMENT,
        "OverflowError": Cause.BAD_ARGUMENT,
    }
)
"""The most specific class that stands here decides."""

GENERIC = "ServiceBusError"
"""The SDK's root: by itself it says nothing, but it may carry a condition, or the error that it wraps."""

SERVICE_FAILED = 500
"""A status of this or more is the service's own failure, whatever class the error has."""


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """What the rules need to know about an error.

    :ivar cause: what went wrong.
    :ivar error: the error itself, to be raised as it is where the caller is to have it.
    :ivar retry_after: how long the broker asked to be left alone, if it did.
    :ivar begun: whether anything may have been sent: not when no connection came about.
    :ivar did_not_fit: how many bytes the entity had no room for, if it was full.
    """

    cause: Cause
    error: BaseException
    retry_after: timedelta | None = None
    begun: bool = True
    did_not_fit: int = 0

    @property
    def in_doubt(self) -> bool:
        """Whether the broker may have taken the message although an error came back (S7)."""
        return self.begun and self.cause in IN_DOUBT

    @property
    def answered(self) -> bool:
        """Whether the broker works, and says itself that the entity takes no messages."""
        return self.cause in ANSWERED


Classify: TypeAlias = Callable[[ErrorFacts], Verdict]


def facts_of(
    error: BaseException,
    *,
    condition: str | None = None,
    status: int | None = None,
    retry_after: timedelta | None = None,
    begun: bool = True,
) -> ErrorFacts:
    """Gather the facts of an error, with the AMQP condition or the status it came with if there was one.

    A class of the SDK that says something decides; the SDK's root is told apart by its condition, or by the
    error that it wraps, which tells a message that cannot be encoded from a link that was dropped.
    """
    return ErrorFacts(_cause_of(error, condition, status), error, retry_after, begun)


def _cause_of(error: BaseException, condition: str | None, status: int | None) -> Cause:
    if status is not None and status >= SERVICE_FAILED:
        return Cause.INTERNAL
    names = [kind.__name__ for kind in type(error).__mro__]
    if GENERIC in names[:1]:
        if condition is not None and condition in CAUSE_OF_CONDITION:
            return CAUSE_OF_CONDITION[condition]
        wrapped = getattr(error, "inner_exception", None)
        by_wrapped = _cause_of(wrapped, None, None) if isinstance(wrapped, BaseException) else Cause.INTERNAL
        return Cause.INTERNAL if by_wrapped is Cause.UNEXPECTED else by_wrapped
    cause = next((CAUSE_OF_TYPE[name] for name in names if name in CAUSE_OF_TYPE), None)
    if cause is None and GENERIC in names:
        cause = Cause.INTERNAL  # a class that the SDK has added since
    return cause or CAUSE_OF_CONDITION.get(condition or "", Cause.UNEXPECTED)


def verdict_of(facts: ErrorFacts) -> Verdict:
    """Return the verdict of rule 3.1."""
    return VERDICTS[facts.cause]
