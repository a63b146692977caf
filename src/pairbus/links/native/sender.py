"""What a sender of the SDK does, by the native client: the same messages, outcomes, errors and ids."""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Self

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp import build_batch, build_message
from pairbus.amqp.performatives import BATCH_FORMAT
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Array, Symbol, Value
from pairbus.links.native import errors
from pairbus.links.native.client import NativeClient
from pairbus.links.native.encoding import encode_message
from pairbus.links.native.sending import SendingLink
from pairbus.messages.annotations import PARTITION_KEY
from pairbus.messages.sdk_batches import Message, encoded_in, messages_of
from pairbus.messages.sdk_messages import group_key, raw

_LONG: Final = 0x81


class NativeSender:
    """The sending methods of :class:`azure.servicebus.aio.ServiceBusSender`, on one link that any number may share.

    :param seconds: how long a batch or a management request may take.
    """

    def __init__(self, client: NativeClient, link: SendingLink, seconds: float) -> None:
        self.link: Final = link
        self._client = client
        self._seconds = seconds

    @property
    def sender(self) -> Self:
        """Itself: here a link and its sender are one."""
        return self

    async def send_one(self, message: Message) -> None:
        """Send one message."""
        await self.link.deliver(encoded(message), 0, self._seconds)

    async def send_messages(self, message: Message | Sequence[Message] | ServiceBusMessageBatch) -> None:
        """Send one message, or several as one batch."""
        if isinstance(message, ServiceBusMessageBatch):
            payload, kind = batch_of(encoded_in(message), messages_of(message)[0]), BATCH_FORMAT
        elif isinstance(message, Sequence):
            payload, kind = batch_of([encode_message(each) for each in message], message[0]), BATCH_FORMAT
        else:
            payload, kind = encoded(message), 0
        await self.link.deliver(payload, kind, self._seconds)

    async def schedule_messages(self, messages: Sequence[Message], schedule_time_utc: datetime) -> list[int]:
        """Send messages to be enqueued at a time, and return their sequence numbers."""
        entries: list[Value] = []
        for message in messages:
            if not isinstance(message, ServiceBusMessage):
                raise ValueError(  # noqa: TRY004 (the SDK's own error)
                    "Scheduling batch messages only supports iterables containing ServiceBusMessage Objects. "
                    f"Received instead: {type(message).__name__}"
                )
            message.scheduled_enqueue_time_utc = schedule_time_utc
            entry: dict[str, Value] = {"message-id": message.message_id, "message": encoded(message)}
            if message.session_id:
                entry["session-id"] = message.session_id
            if message.partition_key:
                entry["partition-key"] = message.partition_key
            entries.append(entry)
        answer: Any = await self._client.manage(
            self.link.entity, "schedule-message", {"messages": entries}, self._seconds
        )
        return [int(number) for number in answer["sequence-numbers"]]

    async def cancel_scheduled_messages(self, sequence_numbers: int | Sequence[int]) -> None:
        """Cancel messages that were scheduled."""
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        if numbers:
            body = {"sequence-numbers": Array(_LONG, numbers)}
            await self._client.manage(self.link.entity, "cancel-scheduled-message", body, self._seconds)


def encoded(message: Message) -> bytes:
    """Encode a message, or raise what the SDK does for one that cannot be sent."""
    try:
        return encode_message(message)
    except (TypeError, ValueError) as error:
        raise errors.unsent(ServiceBusError(f"Handler failed: {error}.", error=error)) from error


def batch_of(payloads: Sequence[bytes], first: Message) -> bytes:
    """Encode a batch of encoded messages, of which this is the first."""
    return build_batch(payloads, _envelope(first))


def _envelope(first: Message) -> bytes:
    """Return what the SDK says of a whole batch: the id, the session and the partition key of its first message."""
    session, key = map(_as_text, group_key(first))
    properties = raw(first).properties
    identity: Any = properties.message_id if properties is not None else None
    if isinstance(identity, bytes | uuid.UUID):
        identity = None
    return build_message(
        message_annotations={Symbol(PARTITION_KEY): key} if key else None,
        properties=Properties(message_id=identity, group_id=session) if identity or session else None,
    )


def _as_text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None
