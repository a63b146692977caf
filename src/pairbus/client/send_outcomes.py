"""How a send ends, as its caller sees it: numbers of what was scheduled, and errors that know what may have arrived."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.core.sending import Failed, Sending
from pairbus.errors import SendTimeoutError
from pairbus.links.errors import SendTimedOutError, again
from pairbus.messages.sdk_batches import Message
from pairbus.messages.sdk_messages import id_of

E = TypeVar("E", bound=Exception)

_NAMED: Final = 20
"""How many missing messages an error names."""


class ParkedSchedule(list[int]):
    """What :meth:`MessageSender.schedule_messages` returns when messages were parked (S9).

    A parked message keeps its schedule, but only the primary gives sequence numbers: parked messages have none, and
    cannot be cancelled by number. The list has the numbers of the others, the last ones: there are some if the primary
    came back in the midst of the call.

    :ivar messages: how many were parked.
    """

    def __init__(self, messages: int, numbers: Iterable[int] = ()) -> None:
        super().__init__(numbers)
        self.messages: Final = messages

    def __repr__(self) -> str:
        return f"ParkedSchedule(messages={self.messages}, numbers={list(self)})"


def in_doubt(error: E, sending: Sending | None, *, begun: bool) -> E:
    """Let an error know whether messages of its send may have arrived (S7); the SDK's errors have no such field."""
    error.__dict__["maybe_sent"] = begun or (sending is not None and sending.in_doubt)
    return error


def explained(failed: Failed, messages: Sequence[Message]) -> BaseException:
    """Return the error of a send, which knows whether its messages may have arrived, and names those missing (S14)."""
    error = failed.error
    if isinstance(error, SendTimeoutError):
        error = SendTimedOutError(error)
    elif isinstance(error, ServiceBusError):  # which other sends may have met, too, that are not in doubt
        error = again(error).with_traceback(error.__traceback__)
    elif isinstance(error, TimeoutError):  # of an attempt: the caller expects what the SDK raises
        late, error = error, OperationTimeoutError(message=str(error))
        error.__cause__ = late
    error.__dict__["maybe_sent"] = failed.in_doubt
    if failed.parked:
        missing = [str(id_of(message)) for message in messages[failed.parked :]]
        error.add_note(
            f"{failed.parked} of {len(messages)} messages were parked before it failed, and are not to be "
            f"sent again; missing are: {', '.join(missing[:_NAMED])}{' …' if len(missing) > _NAMED else ''}"
        )
    return error
