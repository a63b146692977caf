"""What actions make of messages."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.filters import BODY, ENQUEUED, GUID, facts_of

from pairbus.amqp.encoder import encode_map
from pairbus.amqp.message import KEEP, Message, build_message, encode_value_section
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Byte, Described, Float, Int, Symbol, Timestamp, UByte
from pairbus.broker.entities.message import read_incoming
from pairbus.broker.filters import EvaluationError, Facts, Rule, SqlAction, SqlFilter, apply_action, changes_of
from pairbus.broker.filters.values import Value

NOON = Timestamp.of(dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC))
HOUR = Described(Symbol("com.microsoft:timespan"), 36_000_000_000)


def acted(action: str, facts: Facts, **parameters: Value) -> Message:
    rule = Rule("r", action=SqlAction(action, {f"@{name}": value for name, value in parameters.items()}))
    return Message(apply_action(rule, facts))


def user_after(action: str, user: dict[str, Value], **parameters: Value) -> dict[Value, Value]:
    properties = acted(action, facts_of(user=user), **parameters).application_properties()
    assert properties.pop("RuleName") == "r"
    return properties


# --- user properties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("SET a = 1", {}, {"a": 1}),
        ("set user.a = 1.5;", {}, {"a": 1.5}),
        ("SET [New Name] = 'x'", {"b": 2}, {"b": 2, "New Name": "x"}),
        ("SET a = 'x', b = TRUE", {}, {"a": "x", "b": True}),
        ("SET a = 1; SET b = a + 1", {}, {"a": 1, "b": 2}),
        ("SET a = 1 SET b = 2 REMOVE c", {"c": 3}, {"a": 1, "b": 2}),
        ("SET a = 1, REMOVE c, b = 2", {"c": 3}, {"a": 1, "b": 2}),
        ("REMOVE COLOR", {"Color": "red", "x": 1}, {"x": 1}),
        ("REMOVE color", {"Color": 1, "color": 2, "x": 3}, {"x": 3}),
        ("REMOVE missing", {"x": 1}, {"x": 1}),
        ("SET COLOR = 'blue'", {"Color": "red"}, {"Color": "blue"}),
        ("SET a = b; SET b = 'new'", {"b": "old"}, {"a": "old", "b": "new"}),
        ("REMOVE a; SET b = a", {"a": 1}, {"b": None}),
        ("SET a = missing", {}, {"a": None}),
        ("SET a = NULL", {"a": 5}, {"a": None}),
        ("SET a = p('b') + '!'", {"b": "x"}, {"a": "x!", "b": "x"}),
        ("SET count = count + 1", {"count": 41}, {"count": 42}),
        ("SET a = newid()", {}, {"a": GUID}),
        ("SET label = sys.SequenceNumber", {}, {"label": 7}),
    ],
)
def test_what_becomes_of_the_application_s_properties(
    action: str, before: dict[str, Value], after: dict[str, Value]
) -> None:
    assert user_after(action, before) == after


@pytest.mark.parametrize(
    ("before", "expression", "after"),
    [
        (Int(5), "7", Int(7)),
        (Int(5), "3000000000", 3_000_000_000),
        (UByte(5), "-1", -1),
        (Byte(5), "'12'", Byte(12)),
        (5, "'12'", 12),
        (5, "'12.5'", 12.5),
        (5, "'twelve'", "twelve"),
        (5, "99999999999.5", 99999999999.5),
        (0.5, "2", 2.0),
        (Float(0.5), "0.25", Float(0.25)),
        (True, "'false'", False),
        (True, "'maybe'", "maybe"),
        ("x", "5", "5"),
        ("x", "TRUE", "True"),
        ("x", "2.0", "2"),
        (Symbol("x"), "'y'", "y"),
        (NOON, "'2024-02-29T13:00:00+01:00'", NOON),
        (NOON, "'2024-02-29T12:00:00'", NOON),
        (NOON, "'tomorrow'", "tomorrow"),
        (NOON, "5", 5),
        (HOUR, "'01:00'", HOUR),
        (HOUR, "'soon'", "soon"),
        (GUID, f"'{GUID}'", GUID),
        (GUID, "'x'", "x"),
        (b"x", "'y'", "y"),
        (None, "5", 5),
        ([1], "5", 5),
    ],
)
def test_a_value_takes_the_type_of_the_one_before_if_it_can(before: Value, expression: str, after: Value) -> None:
    found = user_after(f"SET a = {expression}", {"a": before})["a"]
    assert found == after
    assert type(found) is type(after)


def test_times_and_spans_are_written_as_dot_net_does() -> None:
    hour = dt.timedelta(hours=1)
    assert user_after("SET a = @hour, b = @noon + @hour", {}, hour=hour, noon=NOON.to_datetime()) == {
        "a": HOUR,
        "b": Timestamp(NOON + 3_600_000),
    }


# --- system properties ----------------------------------------------------------------------------------------------


def test_text_properties_are_set_and_removed() -> None:
    before = Properties(message_id="old", to="there", reply_to="back", content_encoding=Symbol("gzip"))
    action = (
        "SET sys.MessageId = 'id-' + 5; SET sys.CorrelationId = 'c'; SET sys.Label = 'l'; SET sys.SessionId = 's';"
        "SET sys.ReplyToSessionId = 'rs'; SET sys.ContentType = 'x/y'; REMOVE sys.To; SET sys.ReplyTo = NULL"
    )
    after = acted(action, facts_of(before)).properties()
    assert after == Properties(
        message_id="id-5",
        correlation_id="c",
        subject="l",
        group_id="s",
        reply_to_group_id="rs",
        content_type=Symbol("x/y"),
        content_encoding=Symbol("gzip"),
    )
    assert type(getattr(after, "content_type", None)) is Symbol


def test_a_system_property_can_be_made_of_itself() -> None:
    facts = facts_of(Properties(subject="order"))
    assert acted("SET sys.Subject = sys.Label + '.new'", facts).properties() == Properties(subject="order.new")
    assert facts.properties == Properties(subject="order"), "the message that came is as it was"


def test_annotations_are_set_and_removed_and_the_others_stay() -> None:
    other = Symbol("x-opt-their-own")
    facts = facts_of(annotations={other: 1, Symbol("x-opt-partition-key"): "pk"})
    action = "REMOVE sys.PartitionKey SET sys.ViaPartitionKey = 5, sys.ScheduledEnqueueTimeUtc = '2024-02-29T12:00'"
    assert acted(action, facts).message_annotations() == {
        other: 1,
        Symbol("x-opt-via-partition-key"): "5",
        Symbol("x-opt-scheduled-enqueue-time"): NOON,
    }


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("'00:01:00'", 60_000),
        ("'1.00:00:00.5'", 86_400_500),
        ("@long", 10**12),
        ("sys.TimeToLive + sys.TimeToLive", 10_000),
        ("NULL", None),
    ],
)
def test_the_time_to_live_is_what_the_broker_acts_on(value: str, milliseconds: int | None) -> None:
    facts = facts_of(header=Header(durable=True, priority=5, ttl=5000))
    action = SqlAction(f"SET sys.TimeToLive = {value}", {"@long": dt.timedelta(milliseconds=10**12)})
    payload = apply_action(Rule("r", action=action), facts)
    assert read_incoming(payload).time_to_live == milliseconds
    header = Message(payload).header()
    assert header is not None
    assert (header.durable, header.priority) == (True, 5)


def test_what_is_set_is_what_the_broker_reads_of_the_copy() -> None:
    action = SqlAction("SET sys.SessionId = 's'; SET sys.MessageId = 'm'; SET sys.ScheduledEnqueueTimeUtc = @t",
                       {"@t": NOON.to_datetime()})  # fmt: skip
    incoming = read_incoming(apply_action(Rule("r", action=action), facts_of()))
    assert (incoming.session_id, incoming.message_id, incoming.due) == ("s", "m", NOON)


@pytest.mark.parametrize(
    "action",
    [
        "SET a = 1 / 0",
        "SET a = 'x' - 1",
        "SET sys.TimeToLive = 5",
        "SET sys.TimeToLive = 'soon'",
        "SET sys.TimeToLive = '-00:01:00'",
        "SET sys.ScheduledEnqueueTimeUtc = TRUE",
        "SET sys.ScheduledEnqueueTimeUtc = 'tomorrow'",
        "SET sys.Label = raw",
        "SET sys.ContentType = 'ä'",
        "SET a = '\ud800'",
        "SET sys.MessageId = long",
        "SET sys.SessionId = long",
    ],
)
def test_an_action_that_fails(action: str) -> None:
    facts = facts_of(user={"raw": b"x", "long": "x" * 129})
    with pytest.raises(EvaluationError):
        acted(action, facts)


# --- the rest of the message ----------------------------------------------------------------------------------------


def test_only_the_sections_that_are_changed_are_written_anew() -> None:
    facts = facts_of(Properties(subject="s"), {"a": 1}, header=Header(ttl=5), annotations={Symbol("x"): 1})
    changes = changes_of(SqlAction("SET sys.Label = 'x'"), facts)
    assert (changes.header, changes.message_annotations, changes.application_properties) == (KEEP, KEEP, KEEP)
    changes = changes_of(SqlAction("SET a = 2"), facts)
    assert (changes.header, changes.message_annotations, changes.properties) == (KEEP, KEEP, KEEP)
    assert changes.application_properties == {"a": 2}


def test_without_an_action_a_copy_is_the_message_itself() -> None:
    facts = facts_of(user={"a": 1})
    assert apply_action(Rule("r", SqlFilter("a = 1")), facts) is facts.message.data


def test_the_copy_says_by_which_rule_it_was_made() -> None:
    assert acted("REMOVE a", facts_of()).application_properties() == {"RuleName": "r"}
    assert acted("SET RuleName = 'x'", facts_of()).application_properties() == {"RuleName": "r"}


FOOTER = b"\x00\x53\x78" + encode_map({Symbol("f"): 1})
BODIES = st.sampled_from([b"", BODY, BODY * 3, encode_value_section({"k": [1, "x"]}), encode_value_section(None)])


@given(BODIES, st.sampled_from(["SET a = 1", "REMOVE a", "SET sys.Label = 'x'", "SET sys.TimeToLive = '01:00'"]))
def test_the_body_is_carried_byte_for_byte(body: bytes, action: str) -> None:
    payload = build_message(body, properties=Properties(subject="s"), application_properties={"a": 0}) + FOOTER
    after = acted(action, Facts(Message(payload), enqueued=ENQUEUED))
    assert after.data.endswith(body + FOOTER)
    assert len(after.body) == len(Message(payload).body)
