"""AMQP's typed values as JSON, and back as the SDK sends them.

Text, true, false, null, a number with a fraction and a whole one are what they are in JSON: AMQP's string, boolean,
null, double and int (long, if it needs more than 32 bits). Everything else says its type:
``{"type": "uuid", "value": "…"}``.
"""

import base64
import binascii
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

from pairbus.amqp import types as amqp
from pairbus.errors import DocumentError

Json: TypeAlias = Any
"""What ``json.loads`` returns."""

_INT_BITS: Final = {"byte": 8, "short": 16, "int": 32, "long": 64}
_UNSIGNED_BITS: Final = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64}

_NUMBERS: Final[tuple[tuple[type, str], ...]] = (
    (amqp.UByte, "ubyte"),
    (amqp.UShort, "ushort"),
    (amqp.UInt, "uint"),
    (amqp.ULong, "ulong"),
    (amqp.Byte, "byte"),
    (amqp.Short, "short"),
)


def plain(value: amqp.Value) -> Json:
    """Return a value that the AMQP decoder has read as JSON has it, with its type where that would be lost."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _plain_number(value)
    if isinstance(value, float):
        if isinstance(value, amqp.Float):
            return {"type": "float", "value": float(value) if math.isfinite(value) else str(float(value))}
        return value if math.isfinite(value) else {"type": "double", "value": str(value)}
    if isinstance(value, str):
        typed = _TEXTS.get(type(value))
        return str(value) if typed is None else {"type": typed, "value": str(value)}
    if isinstance(value, bytes):
        return {"type": _BYTES.get(type(value), "binary"), "value": base64_of(value)}
    return _plain_compound(value)


_TEXTS: Final[Mapping[type, str]] = {amqp.Symbol: "symbol", amqp.Char: "char"}
_BYTES: Final[Mapping[type, str]] = {
    amqp.Decimal32: "decimal32",
    amqp.Decimal64: "decimal64",
    amqp.Decimal128: "decimal128",
}


def _plain_number(value: int) -> Json:
    if isinstance(value, amqp.Timestamp):
        return {"type": "timestamp", "value": moment_text(value)}
    if isinstance(value, amqp.Int):
        return int(value)
    for kind, name in _NUMBERS:
        if isinstance(value, kind):
            return {"type": name, "value": int(value)}
    return {"type": "long", "value": int(value)} if _fits(value, 32) else int(value)


def _plain_compound(value: amqp.Value) -> Json:
    if isinstance(value, uuid.UUID):
        return {"type": "uuid", "value": str(value)}
    if isinstance(value, amqp.Described):
        return {"type": "described", "value": [plain(value.descriptor), plain(value.value)]}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {"type": "map", "value": [[plain(key), plain(each)] for key, each in pairs]}
    kind = "array" if isinstance(value, amqp.Array) else "list"
    return {"type": kind, "value": [plain(each) for each in cast("Sequence[Any]", value)]}


def sendable(name: str, value: Json) -> Any:  # noqa: ANN401 (what the SDK encodes)
    """Return a JSON value as the SDK encodes it with the type that it says.

    :param name: where it stands, for the error of one that cannot be read.
    """
    if isinstance(value, Mapping):
        return _typed(name, cast("Mapping[str, Json]", value))
    if isinstance(value, list):
        raise DocumentError(name, shortened(value), 'a list is written {"type": "list", "value": [...]}')
    if isinstance(value, int) and not isinstance(value, bool) and not _fits(value, 32):
        return _checked_int(name, "long", value)
    return value


def _typed(name: str, value: Mapping[str, Json]) -> Any:  # noqa: ANN401 (what the SDK encodes)
    if set(value) != {"type", "value"}:
        raise DocumentError(name, shortened(value), 'a value with its type is written {"type": "uuid", "value": "..."}')
    kind, content = value["type"], value["value"]
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise DocumentError(name, kind, "types that can be sent are " + ", ".join(sorted(_READERS)))
    return reader(name, kind, content)


def _checked_int(name: str, kind: str, value: Json) -> dict[str, Any]:
    signed = _INT_BITS.get(kind)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DocumentError(name, value, f"{kind} is a whole number")
    fits = _fits(value, signed) if signed is not None else 0 <= value < 1 << _UNSIGNED_BITS[kind]
    if not fits:
        raise DocumentError(name, value, f"it does not fit in the {signed or _UNSIGNED_BITS[kind]} bits of {kind}")
    return {"TYPE": kind.upper(), "VALUE": value}


def _number(name: str, kind: str, value: Json) -> Any:  # noqa: ANN401
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DocumentError(name, value, f'{kind} is a number, or "nan", "inf" or "-inf"')
    return {"TYPE": kind.upper(), "VALUE": float(value)}


def _text(name: str, kind: str, value: Json) -> Any:  # noqa: ANN401
    if not isinstance(value, str):
        raise DocumentError(name, value, f"{kind} is text")
    return value if kind == "string" else {"TYPE": "SYMBOL", "VALUE": value}


def _boolean(name: str, kind: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise DocumentError(name, value, f"{kind} is true or false")
    return value


def _uuid(name: str, _kind: str, value: Json) -> uuid.UUID:
    try:
        return uuid.UUID(cast("str", value))
    except (ValueError, AttributeError, TypeError):
        raise DocumentError(name, value, "a uuid is written 12345678-1234-5678-1234-567812345678") from None


def _binary(name: str, _kind: str, value: Json) -> dict[str, Any]:
    return {"TYPE": "BINARY", "VALUE": from_base64(name, value)}  # bare bytes the SDK takes for text


def _moment(name: str, _kind: str, value: Json) -> dict[str, Any]:
    return {"TYPE": "TIMESTAMP", "VALUE": int(amqp.Timestamp.of(moment(name, value)))}


def _list(name: str, _kind: str, value: Json) -> list[Any]:
    if not isinstance(value, list):
        raise DocumentError(name, value, "a list has a list as its value")
    return [sendable(f"{name}[{index}]", each) for index, each in enumerate(cast("list[Json]", value))]


def _map(name: str, _kind: str, value: Json) -> dict[Any, Any]:
    pairs: list[Json] = cast("list[Json]", value) if isinstance(value, list) else [value]
    made: dict[Any, Any] = {}
    for index, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(cast("list[Json]", pair)) != 2:  # noqa: PLR2004 (a pair)
            raise DocumentError(
                name, shortened(cast("Json", value)), "a map's value is a list of pairs: [[key, value], ...]"
            )
        key, each = cast("list[Json]", pair)
        if not isinstance(key, str | int):
            raise DocumentError(f"{name}[{index}]", key, "a key of a map that can be sent is text or a number")
        made[key] = sendable(f"{name}[{index}]", each)
    return made


_READERS: Final[Mapping[str, Callable[[str, str, Json], Any]]] = {
    **dict.fromkeys((*_INT_BITS, *_UNSIGNED_BITS), _checked_int),
    "float": _number,
    "double": _number,
    "string": _text,
    "symbol": _text,
    "boolean": _boolean,
    "uuid": _uuid,
    "binary": _binary,
    "timestamp": _moment,
    "list": _list,
    "map": _map,
}


def moment_text(milliseconds: int) -> str:
    """Return a time as ISO 8601 has it; one beyond the years that it knows as a number of milliseconds."""
    try:
        at = amqp.Timestamp(milliseconds).to_datetime()
    except OverflowError:
        return str(int(milliseconds))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(name: str, value: Json) -> datetime:
    """Read a time in ISO 8601; one without a zone is UTC, as in the SDK."""
    try:
        at = datetime.fromisoformat(cast("str", value))
    except (TypeError, ValueError):
        raise DocumentError(name, value, "a time is written 2026-01-31T12:00:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def base64_of(octets: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(octets).decode()


def from_base64(name: str, value: Json) -> bytes:
    """Read base64."""
    try:
        return base64.b64decode(cast("str", value), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise DocumentError(name, shortened(value), "binary is written in base64") from None


def shortened(value: Json) -> Json:
    """Return a value as an error may show it."""
    written = value if isinstance(value, str) else json.dumps(value, default=str)
    return written if len(written) <= 60 else written[:57] + "..."  # noqa: PLR2004 (a line)


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1
