"""What is read of a message when it comes, and what is added when it goes."""

import dataclasses
import random
import re
import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from tests.unit.broker.entities.conftest import START, payload

from pairbus.amqp import AmqpError, build_message
from pairbus.amqp.conditions import DECODE_ERROR
from pairbus.amqp.encoder import encode_map
from pairbus.amqp.message import (
    DELIVERY_ANNOTATIONS,
    Message,
    encode_data_section,
    encode_map_section,
    encode_value_section,
)
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.entities import message as m
from pairbus.broker.refusals import ARGUMENT_ERROR, RefusedError
from pairbus.broker.store.base import Row, key_of

DECIMAL64 = 0x84
"""Which AMQP has and the SDK cannot read."""


def held(data: bytes, deliveries: int = 1, token: bytes | None = b"t" * 16) -> m.Held:
    held = m.Held(Row(key_of(1, 42), 0, START, None, None, None, deliveries, data))
    held.token, held.until = token, START + 60_000
    return held


def test_a_message_with_an_id_is_kept_as_it_came() -> None:
    data = payload("a", properties=Properties(message_id="x"))
    assert m.read_incoming(data) == m.Incoming(data, "x")


def large(count: int) -> dict[str, Any]:
    return {"properties": Properties(subject="s" * count)}


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"header": Header(priority=7), "message_annotations": {Symbol("k"): "v"}},
        {"properties": Properties()},
        {"properties": Properties(group_id="s", correlation_id=7, creation_time=Timestamp(START))},
        {"properties": Properties(user_id=b"u"), "application_properties": {"a": 1}},
        *(large(count) for count in (214, 215, 216, 217, 250, 251, 252, 300)),
    ],
)
def test_a_message_without_an_id_gets_one_and_is_otherwise_as_it_came(sections: dict[str, Any]) -> None:
    data = payload("a", **sections)
    incoming = m.read_incoming(data)
    assert incoming.message_id is None, "it is no duplicate of any other"
    assert incoming.added == len(incoming.payload) - len(data)
    properties = Message(incoming.payload).properties()
    assert properties is not None
    name = str(properties.message_id)
    assert re.fullmatch("[0-9a-f]{32}", name)
    expected = sections.get("properties") or Properties()
    expected.message_id = name
    assert properties == expected
    without = Message(incoming.payload).rewritten(properties=None)
    assert without == Message(data).rewritten(properties=None)
    assert m.read_incoming(data).payload != incoming.payload
    assert m.read_incoming(incoming.payload) == dataclasses.replace(incoming, message_id=name, added=0)


@pytest.mark.parametrize("empty", [b"\x45", b"\xc0\x01\x00", b"\xd0" + (4).to_bytes(4) + (0).to_bytes(4)])
def test_properties_that_say_nothing_get_an_id(empty: bytes) -> None:
    properties = Message(m.read_incoming(b"\x00\x53\x73" + empty + encode_data_section(b"a")).payload).properties()
    assert properties is not None
    assert len(str(properties.message_id)) == 32


def test_a_ping_needs_no_id() -> None:
    """G3: nobody receives it."""
    data = payload("", properties=Properties(content_type=Symbol(m.PING)))
    assert m.read_incoming(data).payload == data


def test_the_broker_reads_what_it_acts_on() -> None:
    data = payload(
        "a",
        header=Header(ttl=5000),
        properties=Properties(message_id="x", group_id="s", content_type=Symbol("text/plain")),
        message_annotations={m.SCHEDULED_TIME: Timestamp(START), Symbol("other"): 1},
    )
    assert m.read_incoming(data) == m.Incoming(data, "x", "s", 5000, START)


