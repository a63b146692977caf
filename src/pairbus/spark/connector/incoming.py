"""Encoded messages become rows, in Arrow's columns."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, cast

from pyspark.sql.types import StructType

from pairbus.amqp.message import Message
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Value
from pairbus.core.envelope import Label, NotParked, Unparked, unpark
from pairbus.core.envelope import Properties as ApplicationProperties
from pairbus.messages.annotations import (
    DEAD_LETTER_SOURCE,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    MESSAGE_STATE,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    SEQUENCE_NUMBER,
)
from pairbus.spark.connector.arrow import RecordBatch, Schema
from pairbus.spark.connector.values import body_of, to_text

STATES: Final = ("active", "deferred", "scheduled")
SCHEDULED: Final = 2

LONGEST_IN_HEADER: Final = 0xFFFFFFFF
"""A time to live is 32 bits of milliseconds; a longer one is told by the time at which it ends."""
_LAST_MICROSECOND: Final = 2**63 - 1
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND: Final = timedelta(microseconds=1)
_NO_LABEL: Final = Label()


class Found:
    """One message of an entity, of which only what is asked for is decoded.

    :param is_parked: it is in a backlog queue, and is to be shown as it was sent.
    """

    def __init__(self, path: str, payload: bytes, *, is_parked: bool = False) -> None:
        self.path = path
        self._message = Message(payload)
        self._is_parked = is_parked

    @cached_property
    def annotations(self) -> Mapping[Value, Value]:
        """What the broker has noted."""
        return self._message.message_annotations()

    @cached_property
    def header(self) -> Header:
        """How it is transferred."""
        return self._message.header() or Header()

    @cached_property
    def properties(self) -> Properties:
        """Its standard properties."""
        return self._message.properties() or Properties()

    @cached_property
    def unparked(self) -> Unparked | NotParked | None:
        """What it was before it was parked, or why that cannot be told; None: it is not in a backlog."""
        if not self._is_parked:
            return None
        given = cast("ApplicationProperties", self._message.application_properties())
        return unpark(Label(application_properties=given))

    @cached_property
    def application_properties(self) -> Mapping[Value, Value]:
        """The application's own."""
        if isinstance(self.unparked, Unparked):
            return cast("Mapping[Value, Value]", self.unparked.label.application_properties)
        return self._message.application_properties()

    @cached_property
    def body(self) -> tuple[str, bytes]:
        """Its kind and its bytes."""
        return body_of(self._message)

    @property
    def label(self) -> Label | None:
        """What it was sent with, if it was parked."""
        if self.unparked is None:
            return None
        return self.unparked.label if isinstance(self.unparked, Unparked) else _NO_LABEL

    @property
    def sequence_number(self) -> int:
        """Its number in its entity."""
        return int(self.annotations[SEQUENCE_NUMBER])

    @property
    def state(self) -> int:
        """What the broker does with it, see :data:`STATES`."""
        return int(self.annotations.get(MESSAGE_STATE, 0))

    @property
    def enqueued_at(self) -> int | None:
        """When it was enqueued, in milliseconds since the epoch; None: it is not yet, or the broker does not say so."""
        at = self.annotations.get(ENQUEUED_TIME)
        return None if at is None or self.state == SCHEDULED else int(at)

    @property
    def time_to_live(self) -> int | None:
        """In microseconds."""
        if self.label is not None:
            life = self.label.time_to_live
            return None if life is None else life // _MICROSECOND
        return _micros(self._life())

    def _life(self) -> int | None:
        life, properties = self.header.ttl, self.properties
        if life == LONGEST_IN_HEADER and properties.absolute_expiry_time and properties.creation_time:
            return properties.absolute_expiry_time - properties.creation_time  # it did not fit into the header
        return life

    @property
    def scheduled_enqueue_time(self) -> int | None:
        """In microseconds since the epoch."""
        if self.label is not None:
            at = self.label.scheduled_enqueue_time_utc
            return None if at is None else (at - _EPOCH) // _MICROSECOND
        return _micros(self.annotations.get(SCHEDULED_ENQUEUE_TIME))

    @property
    def expires_at(self) -> int | None:
        """In microseconds since the epoch."""
        enqueued, life = self.annotations.get(ENQUEUED_TIME), self._life()
        return None if enqueued is None or life is None else _micros(enqueued + life)


