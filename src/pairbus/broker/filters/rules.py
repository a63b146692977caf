"""The rules of a subscription as they are made, stored and shown. One that can be made is valid.

A rule has a filter, which selects messages, and may have an action, which changes the copies that it selects.
"""

import datetime as dt
import json
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Self, TypeAlias

from pairbus.amqp.types import Timestamp
from pairbus.broker.filters.compiling import CompiledAction, CompiledFilter, compile_action, compile_filter
from pairbus.broker.filters.errors import InvalidRuleError
from pairbus.broker.filters.facts import SYSTEM, Facts
from pairbus.broker.filters.syntax import Condition
from pairbus.broker.filters.values import LONG_MAX, LONG_MIN, Value, equal, plain

MAX_EXPRESSION: Final = 1024
MAX_NAME: Final = 50
DEFAULT_RULE: Final = "$Default"
"""The name of the rule that a new subscription has if no other is given."""

_NAME: Final = re.compile(r"[A-Za-z0-9._$-]+")
_VALUES: Final = "text, 64-bit numbers, booleans, dates and times, time spans, guids"

Parameters: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True)
class SqlFilter:
    """Selects the messages for which an expression in Service Bus SQL is true.

    :ivar parameters: the values of the expression's ``@names``, with the ``@``.
    """

    expression: str
    parameters: Parameters = field(default_factory=dict[str, Value])
    compatibility_level: int = 20
    compiled: CompiledFilter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_expression(self.expression)
        object.__setattr__(self, "parameters", _checked("parameter", self.parameters))
        object.__setattr__(self, "compiled", compile_filter(self.expression, self.parameters))

    @property
    def conditions(self) -> tuple[Condition, ...] | None:
        """The equalities that the expression comes to; None: it says something else."""
        return self.compiled.conditions

    def matches(self, facts: Facts) -> bool | None:
        """Tell whether the filter selects a message; None: unknown. May raise :class:`EvaluationError`."""
        return self.compiled.test(facts)


@dataclass(frozen=True, kw_only=True)
class CorrelationFilter:
    """Selects the messages that have all the properties given, with these very values."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Parameters = field(default_factory=dict[str, Value])
    conditions: tuple[Condition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", _checked("property", self.properties))
        conditions = [
            Condition(is_system=True, name=name.replace("_", ""), value=getattr(self, name))
            for name in _CORRELATED
            if getattr(self, name) is not None
        ]
        conditions += [
            Condition(is_system=False, name=name.lower(), value=plain(value)) for name, value in self.properties.items()
        ]
        if not conditions:
            raise InvalidRuleError("A correlation filter needs at least one condition: set a property to match.")
        object.__setattr__(self, "conditions", tuple(conditions))

    def matches(self, facts: Facts) -> bool:
        """Tell whether the filter selects a message."""
        return all(
            equal(SYSTEM[name](facts) if is_system else facts.user.get(name), value)
            for is_system, name, value in self.conditions
        )


_CORRELATED: Final = tuple(
    each.name for each in fields(CorrelationFilter) if each.name not in ("properties", "conditions")
)


@dataclass(frozen=True)
class TrueFilter:
    """Selects every message."""

    expression: ClassVar[str] = "1=1"
    conditions: ClassVar[tuple[Condition, ...]] = ()

    def matches(self, _facts: Facts) -> bool:
        """Tell whether the filter selects a message: it does."""
        return True


@dataclass(frozen=True)
class FalseFilter:
    """Selects no message."""

    expression: ClassVar[str] = "1=0"
    conditions: ClassVar[None] = None

    def matches(self, _facts: Facts) -> bool:
        """Tell whether the filter selects a message: it does not."""
        return False


Filter: TypeAlias = SqlFilter | CorrelationFilter | TrueFilter | FalseFilter


@dataclass(frozen=True)
class SqlAction:
    """Sets and removes properties of the messages that a rule selects; see :func:`apply_action`."""

    expression: str
    parameters: Parameters = field(default_factory=dict[str, Value])
    compatibility_level: int = 20
    compiled: CompiledAction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_expression(self.expression)
        object.__setattr__(self, "parameters", _checked("parameter", self.parameters))
        object.__setattr__(self, "compiled", compile_action(self.expression, self.parameters))


@dataclass(frozen=True)
class Rule:
    """A named filter of a subscription, and what is done with the messages that it selects."""

    name: str = DEFAULT_RULE
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None

    def __post_init__(self) -> None:
        if len(self.name) > MAX_NAME:
            raise InvalidRuleError(f"The rule name {self.name!r} has {len(self.name)} characters; {MAX_NAME} at most.")
        if not _NAME.fullmatch(self.name):
            raise InvalidRuleError(
                f"The rule name {self.name!r} is not valid: use letters, digits, periods, hyphens and underscores."
            )

    def to_json(self) -> str:
        """Return the rule as JSON."""
        return json.dumps(
            {
                "name": self.name,
                "filter": {"type": type(self.filter).__name__, **_document(self.filter)},
                "action": None if self.action is None else _document(self.action),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a rule back."""
        document: dict[str, Any] = json.loads(text)
        kind = _FILTERS[document["filter"].pop("type")]
        action = document["action"]
        return cls(
            document["name"],
            kind(**_revived(document["filter"])),
            None if action is None else SqlAction(**_revived(action)),
        )


_FILTERS: Final[dict[str, type[Filter]]] = {
    kind.__name__: kind for kind in (SqlFilter, CorrelationFilter, TrueFilter, FalseFilter)
}


def _check_expression(expression: str) -> None:
    if len(expression) > MAX_EXPRESSION:
        raise InvalidRuleError(
            f"The SQL expression has {len(expression)} characters; {MAX_EXPRESSION} at most. Use more rules than one."
        )


# --- values ---------------------------------------------------------------------------------------------------------


def _checked(what: str, values: Parameters) -> dict[str, Value]:
    """Return values as they are kept: Python's own, and times that know that they are UTC."""
    kept: dict[str, Value] = {}
    for name, raw in values.items():
        value = plain(raw)
        if isinstance(value, Timestamp):
            kept[name] = value.to_datetime()
        elif isinstance(value, bool | str | dt.timedelta | uuid.UUID) or _is_number(value):
            kept[name] = value
        else:
            raise InvalidRuleError(f"The {what} {name!r} cannot be {raw!r}. Valid are {_VALUES}.")
    return kept


def _is_number(value: Value) -> bool:
    if isinstance(value, int):
        return LONG_MIN <= value <= LONG_MAX
    return isinstance(value, float) and math.isfinite(value)


def _document(part: Filter | SqlAction) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name in (each.name for each in fields(part) if each.init):
        value = getattr(part, name)
        if name in _MAPS:
            value = {key: _written(item) for key, item in value.items()}
        if value is not None:
            document[name] = value
    return document


def _revived(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: _read(item) for key, item in value.items()} if name in _MAPS else value
        for name, value in document.items()
    }


_MAPS: Final = ("parameters", "properties")


def _written(value: Value) -> Value:
    """Return a value as JSON can say it."""
    if isinstance(value, dt.datetime):
        return {"time": value.isoformat()}
    if isinstance(value, dt.timedelta):
        return {"microseconds": value // dt.timedelta(microseconds=1)}
    if isinstance(value, uuid.UUID):
        return {"guid": str(value)}
    return value


def _read(written: Value) -> Value:
    match written:
        case {"time": str(text)}:
            return dt.datetime.fromisoformat(text)
        case {"microseconds": int(number)}:
            return dt.timedelta(microseconds=number)
        case {"guid": str(text)}:
            return uuid.UUID(text)
        case _:
            return written