STRING_TOO_LONG = b"\xa1\x09a"


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"\x00\x53\x71\xc1\x03\x02\xa3\x01", id="delivery annotations"),
        pytest.param(b"\x00\x53\x72\xc1\x03\x02\xa3\x01", id="message annotations"),
        pytest.param(b"\x00\x53\x73\xc0\x04\x01" + STRING_TOO_LONG, id="properties"),
        pytest.param(b"\x00\x53\x73\xc0\x02\x01\x45", id="a list as message id"),
        pytest.param(b"\x00\x53\x74\xc1\x04\x01\xa1\x01a", id="a property without a value"),
        pytest.param(b"\x00\x53\x74\xc1\x07\x02\xa1\x01a" + STRING_TOO_LONG, id="application properties"),
        pytest.param(b"\x00\x53\x74\xc1\x05\x02\x54\x01\x54\x01", id="a number as name"),
        pytest.param(b"\x00\x53\x77\xc1\x04\x01\xa1\x01a", id="value"),
        pytest.param(b"\x00\x53\x76\xc0\x04\x01" + STRING_TOO_LONG, id="sequence"),
        pytest.param(b"\x00\x53\x78\xc1\x04\x01\xa1\x01a", id="footer"),
    ],
)
def test_what_would_break_its_receivers_is_refused(damaged: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        m.read_incoming(damaged)
    assert caught.value.condition == DECODE_ERROR


@pytest.mark.parametrize("due", [m.END_OF_TIME, m.BEGINNING_OF_TIME - 1])
def test_schedules_that_no_calendar_knows_are_refused(due: int) -> None:
    with pytest.raises(RefusedError) as caught:
        m.read_incoming(payload("a", message_annotations={m.SCHEDULED_TIME: Timestamp(due)}))
    assert caught.value.error.condition == ARGUMENT_ERROR


def test_unusual_spellings_of_sections_are_replaced_by_the_usual_ones() -> None:
    spelled = b"\x00\x80" + (0x74).to_bytes(8) + encode_map({"a": 1}) + b"\x00\xa3\x10amqp:data:binary\xa0\x01x"
    got = Message(m.read_incoming(spelled).payload)
    expected = build_message(encode_data_section(b"x"), application_properties={"a": 1}, properties=got.properties())
    assert got.data == expected


def test_what_is_accepted_can_be_read_by_the_sdk() -> None:
    usual = [
        payload("a", properties=Properties(message_id="1"), application_properties={"a": 1, "b": "text", "c": 2.5}),
        payload("b", header=Header(ttl=5), message_annotations={m.SCHEDULED_TIME: Timestamp(START)}),
        build_message(encode_value_section({"a": [1, "x"]}), application_properties={"k": "v"}),
    ]
    chance = random.Random(1)
    read = 0
    for _ in range(20_000):
        damaged = bytearray(chance.choice(usual))
        for _ in range(chance.choice((1, 1, 2))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if DECIMAL64 in damaged:
            continue
        try:
            incoming = m.read_incoming(bytes(damaged))
        except (AmqpError, RefusedError):
            continue
        message = ServiceBusReceivedMessage.from_bytes(m.outgoing(held(incoming.payload)))
        assert (message.sequence_number, message.enqueued_time_utc is not None) == (42, True)
        read += 1
    assert read > 1000


@pytest.mark.parametrize(("content_type", "is_ping"), [(m.PING, True), ("text/plain", False), (None, False)])
def test_a_ping_is_known_by_its_content_type(content_type: str | None, is_ping: bool) -> None:  # noqa: FBT001
    kind = None if content_type is None else Symbol(content_type)
    assert m.read_incoming(payload("", properties=Properties(content_type=kind))).is_ping is is_ping


@pytest.mark.parametrize(
    ("ttl", "times", "lives"),
    [
        (0xFFFFFFFF, {"creation_time": 1000, "absolute_expiry_time": 2**40}, 2**40 - 1000),
        (0xFFFFFFFF, {"creation_time": 1000}, 0xFFFFFFFF),
        (0xFFFFFFFF, {}, 0xFFFFFFFF),
        (7000, {"creation_time": 1000, "absolute_expiry_time": 2**40}, 7000),
        (None, {"creation_time": 1000, "absolute_expiry_time": 2**40}, None),
    ],
)
def test_a_life_longer_than_a_header_can_say_is_read_from_the_properties(
    ttl: int | None, times: dict[str, Any], lives: int | None
) -> None:
    data = payload("a", header=Header(ttl=ttl), properties=Properties(**times))
    assert m.read_incoming(data).time_to_live == lives


@pytest.mark.parametrize("option", ["message_id", "group_id"])
def test_ids_have_128_characters_at_most(option: str) -> None:
    values: dict[str, Any] = {option: "x" * 128}
    m.read_incoming(payload("a", properties=Properties(**values)))
    values[option] += "x"
    with pytest.raises(RefusedError) as caught:
        m.read_incoming(payload("a", properties=Properties(**values)))
    assert caught.value.condition == ARGUMENT_ERROR


def test_a_schedule_that_is_no_time_is_none() -> None:
    assert m.read_incoming(payload("a", message_annotations={m.SCHEDULED_TIME: "soon"})).due is None


def test_nothing_can_be_scheduled_for_the_end_of_time() -> None:
    with pytest.raises(RefusedError) as caught:
        m.read_incoming(payload("a", message_annotations={m.SCHEDULED_TIME: Timestamp(2**62)}))
    assert caught.value.condition == ARGUMENT_ERROR


def test_a_receiver_gets_the_message_as_it_came_with_the_brokers_annotations() -> None:
    properties = Properties(message_id="x")
    data = payload("a", properties=properties, application_properties={"k": 1})
    sent = Message(m.outgoing(held(data, deliveries=3)))
    assert sent.message_annotations() == {
        m.SEQUENCE_NUMBER: 42,
        m.ENQUEUED_TIME: START,
        m.LOCKED_UNTIL: START + 60_000,
    }
    header = sent.header()
    assert header is not None
    assert header.delivery_count == 2, "the deliveries that failed"
    assert sent.bare == Message(data).bare


def test_a_messages_own_annotations_and_header_stay_and_the_brokers_win() -> None:
    forged = {m.SEQUENCE_NUMBER: 7, m.LOCKED_UNTIL: 7, Symbol("x-opt-partition-key"): "p"}
    data = payload("a", header=Header(durable=True, priority=7, ttl=9, delivery_count=99), message_annotations=forged)
    sent = Message(m.outgoing(held(data, token=None)))
    assert sent.message_annotations() == {
        Symbol("x-opt-partition-key"): "p",
        m.SEQUENCE_NUMBER: 42,
        m.ENQUEUED_TIME: START,
    }
    assert sent.header() == Header(durable=True, priority=7, ttl=9, first_acquirer=None, delivery_count=0)


def test_the_short_way_of_writing_annotations_says_the_same_as_the_long_one() -> None:
    short = Message(m.outgoing(held(payload("a"))))
    long = Message(m.outgoing(held(payload("a", message_annotations={Symbol("k"): "v"}))))
    assert {**short.message_annotations(), Symbol("k"): "v"} == long.message_annotations()


def test_a_browser_is_told_the_state() -> None:
    sent = Message(m.outgoing(held(payload("a"), token=None), extra={m.MESSAGE_STATE: 2}))
    assert sent.message_annotations()[m.MESSAGE_STATE] == 2


def test_properties_are_set_over_those_that_are_there() -> None:
    changed = Message(m.with_properties(payload("a", application_properties={"k": 1, "l": 2}), {"k": 3}))
    assert (changed.application_properties(), changed.data_sections()) == ({"k": 3, "l": 2}, [b"a"])


def test_a_dead_letter_says_why_and_from_where_and_is_otherwise_as_it_came() -> None:
    data = payload("a", properties=Properties(message_id="x", group_id="s"), application_properties={"k": 1})
    dead = Message(m.dead_lettered(data, "why", None, "orders"))
    assert dead.application_properties() == {"k": 1, "DeadLetterReason": "why"}
    assert dead.message_annotations() == {m.DEAD_LETTER_SOURCE: "orders"}
    assert dead.properties() == Properties(message_id="x", group_id="s")


@pytest.mark.parametrize("deliveries", [1, 2, 16, 17, 1000])
@pytest.mark.parametrize("header", [None, Header(ttl=5000), Header(priority=7)])
def test_a_message_goes_out_bare_as_it_came_with_its_number_of_deliveries(
    deliveries: int, header: Header | None
) -> None:
    data = payload("a", header=header, properties=Properties(message_id="x"))
    out = Message(m.outgoing(held(data, deliveries)))
    assert out.bare == Message(data).bare
    given = out.header()
    assert given is not None
    assert given.delivery_count == deliveries - 1
    assert (given.ttl, given.priority) == ((header.ttl, header.priority) if header is not None else (None, None))
    assert out.message_annotations()[m.SEQUENCE_NUMBER] == 42


TOKEN = bytes(range(16))


@pytest.mark.parametrize("deliveries", [1, 17])
@pytest.mark.parametrize("sections", [{}, {"header": Header(ttl=5)}, {"message_annotations": {m.ENQUEUED_NUMBER: 7}}])
def test_a_delivery_under_lock_names_its_token(sections: dict[str, Any], deliveries: int) -> None:
    data = payload("a", properties=Properties(message_id="x"), **sections)
    out = Message(m.outgoing(held(data, deliveries, TOKEN)))
    assert out.delivery_annotations() == {m.LOCK_TOKEN: uuid.UUID(bytes_le=TOKEN)}
    assert out.is_in_order
    assert Message(m.outgoing(held(data, deliveries, None))).delivery_annotations() == {}


def test_a_senders_delivery_annotations_reach_the_receiver_wherever_they_stood() -> None:
    """The SDK writes them after the body."""
    annotations = {Symbol("of-the-sender"): 1, m.LOCK_TOKEN: uuid.uuid4()}
    data = payload("a", properties=Properties(message_id="x"))
    incoming = m.read_incoming(data + encode_map_section(DELIVERY_ANNOTATIONS, annotations))
    assert incoming.message_id == "x"
    out = Message(m.outgoing(held(incoming.payload, token=TOKEN)))
    assert out.delivery_annotations() == {Symbol("of-the-sender"): 1, m.LOCK_TOKEN: uuid.UUID(bytes_le=TOKEN)}
    assert out.body_values() == [b"a"]
    seen = Message(m.outgoing(held(incoming.payload, token=None)))
    assert seen.delivery_annotations() == {Symbol("of-the-sender"): 1}, "the token of another lock says nothing here"


STAMPABLE = [
    {},
    {"header": Header(priority=7)},
    {"properties": Properties(message_id="x", group_id="s")},
    {"message_annotations": {Symbol("k"): "v"}},
    {"message_annotations": {m.ENQUEUED_NUMBER: 99}},
]


@pytest.mark.parametrize("sections", STAMPABLE)
@pytest.mark.parametrize("deliveries", [1, 17])
@pytest.mark.parametrize("token", [None, b"t" * 16])
def test_a_message_of_a_topic_has_its_number_there_and_is_otherwise_as_it_came(
    sections: dict[str, Any], deliveries: int, token: bytes | None
) -> None:
    data = payload("a", **{"properties": Properties(message_id="x"), **sections})
    kept = m.stamped(m.read_incoming(data), 7)
    assert m.read_incoming(kept).payload == kept
    out = Message(m.outgoing(held(kept, deliveries, token)))
    expected = Message(m.outgoing(held(data, deliveries, token)))
    assert out.message_annotations() == {**expected.message_annotations(), m.ENQUEUED_NUMBER: 7}
    assert (out.header(), out.bare) == (expected.header(), expected.bare)


def test_a_forwarded_message_keeps_its_first_number() -> None:
    first = m.forwarded(held(payload("a")), START)
    assert Message(m.stamped(first, 7)).message_annotations()[m.ENQUEUED_NUMBER] == 42
