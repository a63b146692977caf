"""Which rules of a topic select a message: by index as by trying each, and at no greater cost than needed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.support.filters import BODY, facts_of

from pairbus.amqp.conditions import AmqpError
from pairbus.amqp.message import Message, build_message
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Int, Timestamp
from pairbus.broker.filters import (
    CorrelationFilter,
    EvaluationError,
    Facts,
    FalseFilter,
    Filter,
    Matcher,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.broker.filters.values import Value

# --- by index as by trying each -------------------------------------------------------------------------------------

VALUES: list[Value] = ["a", "b", "", 1, 1.0, 0, True, False, 2]
CORRELATION_FILTERS = st.builds(
    CorrelationFilter,
    subject=st.none() | st.sampled_from("ab"),
    to=st.none() | st.sampled_from("ab"),
    properties=st.dictionaries(st.sampled_from("xyX"), st.sampled_from(VALUES), min_size=1, max_size=2),
)
SQL_FILTERS = st.sampled_from(
    [
        SqlFilter(text)
        for text in (
            "x = 1", "'a' = x", "x = 'a' AND sys.Label = 'b'", "sys.To = 'a' AND y = TRUE", "x = NULL",
            "x = 1 AND x = 2", "x > 1", "x = y", "x = 1 OR y = 1", "x / y = 1", "sys.Label LIKE 'a%'", "NOT x = 1",
            "1 / x = 1 AND y = 1",
        )
    ]
)  # fmt: skip
FILTERS: st.SearchStrategy[Filter] = CORRELATION_FILTERS | SQL_FILTERS | st.sampled_from([TrueFilter(), FalseFilter()])
MESSAGES = st.builds(
    facts_of,
    st.builds(Properties, subject=st.none() | st.sampled_from("abc"), to=st.none() | st.sampled_from("abc")),
    st.dictionaries(st.sampled_from("xyYz"), st.sampled_from([*VALUES, Int(1), Timestamp(1), None, [1]]), max_size=3),
)
Outcome = dict[str, tuple[list[str], list[str]]]


def by_trying_each(rules: dict[str, dict[str, Rule]], facts: Facts) -> Outcome:
    found: Outcome = {}
    for subscription, named in rules.items():
        selecting: list[str] = []
        failing: list[str] = []
        for each in named.values():
            try:
                if each.filter.matches(facts) is True:
                    selecting.append(each.name)
            except EvaluationError:
                failing.append(each.name)
        if selecting or failing:
            found[subscription] = selecting, failing
    return found


def by_index(matcher: Matcher[str], facts: Facts) -> Outcome:
    return {
        subscription: ([each.name for each in selected.rules], [each.name for each, _error in selected.errors])
        for subscription, selected in matcher.match(facts).items()
    }


class RulesThatChange(RuleBasedStateMachine):
    """Rules are added, replaced and removed between messages."""

    @initialize()
    def begin(self) -> None:
        self.matcher = Matcher[str]()
        self.made: dict[str, dict[str, Rule]] = {}

    @rule(subscription=st.sampled_from("pqr"), name=st.sampled_from(["r1", "r2", "R2", "r3", "r4"]), filter_=FILTERS)
    def put(self, subscription: str, name: str, filter_: Filter) -> None:
        made = Rule(name, filter_)
        self.matcher.put(subscription, made)
        self.made.setdefault(subscription, {})[name.lower()] = made

    @rule(subscription=st.sampled_from("pqr"), name=st.sampled_from(["r1", "R1", "r2", "r3"]))
    def remove(self, subscription: str, name: str) -> None:
        self.matcher.remove(subscription, name)
        self.made.get(subscription, {}).pop(name.lower(), None)

    @rule(subscription=st.sampled_from("pqr"))
    def remove_all(self, subscription: str) -> None:
        self.matcher.remove_all(subscription)
        self.made.pop(subscription, None)

    @rule(facts=MESSAGES)
    def match(self, facts: Facts) -> None:
        assert by_index(self.matcher, facts) == by_trying_each(self.made, facts)

    @rule(subscription=st.sampled_from("pqr"))
    def list_rules(self, subscription: str) -> None:
        assert self.matcher.rules(subscription) == list(self.made.get(subscription, {}).values())


TestRulesThatChange = RulesThatChange.TestCase


@settings(max_examples=300)
@given(st.lists(FILTERS, max_size=30), MESSAGES)
def test_the_index_finds_what_trying_each_finds(filters: list[Filter], facts: Facts) -> None:
    matcher = Matcher[str]()
    rules: dict[str, dict[str, Rule]] = {}
    for number, filter_ in enumerate(filters):
        made = Rule(f"r{number}", filter_)
        matcher.put(f"s{number % 7}", made)
        rules.setdefault(f"s{number % 7}", {})[made.name] = made
    assert by_index(matcher, facts) == by_trying_each(rules, facts)


# --- what is looked at ----------------------------------------------------------------------------------------------


class CountingMatcher(Matcher[int]):
    """Counts the rules at which it looks."""

    @property
    def is_empty(self) -> bool:
        return not (self._system.by_name or self._user.by_name or self._always or self._tried)

    def looked_at(self, facts: Facts) -> int:
        files = (self._system, self._user)
        seen: list[object] = [*self._tried.values()]
        for each in files:
            for name, by_value in each.by_name.items():
                value = facts.properties.subject if each is self._system else facts.user.get(name)
                seen += by_value.get(value, {}).values()
        return len(seen)


def test_a_rule_is_filed_where_the_fewest_are() -> None:
    """2,000 subscriptions that share a subject and differ in a property cost as little as those that differ in both."""
    matcher = CountingMatcher()
    for number in range(2000):
        filter_ = CorrelationFilter(subject="order", properties={"customer": number})
        matcher.put(number, Rule("r", filter_))
    facts = facts_of(Properties(subject="order"), {"customer": 1234})
    assert matcher.looked_at(facts) <= 2
    assert list(matcher.match(facts)) == [1234]


def test_sql_that_is_plain_equality_is_found_by_index_too() -> None:
    matcher = CountingMatcher()
    for number in range(2000):
        matcher.put(number, Rule("r", SqlFilter("customer = @c AND sys.Label = 'order'", {"@c": number})))
    facts = facts_of(Properties(subject="order"), {"customer": 1234})
    assert matcher.looked_at(facts) <= 2
    assert list(matcher.match(facts)) == [1234]


def test_sections_that_no_rule_asks_about_are_not_decoded() -> None:
    """A section that cannot be decoded does not matter as long as nobody asks."""
    broken_map = b"\x00\x53\x74\xc1\x04\x02\xa1\x01\xff"
    payload = build_message(properties=Properties(subject="a")) + broken_map + BODY
    matcher = Matcher[str]()
    matcher.put("s", Rule("r", CorrelationFilter(subject="a")))
    matcher.put("s", Rule("q", SqlFilter("sys.Label LIKE 'a%'")))
    assert len(matcher.match(Facts(Message(payload)))["s"].rules) == 2
    matcher.put("s", Rule("p", CorrelationFilter(properties={"x": 1})))
    with pytest.raises(AmqpError):
        matcher.match(Facts(Message(payload)))


# --- what is returned -----------------------------------------------------------------------------------------------


def test_rules_come_in_the_order_in_which_they_were_made() -> None:
    matcher = Matcher[str]()
    kinds: list[Filter] = [SqlFilter("x > 0"), CorrelationFilter(properties={"x": 1}), TrueFilter(), SqlFilter("x = 1")]
    for number, filter_ in enumerate(kinds * 3):
        matcher.put("s", Rule(f"r{number}", filter_))
    matcher.put("s", Rule("R5", SqlFilter("x < 9"), SqlAction("REMOVE x")))
    found = matcher.match(facts_of(user={"x": 1}))["s"].rules
    assert [each.name for each in found] == ["r0", "r1", "r2", "r3", "r4", "R5", *(f"r{n}" for n in range(6, 12))]


def test_a_rule_that_fails_is_told_beside_those_that_select() -> None:
    matcher = Matcher[str]()
    matcher.put("both", Rule("bad", SqlFilter("1 / x = 1")))
    matcher.put("both", Rule("good", TrueFilter()))
    matcher.put("only", Rule("bad", SqlFilter("1 / x = 1")))
    matcher.put("fine", Rule("good", SqlFilter("x = 0")))
    matcher.put("none", Rule("no", SqlFilter("x = 5")))
    found = matcher.match(facts_of(user={"x": 0}))
    assert {name: ([r.name for r in s.rules], [r.name for r, _e in s.errors]) for name, s in found.items()} == {
        "both": (["good"], ["bad"]),
        "only": ([], ["bad"]),
        "fine": (["good"], []),
    }
    assert "divided by zero" in str(found["only"].errors[0][1])


def test_what_is_removed_leaves_nothing_behind() -> None:
    matcher = CountingMatcher()
    for number in range(10):
        matcher.put(number, Rule("r", CorrelationFilter(subject="a", properties={"x": number})))
        matcher.put(number, Rule("q", SqlFilter("x > 1")))
    for number in range(10):
        matcher.remove_all(number)
    assert matcher.is_empty
    assert not matcher.match(facts_of(Properties(subject="a"), {"x": 5}))
