"""AMQP values out of bytes.

:func:`decode` reads a value between two positions of a ``bytes`` object, without copying what lies
around it. Every length and count is checked against the bytes that are there, the nesting against
:data:`MAX_NESTING` and the number of elements of the whole value against a budget, before anything
is allocated; what does not hold raises :class:`~pairbus.amqp.conditions.AmqpError` and nothing else.
"""

# ruff: noqa: PLR2004 (constructor bytes read best as the numbers of the specification's tables)

import struct
import uuid
from collections.abc import Callable
from typing import Final, TypeAlias

from pairbus.amqp.conditions import DECODE_ERROR, AmqpError
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

MAX_NESTING: Final = 64
MAX_COUNT: Final = 65_536
"""The most elements of one list, map or array, and by default of one whole value."""

_KEPT_SYMBOLS: Final = 1024
_SHORT_SYMBOL: Final = 64

Budget: TypeAlias = list[int]
"""What is left of one decoding: [levels of nesting, elements]."""
_Decoder: TypeAlias = Callable[[bytes, int, int, Budget], tuple[Value, int]]

_unpack_uint = struct.Struct(">I").unpack_from
_unpack_uint_pair = struct.Struct(">II").unpack_from


def decode(data: bytes, start: int = 0, end: int | None = None, *, max_elements: int = MAX_COUNT) -> tuple[Value, int]:
    """Return the value that begins at ``start``, and the position after it, which is at most ``end``."""
    return decode_next(data, start, len(data) if end is None else end, [MAX_NESTING, max_elements])


def decode_next(data: bytes, start: int, end: int, budget: Budget) -> tuple[Value, int]:
    """Do as :func:`decode`, for a caller that decodes several values on one budget."""
    if start >= end:
        raise _short()
    decoder = _DECODERS[data[start]]
    if decoder is None:
        raise _unknown(data[start])
    return decoder(data, start + 1, end, budget)


def decode_list(data: bytes, start: int, end: int, budget: Budget) -> tuple[list[Value], int]:
    """Return the list whose constructor byte is at ``start``, a composite's fields; anything else is refused."""
    if start >= end or data[start] not in _LISTS:
        raise AmqpError(DECODE_ERROR, "a list was expected")
    return decode_next(data, start, end, budget)


def skip(data: bytes, start: int, end: int) -> int:
    """Return the position after the value at ``start``, without decoding it."""
    descriptors = 0
    while start < end and data[start] == 0:
        descriptors += 1
        if descriptors > MAX_NESTING:
            raise _too_deep()
        start = _skip_plain(data, start + 1, end)
    return _skip_plain(data, start, end)


def _skip_plain(data: bytes, start: int, end: int) -> int:
    if start >= end:
        raise _short()
    code = data[start]
    if code < 0xA0:
        width = _FIXED_WIDTHS.get(code)
        if width is None:
            raise _unknown(code)
        stop = start + 1 + width
    elif _DECODERS[code] is None:
        raise _unknown(code)
    elif code & 0x10:
        if start + 5 > end:
            raise _short()
        stop = start + 5 + _unpack_uint(data, start + 1)[0]
    else:
        if start + 2 > end:
            raise _short()
        stop = start + 2 + data[start + 1]
    if stop > end:
        raise _short()
    return stop


def _short() -> AmqpError:
    return AmqpError(DECODE_ERROR, "a value is longer than the bytes that are there")


def _unknown(code: int) -> AmqpError:
    return AmqpError(DECODE_ERROR, f"no type has the constructor 0x{code:02x}")


def _too_deep() -> AmqpError:
    return AmqpError(DECODE_ERROR, f"values are nested more than {MAX_NESTING} deep")


def _constant(value: Value) -> _Decoder:
    def decoder(_data: bytes, start: int, _end: int, _budget: Budget) -> tuple[Value, int]:
        return value, start

    return decoder


def _fixed(layout: str, wrap: Callable[[Value], Value] | None) -> _Decoder:
    fields = struct.Struct(layout)
    width, unpack = fields.size, fields.unpack_from

    def decoder(data: bytes, start: int, end: int, _budget: Budget) -> tuple[Value, int]:
        stop = start + width
        if stop > end:
            raise _short()
        value = unpack(data, start)[0]
        return (value if wrap is None else wrap(value)), stop

    return decoder


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise AmqpError(DECODE_ERROR, f"a boolean is 0 or 1, not {octet}")
    return octet == 1


def _char(code_point: int) -> Char:
    if code_point > 0x10FFFF:
        raise AmqpError(DECODE_ERROR, f"no character has the number {code_point}")
    return Char(chr(code_point))


