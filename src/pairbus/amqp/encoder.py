"""AMQP values into bytes, in the shortest encoding of their type.

A value that is no AMQP value raises ``TypeError``, one that does not fit its type ``ValueError``: both
are mistakes of the caller, never of a peer.
"""

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from pairbus.amqp.decoder import WIDEST
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

_SHORT: Final = 256
"""Sizes and counts below this take one byte."""
_KEPT_SYMBOLS: Final = 1024

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"

_pack_uint = struct.Struct(">I").pack
_pack_uint_pair = struct.Struct(">II").pack
_pack_short_uint = struct.Struct(">BB").pack
_pack_long_uint = struct.Struct(">BI").pack
_pack_ulong = struct.Struct(">BQ").pack
_pack_short_int = struct.Struct(">Bb").pack
_pack_int = struct.Struct(">Bi").pack
_pack_long = struct.Struct(">Bq").pack


def encode(value: Value) -> bytes:
    """Encode one value, with its constructor."""
    encoder = _find_encoder(type(value))  # pyright: ignore[reportUnknownArgumentType] (any type)
    if encoder is None:
        encoder = _encoder_by_base(value)
    try:
        return encoder(value)
    except struct.error:
        raise ValueError(f"{value!r} does not fit an AMQP {type(value).__name__}") from None


def encode_boolean(value: bool) -> bytes:  # noqa: FBT001 (the value itself)
    """Encode a boolean in one byte."""
    return TRUE if value else FALSE


def encode_uint(value: int) -> bytes:
    """Encode a uint: one, two or five bytes."""
    if value == 0:
        return b"\x43"
    return _pack_short_uint(0x52, value) if value < _SHORT else _pack_long_uint(0x70, value)


def encode_ulong(value: int) -> bytes:
    """Encode a ulong: one, two or nine bytes."""
    if value == 0:
        return b"\x44"
    return _pack_short_uint(0x53, value) if value < _SHORT else _pack_ulong(0x80, value)


def encode_int(value: int) -> bytes:
    """Encode an int of 32 bits: two or five bytes."""
    return _pack_short_int(0x54, value) if -128 <= value <= 127 else _pack_int(0x71, value)  # noqa: PLR2004 (a byte)


def encode_long(value: int) -> bytes:
    """Encode a long of 64 bits: two or nine bytes."""
    return _pack_short_int(0x55, value) if -128 <= value <= 127 else _pack_long(0x81, value)  # noqa: PLR2004 (a byte)


def encode_binary(value: bytes) -> bytes:
    """Encode binary data."""
    size = len(value)
    return (_pack_short_uint(0xA0, size) if size < _SHORT else _pack_long_uint(0xB0, size)) + value


def encode_string(value: str) -> bytes:
    """Encode a string; one with a lone surrogate is no text: ``UnicodeEncodeError``, a ``ValueError``."""
    octets = value.encode()
    size = len(octets)
    return (_pack_short_uint(0xA1, size) if size < _SHORT else _pack_long_uint(0xB1, size)) + octets


def encode_symbol(value: str) -> bytes:
    """Encode a symbol; those in use are few, so their bytes are kept."""
    known = _symbols.get(value)
    if known is not None:
        return known
    octets = value.encode("ascii")
    size = len(octets)
    encoded = (_pack_short_uint(0xA3, size) if size < _SHORT else _pack_long_uint(0xB3, size)) + octets
    if size < _SHORT and len(_symbols) < _KEPT_SYMBOLS:
        _symbols[str(value)] = encoded
    return encoded


_symbols: dict[str, bytes] = {}


def encode_symbols(values: Iterable[str]) -> bytes:
    """Encode several symbols as an array: the form of a field that may be repeated."""
    return encode(Array(0xB3, values))


def encode_list(values: Iterable[Value]) -> bytes:
    """Encode a list."""
    return join_list([encode(value) for value in values])


def join_list(parts: list[bytes]) -> bytes:
    """Join to a list elements that are encoded already."""
    return _compound(0xC0, len(parts), b"".join(parts)) if parts else b"\x45"


def encode_map(values: dict[Value, Value]) -> bytes:
    """Encode a map."""
    parts: list[bytes] = []
    for key, value in values.items():
        known = _symbols.get(key) if type(key) is Symbol else None
        parts.append(known or encode(key))
        parts.append(encode(value))
    return _compound(0xC1, len(parts), b"".join(parts))


def encode_described(descriptor: Value, value: bytes) -> bytes:
    """Put an encoded value under a descriptor."""
    return b"\x00" + encode(descriptor) + value


def _compound(short_code: int, count: int, body: bytes) -> bytes:
    size = len(body) + 1
    if size < _SHORT and count < _SHORT:
        return bytes((short_code, size, count)) + body
    return _pack_long_uint(short_code | 0x10, size + 3) + _pack_uint(count) + body


def _encode_described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _encode_array(values: Array) -> bytes:
    code = WIDEST.get(values.code, values.code)
    if values and code in _SIZED and all(_size(value) < _SHORT for value in values):
        code -= 0x10
    element = _ELEMENTS.get(code)
    if element is None:
        raise TypeError(f"an array's elements cannot have the constructor 0x{values.code:02x}")
    head = bytes((code,)) if values.descriptor is None else encode_described(values.descriptor, bytes((code,)))
    return _compound(0xE0, len(values), head + b"".join([element(value) for value in values]))


