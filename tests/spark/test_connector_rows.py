"""Rows become messages: which columns there may be, what their values become, and which ids they get."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from pairbus.amqp import Message
from pairbus.amqp.encoder import encode
from pairbus.errors import ColumnError
from pairbus.messages.sdk_messages import raw
from pairbus.spark.connector.columns import READ, READ_BACKLOG, check_readable, check_writable
from pairbus.spark.connector.incoming import Found
from pairbus.spark.connector.outgoing import MessageIds, Rows

pytestmark = pytest.mark.usefixtures("spark")  # which reads the schemas


def schema(ddl: str) -> StructType:
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


def messages(ddl: str, *rows: Sequence[Any], entity: str | None = "orders") -> list[ServiceBusMessage]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    names = schema(ddl).names
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)
    made = Rows(schema(ddl), check_writable(schema(ddl), entity), entity)
    return [message for _, message in made.messages(batch, MessageIds("test"))]  # type: ignore[misc]


def wire(message: ServiceBusMessage | AmqpAnnotatedMessage) -> Message:
    """Return a message as the SDK puts it into a batch."""
    batch = ServiceBusMessageBatch()
    batch.add_message(message)
    return Message(bytes(batch._message[5][0]))  # type: ignore[index]


@pytest.mark.parametrize(
    ("ddl", "entity", "error"),
    [
        ("subject string", "orders", "column 'body': it is missing: name the payload so"),
        ("body string", None, "column 'entity': it is missing: set the option entity"),
        ("body array<int>", "orders", r"column 'body' \(array<int>\): it must be binary or a string"),
        ("body string, BODY binary", "orders", r"column 'BODY' \(binary\): there are two of this name"),
        (
            "body string, price double",
            "orders",
            r"column 'price' \(double\): there is no such column; rename it to one",
        ),
        ("body string, subject int", "orders", r"column 'subject' \(int\): it must be a string; cast it"),
        ("body string, timeToLive string", "orders", r"column 'timeToLive' \(string\): .*make_dt_interval"),
        ("body string, scheduledEnqueueTime timestamp_ntz", "orders", r"\(timestamp_ntz\): .*TIMESTAMP_LTZ"),
        ("body string, applicationProperties map<string,decimal(5,2)>", "orders", "it must be a map<string, T>"),
        ("body string, applicationProperties struct<a:array<int>>", "orders", "or a struct of the properties"),
        (
            "body string, applicationProperties map<string,int>, applicationPropertyTypes map<string,string>",
            "orders",
            "it tells the types of texts",
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_refused(ddl: str, entity: str | None, error: str) -> None:
    with pytest.raises(ColumnError, match=error):
        check_writable(schema(ddl), entity)


def test_what_was_read_can_be_written() -> None:
    where = check_writable(READ_BACKLOG, "orders")
    assert "sequenceNumber" not in where
    assert {"entity", "body", "applicationPropertyTypes", "timeToLive"} <= set(where)


def test_a_read_gives_the_columns_that_it_has() -> None:
    check_readable(READ, is_backlog=False)
    check_readable(schema("DESTINATION string"), is_backlog=True)
    with pytest.raises(ColumnError, match="column 'destination'"):
        check_readable(schema("destination string"), is_backlog=False)
    with pytest.raises(ColumnError, match=r"column 'body' \(string\): a read gives it as binary; cast it then"):
        check_readable(schema("body string"), is_backlog=False)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 90, timedelta(seconds=90)),
        ("double", 0.25, timedelta(milliseconds=250)),
        ("decimal(5,3)", Decimal("1.500"), timedelta(milliseconds=1500)),
        ("interval day to second", timedelta(days=30, milliseconds=1), timedelta(days=30, milliseconds=1)),
        ("int", None, None),
    ],
)
def test_a_time_to_live_is_an_interval_or_seconds(kind: str, value: object, expected: timedelta | None) -> None:
    (message,) = messages(f"body string, timeToLive {kind}", ("x", value))
    life = Found("orders", wire(message).data).time_to_live
    assert life == (None if expected is None else expected // timedelta(microseconds=1))


@pytest.mark.parametrize(
    ("ddl", "row", "error"),
    [
        ("body string", (None,), "column 'body' of row 0: it is null"),
        ("body string, entity string", ("x", None), "column 'entity' of row 0: it is None"),
        ("body string, timeToLive int", ("x", 0), "column 'timeToLive' of row 0: it is 0:00:00"),
        ("body string, timeToLive int", ("x", 10**7), "it is 115 days, 17:46:40; the SDK sends .* up to 49 days"),
        ("body string, messageId string", ("x", "i" * 200), "of row 0: the message is not valid: message_id cannot be"),
        ("body string, sessionId string, partitionKey string", ("x", "a", "b"), "the message is not valid"),
        ("body binary, bodyType string", (b"\x00", "value"), r"column 'body' \(value\) of row 0: not a value of AMQP"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(ddl: str, row: Sequence[Any], error: str) -> None:
    with pytest.raises(ColumnError, match=error):
        messages(ddl, row, entity=None if "entity" in ddl else "orders")


def test_a_value_is_sent_as_a_value() -> None:
    (message,) = messages("body binary, bodyType string, subject string", (encode({"a": [1]}), "value", "s"))
    sent = wire(message)
    assert sent.body_values() == [{"a": [1]}]
    properties = sent.properties()
    assert properties is not None
    assert properties.subject == "s"
    assert properties.message_id


ROWS = st.lists(st.sampled_from("abc"), max_size=12)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_same_rows_in_another_order_get_the_same_ids(rows: list[str], random: Random) -> None:
    """S7: what is sent again after a failure is recognised."""
    shuffled = random.sample(rows, len(rows))
    ids, again = MessageIds("query/7/0"), MessageIds("query/7/0")
    first = [(row, ids.next((row,))) for row in rows]
    second = [(row, again.next((row,))) for row in shuffled]
    assert sorted(first) == sorted(second)
    assert len({made for _, made in first}) == len(rows)
    other = MessageIds("query/8/0")
    assert not {made for _, made in first} & {other.next((row,)) for row in rows}


def test_an_id_that_is_given_is_kept() -> None:
    made = messages("body string, messageId string", ("x", "mine"), ("x", None))
    assert raw(made[0]).properties.message_id == "mine"  # type: ignore[union-attr]
    assert len(str(raw(made[1]).properties.message_id)) == 32  # type: ignore[union-attr]
