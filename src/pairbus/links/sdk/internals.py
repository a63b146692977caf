"""What is not public in the SDK's senders and batches. More is used in ``links``, ``browsing`` and ``shortcuts``."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: SLF001 (the SDK's inner objects have no types, and no public way to them)

from typing import Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._common.tracing import is_tracing_enabled
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.messages.sdk_batches import DATA, Message


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
    batch._message[DATA].append(encoded)
    batch._size = size
    batch._count += 1
    batch._messages.append(message)


_LONG: Final = 256
_IN_BATCH: Final = (5, 8)
"""What a batch adds to a message shorter than that, and to others."""


def new_batch(sender: ServiceBusSender, max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """Make an empty batch that the sender need not encode anew, whether it is open or not."""
    return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes, amqp_transport=sender._amqp_transport)
