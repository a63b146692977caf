"""The values of Service Bus SQL: of which kind they are, and what can be done with two of them.

AMQP has more types than the language has kinds; :func:`plain` maps the ones to the others. ``None`` is both NULL and
unknown, and what is done with it gives ``None`` again. Values of different kinds (a text and a number, a number and
TRUE) cannot be compared: that is unknown too, so that neither a condition nor its opposite matches. Arithmetic with
them raises :class:`EvaluationError`, except that a text takes anything that has a text form with ``+``, as in C#.
"""

import datetime as dt
import math
import operator
import uuid
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from pairbus.amqp.types import Described, Symbol, Timestamp
from pairbus.broker.filters.errors import EvaluationError

Value: TypeAlias = Any
"""``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``uuid.UUID``, ``Timestamp``, ``timedelta``; or any other
AMQP value, of which it can only be told that it is there."""

NUMBER: Final = "number"
TEXT: Final = "text"
BOOLEAN: Final = "boolean"
TIME: Final = "time"
SPAN: Final = "time span"
GUID: Final = "guid"
BINARY: Final = "binary"

KINDS: Final[dict[type, str]] = {
    bool: BOOLEAN,
    int: NUMBER,
    float: NUMBER,
    str: TEXT,
    bytes: BINARY,
    uuid.UUID: GUID,
    Timestamp: TIME,
    dt.timedelta: SPAN,
}
_ORDERED: Final = frozenset((NUMBER, TEXT, TIME, SPAN))

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
MAX_TEXT: Final = 32 * 1024
"""A property has 32 KB at most, so an expression need not make a longer text."""

TIMESPAN: Final = Symbol("com.microsoft:timespan")
DATETIME_OFFSET: Final = Symbol("com.microsoft:datetime-offset")
URI: Final = Symbol("com.microsoft:uri")
_TICKS_PER_MILLISECOND: Final = 10_000
_TICKS_AT_EPOCH: Final = 621_355_968_000_000_000

_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def plain(raw: object) -> Value:
    """Return an AMQP value as the language sees it."""
    if raw is None or type(raw) in KINDS:
        return raw
    if isinstance(raw, Described):
        return _described(raw)
    for kind in (str, int, float):
        if isinstance(raw, kind):
            return kind(raw)
    if isinstance(raw, dt.datetime):
        return Timestamp.of(raw if raw.tzinfo is not None else raw.replace(tzinfo=dt.UTC))
    return raw


def _described(raw: Described) -> Value:
    """Read the types that .NET's clients describe."""
    value = raw.value
    if raw.descriptor == URI and isinstance(value, str):
        return str(value)
    if not isinstance(value, int):
        return raw
    if raw.descriptor == TIMESPAN:
        return dt.timedelta(microseconds=value // 10)
    if raw.descriptor == DATETIME_OFFSET:
        return Timestamp((value - _TICKS_AT_EPOCH) // _TICKS_PER_MILLISECOND)
    return raw


def as_amqp(value: Value) -> Value:
    """Return a value as a message carries it."""
    if isinstance(value, dt.timedelta):
        return Described(TIMESPAN, value // dt.timedelta(microseconds=1) * 10)
    return value


def index_key(value: object) -> Hashable:
    """Return what two values have in common if and only if they are equal; None for what equals nothing."""
    kind = type(value)
    if kind is bool or kind is Timestamp:
        return kind, value  # to Python they are numbers
    return value if kind in KINDS else None


def kind_of(value: object) -> str | None:
    """Return of which kind a value is; None: of none with which anything can be done."""
    return KINDS.get(type(value))


def name_of(value: object) -> str:
    """Say of which kind a value is."""
    return KINDS.get(type(value)) or type(value).__name__


# --- comparing ------------------------------------------------------------------------------------------------------


def equal(left: object, right: object) -> bool | None:
    """Tell whether two values are equal; None: unknown."""
    kind = KINDS.get(type(left))
    return left == right if kind is not None and KINDS.get(type(right)) == kind else None


def _different(left: object, right: object) -> bool | None:
    kind = KINDS.get(type(left))
    return left != right if kind is not None and KINDS.get(type(right)) == kind else None


def _ordered(compare: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool | None]:
    def compared(left: object, right: object) -> bool | None:
        kind = KINDS.get(type(left))
        return compare(left, right) if kind in _ORDERED and KINDS.get(type(right)) == kind else None

    return compared


COMPARISONS: Final[dict[str, Callable[[Value, Value], bool | None]]] = {
    "=": equal,
    "<>": _different,
    "!=": _different,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
}


# --- calculating ----------------------------------------------------------------------------------------------------


def _divided(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        return _whole(left, right)[0]
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def _remainder(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        return _whole(left, right)[1]
    if right == 0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _whole(left: int, right: int) -> tuple[int, int]:
    """Divide towards zero, as C# does."""
    if right == 0:
        raise EvaluationError(f"{left} cannot be divided by zero.")
    quotient, rest = divmod(abs(left), abs(right))
    return (quotient if (left < 0) == (right < 0) else -quotient), (-rest if left < 0 else rest)


_NUMERIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
}


def calculate(symbol: str, left: Value, right: Value) -> Value:
    """Return ``left symbol right``; None if one of them is None."""
    if left is None or right is None:
        return None
    kinds = kind_of(left), kind_of(right)
    if kinds == (NUMBER, NUMBER):
        return _in_range(_NUMERIC[symbol](left, right))
    if symbol == "+" and TEXT in kinds:
        return _joined(left, right)
    try:
        return _with_times(symbol, kinds, left, right)
    except OverflowError as error:
        raise EvaluationError(f"{left} {symbol} {right}: {error}.") from error


def _with_times(symbol: str, kinds: tuple[str | None, str | None], left: Value, right: Value) -> Value:
    if kinds == (TIME, TIME) and symbol == "-":
        return (left - right) * _MILLISECOND
    if kinds == (TIME, SPAN) and symbol in "+-":
        return Timestamp(_in_range(_NUMERIC[symbol](int(left), right // _MILLISECOND)))
    if kinds == (SPAN, SPAN) and symbol in "+-":
        return _NUMERIC[symbol](left, right)
    raise EvaluationError(f"Operator '{symbol}' cannot be applied to a {name_of(left)} and a {name_of(right)}.")


def signed(symbol: str, value: Value) -> Value:
    """Return ``+value`` or ``-value``."""
    if value is None:
        return None
    kind = kind_of(value)
    if kind not in (NUMBER, SPAN):
        raise EvaluationError(f"Operator '{symbol}' cannot be applied to a {name_of(value)}.")
    if symbol == "+":
        return value
    return _in_range(-value) if kind == NUMBER else -value


def _in_range(number: float) -> float:
    if isinstance(number, int) and not LONG_MIN <= number <= LONG_MAX:
        raise EvaluationError(f"{number} is out of the range of a 64-bit integer.")
    return number


def _joined(left: Value, right: Value) -> str:
    text = text_of(left) + text_of(right)
    if len(text) > MAX_TEXT:
        raise EvaluationError(f"A text of {len(text)} characters is too long; {MAX_TEXT} at most.")
    return text


def text_of(value: Value) -> str:
    """Return a value as text, as .NET writes it."""
    kind = kind_of(value)
    if kind == TEXT:
        return value
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if kind in (NUMBER, BOOLEAN, GUID):
        return str(value)
    raise EvaluationError(f"A {name_of(value)} has no text form.")
