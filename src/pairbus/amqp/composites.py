"""Performatives, states, termini and sections as bytes, both ways, from one table.

The hot ones (transfer, disposition, flow) have short cuts in ``hotpath``; this is what they fall back on.
"""

import dataclasses
import uuid
from collections.abc import Callable
from itertools import zip_longest
from typing import Final, TypeVar, cast

from pairbus.amqp.conditions import DECODE_ERROR, INVALID_FIELD, NOT_IMPLEMENTED, AmqpError
from pairbus.amqp.decoder import MAX_COUNT, MAX_NESTING, decode_list, decode_next
from pairbus.amqp.encoder import (
    NULL,
    encode,
    encode_binary,
    encode_boolean,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbols,
    encode_uint,
    encode_ulong,
    join_list,
)
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslFrame,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Array, Described, Symbol, Timestamp, UByte, UShort, Value

_T = TypeVar("_T")
_BAD: Final = object()
"""What a reader gives back for a value of another type."""


@dataclasses.dataclass(slots=True, frozen=True)
class _Kind:
    read: Callable[[Value], Value]
    write: Callable[[Value], bytes]


@dataclasses.dataclass(slots=True, frozen=True)
class _Field:
    name: str
    read: Callable[[Value], Value]
    write: Callable[[Value], bytes]
    mandatory: bool
    default: Value


@dataclasses.dataclass(slots=True, frozen=True)
class Layout:
    """How one composite is laid out; of one that is not ``whole``, trailing defaults are left out."""

    cls: type
    descriptor: bytes
    fields: tuple[_Field, ...]
    readers: tuple[tuple[str, Callable[[Value], Value], bool, Value], ...]
    whole: bool


def _of(kind: type) -> Callable[[Value], Value]:
    def read(value: Value) -> Value:
        return value if isinstance(value, kind) else _BAD

    return read


def _unsigned(bits: int) -> Callable[[Value], Value]:
    bound = 1 << bits

    def read(value: Value) -> Value:
        return int(value) if isinstance(value, int) and type(value) is not bool and 0 <= value < bound else _BAD

    return read


def _read_any(value: Value) -> Value:
    return value


def _read_id(value: Value) -> Value:
    return value if isinstance(value, int | uuid.UUID | bytes | str) and type(value) is not bool else _BAD


def _read_symbol(value: Value) -> Value:
    return Symbol(value) if isinstance(value, str) and value.isascii() else _BAD


def _read_symbols(value: Value) -> Value:
    if isinstance(value, str) and value.isascii():
        return (Symbol(value),)
    if isinstance(value, Array) and all(isinstance(name, str) and name.isascii() for name in value):
        return tuple(Symbol(name) for name in value)
    return _BAD


def _composite(*classes: type, others: bool = False) -> Callable[[Value], Value]:
    """Read a described list that is one of ``classes``; ``others`` lets what is not known pass as it is."""

    def read(value: Value) -> Value:
        if not isinstance(value, Described):
            return _BAD
        layout = _find(value.descriptor)
        if layout is None or layout.cls not in classes:
            return value if others else _BAD
        fields = cast("object", value.value)
        return from_fields(layout, cast("list[Value]", fields)) if isinstance(fields, list) else _BAD

    return read


def _write_ubyte(value: int) -> bytes:
    return encode(UByte(value))


def _write_ushort(value: int) -> bytes:
    return encode(UShort(value))


def _write_timestamp(value: int) -> bytes:
    return encode(Timestamp(value))


def _write_symbols(values: tuple[Symbol, ...]) -> bytes:
    return encode_symbols(values) if values else NULL


def _write_composite(value: Value) -> bytes:
    return encode(value) if isinstance(value, Described) else encode_composite(value)