def _size(value: Value) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value)


def _sized(layout: Callable[[int], bytes], text: str | None) -> Callable[[Value], bytes]:
    def element(value: Value) -> bytes:
        octets = bytes(value) if text is None else value.encode(text)
        return layout(len(octets)) + octets

    return element


def _octet(size: int) -> bytes:
    return bytes((size,))


def _list_element(values: list[Value]) -> bytes:
    body = b"".join([encode(value) for value in values])
    return _pack_uint_pair(len(body) + 4, len(values)) + body


def _map_element(values: dict[Value, Value]) -> bytes:
    body = b"".join([encode(key) + encode(value) for key, value in values.items()])
    return _pack_uint_pair(len(body) + 4, 2 * len(values)) + body


def _array_element(values: Array) -> bytes:
    encoded = _encode_array(values)
    if encoded[0] == 0xF0:  # noqa: PLR2004 (array32)
        return encoded[1:]
    return _pack_uint_pair(encoded[1] + 3, encoded[2]) + encoded[3:]


def _nothing(_value: Value) -> bytes:
    return b""


def _boolean_octet(value: Value) -> bytes:
    return b"\x01" if value else b"\x00"


def _character(value: str) -> bytes:
    return _pack_uint(ord(value))


def _uuid_octets(value: uuid.UUID) -> bytes:
    return value.bytes


_SIZED: Final = frozenset((0xB0, 0xB1, 0xB3))
_ELEMENTS: Final[dict[int, Callable[[Value], bytes]]] = {
    0x40: _nothing,
    0x50: struct.Struct(">B").pack,
    0x51: struct.Struct(">b").pack,
    0x56: _boolean_octet,
    0x60: struct.Struct(">H").pack,
    0x61: struct.Struct(">h").pack,
    0x70: _pack_uint,
    0x71: struct.Struct(">i").pack,
    0x72: struct.Struct(">f").pack,
    0x73: _character,
    0x74: bytes,
    0x80: struct.Struct(">Q").pack,
    0x81: struct.Struct(">q").pack,
    0x82: struct.Struct(">d").pack,
    0x83: struct.Struct(">q").pack,
    0x84: bytes,
    0x94: bytes,
    0x98: _uuid_octets,
    0xA0: _sized(_octet, None),
    0xA1: _sized(_octet, "utf-8"),
    0xA3: _sized(_octet, "ascii"),
    0xB0: _sized(_pack_uint, None),
    0xB1: _sized(_pack_uint, "utf-8"),
    0xB3: _sized(_pack_uint, "ascii"),
    0xD0: _list_element,
    0xD1: _map_element,
    0xF0: _array_element,
}


def _packed(code: int, layout: str) -> Callable[[Value], bytes]:
    pack = struct.Struct(">B" + layout).pack

    def encoder(value: Value) -> bytes:
        return pack(code, value)

    return encoder


def _bits(code: int, width: int) -> Callable[[Value], bytes]:
    def encoder(value: Value) -> bytes:
        if len(value) != width:
            raise ValueError(f"{value!r} must have {width} bytes")
        return bytes((code,)) + value

    return encoder


def _encode_null(_value: None) -> bytes:
    return NULL


def _encode_char(value: Char) -> bytes:
    if len(value) != 1:
        raise ValueError(f"{value!r} must be a single character")
    return _pack_long_uint(0x73, ord(value))


def _encode_uuid(value: uuid.UUID) -> bytes:
    return b"\x98" + value.bytes


def _encode_datetime(value: dt.datetime) -> bytes:
    return _pack_long(0x83, Timestamp.of(value))


def _encode_buffer(value: bytearray | memoryview) -> bytes:
    return encode_binary(bytes(value))


_ENCODERS: Final[dict[type, Callable[[Value], bytes]]] = {
    type(None): _encode_null,
    bool: encode_boolean,
    str: encode_string,
    Symbol: encode_symbol,
    int: encode_long,
    UInt: encode_uint,
    ULong: encode_ulong,
    Int: encode_int,
    UByte: _packed(0x50, "B"),
    UShort: _packed(0x60, "H"),
    Byte: _packed(0x51, "b"),
    Short: _packed(0x61, "h"),
    float: _packed(0x82, "d"),
    Float: _packed(0x72, "f"),
    Timestamp: _packed(0x83, "q"),
    dt.datetime: _encode_datetime,
    Char: _encode_char,
    bytes: encode_binary,
    bytearray: _encode_buffer,
    memoryview: _encode_buffer,
    uuid.UUID: _encode_uuid,
    Decimal32: _bits(0x74, 4),
    Decimal64: _bits(0x84, 8),
    Decimal128: _bits(0x94, 16),
    list: encode_list,
    tuple: encode_list,
    dict: encode_map,
    Array: _encode_array,
    Described: _encode_described,
}

_find_encoder: Final = _ENCODERS.get


def _encoder_by_base(value: Value) -> Callable[[Value], bytes]:
    """Return the encoder of the nearest base class, for enums of integers or strings and the like."""
    for base in type(value).__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    raise TypeError(f"a {type(value).__name__} is no AMQP value: {value!r}")