def _uuid(octets: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=octets)


def _string(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise AmqpError(DECODE_ERROR, "a string is not UTF-8") from None


def _symbol(octets: bytes) -> Symbol:
    known = _symbols.get(octets)
    if known is not None:
        return known
    try:
        symbol = Symbol(octets.decode("ascii"))
    except UnicodeDecodeError:
        raise AmqpError(DECODE_ERROR, "a symbol is not ASCII") from None
    if len(octets) <= _SHORT_SYMBOL:
        if len(_symbols) >= _KEPT_SYMBOLS:
            _symbols.clear()  # somebody sends many; the usual ones are back at once
        _symbols[octets] = symbol
    return symbol


_symbols: dict[bytes, Symbol] = {}
"""The names in use are few, so one object stands for each."""


def _variable8(wrap: Callable[[bytes], Value] | None) -> _Decoder:
    def decoder(data: bytes, start: int, end: int, _budget: Budget) -> tuple[Value, int]:
        if start >= end:
            raise _short()
        stop = start + 1 + data[start]
        if stop > end:
            raise _short()
        octets = data[start + 1 : stop]
        return (octets if wrap is None else wrap(octets)), stop

    return decoder


def _string8(data: bytes, start: int, end: int, _budget: Budget) -> tuple[Value, int]:
    """Read a short string, the commonest of all, without a further call."""
    if start >= end:
        raise _short()
    stop = start + 1 + data[start]
    if stop > end:
        raise _short()
    try:
        return data[start + 1 : stop].decode(), stop
    except UnicodeDecodeError:
        raise AmqpError(DECODE_ERROR, "a string is not UTF-8") from None


def _variable32(wrap: Callable[[bytes], Value] | None) -> _Decoder:
    def decoder(data: bytes, start: int, end: int, _budget: Budget) -> tuple[Value, int]:
        if start + 4 > end:
            raise _short()
        stop = start + 4 + _unpack_uint(data, start)[0]
        if stop > end:
            raise _short()
        octets = data[start + 4 : stop]
        return (octets if wrap is None else wrap(octets)), stop

    return decoder


def _extent8(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Return count, first byte and end of a compound whose size and count are one byte each."""
    if start + 2 > end or data[start] < 1:
        raise _short()
    return data[start + 1], start + 2, start + 1 + data[start]


def _extent32(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    if start + 8 > end:
        raise _short()
    size, count = _unpack_uint_pair(data, start)
    if size < 4:
        raise _short()
    return count, start + 8, start + 4 + size


_Extent: TypeAlias = Callable[[bytes, int, int], tuple[int, int, int]]


def _enter(budget: Budget, count: int) -> None:
    """Pay for one level and ``count`` elements; each compound gives its level back when it is done."""
    budget[0] -= 1
    if budget[0] < 0:
        raise _too_deep()
    budget[1] -= count
    if count > MAX_COUNT or budget[1] < 0:
        raise AmqpError(DECODE_ERROR, f"too many elements: {count} more")


def _elements(data: bytes, start: int, stop: int, count: int, budget: Budget) -> tuple[list[Value], int]:
    values: list[Value] = []
    decoders = _DECODERS
    for _ in range(count):
        if start >= stop:
            raise _short()
        decoder = decoders[data[start]]
        if decoder is None:
            raise _unknown(data[start])
        value, start = decoder(data, start + 1, stop, budget)
        values.append(value)
    return values, start


def _list(extent: _Extent) -> _Decoder:
    def decoder(data: bytes, start: int, end: int, budget: Budget) -> tuple[Value, int]:
        count, start, stop = extent(data, start, end)
        if stop > end or count > stop - start:
            raise _short()
        _enter(budget, count)
        values, start = _elements(data, start, stop, count, budget)
        if start != stop:
            raise AmqpError(DECODE_ERROR, "a list is longer than its elements")
        budget[0] += 1
        return values, stop

    return decoder


def _empty_list(_data: bytes, start: int, _end: int, budget: Budget) -> tuple[Value, int]:
    if budget[0] < 1:
        raise _too_deep()
    return [], start


def _map(extent: _Extent) -> _Decoder:
    def decoder(data: bytes, start: int, end: int, budget: Budget) -> tuple[Value, int]:
        count, start, stop = extent(data, start, end)
        if stop > end or count > stop - start:
            raise _short()
        if count & 1:
            raise AmqpError(DECODE_ERROR, f"a map has {count} elements, a key without a value")
        _enter(budget, count)
        elements, start = _elements(data, start, stop, count, budget)
        if start != stop:
            raise AmqpError(DECODE_ERROR, "a map is longer than its elements")
        try:
            values = dict(zip(elements[::2], elements[1::2], strict=True))
        except TypeError:
            raise AmqpError(DECODE_ERROR, "lists, maps and arrays as keys of maps are not supported") from None
        if len(values) != count >> 1:
            raise AmqpError(DECODE_ERROR, "a map has a key twice")
        budget[0] += 1
        return values, stop

    return decoder


def _array(extent: _Extent) -> _Decoder:
    def decoder(data: bytes, start: int, end: int, budget: Budget) -> tuple[Value, int]:
        count, start, stop = extent(data, start, end)
        if stop > end:
            raise _short()
        _enter(budget, count)
        descriptor: Value = None
        if start < stop and data[start] == 0:
            descriptor, start = decode_next(data, start + 1, stop, budget)
        if start >= stop:
            if count == 0:  # some peers leave the constructor out when nothing follows it
                budget[0] += 1
                return Array(0x40), stop
            raise _short()
        code = data[start]
        element = _DECODERS[code]
        if element is None or code == 0:
            raise AmqpError(DECODE_ERROR, f"an array's elements cannot have the constructor 0x{code:02x}")
        start += 1
        values = Array(WIDEST.get(code, code), (), descriptor)
        for _ in range(count):
            value, start = element(data, start, stop, budget)
            values.append(value)
        if start != stop:
            raise AmqpError(DECODE_ERROR, "an array is longer than its elements")
        budget[0] += 1
        return values, stop

    return decoder


def _described(data: bytes, start: int, end: int, budget: Budget) -> tuple[Value, int]:
    _enter(budget, 2)
    descriptor, start = decode_next(data, start, end, budget)
    value, start = decode_next(data, start, end, budget)
    budget[0] += 1
    return Described(descriptor, value), start


_BY_CODE: Final[dict[int, _Decoder]] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),  # noqa: FBT003 (the value itself)
    0x42: _constant(False),  # noqa: FBT003
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: _empty_list,
    0x50: _fixed(">B", UByte),
    0x51: _fixed(">b", Byte),
    0x52: _fixed(">B", UInt),
    0x53: _fixed(">B", ULong),
    0x54: _fixed(">b", Int),
    0x55: _fixed(">b", None),
    0x56: _fixed(">B", _boolean),
    0x60: _fixed(">H", UShort),
    0x61: _fixed(">h", Short),
    0x70: _fixed(">I", UInt),
    0x71: _fixed(">i", Int),
    0x72: _fixed(">f", Float),
    0x73: _fixed(">I", _char),
    0x74: _fixed("4s", Decimal32),
    0x80: _fixed(">Q", ULong),
    0x81: _fixed(">q", None),
    0x82: _fixed(">d", None),
    0x83: _fixed(">q", Timestamp),
    0x84: _fixed("8s", Decimal64),
    0x94: _fixed("16s", Decimal128),
    0x98: _fixed("16s", _uuid),
    0xA0: _variable8(None),
    0xA1: _string8,
    0xA3: _variable8(_symbol),
    0xB0: _variable32(None),
    0xB1: _variable32(_string),
    0xB3: _variable32(_symbol),
    0xC0: _list(_extent8),
    0xC1: _map(_extent8),
    0xD0: _list(_extent32),
    0xD1: _map(_extent32),
    0xE0: _array(_extent8),
    0xF0: _array(_extent32),
}
_DECODERS: Final[list[_Decoder | None]] = [_BY_CODE.get(code) for code in range(256)]
CONSTRUCTORS: Final = frozenset(_BY_CODE)
"""Every byte that a value may begin with."""
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_WIDTH_BY_CATEGORY: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_FIXED_WIDTHS: Final = {code: _WIDTH_BY_CATEGORY[code >> 4] for code in _BY_CODE if 0x40 <= code < 0xA0}

WIDEST: Final = {
    0x41: 0x56, 0x42: 0x56, 0x43: 0x70, 0x52: 0x70, 0x44: 0x80, 0x53: 0x80, 0x54: 0x71, 0x55: 0x81,
    0x45: 0xD0, 0xC0: 0xD0, 0xC1: 0xD1, 0xE0: 0xF0, 0xA0: 0xB0, 0xA1: 0xB1, 0xA3: 0xB3,
}  # fmt: skip
"""The constructor with the greatest width of the same type: the one that an :class:`Array` remembers."""
