"""Values of AMQP as text with the name of their type, as the SDK sends them, and bodies as bytes with their kind.

The text of an application property is for people and for SQL; together with its type it is the whole value:

==========================================  ==========================================================
``string``, ``symbol``, ``char``            itself
``boolean``                                 ``true``, ``false``
``ubyte`` … ``long``, ``float``, ``double``  the number
``timestamp``                               ISO 8601, UTC: ``2026-01-31T12:00:00.000Z``
``uuid``                                    in five groups
``binary``                                  Base64
``null``                                    null
``amqp``                                    anything else (decimals, lists …): its encoding, in Base64
==========================================  ==========================================================
"""

import base64
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from pairbus.amqp.conditions import AmqpError
from pairbus.amqp.decoder import decode
from pairbus.amqp.encoder import encode
from pairbus.amqp.message import DATA, SEQUENCE, Message
from pairbus.amqp.types import Byte, Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort, Value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_NAMES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int",
    int: "long",
    Float: "float",
    float: "double",
    Timestamp: "timestamp",
    uuid.UUID: "uuid",
    bytes: "binary",
    str: "string",
    Symbol: "symbol",
    Char: "char",
}
_TO_SDK: Final[Mapping[str, str]] = {
    name: {"boolean": "BOOL"}.get(name, name.upper()) for name in _NAMES.values() if name != "char"
}
"""How the SDK calls the types that it can send."""


def _type_of(value: object) -> type:
    return type(value)


def to_text(value: Value) -> tuple[str, str | None]:
    """Return the name of a value's type, and the value as text."""
    name = _NAMES.get(_type_of(value), "amqp")
    if name == "null":
        return name, None
    if name == "amqp":
        return name, base64.b64encode(encode(value)).decode()
    if name == "binary":
        return name, base64.b64encode(value).decode()
    if name == "boolean":
        return name, "true" if value else "false"
    if name == "timestamp":
        return name, _iso(value)
    return name, str(value)


def from_text(kind: str, text: str | None) -> object:
    """Return a property as the SDK sends it, from its text and the name of its type.

    :raises ValueError: it cannot be; the text says why.
    """
    if text is None or kind == "null":
        return typed("null", None)
    if kind == "amqp":
        return from_encoded(base64.b64decode(text))
    parse = _PARSERS.get(kind)
    if parse is None:
        raise ValueError(f"no type {kind!r} can be sent; those that can are {', '.join(sorted((*_PARSERS, 'amqp')))}")
    try:
        return typed(kind, parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a {kind}: {error}") from None


def typed(kind: str, value: object) -> object:
    """Return a value as the SDK sends it as just this type of AMQP."""
    return {"TYPE": _TO_SDK[kind], "VALUE": value}


def from_encoded(encoded: bytes) -> object:
    """Return a value as the SDK sends it, from its encoding.

    :raises ValueError: it is no value, or one that the SDK cannot send.
    """
    return _to_sdk(_decoded(encoded))


def _decoded(encoded: bytes) -> Value:
    try:
        return decode(encoded)[0]
    except AmqpError as error:
        raise ValueError(f"not a value of AMQP: {error}") from None


def _to_sdk(value: Value) -> object:
    if type(value) is list:
        return {"TYPE": "LIST", "VALUE": [_to_sdk(each) for each in cast("list[Value]", value)]}
    if isinstance(value, dict):
        pairs = cast("dict[Value, Value]", value).items()
        return {"TYPE": "MAP", "VALUE": [(_to_sdk(key), _to_sdk(each)) for key, each in pairs]}
    name = _NAMES.get(_type_of(value))
    if name not in _TO_SDK:
        raise ValueError(f"the SDK cannot send a {type(value).__name__.lower()}")
    return typed(name, value)


def _bare(value: Value) -> object:
    """Return a value that is a whole body: there the SDK takes no type, only what Python's own types mean to it."""
    if type(value) is list and value:
        return [_to_sdk(each) for each in cast("list[Value]", value)]
    if isinstance(value, dict) and value:
        return {_bare(key): _to_sdk(each) for key, each in cast("dict[Value, Value]", value).items()}
    if isinstance(value, Timestamp):
        return value.to_datetime()
    scalar = cast("object", value)
    if not scalar or type(scalar) not in _BARE:
        raise ValueError(f"the SDK cannot send the {to_text(scalar)[0]} {scalar!r} as a body of its own")
    return int(scalar) if isinstance(scalar, Int) else scalar


_BARE: Final = (bool, Int, float, str, bytes, uuid.UUID)
"""Types that mean just one type of AMQP to the SDK, as whole bodies and as keys; and it leaves out what is false."""


def body_of(message: Message) -> tuple[str, bytes]:
    """Return what kind of body a message has, and its bytes.

    ``data``, ``value/string`` and ``value/binary`` are the payload itself; ``value`` and ``sequence`` are its encoding.
    """
    if not message.body or message.body[0][0] == DATA:
        return "data", b"".join(message.data_sections())
    values = message.body_values()
    if message.body[0][0] == SEQUENCE:
        return "sequence", encode(values)
    value = values[0]
    if type(value) is str:
        return "value/string", value.encode()
    if type(value) is bytes:
        return "value/binary", value
    return "value", encode(value)


def sdk_body(kind: str, body: bytes) -> dict[str, Any]:
    """Return the argument that makes such a body, for the SDK's ``AmqpAnnotatedMessage``.

    :raises ValueError: there is no such kind, or the bytes are not of it.
    """
    if kind == "data":
        return {"data_body": body}
    if kind == "value/string":
        return {"value_body": body.decode()}
    if kind == "value/binary":
        return {"value_body": body}
    if kind == "value":
        return {"value_body": _bare(_decoded(body))}
    if kind == "sequence":
        sections = from_encoded(body)
        return {"sequence_body": [each["VALUE"] for each in cast("dict[str, Any]", sections)["VALUE"]]}
    raise ValueError(f"no body is {kind!r}; it is data, value/string, value/binary, value or sequence")


def _iso(milliseconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(int(milliseconds))  # beyond the year 9999
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(text: str) -> int:
    if text.lstrip("-").isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("it is true or false")
    return text == "true"


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"it is from {low} to {high}")
        return number

    return parse


def _single(text: str) -> float:
    number = float(text)
    if math.isfinite(number) and abs(number) > _LARGEST_SINGLE:
        raise ValueError("it does not fit in 32 bits")
    return number


_LARGEST_SINGLE: Final = 3.4028234663852886e38

_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "boolean": _boolean,
    "ubyte": _whole(0, 2**8 - 1),
    "ushort": _whole(0, 2**16 - 1),
    "uint": _whole(0, 2**32 - 1),
    "ulong": _whole(0, 2**64 - 1),
    "byte": _whole(-(2**7), 2**7 - 1),
    "short": _whole(-(2**15), 2**15 - 1),
    "int": _whole(-(2**31), 2**31 - 1),
    "long": _whole(-(2**63), 2**63 - 1),
    "float": _single,
    "double": float,
    "timestamp": _milliseconds,
    "uuid": uuid.UUID,
    "binary": base64.b64decode,
    "string": str,
    "symbol": str,
}
