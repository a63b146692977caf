"""Values in the type of another: what ``SET`` does when a property has a value already, and what .NET's texts say."""

import datetime as dt
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

from pairbus.amqp.types import Byte, Float, Int, Short, Timestamp, UByte, UInt, ULong, UShort
from pairbus.broker.filters.errors import EvaluationError
from pairbus.broker.filters.values import (
    BOOLEAN,
    GUID,
    LONG_MAX,
    LONG_MIN,
    NUMBER,
    SPAN,
    TEXT,
    TIME,
    Value,
    kind_of,
    plain,
    text_of,
)

_WIDTHS: Final[dict[type, tuple[int, int]]] = {
    UByte: (0, 2**8 - 1),
    UShort: (0, 2**16 - 1),
    UInt: (0, 2**32 - 1),
    ULong: (0, 2**64 - 1),
    Byte: (-(2**7), 2**7 - 1),
    Short: (-(2**15), 2**15 - 1),
    Int: (-(2**31), 2**31 - 1),
}
_SPAN: Final = re.compile(r"(-)?(?:(\d{1,8})\.)?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?")


def time_of(text: str) -> Timestamp:
    """Read a date and time as ISO 8601 has it; without a zone it is UTC. Otherwise ``ValueError``."""
    moment = dt.datetime.fromisoformat(text)
    return Timestamp.of(moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC))


def span_of(text: str) -> dt.timedelta:
    """Read a time span as .NET writes it, ``[-][days.]hours:minutes[:seconds[.fraction]]``; else ``ValueError``."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time span such as 1.02:30:00")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    span = dt.timedelta(
        days=int(days or 0),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds or 0),
        microseconds=int((fraction or "0").ljust(6, "0")[:6]),
    )
    return -span if sign else span


def _number_of(text: str) -> float:
    number = float(text) if re.search(r"[.eE]", text) else int(text)
    if isinstance(number, int) and not LONG_MIN <= number <= LONG_MAX:
        raise ValueError(f"{text} is out of the range of a 64-bit integer")
    return number


def _boolean_of(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


_FROM_TEXT: Final[dict[str, Callable[[str], Any]]] = {
    NUMBER: _number_of,
    BOOLEAN: _boolean_of,
    TIME: time_of,
    SPAN: span_of,
    GUID: uuid.UUID,
}


def converted(value: Value, existing: object) -> Value:
    """Return a value in the type of the one that it replaces if it can be said in it, and else as it is.

    :param existing: the AMQP value that the property has.
    """
    kind, wanted = kind_of(value), kind_of(plain(existing))
    if kind is None or wanted is None:
        return value
    try:
        if kind != wanted:
            value = text_of(value) if wanted == TEXT else _FROM_TEXT[wanted](value) if kind == TEXT else value
    except (ValueError, OverflowError, EvaluationError, KeyError):
        return value  # the language's "if possible"
    return _as_wide(value, type(existing))


def _as_wide(value: Value, wanted: type) -> Value:
    if wanted in (float, Float) and type(value) in (int, float):
        return wanted(value)
    low, high = _WIDTHS.get(wanted, (1, 0))
    return wanted(value) if type(value) is int and low <= value <= high else value


def wanted(kind: str, name: str, value: Value) -> Value:
    """Return a value as a system property takes it; what cannot be that raises :class:`EvaluationError`."""
    found = kind_of(value)
    if value is None or found == kind:
        return value
    try:
        if kind == TEXT:
            return text_of(value)
        if found == TEXT:
            return _FROM_TEXT[kind](value)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"sys.{name} cannot be set to {value!r}: {error}.") from error
    raise EvaluationError(f"sys.{name} cannot be set to {value!r}: it is a {kind}.")
