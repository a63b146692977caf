"""What a rule may be, what is said of one that may not, and that hostile text is only ever refused."""

import datetime as dt
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.filters import GUID, facts_of

from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Described, Int, Symbol, Timestamp
from pairbus.broker.filters import (
    DEFAULT_RULE,
    CorrelationFilter,
    EvaluationError,
    ExpressionError,
    FalseFilter,
    Filter,
    InvalidRuleError,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.broker.filters.values import Value
from pairbus.broker.refusals import ARGUMENT_ERROR, RefusedError

# --- names and limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [DEFAULT_RULE, "a", "Rule_1.b-c", "x" * 50])
def test_a_valid_name(name: str) -> None:
    assert Rule(name).name == name


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", "a\\b", "a?", "a#b", "a*", "a@b", "a b", "ä", "a\n", "<a>"])
def test_a_name_that_is_refused(name: str) -> None:
    with pytest.raises(InvalidRuleError, match="rule name"):
        Rule(name)


def test_a_refused_rule_is_an_argument_error_to_the_client() -> None:
    with pytest.raises(RefusedError) as refused:
        CorrelationFilter()
    assert refused.value.condition == ARGUMENT_ERROR
    assert "at least one condition" in refused.value.description


def test_an_expression_has_1024_characters_at_most() -> None:
    longest = "a = '" + "x" * 1018 + "'"
    assert len(longest) == 1024
    SqlFilter(longest)
    SqlAction("SET " + longest[:-5] + "'")
    with pytest.raises(InvalidRuleError, match="1025 characters; 1024 at most"):
        SqlFilter(longest + " ")
    with pytest.raises(InvalidRuleError, match="1028 characters"):
        SqlAction("SET " + longest)


def test_an_action_has_32_statements_at_most() -> None:
    SqlAction("SET a = 1;" * 32)
    with pytest.raises(ExpressionError, match="32 statements at most, not 33"):
        SqlAction("SET a = 1;" * 33)


@pytest.mark.parametrize(
    "value", [None, b"x", [1], float("nan"), float("inf"), 2**63, Timestamp(2**62), Described("x", 1)]
)
def test_a_value_that_a_rule_cannot_have(value: Value) -> None:
    with pytest.raises(InvalidRuleError, match="parameter '@p' cannot be"):
        SqlFilter("a = @p", {"@p": value})
    with pytest.raises(InvalidRuleError, match="property 'p' cannot be"):
        CorrelationFilter(properties={"p": value})


# --- what is said of a mistake --------------------------------------------------------------------------------------

MISTAKES: list[tuple[str, int, int, str, str]] = [
    ("", 1, 1, "", "a condition was expected"),
    ("   ", 1, 1, "", "a condition was expected"),
    ("a", 1, 2, "", "a comparison (=, <>, <, >, LIKE, IN, IS NULL) was expected"),
    ("a =", 1, 4, "", "a value was expected"),
    ("a = 1 AND", 1, 10, "", "a condition was expected"),
    ("a = 1 b = 2", 1, 7, "b", "the end of the expression was expected"),
    ("(a = 1", 1, 7, "", "')' was expected"),
    ("a = 1)", 1, 6, ")", "the end of the expression was expected"),
    ("a\n =\n  AND", 3, 3, "AND", "a value was expected; AND is a reserved word"),
    ("like = 1", 1, 1, "like", "if a property has that name, write [like]"),
    ("a = b = c", 1, 7, "=", "the end of the expression was expected"),
    ("a == 1", 1, 4, "=", "a value was expected"),
    ("a = 'x", 1, 5, "'", "this text has no end"),
    ("[a = 1", 1, 1, "[", "this name has no end"),
    ('"a = 1', 1, 1, '"', "this name has no end"),
    ("[] = 1", 1, 1, "[", "this name has no end"),
    ("a = $", 1, 5, "$", "this character has no meaning here"),
    ("_a = 1", 1, 1, "_", "this character has no meaning here"),
    ("a IN ()", 1, 7, ")", "a value was expected"),
    ("a IN 1", 1, 6, "1", "'(' was expected"),
    ("a IS 1", 1, 6, "1", "NOT or NULL was expected"),
    ("a + 1 IS NULL", 1, 10, "NULL", "only a property can be compared with NULL by IS"),
    ("EXISTS(1)", 1, 8, "1", "a property name was expected"),
    ("EXISTS(a", 1, 9, "", "')' was expected"),
    ("a LIKE", 1, 7, "", "a value was expected"),
    ("NOT", 1, 4, "", "a condition was expected"),
    ("a NOT = 1", 1, 7, "=", "IN or LIKE was expected"),
    ("sys.Nothing = 1", 1, 5, "Nothing", "there is no such system property"),
    ("other.a = 1", 1, 1, "other", "the scope of a property is sys or user"),
    ("lower(a) = 'x'", 1, 1, "lower", "there is no such function"),
    ("newid(1) = 1", 1, 1, "newid", "newid() takes no arguments"),
    ("p() = 1", 1, 1, "p", "p() takes 1 argument"),
    ("property(a, b) = 1", 1, 1, "property", "property() takes 1 argument"),
    ("a = @p", 1, 5, "@p", "this parameter has no value"),
    ("a = 9223372036854775808", 1, 5, "9223372036854775808", "out of the range of a 64-bit integer"),
    ("a = 1E999", 1, 5, "1E999", "out of the range of a double"),
    ("SET a = 1", 1, 1, "SET", "a condition was expected; SET is a reserved word"),
    ("a = 1; b = 2", 1, 6, ";", "the end of the expression was expected"),
]


@pytest.mark.parametrize(("text", "line", "column", "found", "why"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_a_mistake_is_named_with_its_place(text: str, line: int, column: int, found: str, why: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        SqlFilter(text)
    assert why in refused.value.why
    assert (refused.value.line, refused.value.column, refused.value.found) == (line, column, found)
    assert f"[Token line={line}, column={column}, Token in error={found}, " in refused.value.description


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "REMOVE or SET was expected"),
        ("a = 1", "REMOVE or SET was expected"),
        ("SET a", "'=' was expected"),
        ("SET a = ", "a value was expected"),
        ("SET a > 1", "'=' was expected"),
        ("REMOVE a = 1", "was expected"),
        ("SET 'a' = 1", "a property name was expected"),
        ("SET sys.SequenceNumber = 1", "this system property cannot be changed"),
        ("REMOVE sys.EnqueuedTimeUtc", "this system property cannot be changed"),
        ("SET sys.Nothing = 1", "there is no such system property"),
        ("SET a = 1,", "was expected"),
        ("SET a = b = 1", "was expected"),
    ],
)
def test_a_mistake_in_an_action(text: str, why: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        SqlAction(text)
    assert why in refused.value.why


def test_a_pattern_that_can_never_be_used_is_refused_at_once() -> None:
    with pytest.raises(InvalidRuleError, match="one character, not 'ab'"):
        SqlFilter("a LIKE 'x' ESCAPE 'ab'")
    with pytest.raises(InvalidRuleError, match="ends with its escape character"):
        SqlFilter("a LIKE 'x!' ESCAPE '!'")
    with pytest.raises(InvalidRuleError, match="must be a text, not 5"):
        SqlFilter("a LIKE 5")


# --- hostile text ---------------------------------------------------------------------------------------------------


def nested(opening: str, inner: str, closing: str = "") -> str:
    depth = (1024 - len(inner)) // len(opening + closing)
    return opening * depth + inner + closing * depth


@pytest.mark.parametrize(
    "text",
    [
        nested("(", "1=1", ")"),
        nested("(", "1", ")=1"),
        nested("(", ""),
        nested("p(", "'a'", ")"),
        nested("NOT(", "1=1", ")"),
        nested("(-", "1", ")") + "=1",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="nested more than 32 deep"):
        SqlFilter(text[:1024])


@pytest.mark.parametrize(
    "text",
    [
        nested("NOT ", "1=1"),
        nested("-", "1=1"),
        nested("+-", "a=1"),
        nested("a+", "a=1"),
        nested("a*", "a=1"),
        nested("a=1 OR ", "a=1"),
        nested("a=1 AND ", "a=1"),
        "a IN (" + "1," * 500 + "1)",
        "(" * 32 + "1=1" + ")" * 32,
        "NOT(1=1 AND " * 32 + "1=1" + ")" * 32,
        "-(1+" * 32 + "1" + ")" * 32 + "=1",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_long_but_flat_is_taken(text: str) -> None:
    SqlFilter(text).matches(facts_of(user={"a": 1}))


def is_taken(make: type[SqlFilter | SqlAction], text: str) -> bool:
    try:
        make(text, {"@p": 1})
    except InvalidRuleError:
        return False
    return True


@settings(max_examples=500)
@given(st.text(st.sampled_from("ab1.'\"[]()=<>!+-*/%,;@ \n\t_ä\0") | st.characters(), max_size=60))
def test_any_text_is_either_taken_or_refused(text: str) -> None:
    assert not (is_taken(SqlFilter, text) and is_taken(SqlAction, text))


WORDS = st.sampled_from(
    [
        *("a", "b1", "sys.Label", "user.a", "[x]", '"y"', "1", "2.5", "1E3", "'it''s'", "@p", "TRUE", "FALSE", "NULL"),
        *("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "EXISTS", "p", "newid", "SET", "REMOVE"),
        *("(", ")", "(", ")", ",", ";", "=", "<>", "<", ">=", "+", "-", "*", "/", "%"),
    ]
)


@settings(max_examples=500)
@given(st.lists(WORDS, max_size=20))
def test_any_row_of_words_is_either_taken_or_refused(words: list[str]) -> None:
    assert not (is_taken(SqlFilter, " ".join(words)) and is_taken(SqlAction, " ".join(words)))


def test_a_text_that_grows_without_end_fails_instead() -> None:
    filter_ = SqlFilter("+".join(["a"] * 500) + " = 'x'")
    with pytest.raises(EvaluationError, match="too long; 32768 at most"):
        filter_.matches(facts_of(user={"a": "x" * 30_000}))


# --- descriptions ---------------------------------------------------------------------------------------------------

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=dt.UTC)
VALUES: dict[str, Value] = {
    "@text": "ä'\n",
    "@int": -(2**63),
    "@float": 0.1,
    "@bool": True,
    "@time": NOON,
    "@span": dt.timedelta(days=-1, microseconds=7),
    "@guid": GUID,
}
RULES = [
    Rule(),
    Rule("none", FalseFilter()),
    Rule("sql", SqlFilter("a = @text OR b = @time", VALUES), SqlAction("SET a = @span", VALUES)),
    Rule("level", SqlFilter("1=1", compatibility_level=19)),
    Rule("one", CorrelationFilter(subject="")),
    Rule(
        "all",
        CorrelationFilter(
            correlation_id="1",
            message_id="2",
            to="3",
            reply_to="4",
            subject="5",
            session_id="6",
            reply_to_session_id="7",
            content_type="8",
            properties=VALUES,
        ),
        SqlAction("REMOVE a"),
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_read_as_it_was_written(rule: Rule) -> None:
    again = Rule.from_json(rule.to_json())
    assert again == rule
    assert again.to_json() == rule.to_json()
    assert type(again.filter) is type(rule.filter)


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.text()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.booleans()
        | st.timedeltas(dt.timedelta(days=-(10**6)), dt.timedelta(days=10**6))
        | st.uuids(),
        min_size=1,
    )
)
def test_any_values_are_read_as_they_were_written(values: dict[str, Value]) -> None:
    rule = Rule("r", CorrelationFilter(properties=values))
    again = Rule.from_json(rule.to_json()).filter
    assert isinstance(again, CorrelationFilter)
    assert again == rule.filter
    assert {name: type(value) for name, value in again.properties.items()} == {
        name: type(value) for name, value in values.items()
    }


def test_values_are_kept_as_python_has_them() -> None:
    naive = dt.datetime(2024, 2, 29, 12, 0, 0, 5000)  # noqa: DTZ001 (some clients say no zone: it is UTC)
    given_values = {"a": Int(5), "b": Symbol("x"), "c": naive, "d": Timestamp.of(NOON), "e": NOON}
    kept = SqlFilter("1=1", given_values).parameters
    assert kept == {"a": 5, "b": "x", "c": NOON, "d": NOON, "e": NOON}
    assert [type(value) for value in kept.values()] == [int, str, dt.datetime, dt.datetime, dt.datetime]


def test_a_rule_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Rule().name = "other"  # type: ignore[misc]


# --- correlation filters --------------------------------------------------------------------------------------------

MESSAGE = facts_of(
    Properties(message_id="m", to="t", subject="s", reply_to="r", correlation_id="c", content_type=Symbol("x/y"),
               group_id="g", reply_to_group_id="rg"),
    {"Color": "red", "size": Int(5), "on": True, "at": Timestamp.of(NOON), "nothing": None, "guid": GUID, "e": ""},
)  # fmt: skip

SELECTING: list[Filter] = [
    TrueFilter(),
    CorrelationFilter(correlation_id="c"),
    CorrelationFilter(
        correlation_id="c", message_id="m", to="t", reply_to="r", subject="s", session_id="g",
        reply_to_session_id="rg", content_type="x/y", properties={"color": "red", "SIZE": 5},
    ),
    CorrelationFilter(properties={"size": 5.0}),
    CorrelationFilter(properties={"on": True}),
    CorrelationFilter(properties={"at": NOON}),
    CorrelationFilter(properties={"guid": GUID}),
    CorrelationFilter(properties={"e": ""}),
]  # fmt: skip
OTHERS: list[Filter] = [
    FalseFilter(),
    CorrelationFilter(correlation_id="C"),
    CorrelationFilter(correlation_id="c", subject="x"),
    CorrelationFilter(subject="s", properties={"color": "blue"}),
    CorrelationFilter(properties={"color": "Red"}),
    CorrelationFilter(properties={"size": "5"}),
    CorrelationFilter(properties={"on": 1}),
    CorrelationFilter(properties={"at": int(Timestamp.of(NOON))}),
    CorrelationFilter(properties={"guid": str(uuid.UUID(int=1))}),
    CorrelationFilter(properties={"nothing": ""}),
    CorrelationFilter(properties={"missing": "x"}),
    CorrelationFilter(subject=""),
]


@pytest.mark.parametrize("filter_", SELECTING, ids=repr)
def test_a_filter_that_selects_the_message(filter_: Filter) -> None:
    assert filter_.matches(MESSAGE) is True


@pytest.mark.parametrize("filter_", OTHERS, ids=repr)
def test_a_filter_that_does_not(filter_: Filter) -> None:
    assert filter_.matches(MESSAGE) is False
