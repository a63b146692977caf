"""The SDK as we use it. What is not public in it is used here, in ``sdk_links``, ``browsing`` and ``shortcuts``."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: SLF001 (the SDK's inner objects have no types, and no public way to them)

import re
import ssl
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Final, TypeAlias

import certifi
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._common.tracing import is_tracing_enabled
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from pairbus.core.verdict import ErrorFacts, facts_of
from pairbus.errors import SendTimeoutError

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
"""One message, in either of the SDK's forms."""

STANDARD_BATCH_BYTES: Final = 262_144
"""What the SDK takes for the largest batch when a link does not say."""


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context that the SDK makes for each connection anew, which takes a tenth of a second each time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context


def add_to(batch: ServiceBusMessageBatch, message: Message) -> None:
    """Add a message to a batch as ``add_message`` does, which encodes it twice: once to see how long it is."""
    transport = batch._amqp_transport
    if type(message) is not ServiceBusMessage or transport.KIND != "pyamqp" or is_tracing_enabled():
        batch.add_message(message)
        return
    message._message = transport.to_outgoing_amqp_message(message.raw_amqp_message)
    encoded = transport.encode_message(message)
    size = batch._size + len(encoded) + _IN_BATCH[len(encoded) >= _LONG]
    if size > batch.max_size_in_bytes:
        raise MessageSizeExceededError(
            message=f"ServiceBusMessageBatch has reached its size limit: {batch.max_size_in_bytes}"
        )
    if not batch._count:
        transport.set_batch_envelope_properties(
            batch._message, message.message_id, message.session_id, message.partition_key
        )
    batch._message[_DATA].append(encoded)
    batch._size = size
    batch._count += 1
    batch._messages.append(message)


_DATA: Final = 5
"""Where a batch has its messages."""
_LONG: Final = 256
_IN_BATCH: Final = (5, 8)
"""What a batch adds to a message shorter than that, and to others."""

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


def encoded_by_sdk(message: AmqpAnnotatedMessage) -> bytes:
    """Encode a message as the SDK does when it sends it."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=_UNBOUNDED)
    batch.add_message(message)
    return bytes(batch._message[_DATA][0])


def encoded_in(batch: ServiceBusMessageBatch) -> list[bytes]:
    """Return the messages of a batch as they were encoded when they were added."""
    return [bytes(payload) for payload in batch._message[_DATA]]


_UNBOUNDED: Final = 1 << 40


class SendTimedOutError(SendTimeoutError, OperationTimeoutError):
    """:class:`~pairbus.errors.SendTimeoutError`, for an application that expects the SDK's own time-out error."""

    def __init__(self, error: SendTimeoutError) -> None:
        self.__dict__.update(error.__dict__)
        OperationTimeoutError.__init__(self, message=str(error))
        self.args = error.args


def as_long(value: int) -> object:
    """Return a number as the SDK wants one that may need 64 bits: it takes a plain one for an int of 32."""
    return {"TYPE": "LONG", "VALUE": value}
