"""Compiled expressions against another evaluator: a plain walk over the tree from which their text was written.

It shares nothing with the product: NULL and unknown are a word of its own, failure is a value, and logic is looked up
in the tables of the documentation instead of being calculated.
"""

import itertools
import math
import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.filters import facts_of

from pairbus.broker.filters import EvaluationError, SqlFilter

Value: TypeAlias = Any
Node: TypeAlias = tuple[Any, ...]

UNKNOWN = "unknown"
FAILS = "fails"

AND_TABLE = {
    (True, True): True, (True, False): False, (True, UNKNOWN): UNKNOWN,
    (False, True): False, (False, False): False, (False, UNKNOWN): False,
    (UNKNOWN, True): UNKNOWN, (UNKNOWN, False): False, (UNKNOWN, UNKNOWN): UNKNOWN,
}  # fmt: skip
OR_TABLE = {
    (True, True): True, (True, False): True, (True, UNKNOWN): True,
    (False, True): True, (False, False): False, (False, UNKNOWN): UNKNOWN,
    (UNKNOWN, True): True, (UNKNOWN, False): UNKNOWN, (UNKNOWN, UNKNOWN): UNKNOWN,
}  # fmt: skip
NOT_TABLE = {True: False, False: True, UNKNOWN: UNKNOWN}

MESSAGE: dict[str, Value] = {
    "one": 1,
    "two": 2,
    "less": -7,
    "half": 0.5,
    "a": "a",
    "ab": "ab",
    "yes": True,
    "none": None,
}
NAMES = [*MESSAGE, "missing"]


# --- the other evaluator --------------------------------------------------------------------------------------------


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def alike(left: Value, right: Value) -> bool:
    return (is_number(left) and is_number(right)) or (type(left) is type(right) and not is_number(left))


def value_of(node: Node) -> Value:
    kind, *rest = node
    if kind == "constant":
        return UNKNOWN if rest[0] is None else (rest[0],)
    if kind == "property":
        return UNKNOWN if MESSAGE.get(rest[0]) is None else (MESSAGE[rest[0]],)
    if kind == "minus":
        operand = value_of(rest[0])
        if operand in (UNKNOWN, FAILS):
            return operand
        return (-operand[0],) if is_number(operand[0]) else FAILS
    left, right = value_of(rest[1]), value_of(rest[2])
    if FAILS in (left, right):
        return FAILS
    if UNKNOWN in (left, right):
        return UNKNOWN
    return calculated(rest[0], left[0], right[0])


