"""Messages and batches of the SDK into bytes: the same bytes that the SDK makes of them, a tenth of its time.

The SDK leaves a body out that is false (an empty value), writes the unused fields of header and properties, and
takes integers for 32 bits; so does this. What it seldom meets (decimals, values with a type of their own) it leaves
to the SDK.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import calendar
import datetime as dt
import struct
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp import build_batch, build_message
from pairbus.amqp.encoder import encode_binary, encode_int, encode_long, encode_string, encode_uint, encode_ulong
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Symbol
from pairbus.messages.annotations import ENQUEUED_TIME, LOCKED_UNTIL, PARTITION_KEY
from pairbus.messages.sdk_batches import Message, encoded_by_sdk
from pairbus.messages.sdk_messages import group_key, raw

_LONGEST_LIFE: Final = 922_337_203_685_477
"""What the SDK takes for a life without end, in milliseconds."""
_END_OF_TIME: Final = 253_402_243_199_000
_SHORT: Final = 255
_LONG_ANNOTATIONS: Final = frozenset((ENQUEUED_TIME.encode(), LOCKED_UNTIL.encode()))
"""Annotations that the SDK writes as numbers, whatever they are; it looks for their names as bytes."""
_NULL: Final = b"\x40"
_NOTHING: Final = (None,) * 5

_pack_ubyte = struct.Struct(">BB").pack
_pack_double = struct.Struct(">Bd").pack
_pack_time = struct.Struct(">Bq").pack
_pack_sizes = struct.Struct(">BII").pack


class _SdkOnlyError(Exception):
    """Something that is left to the SDK."""


def encode_message(message: Message) -> bytes:
    """Encode a message as the SDK does.

    :raises TypeError: it has something that AMQP has not.
    :raises ValueError: it has a number that does not fit.
    """
    amqp = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    try:
        return _encode(amqp)
    except _SdkOnlyError:
        return encoded_by_sdk(amqp)
    except struct.error as error:
        raise ValueError(f"a number does not fit: {error}") from None


def encoded(message: Message) -> bytes:
    """Encode a message, or raise what the SDK does for one that cannot be sent."""
    try:
        return encode_message(message)
    except (TypeError, ValueError) as error:
        raise ServiceBusError(f"Handler failed: {error}.", error=error) from error


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


def _encode(amqp: AmqpAnnotatedMessage) -> bytes:
    if amqp.delivery_annotations or amqp.footer:
        raise _SdkOnlyError
    head, times = _header(amqp.header)
    parts = [head]
    annotations = amqp.annotations
    if annotations:
        parts.append(b"\x00\x53\x72" + _annotations(cast("Mapping[Any, Any]", annotations)))
    properties = amqp.properties
    if properties is not None or times is not None:
        parts.append(_properties(properties, times))
    application_properties = amqp.application_properties
    if application_properties:
        parts.append(b"\x00\x53\x74" + _application_properties(cast("dict[Any, Any]", application_properties)))
    kind = amqp.body_type
    if kind is AmqpMessageBodyType.DATA:
        parts += [encode_data_section(piece) for piece in amqp.body]
    elif kind is AmqpMessageBodyType.SEQUENCE:
        parts += [b"\x00\x53\x76" + _value(piece) for piece in amqp.body]
    elif amqp.body:
        parts.append(b"\x00\x53\x77" + _value(amqp.body))
    return b"".join(parts)


def _header(header: AmqpMessageHeader | None) -> tuple[bytes, tuple[int, int] | None]:
    """Return the section, and when the message was made and when its life ends, if it has one."""
    if header is None:
        return b"", None
    life = header.time_to_live
    fields = (header.durable, header.priority, life, header.first_acquirer, header.delivery_count)
    if fields == _NOTHING:
        return b"", None
    body = (
        _boolean(fields[0])
        + (_NULL if fields[1] is None else _pack_ubyte(0x50, fields[1]))
        + (_NULL if life is None else encode_uint(life))
        + _boolean(fields[3])
        + (_NULL if fields[4] is None else encode_uint(fields[4]))
    )
    times = None
    if life and life != _LONGEST_LIFE:
        now = int(time.time()) * 1000
        times = now, min(_END_OF_TIME, now + life)
    return b"\x00\x53\x70" + _compound(0xC0, 5, body), times


def _boolean(value: bool | None) -> bytes:  # noqa: FBT001 (the value itself)
    return _NULL if value is None else (b"\x56\x01" if value else b"\x56\x00")


_NO_PROPERTIES: Final = AmqpMessageProperties()


def _properties(given: AmqpMessageProperties | None, times: tuple[int, int] | None) -> bytes:
    made = _NO_PROPERTIES if given is None else given
    if times is not None:
        created, expires = times
    else:
        created = int(made.creation_time) if made.creation_time else None
        expires = int(made.absolute_expiry_time) if made.absolute_expiry_time else None
        others = (
            made.user_id, made.to, made.subject, made.reply_to, made.correlation_id, made.content_type,
            made.content_encoding, made.absolute_expiry_time, made.creation_time, made.group_id, made.group_sequence,
            made.reply_to_group_id,
        )  # fmt: skip
        if others == _NO_OTHERS:  # as most have
            identity = made.message_id
            return b"" if identity is None else _only_identity(identity)
    sequence = made.group_sequence
    body = b"".join(
        (
            _identity(made.message_id),
            _NULL if made.user_id is None else encode_binary(_octets(made.user_id)),
            _text(made.to),
            _text(made.subject),
            _text(made.reply_to),
            _identity(made.correlation_id),
            _symbol(made.content_type),
            _symbol(made.content_encoding),
            _NULL if expires is None else _pack_time(0x83, expires),
            _NULL if created is None else _pack_time(0x83, created),
            _text(made.group_id),
            _NULL if sequence is None else encode_uint(sequence),
            _text(made.reply_to_group_id),
        )
    )
    return b"\x00\x53\x73" + _compound(0xC0, _PROPERTY_COUNT, body)


_PROPERTY_COUNT: Final = 13
_NO_OTHERS: Final = (None,) * (_PROPERTY_COUNT - 1)
_NULL_OTHERS: Final = _NULL * (_PROPERTY_COUNT - 1)


def _only_identity(identity: Any) -> bytes:  # noqa: ANN401 (an id of any kind)
    return b"\x00\x53\x73" + _compound(0xC0, _PROPERTY_COUNT, _identity(identity) + _NULL_OTHERS)


def _identity(value: Any) -> bytes:  # noqa: ANN401 (an id of any kind)
    if value is None:
        return _NULL
    if type(value) is str:
        return encode_string(value)
    if isinstance(value, int):
        return encode_ulong(value)
    if isinstance(value, uuid.UUID | bytes | str):
        return _value(value)
    raise TypeError("Unsupported Message ID type.")  # the SDK's own words


def _octets(value: str | bytes) -> bytes:
    if isinstance(value, str):
        raise _SdkOnlyError  # which fails, with its own words
    return value


def _text(value: str | bytes | None) -> bytes:
    if value is None:
        return _NULL
    if type(value) is str:
        return encode_string(value)
    octets = value if isinstance(value, bytes) else _encoded_text(value)
    return b"\xa1" + encode_binary(octets)[1:] if len(octets) <= _SHORT else b"\xb1" + encode_binary(octets)[1:]


def _encoded_text(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value.encode()


def _symbol(value: str | bytes | None) -> bytes:
    if value is None:
        return _NULL
    octets = value.encode() if isinstance(value, str) else value
    return (b"\xa3" if len(octets) <= _SHORT else b"\xb3") + encode_binary(octets)[1:]


def _annotations(annotations: Mapping[Any, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in annotations.items():
        if isinstance(value, dict) or name in _LONG_ANNOTATIONS:
            raise _SdkOnlyError
        parts.append(encode_ulong(name) if isinstance(name, int) else _symbol(name))
        parts.append(_value(value))
    return _compound(0xC1, len(parts), b"".join(parts))


def _application_properties(properties: dict[Any, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in properties.items():
        parts.append(_text(name))
        # The SDK takes binary for text here.
        parts.append(_value(value.decode() if isinstance(value, bytes) else value))
    return _compound(0xC1, len(parts), b"".join(parts))


def _compound(code: int, count: int, body: bytes) -> bytes:
    size = len(body)
    if count <= _SHORT and size < _SHORT:
        return bytes((code, size + 1, count)) + body
    return _pack_sizes(code | 0x10, size + 4, count) + body


def _value(value: Any) -> bytes:  # noqa: ANN401 (any value)
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    for kind, base in _BASES:  # in the order in which the SDK looks
        if isinstance(value, kind):
            return base(value)
    raise TypeError(f"Unable to encode unknown value: {value}")  # the SDK's own words


def _encode_int(value: int) -> bytes:
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"Value supplied for int invalid: {value}")  # the SDK's own words
    return encode_int(value)


def _encode_datetime(value: dt.datetime) -> bytes:
    return _pack_time(0x83, int((calendar.timegm(value.utctimetuple()) * 1000) + (value.microsecond / 1000)))


def _encode_list(values: list[Any]) -> bytes:
    return _compound(0xC0, len(values), b"".join(map(_value, values))) if values else b"\x45"


def _encode_dict(values: dict[Any, Any]) -> bytes:
    if "TYPE" in values:
        if values["TYPE"] == "LONG":
            return encode_long(values["VALUE"])
        raise _SdkOnlyError
    parts = [_value(part) for pair in values.items() for part in pair]
    return _compound(0xC1, len(parts), b"".join(parts))


def _leave_to_sdk(_value: object) -> bytes:
    raise _SdkOnlyError


def _null(_value: None) -> bytes:
    return _NULL


def _double(value: float) -> bytes:
    return _pack_double(0x82, value)


def _uuid(value: uuid.UUID) -> bytes:
    return b"\x98" + value.bytes


_BASES: Final[tuple[tuple[type, Callable[[Any], bytes]], ...]] = (
    (type(None), _null),
    (bool, _boolean),
    (str, _text),
    (uuid.UUID, _uuid),
    (bytearray, encode_binary),
    (bytes, encode_binary),
    (float, _double),
    (int, _encode_int),
    (dt.datetime, _encode_datetime),
    (list, _encode_list),
    (dict, _encode_dict),
    (object, _leave_to_sdk),
)
_ENCODERS: Final = dict(_BASES[:-1])
