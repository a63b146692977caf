"""What the broker refuses, with the conditions that make the SDK raise the same exceptions as the cloud."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from pairbus.amqp.conditions import (
    DETACH_FORCED,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from pairbus.amqp.performatives import Error
from pairbus.amqp.types import Symbol
from pairbus.errors import OptionError, PairbusError

ARGUMENT_ERROR = Symbol("com.microsoft:argument-error")
ENTITY_DISABLED = Symbol("com.microsoft:entity-disabled")
MESSAGE_LOCK_LOST = Symbol("com.microsoft:message-lock-lost")
MESSAGE_NOT_FOUND = Symbol("com.microsoft:message-not-found")
SERVER_BUSY = Symbol("com.microsoft:server-busy")
SESSION_CANNOT_BE_LOCKED = Symbol("com.microsoft:session-cannot-be-locked")
SESSION_LOCK_LOST = Symbol("com.microsoft:session-lock-lost")
TIMEOUT = Symbol("com.microsoft:timeout")
HOPS_EXCEEDED = Symbol("MaxTransferHopCountExceeded")
"""No client hears it: it is the reason of a dead letter, as the cloud gives it."""


class RefusedError(PairbusError):
    """An operation that the broker does not carry out; ``condition`` and ``description`` are what the client hears."""

    def __init__(self, condition: Symbol, description: str) -> None:
        self.condition = condition
        self.description = description
        super().__init__(f"{condition}: {description}")

    @property
    def error(self) -> Error:
        """The refusal as AMQP puts it."""
        return Error(self.condition, self.description)


class EntityExistsError(OptionError):
    """An entity that is to be made and is there already."""

    def __init__(self, kind: str, path: str) -> None:
        super().__init__(kind, path, "there is an entity of this name already")


Answer: TypeAlias = Callable[[RefusedError | None], None]
"""Called with None when something is done and durable, or with the refusal."""


def no_answer(_refused: RefusedError | None) -> None:
    """Be the :data:`Answer` of what no client waits for."""


def not_found(path: str) -> RefusedError:
    """There is no such entity."""
    return RefusedError(NOT_FOUND, f"The messaging entity '{path}' could not be found.")


def not_served(host: str) -> RefusedError:
    """There is no such namespace here."""
    return RefusedError(NOT_FOUND, f"The namespace '{host}' could not be found here: check the endpoint.")


def disabled(path: str) -> RefusedError:
    """The entity's status does not allow the operation."""
    return RefusedError(ENTITY_DISABLED, f"Messaging entity '{path}' is currently disabled.")


def full(path: str, limit: int) -> RefusedError:
    """The entity has reached its size."""
    return RefusedError(
        RESOURCE_LIMIT_EXCEEDED,
        f"The maximum entity size has been reached or exceeded for '{path}'. Max entity size in bytes: {limit}.",
    )


def too_many(what: str) -> RefusedError:
    """There is no room for one more entity."""
    return RefusedError(RESOURCE_LIMIT_EXCEEDED, what)


def store_failed(path: str) -> RefusedError:
    """The store has not taken it: an error of the server, whose log has the cause. Only a full entity is quota."""
    return RefusedError(
        INTERNAL_ERROR, f"The broker could not store this for '{path}', and kept nothing of it. Its log says why."
    )


def store_unreadable(path: str) -> RefusedError:
    """The store cannot be read: an error of the server, whose log has the cause."""
    return RefusedError(INTERNAL_ERROR, f"The broker could not read its store for '{path}'. Its log says why.")


def too_large(size: int, limit: int) -> RefusedError:
    """A message is larger than the entity takes."""
    return RefusedError(
        MESSAGE_SIZE_EXCEEDED, f"The received message (size: {size}) exceeds the limit ({limit} bytes) of the link."
    )


def lock_lost() -> RefusedError:
    """A lock that has run out, was never there, or is another link's."""
    return RefusedError(
        MESSAGE_LOCK_LOST,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue, or was received by a different receiver instance.",
    )


def session_lock_lost(session: str) -> RefusedError:
    """A session's lock that has run out."""
    return RefusedError(
        SESSION_LOCK_LOST, f"The session lock for '{session}' has expired on the receiver. Accept the session again."
    )


def session_locked(session: str) -> RefusedError:
    """A session that another receiver has."""
    return RefusedError(
        SESSION_CANNOT_BE_LOCKED,
        f"The requested session '{session}' cannot be accepted. It may be locked by another receiver.",
    )


def session_needed(path: str) -> RefusedError:
    """A receiver without a session on an entity that demands one, or a message without."""
    return RefusedError(
        NOT_ALLOWED,
        f"It is not possible for an entity that requires sessions to work without one: set a session id. '{path}'.",
    )


def session_not_supported(path: str) -> RefusedError:
    """A session receiver on an entity without sessions."""
    return RefusedError(
        NOT_ALLOWED, f"A sessionful message receiver cannot be created on '{path}', which has no sessions."
    )


def forwards(path: str, to: str) -> RefusedError:
    """A receiver on an entity that forwards what it gets."""
    return RefusedError(NOT_ALLOWED, f"Messages of '{path}' are forwarded to '{to}': receive them there.")


def too_many_hops(most: int) -> RefusedError:
    """A message that was forwarded as often as it may be, and is to be forwarded once more."""
    return RefusedError(HOPS_EXCEEDED, f"A message is forwarded {most} times at most, and this one was.")


def goes_round(path: str, to: str) -> RefusedError:
    """A message of a subscription that would come back to the topic it is from, and be copied again and again."""
    return RefusedError(HOPS_EXCEEDED, f"What '{path}' forwards to '{to}' would come back to the topic that it is of.")


def is_passing(refused: RefusedError) -> bool:
    """Tell whether an entity that refuses a message may take it later: it is full, or the broker has failed."""
    return refused.condition in {RESOURCE_LIMIT_EXCEEDED, INTERNAL_ERROR}


def message_not_found(numbers: object) -> RefusedError:
    """Sequence numbers of which none is there."""
    return RefusedError(MESSAGE_NOT_FOUND, f"Failed to find messages with sequence numbers {numbers}.")


def bad_argument(what: str) -> RefusedError:
    """A request that is not valid."""
    return RefusedError(ARGUMENT_ERROR, what)


def denied(path: str, rights: Iterable[str]) -> RefusedError:
    """A client without the claim that it needs."""
    return RefusedError(UNAUTHORIZED_ACCESS, _claims_required(path, rights))


def token_expired(link: str, path: str, rights: Iterable[str]) -> RefusedError:
    """A link whose token has expired, and was not renewed."""
    return RefusedError(
        DETACH_FORCED,
        f"The link '{link}' is force detached. Code: RenewToken. Details: {_claims_required(path, rights)}",
    )


def idle(link: str, role: str) -> RefusedError:
    """A link on which nothing was sent, received or settled for too long."""
    return RefusedError(
        DETACH_FORCED,
        f"The link '{link}' is force detached. Code: {role}. Details: AmqpMessage{role.capitalize()}.IdleTimerExpired: "
        "Idle timeout: 00:10:00.",
    )


def _claims_required(path: str, rights: Iterable[str]) -> str:
    claims = "', '".join(rights)
    return f"Unauthorized access. '{claims}' claim(s) are required to perform this operation. Resource: '{path}'."


def timed_out(what: str) -> RefusedError:
    """Something that did not come in time."""
    return RefusedError(TIMEOUT, what)
