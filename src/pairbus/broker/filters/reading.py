"""Service Bus SQL, from a tree of tokens to what it means: names are looked up, constants and parameters read."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pairbus.broker.filters import syntax
from pairbus.broker.filters.errors import ExpressionError
from pairbus.broker.filters.facts import SYSTEM
from pairbus.broker.filters.parsing import parse, position
from pairbus.broker.filters.values import LONG_MAX, Value, plain

if TYPE_CHECKING:
    from lark import Token

    from pairbus.broker.filters.parsing import Branch

MAX_STATEMENTS: Final = 32

SETTABLE: Final = frozenset(
    (
        "contenttype",
        "correlationid",
        "label",
        "messageid",
        "partitionkey",
        "replyto",
        "replytosessionid",
        "scheduledenqueuetimeutc",
        "sessionid",
        "subject",
        "timetolive",
        "to",
        "transactionpartitionkey",
        "viapartitionkey",
    )
)
"""The system properties that an action may change: those that a sender can set."""


def read_filter(text: str, parameters: Mapping[str, Value]) -> syntax.Predicate:
    """Read the condition of a filter; what cannot be understood raises :class:`ExpressionError`."""
    return _Reader(parameters).predicate(parse(text, "filter"))


def read_action(text: str, parameters: Mapping[str, Value]) -> tuple[syntax.Statement, ...]:
    """Read the statements of an action; what cannot be understood raises :class:`ExpressionError`."""
    reader = _Reader(parameters)
    statements = tuple(reader.statement(each) for each in _branches(parse(text, "action")))
    if len(statements) > MAX_STATEMENTS:
        raise ExpressionError(f"an action has {MAX_STATEMENTS} statements at most, not {len(statements)}", 1, 1)
    return statements


def _branches(branch: "Branch") -> list["Branch"]:
    return [child for child in branch.children if not isinstance(child, str)]


def _tokens(branch: "Branch") -> list["Token"]:
    return [child for child in branch.children if isinstance(child, str)]


class _Reader:
    def __init__(self, parameters: Mapping[str, Value]) -> None:
        self._parameters = {name.removeprefix("@").lower(): plain(value) for name, value in parameters.items()}

    # --- statements -------------------------------------------------------------------------------------------------

    def statement(self, branch: "Branch") -> syntax.Statement:
        parts = _branches(branch)
        target = self._property(parts[0])
        if target.is_system and target.key not in SETTABLE:
            token = _tokens(parts[0])[-1]
            raise ExpressionError("this system property cannot be changed", *position(token), str(token))
        if branch.data == "remove":
            return syntax.Remove(target)
        return syntax.Set(target, self.expression(parts[1]))

    # --- predicates -------------------------------------------------------------------------------------------------

    def predicate(self, branch: "Branch") -> syntax.Predicate:
        parts = _branches(branch)
        match branch.data:
            case "disjunction":
                return syntax.Or(tuple(map(self.predicate, parts)))
            case "conjunction":
                return syntax.And(tuple(map(self.predicate, parts)))
            case "negation":
                part = self.predicate(parts[0])
                return syntax.Not(part) if len(_tokens(branch)) % 2 else part
            case "compare":
                left, right = map(self.expression, parts)
                return syntax.Compare(str(_tokens(branch)[0]), left, right)
            case "exists":
                return syntax.Exists(self._property(parts[0]))
            case _:
                return self._test(str(branch.data), tuple(map(self.expression, parts)), branch)

    def _test(self, name: str, operands: tuple[syntax.Expression, ...], branch: "Branch") -> syntax.Predicate:
        first, *others = operands
        test: syntax.Predicate
        if name.endswith("like"):
            test = syntax.Like(first, others[0], others[1] if len(others) > 1 else None)
        elif name.endswith("among"):
            test = syntax.In(first, tuple(others))
        else:
            if not isinstance(first, syntax.Property | syntax.NamedProperty):
                token = _tokens(branch)[-1]
                raise ExpressionError("only a property can be compared with NULL by IS", *position(token), str(token))
            test = syntax.IsNull(first)
        return syntax.Not(test) if "not" in name else test

    # --- expressions ------------------------------------------------------------------------------------------------

    def expression(self, branch: "Branch") -> syntax.Expression:
        tokens, parts = _tokens(branch), _branches(branch)
        match branch.data:
            case "sum" | "product":
                first, *rest = map(self.expression, parts)
                return syntax.Chain(first, tuple(zip(map(str, tokens), rest, strict=True)))
            case "signed":
                return self._signed(tuple(map(str, tokens)), self.expression(parts[0]))
            case "property":
                return self._property(branch)
            case "call":
                return self._call(tokens[0], parts)
            case kind:
                return syntax.Constant(self._constants[kind](self, tokens[0]))

    def _signed(self, signs: tuple[str, ...], operand: syntax.Expression) -> syntax.Expression:
        if signs == ("-",) and isinstance(operand, syntax.Constant) and type(operand.value) in (int, float):
            return syntax.Constant(-operand.value)
        return syntax.Signed(signs, operand)

    def _property(self, branch: "Branch") -> syntax.Property:
        *scope, name = _tokens(branch)
        given = _unquoted(scope[0]).lower() if scope else "user"
        if given not in ("sys", "user"):
            raise ExpressionError("the scope of a property is sys or user", *position(scope[0]), str(scope[0]))
        found = syntax.Property(given == "sys", _unquoted(name))
        if found.is_system and found.key not in SYSTEM:
            raise ExpressionError("there is no such system property", *position(name), str(name))
        return found

    def _call(self, name: "Token", arguments: list["Branch"]) -> syntax.Expression:
        takes = _FUNCTIONS.get(name.lower())
        if takes is None:
            raise ExpressionError("there is no such function, only newid() and property(name)", *position(name), name)
        if len(arguments) != takes:
            raise ExpressionError(f"{name}() takes {takes or 'no'} argument{'s' * (takes != 1)}", *position(name), name)
        return syntax.NamedProperty(self.expression(arguments[0])) if takes else syntax.NewId()

    def _parameter(self, token: "Token") -> Value:
        name = token[1:].lower()
        if name not in self._parameters:
            raise ExpressionError("this parameter has no value", *position(token), str(token))
        return self._parameters[name]

    def _integer(self, token: "Token") -> int:
        number = int(token)
        if number > LONG_MAX:
            raise ExpressionError("this is out of the range of a 64-bit integer", *position(token), str(token))
        return number

    def _decimal(self, token: "Token") -> float:
        number = float(token)
        if math.isinf(number):
            raise ExpressionError("this is out of the range of a double", *position(token), str(token))
        return number

    _constants: Final[dict[str, Callable[["_Reader", "Token"], Value]]] = {
        "parameter": _parameter,
        "integer": _integer,
        "decimal": _decimal,
        "string": lambda _self, token: str(token)[1:-1].replace("''", "'"),
        "true": lambda _self, _token: True,
        "false": lambda _self, _token: False,
        "null": lambda _self, _token: None,
    }


_FUNCTIONS: Final = {"newid": 0, "property": 1, "p": 1}
"""How many arguments each function takes."""


def _unquoted(token: "Token") -> str:
    text = str(token)
    if token.type == "NAME":
        return text
    return text[1:-1].replace(text[-1] * 2, text[-1])
