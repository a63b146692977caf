"""The two sections of a message that have named fields. All else is a map or a body."""

import uuid
from dataclasses import dataclass
from typing import TypeAlias

from pairbus.amqp.types import Symbol

MessageId: TypeAlias = int | uuid.UUID | bytes | str
"""A message id or correlation id: a ulong (``ULong``), a uuid, binary or a string."""


@dataclass(slots=True)
class Header:
    """How a message is to be transferred; ``ttl`` in milliseconds. ``None`` is null: not said."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass(slots=True)
class Properties:
    """The standard properties of a message, which nobody on its way may change; times in ms since the epoch, UTC."""

    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: Symbol | None = None
    content_encoding: Symbol | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
