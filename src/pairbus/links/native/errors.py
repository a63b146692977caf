"""What a peer says went wrong, as the exceptions that the SDK raises for it."""

# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from pairbus.amqp.client.requests import Answer
from pairbus.amqp.performatives import DeliveryState, Error, Modified, Rejected

NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"

TYPE_OF_CONDITION: Mapping[str, type[ServiceBusError]] = MappingProxyType(
    {
        NOT_FOUND: MessagingEntityNotFoundError,
        "amqp:link:message-size-exceeded": MessageSizeExceededError,
        "amqp:resource-limit-exceeded": ServiceBusQuotaExceededError,
        UNAUTHORIZED: ServiceBusAuthorizationError,
        "amqp:not-implemented": ServiceBusError,
        "amqp:not-allowed": ServiceBusError,
        "amqp:link:detach-forced": ServiceBusConnectionError,
        "com.microsoft:message-lock-lost": MessageLockLostError,
        "com.microsoft:message-not-found": MessageNotFoundError,
        "com.microsoft:auth-failed": ServiceBusAuthorizationError,
        "com.microsoft:entity-disabled": MessagingEntityDisabledError,
        "com.microsoft:entity-already-exists": MessagingEntityAlreadyExistsError,
        "com.microsoft:server-busy": ServiceBusServerBusyError,
        "com.microsoft:session-cannot-be-locked": SessionCannotBeLockedError,
        "com.microsoft:session-lock-lost": SessionLockLostError,
        "com.microsoft:argument-error": ServiceBusError,
        "com.microsoft:argument-out-of-range": ServiceBusError,
        "com.microsoft:timeout": OperationTimeoutError,
    }
)
"""As the SDK has it; what is not here is its root, :class:`ServiceBusError`, with the condition."""


def of_condition(condition: str, description: str | None, *, status: int | None = None) -> ServiceBusError:
    """Make the error of an AMQP condition."""
    kind = TYPE_OF_CONDITION.get(condition, ServiceBusError)
    return kind(message=description or None, condition=condition, status_code=status)


def of_link(error: Error | None, what: str) -> ServiceBusError:
    """Make the error of a link that has ended."""
    if error is None:
        return ServiceBusConnectionError(message=f"{what} was detached without a reason")
    return of_condition(str(error.condition), error.description)


def of_connection(error: Error | None, host: str) -> ServiceBusError:
    """Make the error of a connection that has ended."""
    if error is None:
        return ServiceBusConnectionError(message=f"the connection to {host} was lost", condition="amqp:socket-error")
    condition = str(error.condition)
    if condition == UNAUTHORIZED:
        return ServiceBusAuthenticationError(message=error.description, condition=condition)
    kind = ServiceBusCommunicationError if condition == NOT_FOUND else ServiceBusConnectionError
    return kind(message=error.description or f"{host} has closed the connection", condition=condition)


def of_answer(answer: Answer, what: str) -> ServiceBusError:
    """Make the error of a management request that was refused."""
    text = f"{what} failed. {answer.description}"
    if answer.condition is None:
        return ServiceBusError(text, status_code=answer.status)
    return of_condition(answer.condition, text, status=answer.status)


def of_outcome(state: DeliveryState | None, what: str) -> ServiceBusError:
    """Make the error of a delivery whose outcome is not the one that was wanted."""
    if isinstance(state, Rejected) and state.error is not None:
        return of_condition(str(state.error.condition), state.error.description)
    if isinstance(state, Modified) and state.undeliverable_here:
        return of_condition("amqp:not-allowed", f"{what}: the broker cannot take it here")
    if isinstance(state, Rejected):
        return of_condition("amqp:not-allowed", f"{what}: the broker rejected it without a reason")
    # Released, or modified: not taken, and may be tried again.
    return ServiceBusServerBusyError(message=f"{what}: the broker gave it back untaken")


def unreachable(host: str, error: Exception) -> ServiceBusError:
    """Make the error of a host that no connection can be made to."""
    return ServiceBusConnectionError(
        message=f"no connection to {host}: {error}", error=error, condition="amqp:socket-error"
    )
