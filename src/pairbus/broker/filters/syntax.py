"""What an expression in Service Bus SQL is made of, once it is parsed. Parameters have become constants."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pairbus.broker.filters.values import Value


class Condition(NamedTuple):
    """A property that must equal a value; the name is in lower case."""

    is_system: bool
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, or NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message, with its name as it was written."""

    is_system: bool
    name: str

    @property
    def key(self) -> str:
        """The name by which it is looked up."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """``property(name)``: a user property whose name is calculated."""

    name: "Expression"


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``."""


@dataclass(frozen=True, slots=True)
class Signed:
    """An expression with signs before it, in the order in which they are written."""

    signs: tuple[str, ...]
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence, applied from left to right."""

    first: "Expression"
    rest: tuple[tuple[str, "Expression"], ...]


Expression: TypeAlias = Constant | Property | NamedProperty | NewId | Signed | Chain


@dataclass(frozen=True, slots=True)
class Compare:
    """Two expressions and one of = <> != < <= > >= between them."""

    symbol: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Like:
    """A text and the pattern that it is to match."""

    text: Expression
    pattern: Expression
    escape: Expression | None


@dataclass(frozen=True, slots=True)
class In:
    """A value and those of which it is to be one."""

    item: Expression
    choices: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A property that is to be not there, or null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Exists:
    """A property that is to be there."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    part: "Predicate"


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of them."""

    parts: tuple["Predicate", ...]


Predicate: TypeAlias = Compare | Like | In | IsNull | Exists | Not | And | Or


@dataclass(frozen=True, slots=True)
class Set:
    """A statement that gives a property a value."""

    target: Property
    expression: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """A statement that takes a property away."""

    target: Property


Statement: TypeAlias = Set | Remove