_STATES: Final = (Received, Accepted, Rejected, Released, Modified)
_KINDS: Final[dict[str, _Kind]] = {
    "any": _Kind(_read_any, encode),
    "binary": _Kind(_of(bytes), encode_binary),
    "boolean": _Kind(_of(bool), encode_boolean),
    "error": _Kind(_composite(Error), _write_composite),
    "id": _Kind(_read_id, encode),
    "map": _Kind(_of(dict), encode_map),
    "source": _Kind(_composite(Source, others=True), _write_composite),
    "state": _Kind(_composite(*_STATES, others=True), _write_composite),
    "string": _Kind(_of(str), encode_string),
    "symbol": _Kind(_read_symbol, encode_symbol),
    "symbols": _Kind(_read_symbols, _write_symbols),
    "target": _Kind(_composite(Target, others=True), _write_composite),
    "timestamp": _Kind(_of(int), _write_timestamp),
    "ubyte": _Kind(_unsigned(8), _write_ubyte),
    "uint": _Kind(_unsigned(32), encode_uint),
    "ulong": _Kind(_unsigned(64), encode_ulong),
    "ushort": _Kind(_unsigned(16), _write_ushort),
}

# Each line: class, code, name, and a kind per field; "!" marks those that must not be null, "whole" what is written
# with all its fields and defaults: the SDK counts on three fields in an error, its older versions on all of a frame's.
_TABLE: Final[tuple[tuple[type, int, str, str], ...]] = (
    (Open, 0x10, "open", "string! string uint ushort uint symbols symbols symbols symbols map whole"),
    (Begin, 0x11, "begin", "ushort uint! uint! uint! uint symbols symbols map whole"),
    (
        Attach, 0x12, "attach",
        "string! uint! boolean! ubyte ubyte source target map boolean uint ulong symbols symbols map whole",
    ),
    (Flow, 0x13, "flow", "uint uint! uint! uint! uint uint uint uint boolean boolean map whole"),
    (
        Transfer, 0x14, "transfer",
        "uint! uint binary uint boolean boolean ubyte state boolean boolean boolean whole",
    ),
    (Disposition, 0x15, "disposition", "boolean! uint! uint boolean state boolean whole"),
    (Detach, 0x16, "detach", "uint! boolean error whole"),
    (End, 0x17, "end", "error whole"),
    (Close, 0x18, "close", "error whole"),
    (Error, 0x1D, "error", "symbol! string map whole"),
    (Received, 0x23, "received", "uint! ulong!"),
    (Accepted, 0x24, "accepted", ""),
    (Rejected, 0x25, "rejected", "error"),
    (Released, 0x26, "released", ""),
    (Modified, 0x27, "modified", "boolean boolean map"),
    (
        Source, 0x28, "source",
        "any uint symbol uint boolean map symbol map state symbols symbols whole",
    ),
    (Target, 0x29, "target", "any uint symbol uint boolean map symbols whole"),
    (SaslMechanisms, 0x40, "sasl-mechanisms", "symbols!"),
    (SaslInit, 0x41, "sasl-init", "symbol! binary string"),
    (SaslChallenge, 0x42, "sasl-challenge", "binary!"),
    (SaslResponse, 0x43, "sasl-response", "binary!"),
    (SaslOutcome, 0x44, "sasl-outcome", "ubyte! binary"),
    (Header, 0x70, "header", "boolean ubyte uint boolean uint"),
    (
        Properties, 0x73, "properties",
        "id binary string string string id symbol symbol timestamp timestamp string uint string",
    ),
)  # fmt: skip


def _layout(cls: type, code: int, kinds: str) -> Layout:
    names = [kind for kind in kinds.split() if kind != "whole"]
    fields: list[_Field] = []
    for field, name in zip(dataclasses.fields(cls), names, strict=True):
        kind = _KINDS[name.rstrip("!")]
        default = None if field.default is dataclasses.MISSING else field.default
        fields.append(_Field(field.name, kind.read, kind.write, name.endswith("!"), default))
    readers = tuple((field.name, field.read, field.mandatory, field.default) for field in fields)
    return Layout(cls, b"\x00\x53" + bytes((code,)), tuple(fields), readers, kinds.endswith("whole"))


_BY_CLASS: Final[dict[type, Layout]] = {cls: _layout(cls, code, kinds) for cls, code, _name, kinds in _TABLE}
_BY_CODE: Final[dict[int, Layout]] = {code: _BY_CLASS[cls] for cls, code, _name, _kinds in _TABLE}
_BY_NAME: Final[dict[str, Layout]] = {f"amqp:{name}:list": _BY_CLASS[cls] for cls, _code, name, _kinds in _TABLE}
_SINGLE: Final[dict[type, Value]] = {Accepted: ACCEPTED, Released: RELEASED}
PERFORMATIVES: Final = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
SASL_FRAMES: Final = (SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome)


