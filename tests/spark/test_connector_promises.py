"""Promises of the data source, driven without Spark: its readers and writers in this process, at a real broker."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructType
from tests.spark.buses import look, send_many

from pairbus.errors import PairingError
from pairbus.spark.connector.arrow import RecordBatch, Schema
from pairbus.spark.connector.columns import READ
from pairbus.spark.connector.kept import kept
from pairbus.spark.connector.options import read_options, write_options
from pairbus.spark.connector.reader import StreamReader
from pairbus.spark.connector.writer import BatchWriter, StreamWriter
from pairbus.testing import EmbeddedBroker, QueueSettings

ALL = ReadAllAvailable()
ROWS = StructType().add("body", StringType())


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(namespaces=["contoso", "fabrikam"], queues=[]) as broker:
        yield broker


@pytest.fixture
def orders(broker: EmbeddedBroker) -> str:
    """A queue of the primary, for one test."""
    name = f"orders-{uuid.uuid4().hex}"
    broker.create_queue(name, QueueSettings(), namespace="contoso")
    return name


class Context:
    """What Spark tells a task."""

    def __init__(self, query: str, batch: str, partition: int, attempt: int) -> None:
        self._told = {"sql.streaming.queryId": query, "streaming.sql.batchId": batch}
        self._partition, self._attempt = partition, attempt

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 (Spark's)
        return self._told[name]

    def partitionId(self) -> int:  # noqa: N802 (Spark's)
        return self._partition

    def attemptNumber(self) -> int:  # noqa: N802 (Spark's)
        return self._attempt


def batches() -> Iterator[RecordBatch]:
    """Three rows, of which two are alike."""
    return iter([Schema(ROWS).batch([["coffee", "coffee", "tea"]])])


def ids(broker: EmbeddedBroker, orders: str) -> list[object]:
    return [properties.message_id for each in look(broker, orders) if (properties := each.properties())]


def test_s7_ids_differ_between_batches_and_not_between_attempts(
    broker: EmbeddedBroker, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = write_options({"connectionString": broker.connection_string, "entity": orders})
    writer = StreamWriter(options, ROWS)

    def written(query: str, batch: str, partition: int, attempt: int) -> set[object]:
        before = len(ids(broker, orders))
        context = Context(query, batch, partition, attempt)
        monkeypatch.setattr("pairbus.spark.connector.writer.TaskContext.get", lambda: context)
        writer.write(batches())
        got = ids(broker, orders)[before:]
        assert len(set(got)) == len(got) == 3
        return set(got)

    first = written("q", "0", 0, 0)
    assert written("q", "0", 0, 1) == first
    others = [written("q", "1", 0, 0), written("q", "0", 1, 0), written("r", "0", 0, 0)]
    assert all(not first & other for other in others)
    assert len({each for some in (first, *others) for each in some}) == 12


def test_s7_two_writes_have_other_ids_unless_they_are_said_to_be_the_same(broker: EmbeddedBroker, orders: str) -> None:
    given = {"connectionString": broker.connection_string, "entity": orders}
    for write_id in (None, None, "nightly", "nightly"):
        named = given if write_id is None else {**given, "writeId": write_id}
        BatchWriter(write_options(named), ROWS).write(batches())
    found = ids(broker, orders)
    assert len(set(found)) == 9
    assert set(found[6:9]) == set(found[9:])


def test_available_now_ends_with_what_was_there_when_it_began(broker: EmbeddedBroker, orders: str) -> None:
    """Messages that come while it runs are for the next time: else it would not end on a busy entity."""
    reader = StreamReader(read_options({"connectionString": broker.connection_string, "entity": orders}), READ)
    send_many(broker, orders, ["a", "b", "c"])
    reader.prepareForTriggerAvailableNow()
    send_many(broker, orders, ["d", "e"])
    offset = reader.latestOffset({orders: 1}, ReadMaxRows(2))
    assert offset[orders] == 3
    offset = reader.latestOffset(offset, ReadMaxRows(2))
    assert offset[orders] == 4
    assert reader.latestOffset(offset, ReadMaxRows(2)) == offset
    assert reader.latestOffset({orders: 1}, ALL)[orders] == 4


def test_a_pairing_that_is_denied_is_an_error_and_no_outage(
    broker: EmbeddedBroker, orders: str, tmp_path: Path
) -> None:
    """A write that goes on without its pairing would park nothing in an outage, and say nothing of it."""
    secondary = broker.endpoints["fabrikam"].connection_string
    key = secondary.partition("SharedAccessKey=")[2].partition(";")[0]
    given = {
        "connectionString": broker.endpoints["contoso"].connection_string,
        "secondaryConnectionString": secondary.replace(key, "AAAA" + key[4:]),
        "entity": orders,
        "ledger": str(tmp_path),
    }
    with pytest.raises(PairingError, match="denied"):
        BatchWriter(write_options(given), ROWS).write(batches())
    assert look(broker, orders) == []
    outbox = kept().run(kept().outbox(write_options({**given, "secondaryConnectionString": secondary})))
    assert outbox.factory.is_paired
