"""Values as text with their type, and bodies as bytes with their kind: nothing is lost on the way and back."""

import math
import uuid
from typing import Any

import pytest
from azure.servicebus._pyamqp._encode import encode_value
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp import Message
from pairbus.amqp.decoder import decode
from pairbus.amqp.encoder import encode
from pairbus.amqp.message import build_message, encode_data_section, encode_value_section
from pairbus.amqp.types import (
    Byte,
    Char,
    Decimal64,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from pairbus.spark.connector.values import body_of, from_text, sdk_body, to_text

MOMENT = Timestamp(1_780_000_000_123)

SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.uuids(),
    st.binary(),
    st.text(),
    st.text(st.characters(max_codepoint=127)).map(Symbol),
)


def sent(value: object) -> Value:
    """Return what arrives when the SDK sends a value."""
    output = bytearray()
    encode_value(output, value)
    return decode(bytes(output))[0]


@given(SCALARS)
def test_a_property_is_the_same_value_of_the_same_type_after_text(value: Value) -> None:
    again = sent(from_text(*to_text(value)))
    assert (type(again), again) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "null", None),
        (True, "boolean", "true"),
        (Int(-5), "int", "-5"),
        (5, "long", "5"),
        (0.1, "double", "0.1"),
        (MOMENT, "timestamp", "2026-05-28T20:26:40.123Z"),
        (Timestamp(2**62), "timestamp", str(2**62)),
        (uuid.UUID(int=7), "uuid", "00000000-0000-0000-0000-000000000007"),
        (b"\x00\xff", "binary", "AP8="),
        ("é", "string", "é"),
        (Symbol("s"), "symbol", "s"),
        (Char("c"), "char", "c"),
        ([1, "two"], "amqp", "wAgCVQGhA3R3bw=="),
    ],
)
def test_the_text_is_for_people(value: Value, kind: str, text: str | None) -> None:
    assert to_text(value) == (kind, text)


def test_not_a_number_survives() -> None:
    assert math.isnan(sent(from_text(*to_text(math.nan))))


def test_lists_and_maps_survive() -> None:
    value = [1, "two", {"three": [3.0, None]}]
    assert sent(from_text(*to_text(value))) == value


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("ubyte", "256", "'256' is not a ubyte: it is from 0 to 255"),
        ("boolean", "yes", "'yes' is not a boolean: it is true or false"),
        ("float", "1e39", "'1e39' is not a float: it does not fit in 32 bits"),
        ("uuid", "seven", "'seven' is not a uuid"),
        ("char", "c", "no type 'char' can be sent; those that can are amqp, binary"),
        ("amqp", "AA==", "not a value of AMQP"),
        ("amqp", to_text(Decimal64(b"12345678"))[1], "the SDK cannot send a decimal64"),
    ],
)
def test_what_cannot_be_sent_is_refused(kind: str, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        from_text(kind, text)


def body(section: bytes) -> tuple[str, bytes]:
    return body_of(Message(build_message(section)))


def test_the_kinds_of_a_body() -> None:
    assert body(b"") == ("data", b"")
    assert body(encode_data_section(b"a") + encode_data_section(b"b")) == ("data", b"ab")
    assert body(encode_value_section("é")) == ("value/string", "é".encode())
    assert body(encode_value_section(b"\x00")) == ("value/binary", b"\x00")
    assert body(encode_value_section({"a": Int(1)})) == ("value", encode({"a": Int(1)}))
    assert body(b"\x00\x53\x76" + encode([1]) + b"\x00\x53\x76" + encode(["x"])) == ("sequence", encode([[1], ["x"]]))


@pytest.mark.parametrize(
    ("kind", "payload", "argument", "value"),
    [
        ("value", encode({"a": Int(1)}), "value_body", {"a": Int(1)}),
        ("sequence", encode([[1], ["x"]]), "sequence_body", [[1], ["x"]]),
    ],
)
def test_a_body_that_is_encoded_is_sent_as_what_it_is(kind: str, payload: bytes, argument: str, value: Value) -> None:
    made: dict[str, Any] = sdk_body(kind, payload)
    assert sent({"TYPE": None, "VALUE": made[argument]}) == value


@pytest.mark.parametrize("value", [0.5, Int(7), True, MOMENT, uuid.UUID(int=1), [Byte(1)], {"a": {"b": Symbol("c")}}])
def test_a_value_is_sent_as_the_same_type(value: Value) -> None:
    again = sent({"TYPE": None, "VALUE": sdk_body("value", encode(value))["value_body"]})
    assert (type(again), again) == (type(value), value)


@pytest.mark.parametrize("value", [0.0, 7, False, None, ULong(1), [], {7: "long as a key"}])
def test_a_value_that_the_sdk_would_change_is_refused(value: Value) -> None:
    with pytest.raises(ValueError, match="the SDK cannot send the"):
        sdk_body("value", encode(value))


def test_other_bodies_are_sent_as_they_are() -> None:
    assert sdk_body("data", b"x") == {"data_body": b"x"}
    assert sdk_body("value/string", b"x") == {"value_body": "x"}
    assert sdk_body("value/binary", b"x") == {"value_body": b"x"}
    with pytest.raises(ValueError, match="no body is 'text'"):
        sdk_body("text", b"x")
