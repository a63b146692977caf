"""Messages as JSON documents: what ``pairbus receive`` writes is what ``pairbus send`` reads.

The fields are named as in the SDK. Values keep their AMQP types (:mod:`pairbus.messages.values`). The body is one of

=================  =====================================================================
``body``           text: one data section, UTF-8
``body_base64``    binary: one data section, or a list of several
``body_value``     one AMQP value
``body_sequence``  a list of sequences, each a list of values
=================  =====================================================================

``received`` tells where a message was (its sequence number, why it was dead-lettered, ...); a message that is sent does
not have that.
"""

# pyright: reportUnknownMemberType=false

import uuid
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, cast

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from pairbus.amqp.message import DATA, SEQUENCE, Message
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Timestamp
from pairbus.errors import DocumentError
from pairbus.messages.annotations import (
    DEAD_LETTER_SOURCE,
    ENQUEUED_TIME,
    LOCKED_UNTIL,
    MESSAGE_STATE,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    SEQUENCE_NUMBER,
)
from pairbus.messages.encoded_labels import BROKERS_OWN
from pairbus.messages.values import Json, base64_of, from_base64, moment, moment_text, plain, sendable, shortened

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"

_LONGEST_IN_HEADER: Final = 0xFFFFFFFF
_STANDARD: Final = {
    "message_id": "message_id",
    "session_id": "group_id",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply_to",
    "reply_to_session_id": "reply_to_group_id",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "user_id": "user_id",
    "group_sequence": "group_sequence",
}
"""Fields of a document, and what AMQP calls them."""
_IDS: Final = frozenset(("message_id", "correlation_id"))
_BODIES: Final = ("body", "body_base64", "body_value", "body_sequence")
FIELDS: Final = (
    *_STANDARD,
    "partition_key",
    "time_to_live",
    "scheduled_enqueue_time_utc",
    "priority",
    "durable",
    "application_properties",
    "annotations",
    *_BODIES,
)
"""Every field that a document may have, but ``received``."""

_STATES: Final = {0: "active", 1: "deferred", 2: "scheduled"}


# --- a message as a document ---------------------------------------------------------------------------------------


def document_of(message: Message) -> dict[str, Json]:
    """Return a message that was received or peeked as a document; malformed bytes raise ``AmqpError``."""
    made: dict[str, Json] = {}
    properties = message.properties() or Properties()
    header = message.header() or Header()
    annotations = message.message_annotations()
    for field, name in _STANDARD.items():
        value = getattr(properties, name)
        if value is not None:
            made[field] = plain(value) if field in _IDS or isinstance(value, bytes) else _bare(value)
    if isinstance(annotations.get(PARTITION_KEY), str):
        made["partition_key"] = str(annotations[PARTITION_KEY])
    life = _life(header, properties)
    if life is not None:
        made["time_to_live"] = life / 1000
    if isinstance(annotations.get(SCHEDULED_ENQUEUE_TIME), Timestamp):
        made["scheduled_enqueue_time_utc"] = moment_text(annotations[SCHEDULED_ENQUEUE_TIME])
    if header.priority is not None:
        made["priority"] = int(header.priority)
    if header.durable is not None:
        made["durable"] = header.durable
    given = {str(name): plain(value) for name, value in message.application_properties().items()}
    if given:
        made["application_properties"] = given
    own = {
        str(name): plain(value)
        for name, value in annotations.items()
        if name not in BROKERS_OWN and name != PARTITION_KEY
    }
    if own:
        made["annotations"] = own
    made.update(_body_of(message))
    made["received"] = _received(header, annotations, message.application_properties())
    return made


def _bare(value: object) -> Json:
    return int(value) if isinstance(value, int) else str(value)


def _life(header: Header, properties: Properties) -> int | None:
    """Return the time to live in milliseconds, also one that is longer than the header can say."""
    if header.ttl != _LONGEST_IN_HEADER:
        return header.ttl
    made, ends = properties.creation_time, properties.absolute_expiry_time
    return ends - made if made is not None and ends is not None else header.ttl


def _body_of(message: Message) -> dict[str, Json]:
    if not message.body:
        return {}
    kind = message.body[0][0]
    if kind == DATA:
        sections = message.data_sections()
        if len(sections) > 1:
            return {"body_base64": [base64_of(section) for section in sections]}
        try:
            return {"body": sections[0].decode()}
        except UnicodeDecodeError:
            return {"body_base64": base64_of(sections[0])}
    values = message.body_values()
    if kind == SEQUENCE:
        return {"body_sequence": [[plain(each) for each in section] for section in values]}
    return {"body_value": plain(values[0])}


def _received(header: Header, annotations: Mapping[Any, Any], properties: Mapping[Any, Any]) -> dict[str, Json]:
    made: dict[str, Json] = {}
    for field, name, read in _RECEIVED:
        value = annotations.get(name)
        if value is not None:
            made[field] = read(value)
    made["delivery_count"] = int(header.delivery_count or 0)
    for field, name in (
        ("dead_letter_reason", DEAD_LETTER_REASON),
        ("dead_letter_error_description", DEAD_LETTER_DESCRIPTION),
    ):
        if name in properties:
            made[field] = plain(properties[name])
    return made


_RECEIVED: Final[tuple[tuple[str, str, Callable[[Any], Json]], ...]] = (
    ("sequence_number", SEQUENCE_NUMBER, int),
    ("enqueued_time_utc", ENQUEUED_TIME, moment_text),
    ("locked_until_utc", LOCKED_UNTIL, moment_text),
    ("state", MESSAGE_STATE, lambda state: _STATES.get(state, int(state))),
    ("dead_letter_source", DEAD_LETTER_SOURCE, str),
)