def _find(descriptor: Value) -> Layout | None:
    if isinstance(descriptor, str):
        return _BY_NAME.get(descriptor)
    return _BY_CODE.get(descriptor) if isinstance(descriptor, int) else None


def from_fields(layout: Layout, values: list[Value]) -> Value:
    """Return the composite that ``values`` are the fields of; trailing ones may be missing."""
    if len(values) > len(layout.fields):
        raise AmqpError(DECODE_ERROR, f"{len(values)} fields in {layout.cls.__name__}, which has {len(layout.fields)}")
    if not layout.fields:
        return _SINGLE[layout.cls]
    arguments: list[Value] = []
    for value, (name, read, mandatory, default) in zip_longest(values, layout.readers):
        if value is None:
            if mandatory:
                raise AmqpError(INVALID_FIELD, f"{layout.cls.__name__}.{name} is missing")
            arguments.append(default)
            continue
        content = read(value)
        if content is _BAD:
            raise AmqpError(DECODE_ERROR, f"{layout.cls.__name__}.{name} has the wrong type or value")
        arguments.append(content)
    return layout.cls(*arguments)


def encode_composite(composite: object) -> bytes:
    """Encode a dataclass of ``performatives`` or ``sections``."""
    layout = _BY_CLASS[type(composite)]
    parts: list[bytes] = []
    used = 0
    for field in layout.fields:
        value = getattr(composite, field.name)
        if value is None or (not layout.whole and value == field.default and not field.mandatory):
            parts.append(NULL)
        else:
            parts.append(field.write(value))
            used = len(parts)
    return layout.descriptor + join_list(parts if layout.whole else parts[:used])


def decode_composite(
    data: bytes, start: int, end: int, classes: tuple[type, ...], max_elements: int = MAX_COUNT
) -> tuple[Value, int]:
    """Return one of ``classes`` at ``start``, and the position after it."""
    budget = [MAX_NESTING, max_elements]
    if start >= end or data[start] != 0:
        raise AmqpError(DECODE_ERROR, "a described list was expected")
    descriptor, start = decode_next(data, start + 1, end, budget)
    layout = _find(descriptor)
    if layout is None or layout.cls not in classes:
        raise AmqpError(NOT_IMPLEMENTED, f"{descriptor!r:.80} is not expected here")
    values, start = decode_list(data, start, end, budget)
    return from_fields(layout, values), start


def decode_performative(data: bytes, start: int, end: int, max_elements: int = MAX_COUNT) -> tuple[Performative, int]:
    """Return the performative at ``start``, and the position after it, where a transfer's payload begins."""
    return decode_composite(data, start, end, PERFORMATIVES, max_elements)


def decode_sasl_frame(data: bytes, start: int, end: int, max_elements: int = MAX_COUNT) -> SaslFrame:
    """Return the SASL frame that fills the bytes from ``start`` to ``end``."""
    frame, stop = decode_composite(data, start, end, SASL_FRAMES, max_elements)
    if stop != end:
        raise AmqpError(DECODE_ERROR, "bytes follow a SASL frame")
    return frame


def with_short_descriptor(data: bytes, start: int, end: int) -> bytes:
    """Return the performative between ``start`` and ``end`` with its descriptor in the usual three bytes."""
    if start >= end or data[start] != 0:
        raise AmqpError(DECODE_ERROR, "a described list was expected")
    descriptor, fields = decode_next(data, start + 1, end, [1, 1])
    layout = _find(descriptor)
    if layout is None:
        raise AmqpError(NOT_IMPLEMENTED, f"{descriptor!r:.80} is not expected here")
    return layout.descriptor + data[fields:end]


def decode_one(cls: type[_T], data: bytes, start: int = 0, end: int | None = None) -> _T:
    """Return the single composite ``cls`` at ``start``."""
    return decode_composite(data, start, len(data) if end is None else end, (cls,))[0]
