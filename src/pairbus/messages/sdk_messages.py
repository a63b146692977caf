"""Messages of the SDK: what a caller may hand in, what the rules need to know of one, and one rewritten for parking."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties

from pairbus.core.envelope import TIME_TO_LIVE, Label, Properties, check_label, park, split
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.errors import ParkedMessageTooLargeError
from pairbus.messages.annotations import PARTITION_KEY, SCHEDULED_ENQUEUE_TIME
from pairbus.messages.sdk_batches import Message, as_long, messages_of

MessageTypes: TypeAlias = (
    Mapping[str, Any]
    | ServiceBusMessage
    | AmqpAnnotatedMessage
    | Iterable[Mapping[str, Any]]
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)
"""What the SDK takes for one message or many."""

_MESSAGES: Final = (ServiceBusMessage, AmqpAnnotatedMessage)
_SCHEDULED: Final = SCHEDULED_ENQUEUE_TIME
_HEADER_FIELDS: Final = ("delivery_count", "first_acquirer", "durable", "priority")
_PROPERTY_FIELDS: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "creation_time",
    "group_sequence",
    "reply_to_group_id",
)
_UNBOUNDED: Final = 1 << 40
_ID_BYTES: Final = 16
_FIXED_BYTES: Final = 8
"""What a value takes that is neither text nor binary, more or less."""
_SECTION_BYTES: Final = 8
"""What a section of a message takes beside its fields, more or less."""
_FIELD_BYTES: Final = 2
"""What a field takes beside its value."""
_HEADER_BYTES, _TIMES_BYTES = 18, 18
"""What a header takes that has a time to live, and the times that the SDK works out from it."""


def outgoing(given: MessageTypes | ServiceBusMessageBatch) -> tuple[Message, ...]:
    """Return the messages that a caller has handed in, each with an id (S7)."""
    if isinstance(given, _MESSAGES):
        return (_identified(given),)
    if isinstance(given, ServiceBusMessageBatch):
        return tuple(map(_identified, messages_of(given)))
    if isinstance(given, Mapping):
        return (_identified(_made(cast("Mapping[str, Any]", given))),)
    if not isinstance(cast("object", given), Iterable):
        raise _not_a_message(given)
    return tuple(_identified(_one(each)) for each in given)


def _one(given: object) -> Message:
    if isinstance(given, ServiceBusMessage | AmqpAnnotatedMessage):
        return given
    if isinstance(given, Mapping):
        return _made(cast("Mapping[str, Any]", given))
    raise _not_a_message(given)


def _made(given: Mapping[str, Any]) -> ServiceBusMessage:
    try:
        return ServiceBusMessage(**given)
    except TypeError:
        raise _not_a_message(given) from None


def _not_a_message(given: object) -> TypeError:
    return TypeError(  # the SDK's own words
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances or Mappings representing messages are supported. "
        f"Received instead: {type(given).__name__}"
    )


def raw(message: Message) -> AmqpAnnotatedMessage:
    """Return the message as AMQP has it."""
    return message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message


def _identified(message: Message) -> Message:
    amqp = raw(message)
    properties = amqp.properties
    if properties is None:
        properties = amqp.properties = AmqpMessageProperties()
    if not properties.message_id:
        properties.message_id = os.urandom(_ID_BYTES).hex()
    return message


def id_of(message: Message) -> object:
    """Return the id of a message, which each has once it was handed in."""
    properties = raw(message).properties
    return None if properties is None else properties.message_id


def identified(batch: ServiceBusMessageBatch) -> bool:
    """Tell whether every message of a batch, which is encoded already, has an id."""
    return all(message.message_id for message in messages_of(batch))


def check(messages: Iterable[Message]) -> None:
    """Refuse messages that use a property of ours, before anything is sent (E3)."""
    for message in messages:
        properties = raw(message).application_properties
        if properties:
            check_label(Label(application_properties=cast("Properties", properties)))


def group_key(message: Message) -> tuple[object, object]:
    """Return what messages that travel together must have in common: the session, and the partition key."""
    amqp = raw(message)
    session = amqp.properties.group_id if amqp.properties is not None else None
    return session, _annotation(amqp, PARTITION_KEY) if amqp.annotations else None


def carrier_of(message: Message) -> MutableMapping[Any, Any]:
    """Return the message's application properties, to which a trace's context may be added."""
    amqp = raw(message)
    if amqp.application_properties is None:
        amqp.application_properties = {}
    return cast("MutableMapping[Any, Any]", amqp.application_properties)


def label_of(message: Message) -> Label:
    """Return the part of a message that parking rewrites."""
    amqp = raw(message)
    ttl = amqp.header.time_to_live if amqp.header is not None else None
    session = amqp.properties.group_id if amqp.properties is not None else None
    at = _annotation(amqp, _SCHEDULED)
    return Label(
        session_id=session.decode() if isinstance(session, bytes) else session,
        time_to_live=timedelta(milliseconds=ttl) if ttl else None,  # to the SDK none and nothing are the same
        scheduled_enqueue_time_utc=at if at is None or isinstance(at, datetime) else _moment(at),
        application_properties=cast("Properties", amqp.application_properties or {}),
    )


def parked(message: Message, destination: str) -> AmqpAnnotatedMessage:
    """Return the message as it travels by way of a backlog queue (E1); the one handed in stays as it is."""
    amqp = raw(message)
    made = _with_body(amqp)
    header, properties = amqp.header, amqp.properties
    if header is not None:
        made.header = AmqpMessageHeader(**{name: getattr(header, name) for name in _HEADER_FIELDS})
    if properties is not None:
        # Neither the session nor the time of expiry, which the SDK works out from the time to live.
        made.properties = AmqpMessageProperties(**{name: getattr(properties, name) for name in _PROPERTY_FIELDS})
    labelled = cast("dict[str | bytes, Any]", dict(park(label_of(message), destination).application_properties))
    if TIME_TO_LIVE in labelled:
        labelled[TIME_TO_LIVE] = as_long(labelled[TIME_TO_LIVE])
    made.application_properties = labelled
    made.annotations = {k: v for k, v in (amqp.annotations or {}).items() if _text(k) != _SCHEDULED}
    made.delivery_annotations = dict(amqp.delivery_annotations) if amqp.delivery_annotations else None
    made.footer = dict(amqp.footer) if amqp.footer else None
    return made


def _with_body(amqp: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    if amqp.body_type is AmqpMessageBodyType.DATA:
        return AmqpAnnotatedMessage(data_body=list(amqp.body))
    if amqp.body_type is AmqpMessageBodyType.SEQUENCE:
        return AmqpAnnotatedMessage(sequence_body=list(amqp.body))
    return AmqpAnnotatedMessage(value_body=amqp.body)


def _annotation(amqp: AmqpAnnotatedMessage, name: str) -> Any:  # noqa: ANN401 (whatever the application has put there)
    annotations = cast("Mapping[Any, Any]", amqp.annotations or {})
    return annotations.get(name, annotations.get(name.encode()))


def _moment(milliseconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _text(key: str | bytes) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else key


def encoded_size(message: Message) -> int:
    """Return how many bytes a message takes in a batch."""
    empty = ServiceBusMessageBatch(max_size_in_bytes=_UNBOUNDED)
    before = empty.size_in_bytes
    empty.add_message(message)
    return empty.size_in_bytes - before


def sized(known: ErrorFacts, messages: Iterable[Message]) -> ErrorFacts:
    """Add the size of the messages to the facts of a failure, if it was that they did not fit."""
    if known.cause is not Cause.FULL:
        return known
    return replace(known, did_not_fit=sum(map(encoded_size, messages)))


def size_of(message: Message) -> int:
    """Return about how many bytes a message has, for the ledger: its body and properties, without encoding it.

    It is right to within some tens of bytes: beside the values there are a few bytes for each section and field. One
    that cannot be encoded has a size too: why it cannot is told when that is tried.
    """
    amqp = raw(message)
    size = _SECTION_BYTES + _size_of_body(amqp)
    if amqp.header is not None and amqp.header.time_to_live:
        size += _HEADER_BYTES
    if amqp.properties is not None:
        size += _SECTION_BYTES + _size_of_properties(amqp.properties)
    for section in (amqp.application_properties, amqp.annotations):
        if section:
            size += _SECTION_BYTES
            for key, value in section.items():
                size += _length(key) + _length(value) + 2 * _FIELD_BYTES
    return size


def _size_of_body(amqp: AmqpAnnotatedMessage) -> int:
    if amqp.body_type is AmqpMessageBodyType.DATA:
        return sum(map(_length, amqp.body))
    if amqp.body_type is AmqpMessageBodyType.SEQUENCE:
        return len(str(list(amqp.body)))
    return 0 if amqp.body is None else len(str(amqp.body))


def _size_of_properties(given: AmqpMessageProperties) -> int:
    size = _TIMES_BYTES if given.absolute_expiry_time else 0
    for value in (
        given.message_id, given.group_id, given.content_type, given.subject, given.to,
        given.correlation_id, given.reply_to, given.reply_to_group_id,
    ):  # fmt: skip
        if value is not None:
            size += _length(value) + _FIELD_BYTES
    return size


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | bytearray | memoryview) else _FIXED_BYTES


def too_large(message: Message, rewritten: Message, limit: int) -> ParkedMessageTooLargeError:
    """Say that a message no longer fits once it is rewritten, with both sizes (S8)."""
    return ParkedMessageTooLargeError(encoded_size(message), encoded_size(rewritten), limit)


def runs(messages: Sequence[Message], rewritten: Sequence[Message], limit: int) -> list[Sequence[Message]]:
    """Cut rewritten messages into runs that fit in one batch each, in their order (S8)."""
    room = limit - ServiceBusMessageBatch(max_size_in_bytes=limit).size_in_bytes
    grown = list(map(encoded_size, rewritten))
    sizes = grown if max(grown) <= room else list(map(encoded_size, messages))
    return [rewritten[run.start : run.stop] for run in split(sizes, grown, room)]