def calculated(symbol: str, left: Value, right: Value) -> Value:
    if symbol == "+" and (isinstance(left, str) or isinstance(right, str)):
        return (written(left) + written(right),)
    if not (is_number(left) and is_number(right)):
        return FAILS
    if symbol in "/%":
        return divided(symbol, left, right)
    return ({"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol](left, right),)


def written(value: Value) -> str:
    return re.sub(r"\.0$", "", f"{value}") if isinstance(value, float) else f"{value}"


def divided(symbol: str, left: Value, right: Value) -> Value:
    whole = isinstance(left, int) and isinstance(right, int)
    if right == 0:
        if whole:
            return FAILS
        if symbol == "%" or left == 0 or math.isnan(left):
            return (math.nan,)
        return (math.inf if (left > 0) == (str(right)[0] != "-") else -math.inf,)
    if symbol == "%" and math.isinf(left):
        return (math.nan,)
    if symbol == "/":
        return (math.trunc(left / right) if whole else left / right,)
    return (left - right * math.trunc(left / right) if whole else math.fmod(left, right),)


COMPARED: dict[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq, "<>": operator.ne, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compared(symbol: str, left: Value, right: Value) -> Value:
    if FAILS in (left, right):
        return FAILS
    if UNKNOWN in (left, right) or not alike(left[0], right[0]):
        return UNKNOWN
    if isinstance(left[0], bool) and symbol not in ("=", "<>", "!="):
        return UNKNOWN
    return COMPARED[symbol](left[0], right[0])


def like(text: Value, pattern: str) -> Value:
    if text in (UNKNOWN, FAILS):
        return text
    if not isinstance(text[0], str):
        return UNKNOWN
    expression = "".join({"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(expression, text[0], re.DOTALL) is not None


def among(item: Value, choices: list[Node]) -> Value:
    if item in (UNKNOWN, FAILS):
        return item
    answer: Value = False
    for choice in choices:
        one = compared("=", item, value_of(choice))
        if one == FAILS or one is True:
            return one
        answer = OR_TABLE[answer, one]
    return answer


def truth_of(node: Node) -> Value:
    kind, *rest = node
    match kind:
        case "not":
            inner = truth_of(rest[0])
            return FAILS if inner == FAILS else NOT_TABLE[inner]
        case "and" | "or":
            left = truth_of(rest[0])
            if left == FAILS or left is (kind == "or"):
                return left
            right = truth_of(rest[1])
            return FAILS if right == FAILS else (AND_TABLE if kind == "and" else OR_TABLE)[left, right]
        case "compare":
            return compared(rest[0], value_of(rest[1]), value_of(rest[2]))
        case "like":
            return like(value_of(rest[0]), rest[1])
        case "in":
            return among(value_of(rest[0]), rest[1])
        case "null":
            return MESSAGE.get(rest[0]) is None
        case _:
            return rest[0] in MESSAGE


# --- trees and their text -------------------------------------------------------------------------------------------


def text_of(node: Node) -> str:  # noqa: PLR0911 (one for each kind)
    """Write a tree with parentheses around everything; :func:`bare_text_of` leaves out those that precedence spares."""
    kind, *rest = node
    match kind:
        case "constant":
            return constant_text(rest[0])
        case "property":
            return rest[0]
        case "minus":
            return f"(-{text_of(rest[0])})"
        case "calculate" | "compare":
            return f"({text_of(rest[1])} {rest[0]} {text_of(rest[2])})"
        case "not":
            return f"(NOT {text_of(rest[0])})"
        case "and" | "or":
            return f"({text_of(rest[0])} {kind.upper()} {text_of(rest[1])})"
        case "like":
            return f"({text_of(rest[0])} LIKE '{rest[1]}')"
        case "in":
            return f"({text_of(rest[0])} IN ({', '.join(map(text_of, rest[1]))}))"
        case "null":
            return f"({rest[0]} IS NULL)"
        case _:
            return f"EXISTS({rest[0]})"


RANKS = {"or": 0, "and": 1, "not": 2}
SUMS = {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5}


def rank_of(node: Node) -> int:
    if node[0] == "calculate":
        return SUMS[node[1]]
    return RANKS.get(node[0], 3 if node[0] in ("compare", "like", "in", "null") else 6)


def bare_text_of(node: Node) -> str:  # noqa: PLR0911 (one for each kind)
    def inside(child: Node, least: int) -> str:
        return bare_text_of(child) if rank_of(child) >= least else f"({bare_text_of(child)})"

    kind, *rest = node
    rank = rank_of(node)
    match kind:
        case "and" | "or":
            return f"{inside(rest[0], rank)} {kind} {inside(rest[1], rank + 1)}"
        case "not":
            return f"not {inside(rest[0], rank)}"
        case "calculate":
            return f"{inside(rest[1], rank)} {rest[0]} {inside(rest[2], rank + 1)}"
        case "compare":
            return f"{inside(rest[1], 4)} {rest[0]} {inside(rest[2], 4)}"
        case "minus":
            return f"- {inside(rest[0], 6)}"
        case "like":
            return f"{inside(rest[0], 4)} like '{rest[1]}'"
        case "in":
            return f"{inside(rest[0], 4)} in ({', '.join(map(bare_text_of, rest[1]))})"
        case "null":
            return f"{rest[0]} is null"
        case _:
            return text_of(node)


def constant_text(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


CONSTANTS = st.sampled_from([0, 1, 2, 3, 0.5, 2.0, "", "a", "ab", "it's", True, False, None])
EXPRESSIONS: st.SearchStrategy[Node] = st.recursive(
    st.tuples(st.just("constant"), CONSTANTS) | st.tuples(st.just("property"), st.sampled_from(NAMES)),
    lambda inner: (
        st.tuples(st.just("calculate"), st.sampled_from("+-*/%"), inner, inner) | st.tuples(st.just("minus"), inner)
    ),
    max_leaves=4,
)
PREDICATES: st.SearchStrategy[Node] = st.recursive(
    st.tuples(st.just("compare"), st.sampled_from(list(COMPARED)), EXPRESSIONS, EXPRESSIONS)
    | st.tuples(st.just("like"), EXPRESSIONS, st.text("ab_%", max_size=4))
    | st.tuples(st.just("in"), EXPRESSIONS, st.lists(EXPRESSIONS, min_size=1, max_size=3))
    | st.tuples(st.sampled_from(["null", "exists"]), st.sampled_from(NAMES)),
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=8,
)


def outcome(expression: str) -> Value:
    try:
        answer = SqlFilter(expression).matches(facts_of(user=MESSAGE))
    except EvaluationError:
        return FAILS
    return UNKNOWN if answer is None else answer


@settings(max_examples=1000)
@given(PREDICATES, st.sampled_from([text_of, bare_text_of]))
def test_what_is_compiled_means_what_a_walk_over_the_tree_finds(tree: Node, write: Callable[[Node], str]) -> None:
    expression = write(tree)
    if len(expression) <= 1024:
        assert outcome(expression) == truth_of(tree), expression


TRUTHS = {True: "1 = 1", False: "1 = 0", UNKNOWN: "missing = 1"}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(TRUTHS, repeat=2)))
def test_the_tables_of_the_documentation(left: Value, right: Value) -> None:
    assert outcome(f"{TRUTHS[left]} AND {TRUTHS[right]}") == AND_TABLE[left, right]
    assert outcome(f"{TRUTHS[left]} OR {TRUTHS[right]}") == OR_TABLE[left, right]
    assert outcome(f"NOT {TRUTHS[left]}") == NOT_TABLE[left]


@given(
    st.lists(st.sampled_from(list(TRUTHS.values())), min_size=1, max_size=6),
    st.lists(st.sampled_from(list(TRUTHS.values())), min_size=1, max_size=6),
)
def test_de_morgan(some: list[str], others: list[str]) -> None:
    both = f"({' OR '.join(some)}) AND ({' AND '.join(others)})"
    spread = f"NOT (NOT ({' OR '.join(some)}) OR NOT ({' AND '.join(others)}))"
    assert outcome(both) == outcome(spread)
