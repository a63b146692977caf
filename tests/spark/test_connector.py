"""The data source ``servicebus`` between Spark and the SDK, at an embedded broker: batches."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sql
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType
from tests.spark.buses import dead_letter, in_order, look, read, receive, send, send_many, write

from pairbus.amqp import Message
from pairbus.amqp.sections import Properties
from pairbus.testing import EmbeddedBroker, QueueSettings, TopicConfig

QUEUES = (
    "written", "sent", "copied", "filtered", "spoiled", "plain", "wrong", "reports", "many-sdk", "many-native", "empty",
)  # fmt: skip
LATER = datetime(2099, 1, 31, 12, tzinfo=UTC)
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A namespace for all tests here, with a queue for each."""
    queues = dict.fromkeys(QUEUES, QueueSettings()) | {"sessions": QueueSettings(requires_session=True)}
    with EmbeddedBroker(queues=queues, topics={"news": TopicConfig(), "copies": ["all"]}) as broker:
        yield broker


def test_what_is_written_is_received_with_every_property(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """The round trip: columns → messages, each property of its own type."""
    frame = spark.range(1).select(
        sql.lit("written").alias("entity"),
        sql.lit(b"\x00\xff").alias("body"),
        sql.lit("id-1").alias("messageId"),
        sql.lit("a subject").alias("subject"),
        sql.lit("application/json").alias("contentType"),
        sql.lit("correlation").alias("correlationId"),
        sql.lit("key").alias("partitionKey"),
        sql.lit("somebody").alias("to"),
        sql.lit("back").alias("replyTo"),
        sql.lit("session-back").alias("replyToSessionId"),
        sql.expr("make_dt_interval(0, 1, 0, 0.5)").alias("timeToLive"),
        sql.struct(
            sql.lit("text").alias("string"),
            sql.expr("true").alias("boolean"),
            sql.expr("7Y").alias("byte"),
            sql.expr("7S").alias("short"),
            sql.lit(7).alias("int"),
            sql.expr("7L").alias("long"),
            sql.expr("0.5F").alias("float"),
            sql.expr("0.5D").alias("double"),
            sql.lit(b"\x00").alias("binary"),
            sql.lit(MOMENT).alias("timestamp"),
            sql.expr("CAST(NULL AS STRING)").alias("nothing"),
        ).alias("applicationProperties"),
    )
    write(frame, broker)
    (wire,) = look(broker, "written")
    properties = wire.application_properties()
    assert {name: type(value).__name__ for name, value in properties.items()} == {
        "string": "str",
        "boolean": "bool",
        "byte": "Byte",
        "short": "Short",
        "int": "Int",
        "long": "int",
        "float": "Float",
        "double": "float",
        "binary": "bytes",
        "timestamp": "Timestamp",
    }
    assert properties["timestamp"].to_datetime() == MOMENT
    (got,) = receive(broker, "written", 1)
    assert b"".join(got.body) == b"\x00\xff"
    assert (got.message_id, got.subject, got.content_type) == ("id-1", "a subject", "application/json")
    assert (got.correlation_id, got.partition_key, got.to) == ("correlation", "key", "somebody")
    assert (got.reply_to, got.reply_to_session_id) == ("back", "session-back")
    assert got.time_to_live == timedelta(hours=1, milliseconds=500)


def typed_messages() -> list[ServiceBusMessage | AmqpAnnotatedMessage]:
    """One message with everything, and one of each kind of body."""
    properties: dict[str | bytes, Any] = {
        "text": "é",
        "bytes": {"TYPE": "BINARY", "VALUE": b"\x01"},
        "yes": True,
        "int": 5,
        "long": {"TYPE": "LONG", "VALUE": 2**40},
        "ubyte": {"TYPE": "UBYTE", "VALUE": 200},
        "double": 0.25,
        "uuid": uuid.UUID(int=9),
        "at": MOMENT,
        "none": None,
    }
    whole = ServiceBusMessage(
        b"\x00payload",
        application_properties=properties,
        session_id="session",
        message_id="whole",
        time_to_live=timedelta(minutes=5),
        content_type="text/plain",
        correlation_id="correlation",
        subject="subject",
        partition_key="session",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
    )
    bodies: list[dict[str, Any]] = [
        {"value_body": "text"},
        {"value_body": b"binary"},
        {"value_body": {b"map": 1}},
        {"sequence_body": [[1, "two"], [3.0]]},
        {"data_body": [b"two ", b"parts"]},
    ]
    return [
        whole,
        *(
            AmqpAnnotatedMessage(**body, properties=AmqpMessageProperties(message_id=str(number)))
            for number, body in enumerate(bodies)
        ),
    ]


def test_what_was_sent_is_read_and_can_be_written_again_as_it_was(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """The other round trip: nothing of a message is lost in the columns, whatever kind of body it has."""
    send(broker, "sent", *typed_messages())
    frame = read(spark, broker, "sent")
    whole, *others = in_order(frame)
    assert whole.applicationPropertyTypes == {
        "text": "string",
        "bytes": "binary",
        "yes": "boolean",
        "int": "int",
        "long": "long",
        "ubyte": "ubyte",
        "double": "double",
        "uuid": "uuid",
        "at": "timestamp",
        "none": "null",
    }
    assert whole.applicationProperties["at"] == "2026-01-31T12:00:00.123Z"
    assert whole.applicationProperties["long"] == str(2**40)
    assert whole.applicationProperties["none"] is None
    assert (bytes(whole.body), whole.sessionId, whole.timeToLive) == (b"\x00payload", "session", timedelta(minutes=5))
    assert (whole.entity, whole.sequenceNumber, whole.state, whole.deliveryCount) == ("sent", 1, "active", 0)
    assert whole.expiresAt - whole.enqueuedTime == timedelta(minutes=5)
    kinds = ["value/string", "value/binary", "value", "sequence", "data"]
    assert [row.bodyType for row in others] == kinds
    assert [bytes(row.body) for row in (*others[:2], others[4])] == [b"text", b"binary", b"two parts"]

    write(frame.drop("entity").orderBy("sequenceNumber").coalesce(1), broker, entity="copied")
    for original, copy in zip(look(broker, "sent")[:-1], _by_id(broker, "copied")[:-1], strict=True):
        assert copy.application_properties() == original.application_properties()
        assert [type(each) for each in copy.application_properties().values()] == [
            type(each) for each in original.application_properties().values()
        ]
        one, other = original.properties(), copy.properties()
        assert one is not None
        assert other is not None
        for name in ("message_id", "group_id", "subject", "content_type", "correlation_id", "to", "reply_to"):
            assert getattr(one, name) == getattr(other, name)
        assert copy.body_values() == original.body_values()
        assert copy.header() == original.header()
    assert len(look(broker, "sent")) == len(typed_messages())  # nothing was removed


def _by_id(broker: EmbeddedBroker, entity: str) -> list[Message]:
    """Return the messages in the order in which they were made: those of different sessions overtake each other."""

    def key(message: Message) -> str:
        properties = message.properties() or Properties()
        return "" if properties.message_id == "whole" else str(properties.message_id)

    return sorted(look(broker, entity), key=key)


def test_subscriptions_sub_queues_sessions_and_schedules_are_read(spark: SparkSession, broker: EmbeddedBroker) -> None:
    send(broker, "copies", ServiceBusMessage("copy"))
    assert [row.entity for row in in_order(read(spark, broker, "copies", subscription="all"))] == [
        "copies/Subscriptions/all"
    ]
    send(broker, "sessions", *(ServiceBusMessage(str(number), session_id=str(number % 2)) for number in range(4)))
    assert [row.sessionId for row in in_order(read(spark, broker, "sessions"))] == ["0", "1", "0", "1"]
    send_many(broker, "spoiled", ["bad"])
    dead_letter(broker, "spoiled", 1)
    (dead,) = in_order(read(spark, broker, "spoiled", subQueue="deadLetter"))
    assert (dead.entity, dead.deadLetterReason) == ("spoiled/$DeadLetterQueue", "spoiled")
    assert dead.deadLetterErrorDescription == "smells"
    send(broker, "spoiled", ServiceBusMessage("later", scheduled_enqueue_time_utc=LATER))
    (later,) = in_order(read(spark, broker, "spoiled"))
    assert (later.state, later.scheduledEnqueueTime.astimezone(UTC)) == ("scheduled", LATER)
    assert read(spark, broker, "spoiled", includeScheduled="false").count() == 0
    assert [each.message_annotations().get("x-opt-message-state") for each in look(broker, "spoiled")] == [2]
    assert look(broker, "spoiled", ServiceBusSubQueue.DEAD_LETTER)


def test_filters_are_pushed_down_unless_spark_is_set_not_to(spark: SparkSession, broker: EmbeddedBroker) -> None:
    send_many(broker, "filtered", [f"{number:04}" for number in range(1500)])
    few = (sql.col("sequenceNumber") > 1000) & (sql.col("sequenceNumber") <= 1010) & (sql.col("messageId") >= "1005")
    expected = [f"{number:04}" for number in range(1005, 1010)]
    pushed = read(spark, broker, "filtered", numPartitions=4).where(few)
    assert [row.messageId for row in in_order(pushed)] == expected
    assert pushed.rdd.getNumPartitions() == 1
    assert read(spark, broker, "filtered").where("entity = 'another'").count() == 0
    assert read(spark, broker, "filtered").where("sequenceNumber < 5 AND sequenceNumber > 7").count() == 0
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = read(spark, broker, "filtered", numPartitions=4)
        assert frame.rdd.getNumPartitions() == 4
        assert [row.messageId for row in in_order(frame.where(few))] == expected
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    some = read(spark, broker, "filtered", startingSequenceNumber=10, endingSequenceNumber=12)
    assert [row.sequenceNumber for row in in_order(some)] == [10, 11, 12]


def test_some_of_the_columns_can_be_asked_for(spark: SparkSession, broker: EmbeddedBroker) -> None:
    send_many(broker, "plain", ["a", "b"])
    assert read(spark, broker, "empty").collect() == []
    options = {"connectionString": broker.connection_string, "entity": "plain"}
    reader = spark.read.format("servicebus").options(**options)
    assert reader.schema("messageid string, sequenceNumber long").load().orderBy("sequenceNumber").collect() == [
        Row(messageid="a", sequenceNumber=1),
        Row(messageid="b", sequenceNumber=2),
    ]
    with pytest.raises(Exception, match=r"column 'price' \(double\): there is no such column"):
        reader.schema("price double").load().collect()


def test_what_cannot_be_written_is_said_before_anything_is(spark: SparkSession, broker: EmbeddedBroker) -> None:
    secret = broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]

    def refused(frame: DataFrame, error: str, **options: object) -> None:
        with pytest.raises(Exception, match=error) as caught:
            write(frame, broker, **options)
        assert secret not in str(caught.value)

    body = spark.range(1).select(sql.lit("x").alias("body"))
    refused(spark.range(1).select(sql.lit(1).alias("body")), r"column 'body' \(int\): it must be binary or a string")
    refused(body, "did you mean failoverInterval", entity="wrong", failovrInterval=1)
    refused(body, "entity 'nowhere' could not be found", entity="nowhere")
    refused(body.withColumn("body", sql.lit(None).cast("string")), "column 'body' of row 0: it is null", entity="wrong")
    refused(body.withColumn("body", sql.repeat("body", 300_000)), "is larger than the", entity="wrong")
    with pytest.raises(Exception, match="messages that were sent cannot be overwritten"):
        body.write.format("servicebus").mode("overwrite").option("connectionString", "x").save()
    assert look(broker, "wrong") == []


def test_tasks_count_and_a_write_that_is_repeated_has_the_same_ids(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    frame = spark.range(0, 100, numPartitions=2).select(sql.expr("CAST(id % 10 AS STRING)").alias("body"))
    for _ in range(2):
        write(frame, broker, entity="reports", writeId="monday", reportDirectory=tmp_path / "reports")
    ids = [properties.message_id for each in look(broker, "reports") if (properties := each.properties())]
    assert (len(ids), len(set(ids))) == (200, 100)
    (file,) = (tmp_path / "reports").glob("*.json")
    report = json.loads(file.read_text(encoding="utf-8"))
    assert (report["write"], report["sent"], report["parked"]) == ("monday", 100, 0)
    assert sorted((task["partition"], task["sent"]) for task in report["tasks"]) == [(0, 50), (1, 50)]


@pytest.mark.parametrize("transport", ["sdk", "native"])
def test_many_sessions_keep_their_order(spark: SparkSession, broker: EmbeddedBroker, transport: str) -> None:
    frame = spark.range(0, 300, numPartitions=1).select(
        sql.expr("CAST(id AS STRING)").alias("body"), sql.expr("CAST(id % 7 AS STRING)").alias("sessionId")
    )
    with EmbeddedBroker() as secondary:
        paired = {"secondaryConnectionString": secondary.connection_string, "transport": transport}
        write(frame, broker, entity=f"many-{transport}", **paired)
    by_session: dict[str, list[int]] = {}
    for row in in_order(read(spark, broker, f"many-{transport}")):
        by_session.setdefault(row.sessionId, []).append(int(row.body))
    assert len(by_session) == 7
    assert all(numbers == sorted(numbers) for numbers in by_session.values())


def test_no_secret_is_in_a_plan(
    spark: SparkSession, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    frame = read(spark, broker, "plain")
    frame.explain(extended=True)
    shown = capsys.readouterr().out + str(frame.schema)
    assert "servicebus" in shown.lower()
    assert secret not in shown


def test_it_is_found_without_an_import_of_ours() -> None:
    """Spark looks for modules ``pyspark_*``; this is what it does, in a process that knows nothing else."""
    program = (
        "import pkgutil, importlib; names = [m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')];"
        "print([importlib.import_module(n).DefaultSource.name() for n in names])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "servicebus" in told.stdout


def test_the_schema_needs_no_broker(spark: SparkSession) -> None:
    nowhere = "Endpoint=sb://nowhere.example/;SharedAccessKeyName=a;SharedAccessKey=b"
    frame = spark.read.format("servicebus").option("connectionString", nowhere).load("orders")
    assert isinstance(frame.schema, StructType)
    assert frame.columns[:2] == ["entity", "sequenceNumber"]
