"""Errors of the SDK as the rules see them, which both adapters raise, and what they say about a send."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# ruff: noqa: SLF001 (the SDK's inner objects have no types, and no public way to them)

import re
from datetime import timedelta
from typing import Final, TypeVar

from azure.core.exceptions import HttpResponseError
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.core.verdict import ErrorFacts, facts_of
from pairbus.errors import SendTimeoutError

E = TypeVar("E", bound=BaseException)

_UNSENT: Final = "_pairbus_unsent"
_WAIT_AS_TOLD: Final = re.compile(r"wait (\d{1,4}) seconds?", re.IGNORECASE)
"""How a broker that is busy says for how long."""


def facts(error: BaseException, *, begun: bool = True) -> ErrorFacts:
    """Gather what the rules need to know about an error of the SDK.

    :param begun: whether anything may have been sent before it, unless the error itself says that nothing was.
    """
    begun = begun and not is_unsent(error)
    if isinstance(error, ServiceBusError):
        told = _WAIT_AS_TOLD.search(str(error))
        return facts_of(
            error,
            condition=error._condition,
            status=error._status_code,
            retry_after=timedelta(seconds=int(told[1])) if told else None,
            begun=begun,
        )
    if isinstance(error, HttpResponseError):
        return facts_of(error, status=error.status_code, begun=begun)
    return facts_of(error, begun=begun)


class SendTimedOutError(SendTimeoutError, OperationTimeoutError):
    """:class:`~pairbus.errors.SendTimeoutError`, for an application that expects the SDK's own time-out error."""

    def __init__(self, error: SendTimeoutError) -> None:
        self.__dict__.update(error.__dict__)
        OperationTimeoutError.__init__(self, message=str(error))
        self.args = error.args


def timed_out(what: str, seconds: float) -> OperationTimeoutError:
    """Make the error of a deadline."""
    return OperationTimeoutError(message=f"{what} took longer than {seconds:g} s")


def again(error: ServiceBusError) -> ServiceBusError:
    """Return an error like this one, for another caller: one exception is not raised in two places."""
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.args = error.args
    made.__cause__ = error.__cause__
    return made


def unsent(error: E) -> E:
    """Mark an error before which nothing was sent: then nothing can have arrived."""
    setattr(error, _UNSENT, True)
    return error


def is_unsent(error: BaseException) -> bool:
    """Tell whether nothing was sent before an error."""
    return getattr(error, _UNSENT, False)
