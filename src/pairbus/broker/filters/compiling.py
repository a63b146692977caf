"""Expressions as functions of a message: what can be decided beforehand is decided once.

A test returns True, False, or None for unknown. AND and OR look at their parts from left to right and stop as soon as
the rest cannot change the answer, so a part that would fail may never be looked at.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pairbus.broker.filters import syntax
from pairbus.broker.filters.errors import EvaluationError, InvalidRuleError
from pairbus.broker.filters.facts import SYSTEM, Facts
from pairbus.broker.filters.like import MAX_TEXT, Matches, compile_like
from pairbus.broker.filters.reading import read_action, read_filter
from pairbus.broker.filters.syntax import Condition
from pairbus.broker.filters.values import COMPARISONS, Value, calculate, equal, signed

Test: TypeAlias = Callable[[Facts], bool | None]
Reading: TypeAlias = Callable[[Facts], Value]


class CompiledFilter(NamedTuple):
    """A filter's expression, ready to be tried.

    ``conditions`` are the equalities, all to be met, that it comes to; None if it says anything else.
    """

    test: Test
    conditions: tuple[Condition, ...] | None


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A property that is set to what is read, or, without that, removed."""

    target: syntax.Property
    value: Reading | None


CompiledAction: TypeAlias = tuple[CompiledStatement, ...]


def compile_filter(text: str, parameters: Mapping[str, Value]) -> CompiledFilter:
    """Compile the condition of a filter."""
    predicate = read_filter(text, parameters)
    return CompiledFilter(_test(predicate), _conditions(predicate))


def compile_action(text: str, parameters: Mapping[str, Value]) -> CompiledAction:
    """Compile the statements of an action."""
    return tuple(
        CompiledStatement(each.target, _reading(each.expression) if isinstance(each, syntax.Set) else None)
        for each in read_action(text, parameters)
    )


def _conditions(predicate: syntax.Predicate) -> tuple[Condition, ...] | None:
    found: list[Condition] = []
    for part in predicate.parts if isinstance(predicate, syntax.And) else (predicate,):
        if not isinstance(part, syntax.Compare) or part.symbol != "=":
            return None
        sides = (part.left, part.right) if isinstance(part.left, syntax.Property) else (part.right, part.left)
        if not isinstance(sides[0], syntax.Property) or not isinstance(sides[1], syntax.Constant):
            return None
        found.append(Condition(sides[0].is_system, sides[0].key, sides[1].value))
    return tuple(found)


# --- tests ----------------------------------------------------------------------------------------------------------


def _test(predicate: syntax.Predicate) -> Test:
    match predicate:
        case syntax.And(parts):
            return _stops_at([_test(part) for part in parts], last=False)
        case syntax.Or(parts):
            return _stops_at([_test(part) for part in parts], last=True)
        case syntax.Not(part):
            return _opposite(_test(part))
        case syntax.Compare(symbol, left, right):
            return _compared(COMPARISONS[symbol], _reading(left), _reading(right))
        case syntax.In(item, choices):
            return _among(_reading(item), [_reading(choice) for choice in choices])
        case syntax.Like():
            return _like(predicate)
        case syntax.IsNull(operand):
            value = _reading(operand)
            return lambda facts: value(facts) is None
        case syntax.Exists(operand):
            return _exists(operand)


def _stops_at(tests: list[Test], *, last: bool) -> Test:
    """Return AND, which stops at the first False, or OR, which stops at the first True."""

    def tested(facts: Facts) -> bool | None:
        answer: bool | None = not last
        for test in tests:
            one = test(facts)
            if one is last:
                return last
            if one is None:
                answer = None
        return answer

    return tested


def _opposite(test: Test) -> Test:
    def tested(facts: Facts) -> bool | None:
        answer = test(facts)
        return None if answer is None else not answer

    return tested


