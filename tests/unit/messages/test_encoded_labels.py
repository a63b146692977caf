"""A message that is parked and unparked is the message that it was (E1, E2)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.encoder import encode
from pairbus.amqp.message import (
    Message,
    build_message,
    encode_data_section,
    encode_map_section,
    encode_value_section,
)
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong
from pairbus.core.envelope import RESERVED, Label, Unparked, park, unpark
from pairbus.messages.encoded_labels import read, relabelled

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FOOTER = 0x78

text = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(0, 255).map(UByte),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
    st.characters(codec="utf-8").map(Char),
    text,
    st.binary(max_size=12),
    st.text(st.characters(codec="ascii"), max_size=12).map(Symbol),
    st.uuids(),
    st.integers(0, 2**41).map(Timestamp),
)
names = text.filter(lambda name: name not in RESERVED)
bodies = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=3).map(
        lambda parts: b"".join(map(encode_data_section, parts))
    ),
    values.map(encode_value_section),
    st.lists(st.lists(values, max_size=3), min_size=1, max_size=3).map(
        lambda lists: b"".join(b"\x00\x53\x76" + encode(each) for each in lists)
    ),
    st.just(b""),
)
properties = st.builds(
    Properties,
    message_id=st.one_of(text, st.integers(0, 2**64 - 1).map(ULong), st.uuids(), st.binary(max_size=9)),
    user_id=st.none() | st.binary(max_size=9),
    to=st.none() | text,
    subject=st.none() | text,
    correlation_id=st.none() | text | st.uuids(),
    content_type=st.none() | st.just(Symbol("text/plain")),
    reply_to_group_id=st.none() | text,
)
labels = st.builds(
    Label,
    session_id=st.none() | text,
    time_to_live=st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=400)),
    scheduled_enqueue_time_utc=st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
    application_properties=st.dictionaries(names, values, max_size=4),
)


def typed(values: Mapping[Any, Any]) -> dict[Any, tuple[type, Any]]:
    return {name: (type(each), each) for name, each in values.items()}


@given(labels, properties, bodies, st.none() | text, st.data())
def test_parked_and_unparked_it_is_the_same(
    label: Label, standard: Properties, body: bytes, partition_key: str | None, data: st.DataObject
) -> None:
    """Through a broker that adds what brokers add."""
    durable = data.draw(st.none() | st.booleans())
    annotations: dict[Any, Any] = {Symbol("x-opt-own"): UInt(7)}
    if partition_key is not None:
        annotations[Symbol("x-opt-partition-key")] = partition_key
    if data.draw(st.booleans()):
        body += encode_map_section(FOOTER, {Symbol("check"): 1})
    parked = build_message(
        body,
        header=Header(durable=durable, ttl=99_000, delivery_count=3),
        message_annotations={
            **annotations,
            Symbol("x-opt-sequence-number"): 12,
            Symbol("x-opt-enqueued-time"): Timestamp(1000),
            Symbol("x-opt-locked-until"): Timestamp(2000),
            Symbol("x-opt-message-state"): Int(0),
        },
        properties=standard,
        application_properties=dict(park(label, "orders").application_properties),
    )
    reading = read(Message(parked))
    assert reading.enqueued_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert reading.partition_key == partition_key
    unparked = unpark(reading.label)
    assert isinstance(unparked, Unparked)
    arrived = Message(relabelled(Message(parked), unparked.label, NOW))

    life = None if label.time_to_live is None else label.time_to_live // timedelta(milliseconds=1)
    header = arrived.header() or Header()
    assert (header.durable, header.delivery_count) == (durable, None)
    assert header.ttl == (None if life is None else min(life, 0xFFFFFFFF))
    expected = dict(annotations)
    if label.scheduled_enqueue_time_utc is not None:
        expected[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp.of(label.scheduled_enqueue_time_utc)
    assert typed(arrived.message_annotations()) == typed(expected)
    assert typed(arrived.application_properties()) == typed(dict(label.application_properties))
    standard.group_id = label.session_id
    if life is not None:
        standard.creation_time = Timestamp.of(NOW)
        standard.absolute_expiry_time = standard.creation_time + life
    assert arrived.properties() == standard
    assert type((arrived.properties() or standard).message_id) is type(standard.message_id)
    assert arrived.bare.endswith(body)
    assert arrived.body_values() == Message(parked).body_values()


def test_a_session_that_the_parked_message_still_has_is_not_its_own() -> None:
    message = Message(build_message(properties=Properties(message_id="a", group_id="left over")))
    assert Message(relabelled(message, Label(), NOW)).properties() == Properties(message_id="a")


def test_a_message_without_anything_stays_so() -> None:
    assert relabelled(Message(encode_data_section(b"x")), Label(), NOW) == encode_data_section(b"x")


@pytest.mark.parametrize("days", [60, 4_000_000])
def test_a_life_longer_than_a_header_can_say_is_told_by_its_end(days: int) -> None:
    label = Label(time_to_live=timedelta(days=days))
    arrived = Message(relabelled(Message(encode_data_section(b"x")), label, NOW))
    assert arrived.header() == Header(ttl=0xFFFFFFFF)
    standard = arrived.properties()
    assert standard is not None
    assert standard.absolute_expiry_time == min(int(NOW.timestamp() * 1000) + days * 86_400_000, 253_402_243_199_000)
