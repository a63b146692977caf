"""What the administration refuses, with the statuses and texts of the cloud."""

from collections.abc import Iterable
from datetime import timedelta
from http import HTTPStatus
from typing import Final

MORE: Final = "To know more visit https://aka.ms/sbResourceMgrExceptions. "


class ProblemError(Exception):
    """A request that is not carried out; ``status`` and ``detail`` are what the client hears."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(detail)


def bad_request(what: str) -> ProblemError:
    """The request is not valid."""
    return ProblemError(HTTPStatus.BAD_REQUEST, f"SubCode=40000. {what} {MORE}")


def bad_value(element: str, text: str, valid: str) -> ProblemError:
    """A property has a value that it cannot have."""
    return bad_request(f"The value '{text}' of the property '{element}' is not valid: {valid}.")


def bad_span(element: str, limit: timedelta, actual: timedelta, *, is_short: bool) -> ProblemError:
    """A duration is out of its range."""
    minutes, seconds = divmod(round(limit.total_seconds()), 60)
    told = f"'{seconds}' seconds" if seconds else f"'{minutes}' minutes"
    what = "lock time" if element == "LockDuration" else f"value of the property '{element}'"
    how = "is less than the allowed minimum" if is_short else "exceeds the allowed maximum"
    return ProblemError(
        HTTPStatus.BAD_REQUEST,
        f"SubCode=40000. The supplied {what} {how} of {told}. {MORE}\r\n"
        f"Parameter name: {element}\r\nActual value was {_clock(actual)}",
    )


def bad_size(megabytes: int, valid: Iterable[int]) -> ProblemError:
    """An entity cannot have this size."""
    return bad_request(
        f"The specified value {megabytes} is invalid. The property MaxSizeInMegabytes, must be one of the following "
        f"values: {';'.join(map(str, valid))}."
    )


def not_in_tier(element: str, kind: str) -> ProblemError:
    """A property that this tier does not have."""
    return bad_request(
        f"The property '{element}' cannot be set for a {kind} because the namespace is using 'Standard' tier."
    )


def bad_parameter(name: str) -> ProblemError:
    """A parameter of a listing is not valid."""
    what = f"Parameter '{name}' should be non-negative integer.\r\nParameter name: {name}"
    return ProblemError(HTTPStatus.BAD_REQUEST, what)


def bad_name(uri: str) -> ProblemError:
    """A name has characters that it cannot have."""
    return bad_request(
        f"'{uri}' contains character(s) that is not allowed by Service Bus. Entity segments can contain only letters, "
        "numbers, periods (.), hyphens (-), and underscores (_)."
    )


def long_name(kind: str, name: str, most: int) -> ProblemError:
    """A name is too long."""
    return bad_request(f"The {kind} '{name}' exceeds the '{most}' character limit.")


def is_fixed(element: str, kind: str) -> ProblemError:
    """A property that cannot be changed once there is an entity."""
    if element == "EnablePartitioning":
        return bad_request(f"Partitioning cannot be changed for {kind}.")
    named = "requires duplicate detection" if element == "RequiresDuplicateDetection" else element
    return bad_request(f"The value for the {named} property of an existing {kind} cannot be changed.")


def no_destination(element: str, path: str) -> ProblemError:
    """What messages are to be forwarded to is not there."""
    what = f"SubCode=40400. The auto forwarding destination entity does not exist: {element} '{path}'. {MORE}"
    return ProblemError(HTTPStatus.BAD_REQUEST, what)


def exists() -> ProblemError:
    """There is a queue or a topic of this name already."""
    return ProblemError(
        HTTPStatus.CONFLICT,
        "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state. "
        + MORE,
    )


def exists_below(entity: str) -> ProblemError:
    """There is a subscription or a rule of this name already."""
    return ProblemError(HTTPStatus.CONFLICT, f"The messaging entity '{entity}' already exists. {MORE}")


def not_there_to_update() -> ProblemError:
    """There is no queue or topic to be updated."""
    return ProblemError(HTTPStatus.NOT_FOUND, f"SubCode=40400. Not Found. The Operation doesn't exist. {MORE}")


def not_hosted() -> ProblemError:
    """There is no queue or topic to be deleted."""
    return ProblemError(HTTPStatus.NOT_FOUND, "No service is hosted at the specified address")


def not_found_below(entity: str) -> ProblemError:
    """There is no such subscription or rule."""
    return ProblemError(HTTPStatus.NOT_FOUND, f"Entity '{entity}' was not found. {MORE}")


def unauthorized(why: str) -> ProblemError:
    """Somebody may not do this."""
    return ProblemError(HTTPStatus.UNAUTHORIZED, why)


def precondition_failed() -> ProblemError:
    """An entity is another one than the client has seen."""
    return ProblemError(HTTPStatus.PRECONDITION_FAILED, "The precondition in the header 'If-Match' is not met")


def not_allowed(method: str) -> ProblemError:
    """A method that the resource does not have."""
    return ProblemError(HTTPStatus.METHOD_NOT_ALLOWED, f"The specified HTTP verb ({method}) is not valid")


def _clock(span: timedelta) -> str:
    """Return a duration as .NET writes it."""
    sign, span = ("-", -span) if span < timedelta(0) else ("", span)
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{span.days}." if span.days else ""
    part = f".{span.microseconds:06d}0" if span.microseconds else ""
    return f"{sign}{days}{hours:02d}:{minutes:02d}:{seconds:02d}{part}"