def _micros(milliseconds: int | None) -> int | None:
    """Return what Arrow has for a time or a duration; None for what it cannot have."""
    if milliseconds is None or abs(milliseconds) > _LAST_MICROSECOND // 1000:
        return None
    return int(milliseconds) * 1000


def _text(value: Value) -> str | None:
    return to_text(value)[1]


def _dead_letter(name: str) -> Callable[[Found], str | None]:
    return lambda found: _text(found.application_properties.get(name))


def _state(found: Found) -> str:
    return STATES[found.state] if found.state < len(STATES) else str(found.state)


def _number(value: Value) -> int | None:
    return None if value is None else int(value)


_COLUMNS: Final[Mapping[str, Callable[[Found], Any]]] = {
    "entity": lambda found: found.path,
    "sequenceNumber": lambda found: found.sequence_number,
    "enqueuedTime": lambda found: _micros(found.annotations.get(ENQUEUED_TIME)),
    "expiresAt": lambda found: found.expires_at,
    "deliveryCount": lambda found: found.header.delivery_count or 0,
    "state": _state,
    "enqueuedSequenceNumber": lambda found: _number(found.annotations.get(ENQUEUED_SEQUENCE_NUMBER)),
    "deadLetterReason": _dead_letter("DeadLetterReason"),
    "deadLetterErrorDescription": _dead_letter("DeadLetterErrorDescription"),
    "deadLetterSource": lambda found: _text(found.annotations.get(DEAD_LETTER_SOURCE)),
    "body": lambda found: found.body[1],
    "bodyType": lambda found: found.body[0],
    "messageId": lambda found: _text(found.properties.message_id),
    "sessionId": lambda found: found.label.session_id if found.label is not None else found.properties.group_id,
    "subject": lambda found: found.properties.subject,
    "contentType": lambda found: _text(found.properties.content_type),
    "correlationId": lambda found: _text(found.properties.correlation_id),
    "partitionKey": lambda found: _text(found.annotations.get(PARTITION_KEY)),
    "to": lambda found: found.properties.to,
    "replyTo": lambda found: found.properties.reply_to,
    "replyToSessionId": lambda found: found.properties.reply_to_group_id,
    "timeToLive": lambda found: found.time_to_live,
    "scheduledEnqueueTime": lambda found: found.scheduled_enqueue_time,
    "applicationProperties": lambda found: [
        (str(name), _text(value)) for name, value in found.application_properties.items()
    ],
    "applicationPropertyTypes": lambda found: [
        (str(name), to_text(value)[0]) for name, value in found.application_properties.items()
    ],
    "destination": lambda found: found.unparked.destination if isinstance(found.unparked, Unparked) else None,
    "problem": lambda found: (
        f"{found.unparked.property} {found.unparked.problem}" if isinstance(found.unparked, NotParked) else None
    ),
}


def value_of(found: Found, column: str) -> Any:  # noqa: ANN401 (of the column's type)
    """Return a message's value of a column, as Arrow takes it: times are microseconds."""
    return _COLUMNS[column](found)


class Table:
    """Makes Arrow's batches of messages.

    :param schema: the columns that are wanted, whose names are compared without regard to case.
    """

    def __init__(self, schema: StructType) -> None:
        by_name = {name.lower(): read for name, read in _COLUMNS.items()}
        self._readers = [by_name[field.name.lower()] for field in schema.fields]
        self._schema = Schema(schema)

    def batch(self, messages: Sequence[Found]) -> RecordBatch:
        """Return messages as rows."""
        return self._schema.batch([[read(found) for found in messages] for read in self._readers])