# --- a document as a message ---------------------------------------------------------------------------------------


def message_from(document: Json) -> AmqpAnnotatedMessage:
    """Return the message that a document describes, with an id of its own if the document gives none (S7).

    :raises pairbus.errors.DocumentError: a field is not known or cannot be read; the error names it and the cure.
    """
    if not isinstance(document, Mapping):
        raise DocumentError("the line", shortened(document), 'a message is a JSON object: {"body": "one coffee"}')
    given = cast("Mapping[str, Json]", document)
    for name in given:
        if name not in FIELDS and name != "received":
            near = get_close_matches(name, FIELDS, 1)
            cure = f"did you mean {near[0]!r}?" if near else "fields are " + ", ".join(FIELDS)
            raise DocumentError(name, shortened(given[name]), f"not a field of a message; {cure}")
    made = _with_body(given)
    standard = made.properties = AmqpMessageProperties(
        **{name: _standard(field, given[field]) for field, name in _STANDARD.items() if given.get(field) is not None}
    )
    if not standard.message_id:
        standard.message_id = str(uuid.uuid4())
    header = AmqpMessageHeader(
        time_to_live=_milliseconds(given.get("time_to_live")),
        priority=_number("priority", given.get("priority"), 255),
        durable=given.get("durable"),
    )
    if header.values().count(None) != len(header.values()):
        made.header = header
    properties = _map("application_properties", given)
    if properties:
        # The broker's own, and not the application's: a dead letter that is sent again is none.
        made.application_properties = {
            name: value
            for name, value in properties.items()
            if name not in (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION)
        }
    annotations = _map("annotations", given)
    if given.get("partition_key") is not None:
        annotations[PARTITION_KEY] = _text("partition_key", given["partition_key"])
    at = given.get("scheduled_enqueue_time_utc")
    if at is not None:
        annotations[SCHEDULED_ENQUEUE_TIME] = moment("scheduled_enqueue_time_utc", at)
    if annotations:
        made.annotations = annotations
    return made


def _map(field: str, given: Mapping[str, Json]) -> dict[str | bytes, Any]:
    value = given.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DocumentError(field, shortened(value), 'an object: {"name": "value"}')
    pairs = cast("Mapping[str, Json]", value)
    return {name: sendable(f"{field}.{name}", each) for name, each in pairs.items()}


def _standard(field: str, value: Json) -> Any:  # noqa: ANN401 (what the SDK takes)
    if field == "group_sequence":
        return _number(field, value, 0xFFFFFFFF)
    if field not in _IDS and field != "user_id":
        return _text(field, value)
    made = sendable(field, value)
    if isinstance(made, dict) and cast("dict[str, Any]", made).get("TYPE") in ("ULONG", "BINARY"):
        return cast("dict[str, Any]", made)["VALUE"]
    if not isinstance(made, str | bytes | uuid.UUID):
        raise DocumentError(field, shortened(value), "text, binary, a uuid or a ulong")
    return made


def _text(field: str, value: Json) -> str:
    if not isinstance(value, str):
        raise DocumentError(field, shortened(value), "text")
    return value


def _number(field: str, value: Json, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise DocumentError(field, shortened(value), f"a whole number from 0 to {most}")
    return value


def _milliseconds(value: Json) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise DocumentError("time_to_live", shortened(value), "a number of seconds, more than 0")
    if value * 1000 > _LONGEST_IN_HEADER:
        raise DocumentError("time_to_live", value, "the SDK can say 4294967 seconds at most (49 days); leave it out")
    return max(1, round(value * 1000))


def _with_body(given: Mapping[str, Json]) -> AmqpAnnotatedMessage:
    bodies = [name for name in _BODIES if given.get(name) is not None]
    if len(bodies) > 1:
        raise DocumentError(bodies[1], shortened(given[bodies[1]]), f"a message has one body, and there is {bodies[0]}")
    if not bodies:
        return AmqpAnnotatedMessage(data_body=[b""])
    (name,) = bodies
    value = given[name]
    if name == "body":
        return AmqpAnnotatedMessage(data_body=[_text(name, value).encode()])
    if name == "body_base64":
        sections = cast("list[Json]", value) if isinstance(value, list) else [value]
        return AmqpAnnotatedMessage(data_body=[from_base64(name, section) for section in sections])
    if name == "body_sequence":
        return AmqpAnnotatedMessage(sequence_body=_sequences(value))
    return AmqpAnnotatedMessage(value_body=_value(value))


def _sequences(value: Json) -> list[list[Any]]:
    if not isinstance(value, list) or not all(isinstance(each, list) for each in cast("list[Json]", value)):
        raise DocumentError("body_sequence", shortened(value), "a list of sequences, each a list: [[1, 2], [3]]")
    return [
        [sendable(f"body_sequence[{index}]", each) for each in section]
        for index, section in enumerate(cast("list[list[Json]]", value))
    ]


def _value(value: Json) -> Any:  # noqa: ANN401 (what the SDK encodes)
    made = sendable("body_value", value)
    if isinstance(made, dict) and cast("dict[Any, Any]", made).keys() == {"TYPE", "VALUE"}:
        kind = cast("dict[str, Any]", made)["TYPE"]
        if kind in ("INT", "DOUBLE", "BINARY"):
            return cast("dict[str, Any]", made)["VALUE"]
        raise DocumentError(
            "body_value",
            shortened(value),
            f"the SDK cannot send a body that is a bare {kind.lower()}; put it in a list",
        )
    return cast("Any", made)
