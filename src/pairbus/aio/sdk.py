"""The SDK as we use it. What is not public in it is touched here, and nowhere else in the client."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: ANN401, SLF001 (the SDK's inner objects have no types, and no public way to them)

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.aio.attempt import cancel, within
from pairbus.core.verdict import ErrorFacts, facts_of
from pairbus.errors import SendTimeoutError

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
"""One message, in either of the SDK's forms."""

CLOSE_SECONDS: Final = 3.0
"""How long the SDK may take to close a link in order; then its socket is closed without it."""

STANDARD_BATCH_BYTES: Final = 262_144
"""What the SDK takes for the largest batch when a link does not say."""


class Link:
    """One sender of the SDK, with its connection: opened once, and closed for certain."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self.sender: Final = sender
        self._handlers: list[Any] = []
        create_handler: Callable[[Any], None] = sender._create_handler

        def remembering(auth: Any) -> None:
            self.cut()  # the SDK forgets the connection of an opening that failed, and leaves its socket open
            create_handler(auth)
            self._handlers.append(sender._handler)

        sender._create_handler = remembering

    async def open(self, seconds: float, *, retries: bool = True) -> None:
        """Open it, or raise what hinders it within so many seconds.

        :param retries: let the SDK try again by itself, as the factory was told.
        """
        configuration = self.sender._config
        total = configuration.retry_total
        try:
            if not retries:
                configuration.retry_total = 0
            await within(seconds, self.sender.__aenter__(), overrun=self.cut)
        finally:
            configuration.retry_total = total

    @property
    def is_open(self) -> bool:
        """Whether it was open when something was last done with it."""
        return self.sender._running

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that the broker takes on this link."""
        return self.sender._max_batch_size_on_link or STANDARD_BATCH_BYTES

    def cut(self) -> None:
        """Close the sockets at once, without a word to the peer."""
        for handler in self._handlers:
            connection = getattr(handler, "_connection", None)
            writer = getattr(getattr(connection, "_transport", None), "writer", None)
            if writer is not None:
                writer.transport.abort()
            keep_alive, handler._keep_alive_thread = handler._keep_alive_thread, None
            if keep_alive is not None:
                cancel(keep_alive)
        self._handlers.clear()

    async def close(self, *, in_doubt: bool = False) -> BaseException | None:
        """Close it, in order if that can be done in a few seconds; never hangs, never raises.

        :param in_doubt: something was under way on it: do not try to be in order.
        :return: why it could not be closed in order, if so.
        """
        if in_doubt:
            self.cut()
        try:
            await within(CLOSE_SECONDS, self.sender.close())
        except Exception as error:  # noqa: BLE001 (the SDK raises whatever the peer's end has left behind)
            return error
        else:
            return None
        finally:
            self.cut()


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


def messages_of(batch: ServiceBusMessageBatch) -> Sequence[ServiceBusMessage]:
    """Return the messages of a batch, which the SDK itself reads in the same way."""
    return batch._messages


def new_batch(sender: ServiceBusSender, max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """Make an empty batch that the sender need not encode anew, whether it is open or not."""
    return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes, amqp_transport=sender._amqp_transport)


class SendTimedOutError(SendTimeoutError, OperationTimeoutError):
    """:class:`~pairbus.errors.SendTimeoutError`, for an application that expects the SDK's own time-out error."""

    def __init__(self, error: SendTimeoutError) -> None:
        self.__dict__.update(error.__dict__)
        OperationTimeoutError.__init__(self, message=str(error))
        self.args = error.args
