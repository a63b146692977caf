"""The label of an encoded message: read from it, and written in place of the old one.

Only header, annotations, application properties and, where they change, the standard properties are touched; the types
of application properties are kept, and the body is carried byte for byte (E2).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast

from pairbus.amqp.message import KEEP, Message
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.core.envelope import Label
from pairbus.core.envelope import Properties as ApplicationProperties
from pairbus.messages.annotations import (
    DEAD_LETTER_SOURCE,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MESSAGE_STATE,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    SEQUENCE_NUMBER,
)

BROKERS_OWN: Final = frozenset(
    (
        ENQUEUED_TIME,
        SCHEDULED_ENQUEUE_TIME,
        SEQUENCE_NUMBER,
        LOCKED_UNTIL,
        ENQUEUED_SEQUENCE_NUMBER,
        MESSAGE_STATE,
        DEAD_LETTER_SOURCE,
        LOCK_TOKEN,
    )
)
"""Annotations that a broker gives a message: where it was, not what it is."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST_IN_HEADER: Final = 0xFFFFFFFF
"""A time to live is 32 bits of milliseconds; a longer one is told by the time at which it ends."""
_END_OF_TIME: Final = 253_402_243_199_000
"""The latest time at which the SDK lets a message end."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of a message in a backlog queue."""

    label: Label
    enqueued_at: datetime | None
    partition_key: str | None


def enqueued_at_of(message: Message) -> datetime | None:
    """Return when a received or peeked message was enqueued, if it says so."""
    enqueued = message.message_annotations().get(ENQUEUED_TIME)
    return Timestamp(enqueued).to_datetime() if isinstance(enqueued, int) else None


def read(message: Message) -> Reading:
    """Read what the rules need; malformed bytes raise :class:`~pairbus.amqp.AmqpError`."""
    annotations = message.message_annotations()
    partition_key = annotations.get(PARTITION_KEY)
    return Reading(
        label=Label(application_properties=cast("ApplicationProperties", message.application_properties())),
        enqueued_at=enqueued_at_of(message),
        partition_key=partition_key if isinstance(partition_key, str) else None,
    )


def relabelled(message: Message, label: Label, now: datetime) -> bytes:
    """Encode a message with another label, as its sender would send it now."""
    old = message.header() or Header()
    life = None if label.time_to_live is None else label.time_to_live // _MILLISECOND
    header = Header(old.durable, old.priority, None if life is None else min(life, _LONGEST_IN_HEADER))
    annotations = {name: value for name, value in message.message_annotations().items() if name not in BROKERS_OWN}
    if label.scheduled_enqueue_time_utc is not None:
        annotations[Symbol(SCHEDULED_ENQUEUE_TIME)] = Timestamp.of(label.scheduled_enqueue_time_utc)
    properties = message.properties()
    group = None if properties is None else properties.group_id
    changed = properties or Properties()
    if group != label.session_id or life is not None:
        changed.group_id = label.session_id
        if life is not None:  # as the SDK does
            changed.creation_time = Timestamp.of(now)
            changed.absolute_expiry_time = min(changed.creation_time + life, _END_OF_TIME)
    else:
        changed = KEEP
    return message.rewritten(
        header=None if header == Header() else header,
        delivery_annotations=None,
        message_annotations=annotations,
        properties=changed,
        application_properties=dict(label.application_properties),
    )