def _compared(compare: Callable[[Value, Value], bool | None], left: Reading, right: Reading) -> Test:
    return lambda facts: compare(left(facts), right(facts))


def _among(item: Reading, choices: list[Reading]) -> Test:
    def tested(facts: Facts) -> bool | None:
        value = item(facts)
        if value is None:
            return None
        answer: bool | None = False
        for choice in choices:
            one = equal(value, choice(facts))
            if one:
                return True
            if one is None:
                answer = None
        return answer

    return tested


def _exists(operand: syntax.Property) -> Test:
    if operand.is_system:
        value = SYSTEM[operand.key]
        return lambda facts: value(facts) is not None
    key = operand.key
    return lambda facts: key in facts.user


def _like(like: syntax.Like) -> Test:
    text = _reading(like.text)
    matcher = _matcher(like)

    most = None if isinstance(like.pattern, syntax.Constant) else MAX_TEXT

    def tested(facts: Facts) -> bool | None:
        value, matches = text(facts), matcher(facts)
        if type(value) is not str or matches is None:
            return None
        if most is not None and len(value) > most:
            raise EvaluationError(
                f"A text of at most {most} characters is compared with a pattern that is no constant, not {len(value)}."
            )
        return matches(value)

    return tested


def _matcher(like: syntax.Like) -> Callable[[Facts], Matches | None]:
    """Return what gives the pattern for a message; one that is written out is compiled once."""
    pattern, escape = like.pattern, like.escape
    if isinstance(pattern, syntax.Constant) and (escape is None or isinstance(escape, syntax.Constant)):
        try:
            once = _pattern(pattern.value, escape and escape.value, escapes=escape is not None)
        except EvaluationError as error:
            raise InvalidRuleError(str(error)) from None
        return lambda _facts: once
    reads, escapes = _reading(pattern), None if escape is None else _reading(escape)
    return lambda facts: _pattern(reads(facts), escapes and escapes(facts), escapes=escapes is not None)


def _pattern(pattern: Value, escape: Value, *, escapes: bool) -> Matches | None:
    if pattern is None or (escapes and escape is None):
        return None
    if not isinstance(pattern, str):
        raise EvaluationError(f"The pattern of LIKE must be a text, not {pattern!r}.")
    if escapes and (not isinstance(escape, str) or len(escape) != 1):
        raise EvaluationError(f"The escape character of LIKE must be one character, not {escape!r}.")
    return compile_like(pattern, escape)


# --- expressions ----------------------------------------------------------------------------------------------------


def _reading(expression: syntax.Expression) -> Reading:
    match expression:
        case syntax.Constant(value):
            return lambda _facts: value
        case syntax.Property(is_system):
            return SYSTEM[expression.key] if is_system else _user(expression.key)
        case syntax.NamedProperty(name):
            return _named(_reading(name))
        case syntax.NewId():
            return lambda facts: facts.new_id()
        case syntax.Signed(signs, operand):
            return _signed(signs[::-1], _reading(operand))
        case syntax.Chain(first, rest):
            return _chain(_reading(first), [(symbol, _reading(operand)) for symbol, operand in rest])


def _user(key: str) -> Reading:
    return lambda facts: facts.user.get(key)


def _named(name: Reading) -> Reading:
    def read(facts: Facts) -> Value:
        key = name(facts)
        if key is None:
            return None
        if not isinstance(key, str):
            raise EvaluationError(f"The name of a property must be a text, not {key!r}.")
        return facts.user.get(key.lower())

    return read


def _signed(signs: tuple[str, ...], operand: Reading) -> Reading:
    def read(facts: Facts) -> Value:
        value = operand(facts)
        for sign in signs:
            value = signed(sign, value)
        return value

    return read


def _chain(first: Reading, rest: list[tuple[str, Reading]]) -> Reading:
    def read(facts: Facts) -> Value:
        value = first(facts)
        for symbol, operand in rest:
            value = calculate(symbol, value, operand(facts))
        return value

    return read
