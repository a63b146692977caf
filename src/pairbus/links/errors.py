"""Errors of the SDK as the rules see them, and the time-out of a send as both the SDK's and ours."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# ruff: noqa: SLF001 (the SDK's inner objects have no types, and no public way to them)

import re
from datetime import timedelta
from typing import Final

from azure.core.exceptions import HttpResponseError
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.core.verdict import ErrorFacts, facts_of
from pairbus.errors import SendTimeoutError

_WAIT_AS_TOLD: Final = re.compile(r"wait (\d{1,4}) seconds?", re.IGNORECASE)
"""How a broker that is busy says for how long."""


def facts(error: BaseException, *, begun: bool = True) -> ErrorFacts:
    """Gather what the rules need to know about an error of the SDK.

    :param begun: whether anything may have been sent before it.
    """
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
