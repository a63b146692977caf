"""Messages as JSON: what cannot be read is named with its cure, and what AMQP has and JSON lacks keeps its type."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageBatch

from pairbus.amqp import Message
from pairbus.amqp.message import build_message, encode_data_section, encode_value_section, split_batch
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.errors import DocumentError
from pairbus.messages.documents import FIELDS, document_of, message_from
from pairbus.messages.sdk_batches import messages_of
from pairbus.messages.values import plain

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (True, True),
        ("text", "text"),
        (Int(5), 5),
        (5, {"type": "long", "value": 5}),
        (1 << 40, 1 << 40),
        (-(1 << 31), {"type": "long", "value": -(1 << 31)}),
        (1.5, 1.5),
        (float("inf"), {"type": "double", "value": "inf"}),
        (Float(0.5), {"type": "float", "value": 0.5}),
        (Float("nan"), {"type": "float", "value": "nan"}),
        (UByte(1), {"type": "ubyte", "value": 1}),
        (UShort(1), {"type": "ushort", "value": 1}),
        (UInt(1), {"type": "uint", "value": 1}),
        (ULong(1), {"type": "ulong", "value": 1}),
        (Byte(-1), {"type": "byte", "value": -1}),
        (Short(-1), {"type": "short", "value": -1}),
        (Timestamp(1000), {"type": "timestamp", "value": "1970-01-01T00:00:01.000Z"}),
        (Timestamp(1 << 60), {"type": "timestamp", "value": str(1 << 60)}),
        (Symbol("a"), {"type": "symbol", "value": "a"}),
        (Char("a"), {"type": "char", "value": "a"}),
        (b"\x00\xff", {"type": "binary", "value": "AP8="}),
        (Decimal128(bytes(16)), {"type": "decimal128", "value": "AAAAAAAAAAAAAAAAAAAAAA=="}),
        (ID, {"type": "uuid", "value": str(ID)}),
        ([Int(1), "a"], {"type": "list", "value": [1, "a"]}),
        ({"a": Int(1)}, {"type": "map", "value": [["a", 1]]}),
        (Array(0x71, [Int(1)]), {"type": "array", "value": [1]}),
        (Described(Symbol("d"), "v"), {"type": "described", "value": [{"type": "symbol", "value": "d"}, "v"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_keep_their_types(value: object, written: object) -> None:
    assert plain(value) == written
    assert type(plain(value)) is type(written)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "the line is '[]': a message is a JSON object"),
        ({"sesion_id": "a"}, "sesion_id is 'a': not a field of a message; did you mean 'session_id'?"),
        ({"zzz": 1}, "fields are message_id, session_id"),
        ({"body": 5}, "body is '5': text"),
        ({"body": "a", "body_base64": "YQ=="}, "body_base64 is 'YQ==': a message has one body, and there is body"),
        ({"body_base64": "?"}, "binary is written in base64"),
        ({"body_sequence": [1]}, "a list of sequences"),
        ({"body_value": {"type": "long", "value": 1}}, "cannot send a body that is a bare long; put it in a list"),
        ({"message_id": 5}, "text, binary, a uuid or a ulong"),
        ({"subject": 5}, "subject is '5': text"),
        ({"group_sequence": -1}, "a whole number from 0 to 4294967295"),
        ({"priority": 256}, "a whole number from 0 to 255"),
        ({"time_to_live": 0}, "a number of seconds, more than 0"),
        ({"time_to_live": 1e9}, "49 days"),
        ({"scheduled_enqueue_time_utc": "soon"}, "a time is written 2026-01-31T12:00:00Z"),
        ({"application_properties": []}, "an object"),
        ({"application_properties": {"a": [1]}}, "application_properties.a is '[1]': a list is written"),
        ({"application_properties": {"a": {"b": 1}}}, 'a value with its type is written {"type": "uuid"'),
        ({"application_properties": {"a": {"type": "char", "value": "x"}}}, "types that can be sent are"),
        ({"application_properties": {"a": {"type": "byte", "value": 200}}}, "does not fit in the 8 bits of byte"),
        ({"application_properties": {"a": {"type": "uint", "value": -1}}}, "does not fit in the 32 bits of uint"),
        ({"application_properties": {"a": {"type": "int", "value": "1"}}}, "int is a whole number"),
        ({"application_properties": {"a": {"type": "double", "value": "x"}}}, "double is a number"),
        ({"application_properties": {"a": {"type": "boolean", "value": 1}}}, "boolean is true or false"),
        ({"application_properties": {"a": {"type": "symbol", "value": 1}}}, "symbol is text"),
        ({"application_properties": {"a": {"type": "uuid", "value": "x"}}}, "a uuid is written"),
        ({"application_properties": {"a": 1 << 63}}, "does not fit in the 64 bits of long"),
        ({"body_value": {"type": "list", "value": 1}}, "a list has a list as its value"),
        ({"body_value": {"type": "map", "value": [1]}}, "a list of pairs"),
        ({"body_value": {"type": "map", "value": [[None, 1]]}}, "a key of a map that can be sent"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_cure(document: Any, says: str) -> None:  # noqa: ANN401
    with pytest.raises(DocumentError) as refused:
        message_from(document)
    assert says in str(refused.value)


def sent(document: dict[str, Any]) -> Message:
    """Return the message as the SDK would put it on the wire."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=100_000)
    batch.add_message(message_from(document))
    assert len(messages_of(batch)) == 1
    inside: Any = batch
    return Message(split_batch(b"".join(encode_data_section(bytes(each)) for each in inside._message[5]))[0])


