"""Rules in XML, both ways."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.admin.documents import description
from pairbus.broker.admin.problems import ProblemError
from pairbus.broker.admin.rule_descriptions import RULE, read_rule, write_rule
from pairbus.broker.admin.xml import CONNECT, INSTANCE, Element, parse
from pairbus.broker.filters import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    InvalidRuleError,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

VALUES: dict[str, Any] = {
    "text": "one <two> & 'three'",
    "int": 2,
    "negative": -(2**31),
    "long": 2**31,
    "longest": -(2**63),
    "double": 1.5e300,
    "yes": True,
    "no": False,
    "time": datetime(2020, 7, 5, 11, 12, 13, 123000, tzinfo=UTC),
    "span": timedelta(days=1, hours=2, microseconds=5),
    "guid": uuid.UUID(int=7),
}


def element(content: str) -> Element:
    return parse(
        f'<{RULE} xmlns="{CONNECT}" xmlns:i="{INSTANCE}" xmlns:x="http://www.w3.org/2001/XMLSchema">{content}</{RULE}>'.encode()
    )


def value(kind: str, content: str) -> str:
    pair = f'<Key>k</Key><Value i:type="x:{kind}">{content}</Value>'
    return (
        f'<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>{pair}</KeyValueOfstringanyType>'
        "</Properties></Filter>"
    )


RULES = [
    Rule("$Default"),
    Rule("none", FalseFilter()),
    Rule("sql", SqlFilter("color = @c AND size < 5", {"@c": "red", **{f"@{name}": VALUES[name] for name in VALUES}})),
    Rule(
        "all",
        CorrelationFilter(
            properties=VALUES,
            correlation_id="1",
            message_id="2",
            to="3",
            reply_to="4",
            subject="5",
            session_id="6",
            reply_to_session_id="7",
            content_type="8",
        ),
    ),
    Rule("acts", TrueFilter(), SqlAction("SET size = @s; REMOVE color", {"@s": 3})),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_read_as_it_was_written(rule: Rule) -> None:
    written = description(RULE, write_rule(rule, "2020-07-05T11:12:13Z"))
    assert read_rule(parse(written.encode())) == rule
    assert read_rule(parse(written.encode()), rule.name.upper()) == Rule(rule.name.upper(), rule.filter, rule.action)


PLAIN = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1
)


@given(
    st.dictionaries(
        PLAIN,
        PLAIN
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.timedeltas(min_value=timedelta(days=-10000), max_value=timedelta(days=10000))
        | st.uuids()
        | st.integers(0, 4 * 10**12).map(lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)),
        min_size=1,
        max_size=5,
    )
)
def test_values_keep_their_types(values: dict[str, Any]) -> None:
    rule = Rule("r", CorrelationFilter(properties=values))
    read = read_rule(parse(description(RULE, write_rule(rule, "2020-07-05T11:12:13Z")).encode()))
    assert isinstance(read.filter, CorrelationFilter)
    assert isinstance(rule.filter, CorrelationFilter)
    assert read.filter.properties == rule.filter.properties
    assert [type(each) for each in read.filter.properties.values()] == [type(each) for each in values.values()]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", TrueFilter()),
        ('<Filter i:type="TrueFilter"/>', TrueFilter()),
        (value("short", "-3"), CorrelationFilter(properties={"k": -3})),
        (value("float", "0.5"), CorrelationFilter(properties={"k": 0.5})),
        (
            value("dateTime", "2020-07-05T11:12:13"),
            CorrelationFilter(properties={"k": datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC)}),
        ),
        (
            value("dateTime", "2020-07-05T13:12:13+02:00"),
            CorrelationFilter(properties={"k": datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC)}),
        ),
        (value("char", "c"), CorrelationFilter(properties={"k": "c"})),
    ],
)
def test_what_other_clients_write(content: str, expected: Filter) -> None:
    assert read_rule(element(content), "r").filter == expected


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('<Filter i:type="MagicFilter"/>', "'MagicFilter'"),
        ("<Filter/>", "one of SqlFilter"),
        ('<Action i:type="MagicAction"/>', "SqlRuleAction or EmptyRuleAction"),
        ("<Surprise/>", "'Surprise' is not expected in 'RuleDescription'"),
        ('<Filter i:type="SqlFilter"><Surprise/></Filter>', "'Surprise' is not expected in 'Filter'"),
        ('<Filter i:type="CorrelationFilter"><Properties><Pair/></Properties></Filter>', "'Pair' is not expected"),
        (
            '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType/></Properties></Filter>',
            "needs a 'Key' and a 'Value'",
        ),
        (value("int", "two"), "a value of the type 'int'"),
        (value("duration", "two"), "a value of the type 'duration'"),
        (value("dateTime", "two"), "a value of the type 'dateTime'"),
        (value("guid", "two"), "a value of the type 'guid'"),
        (value("base64Binary", "AA=="), "its type is 'base64Binary'"),
        (value("anyType", ""), "its type is 'anyType'"),
        ("<Name>other</Name>", "'r', as in the path"),
    ],
)
def test_rules_that_cannot_be_read(content: str, why: str) -> None:
    with pytest.raises(ProblemError) as refused:
        read_rule(element(content), "r")
    assert why in refused.value.detail


def test_a_rule_without_a_name() -> None:
    with pytest.raises(ProblemError, match="'Name' is missing"):
        read_rule(element(""))


@pytest.mark.parametrize(
    "content",
    [
        '<Filter i:type="SqlFilter"><SqlExpression>color =</SqlExpression></Filter>',
        '<Filter i:type="SqlFilter"/>',
        '<Filter i:type="CorrelationFilter"/>',
        value("double", "NaN"),
    ],
)
def test_rules_that_say_nothing(content: str) -> None:
    with pytest.raises(InvalidRuleError):
        read_rule(element(content), "r")
