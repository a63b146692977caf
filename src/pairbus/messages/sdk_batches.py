"""Messages and batches of the SDK, as far as their inside is needed: what is in a batch, and how it is encoded."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: SLF001 (the SDK's inner objects have no types, and no public way to them)

from collections.abc import Sequence
from typing import Final, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
"""One message, in either of the SDK's forms."""

STANDARD_BATCH_BYTES: Final = 262_144
"""What the SDK takes for the largest batch when a link does not say."""

IN_BATCH_BYTES: Final = 16
"""More than a batch adds to each message, and its envelope's share."""
ENVELOPE_BYTES: Final = 1024
"""More than the envelope of a batch takes."""

DATA: Final = 5
"""Where a batch has its messages."""
_UNBOUNDED: Final = 1 << 40


def messages_of(batch: ServiceBusMessageBatch) -> Sequence[ServiceBusMessage]:
    """Return the messages of a batch, which the SDK itself reads in the same way."""
    return batch._messages


def encoded_by_sdk(message: AmqpAnnotatedMessage) -> bytes:
    """Encode a message as the SDK does when it sends it."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=_UNBOUNDED)
    batch.add_message(message)
    return bytes(batch._message[DATA][0])


def encoded_in(batch: ServiceBusMessageBatch) -> list[bytes]:
    """Return the messages of a batch as they were encoded when they were added."""
    return [bytes(payload) for payload in batch._message[DATA]]


def as_long(value: int) -> object:
    """Return a number as the SDK wants one that may need 64 bits: it takes a plain one for an int of 32."""
    return {"TYPE": "LONG", "VALUE": value}