def test_s7_a_message_without_an_id_gets_one() -> None:
    assert uuid.UUID(document_of(sent({"body": "x"}))["message_id"])


@pytest.mark.parametrize("message_id", ["text", {"type": "ulong", "value": 7}, {"type": "uuid", "value": str(ID)}])
def test_ids_of_every_type_come_back(message_id: object) -> None:
    assert document_of(sent({"message_id": message_id, "body": ""}))["message_id"] == message_id


def test_fields_that_no_broker_needs_come_back() -> None:
    given = {
        "message_id": "1",
        "user_id": {"type": "binary", "value": "YQ=="},
        "group_sequence": 3,
        "priority": 4,
        "durable": True,
        "annotations": {"x-own": 1},
        "body": "x",
    }
    got = document_of(sent(given))
    assert {name: got[name] for name in given} == given
    assert set(given) < set(FIELDS)


def test_where_a_message_was_is_told_apart_and_not_sent() -> None:
    at = Timestamp.of(datetime(2026, 1, 31, tzinfo=UTC))
    message = build_message(
        encode_value_section("x"),
        header=Header(delivery_count=2, ttl=0xFFFFFFFF),
        message_annotations={
            Symbol("x-opt-sequence-number"): 7,
            Symbol("x-opt-enqueued-time"): at,
            Symbol("x-opt-message-state"): Int(1),
            Symbol("x-opt-deadletter-source"): "orders",
            Symbol("x-opt-partition-key"): "p",
        },
        properties=Properties(message_id="1", creation_time=at, absolute_expiry_time=at + 5_000_000_000),
        application_properties={"DeadLetterReason": "Poison", "own": "x"},
    )
    document = document_of(Message(message))
    assert document["received"] == {
        "sequence_number": 7,
        "enqueued_time_utc": "2026-01-31T00:00:00.000Z",
        "state": "deferred",
        "dead_letter_source": "orders",
        "delivery_count": 2,
        "dead_letter_reason": "Poison",
    }
    assert document["time_to_live"] == 5_000_000.0, "longer than the header can say"
    assert (document["partition_key"], document["body_value"]) == ("p", "x")
    again = sent({**document, "time_to_live": 60})
    assert again.application_properties() == {"own": "x"}
    assert not any(str(name).startswith("x-opt-seq") for name in again.message_annotations())
