"""The data source ``servicebus`` in streams: reads that can be replayed, and writes that outlast the primary."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pyspark.sql.functions as sql
import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.buses import look, receive, send, send_many
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from pairbus import MessagingFactory, NamespaceManager, SendAvailabilityPairedNamespaceOptions
from pairbus.testing import EmbeddedBroker, QueueSettings

DEADLINE = 300.0
LATER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A namespace with a queue for each test."""
    queues = dict.fromkeys(("replayed", "latest", "retried"), QueueSettings())
    with EmbeddedBroker(queues=queues) as broker:
        yield broker


def until(look: Callable[[], bool]) -> None:
    wait_until(look, DEADLINE, lambda: [query.lastProgress for query in SparkSession.active().streams.active])


class Reading:
    """A query that keeps what each of its batches had."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, entity: str, checkpoint: Path) -> None:
        self.batches: dict[int, list[str]] = {}
        self._spark = spark
        self._options = {"connectionString": broker.connection_string, "entity": entity, "pollInterval": "100ms"}
        self._checkpoint = checkpoint

    def start(self, **options: object) -> StreamingQuery:
        def keep(frame: DataFrame, batch: int) -> None:
            rows = frame.orderBy("entity", "sequenceNumber").collect()
            self.batches[batch] = [bytes(row.body).decode() for row in rows]

        trigger: dict[str, Any] = (
            {"availableNow": True} if options.pop("now", True) else {"processingTime": "0 seconds"}
        )
        given = self._options | {name: str(value) for name, value in options.items()}
        stream = self._spark.readStream.format("servicebus").options(**given).load()
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def run(self, **options: object) -> None:
        """Read what there is now."""
        query = self.start(**options)
        assert query.awaitTermination(int(DEADLINE))


def test_a_stream_reads_in_batches_ends_and_can_be_replayed(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Admission control, AvailableNow, offsets that replay, and gaps."""
    bodies = [f"{number:03}" for number in range(25)]
    send_many(broker, "replayed", bodies)
    send(broker, "replayed", ServiceBusMessage("later", scheduled_enqueue_time_utc=LATER))
    reading = Reading(spark, broker, "replayed", tmp_path)
    reading.run(maxMessagesPerTrigger=10)
    assert reading.batches == {0: bodies[:10], 1: bodies[10:20], 2: bodies[20:]}
    offsets = json.loads((tmp_path / "offsets" / "2").read_text(encoding="utf-8").splitlines()[-1])
    assert offsets["replayed"] == 27

    for log in ("commits/2", "commits/.2.crc"):
        (tmp_path / log).unlink(missing_ok=True)  # as if the query had been killed before it had finished this batch
    receive(broker, "replayed", 22)  # a consumer, meanwhile
    send_many(broker, "replayed", ["new"])
    reading.batches.clear()
    reading.run(maxMessagesPerTrigger=10)
    assert reading.batches == {2: bodies[22:], 3: ["new"]}  # of its range, what is left; and nothing twice
    assert len(look(broker, "replayed")) == 5


def test_a_stream_can_begin_with_what_comes(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    send_many(broker, "latest", ["old"])
    reading = Reading(spark, broker, "latest", tmp_path)
    query = reading.start(now=False, startingSequenceNumber="latest")
    try:
        until((tmp_path / "offsets" / "0").exists)  # it has found out where it begins
        send_many(broker, "latest", ["new"])
        until(lambda: any(reading.batches.values()))
        assert [batch for batch in reading.batches.values() if batch] == [["new"]]
    finally:
        query.stop()


def rows_of(files: Path, number: int, count: int) -> None:
    """Have a file come with so many orders."""
    part = files / f".{number}"
    part.write_text("".join(f'{{"order": "{number}-{row} {"x" * 1000}"}}\n' for row in range(count)), encoding="utf-8")
    part.replace(files / f"{number}.json")


def orders(spark: SparkSession, files: Path) -> DataFrame:
    stream = spark.readStream.schema("order string").option("maxFilesPerTrigger", 1).json(str(files))
    return stream.select(sql.col("order").alias("body"))


def test_a_batch_that_is_tried_again_has_the_same_ids(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """S7: duplicate detection, or a consumer, can remove the copies."""
    files = tmp_path / "files"
    files.mkdir()
    rows_of(files, 0, 300)

    def start(fails_at: str) -> StreamingQuery:
        body = sql.expr(f"IF(body LIKE '%-{fails_at} %', raise_error('in the middle'), body)").cast("string")
        return (
            orders(spark, files)
            .select(body.alias("body"))
            .writeStream.format("servicebus")
            .options(connectionString=broker.connection_string, entity="retried")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pytest.raises(Exception, match="in the middle"):
            start("250").awaitTermination(int(DEADLINE))
        assert len(look(broker, "retried")) >= 100
        assert start("never").awaitTermination(int(DEADLINE))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    ids: dict[Any, set[bytes]] = {}
    found = look(broker, "retried")
    for message in found:
        properties = message.properties()
        assert properties is not None
        ids.setdefault(properties.message_id, set()).add(b"".join(message.data_sections()))
    assert len(found) > 300
    assert len(ids) == 300
    assert all(len(contents) == 1 for contents in ids.values())


class Pair:
    """A primary that can be killed, at an address that stays, and a secondary."""

    def __init__(self, data: Path) -> None:
        settings = {"orders": QueueSettings(requires_duplicate_detection=True)}
        self.port = free_port()
        self.primary = EmbeddedBroker(namespaces=[f"contoso:{self.port}"], queues=settings, process=True, data=data)
        self.secondary = EmbeddedBroker()

    def __enter__(self) -> Self:
        self.primary.start()
        self.secondary.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.primary.stop()
        self.secondary.stop()

    @property
    def address(self) -> str:
        """The primary's connection string."""
        return self.primary.connection_string

    def kill(self) -> None:
        """Kill the primary."""
        self.primary.kill()

    def revive(self) -> None:
        """Start it again, with its data, at the same address."""
        self.primary.start()

    def drain(self) -> None:
        """Carry home what is parked."""
        secondary = MessagingFactory.from_connection_string(self.secondary.connection_string)
        with (
            MessagingFactory.from_connection_string(self.address) as primary,
            secondary,
            NamespaceManager.from_connection_string(self.secondary.connection_string) as manager,
        ):
            options = SendAvailabilityPairedNamespaceOptions(
                manager, secondary, backlog_queue_count=2, enable_syphon=True
            )
            primary.pair_namespace(options)
            until(lambda: not self.parked())

    def parked(self) -> list[Any]:
        """Return what is in the backlog."""
        label = f"127-0-0-1-{self.port}"
        return [each for index in range(2) for each in look(self.secondary, f"{label}/x-servicebus-transfer/{index}")]


def test_a_paired_stream_outlasts_its_primary(spark: SparkSession, tmp_path: Path) -> None:
    """The primary is killed between batches and within one: no error, nothing lost, and the counts add up."""
    files, reports = tmp_path / "files", tmp_path / "reports"
    files.mkdir()

    def report(batch: int) -> dict[str, Any]:
        found = list(reports.glob(f"*-{batch:010}.json"))
        return json.loads(found[0].read_text(encoding="utf-8")) if found else {}

    with Pair(tmp_path / "data") as pair:
        rows_of(files, 0, 200)
        given = {
            "connectionString": pair.address,
            "secondaryConnectionString": pair.secondary.connection_string,
            "entity": "orders",
            "failoverInterval": "0",
            "pingPrimaryInterval": "1s",
            "attemptTimeout": "4s",
            "backlogQueueCount": "2",
            "reportDirectory": str(reports),
        }
        query = (
            orders(spark, files)
            .writeStream.format("servicebus")
            .options(**given, checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            until(lambda: bool(report(0)))
            pair.kill()  # between two batches
            rows_of(files, 1, 200)
            until(lambda: bool(report(1)))
            assert (report(0)["sent"], report(0)["parked"]) == (200, 0)
            assert (report(1)["sent"], report(1)["parked"]) == (0, 200)
            backlog = spark.read.format("servicebus").options(
                connectionString=pair.address,
                secondaryConnectionString=pair.secondary.connection_string,
                backlog="true",
                backlogQueueCount="3",  # of which one was never made
            )
            parked = backlog.load().collect()
            assert {(row.destination, row.problem) for row in parked} == {("orders", None)}
            assert len({row.messageId for row in parked}) == len(parked) == 200
            assert not any(row.applicationProperties for row in parked)

            pair.revive()
            until(lambda: _sends_directly(files, report))
            batch = max(int(path.stem[-10:]) for path in reports.glob("*.json")) + 1
            before = len(look(pair.primary, "orders"))
            rows_of(files, batch, 20_000)
            until(lambda: len(look(pair.primary, "orders")) > before)
            pair.kill()  # within a batch
            until(lambda: bool(report(batch)))
            split = report(batch)
            assert split["sent"] > 0
            assert split["parked"] > 0
            assert split["sent"] + split["parked"] == 20_000
            assert query.exception() is None
        finally:
            query.stop()
        pair.revive()
        pair.drain()
        written = {
            f"{path.stem}-{row}"
            for path in files.glob("*.json")
            for row in range(len(path.read_text(encoding="utf-8").splitlines()))
        }
        arrived = [b"".join(each.data_sections()).decode().split()[0] for each in look(pair.primary, "orders")]
        assert sorted(arrived) == sorted(written)


def _sends_directly(files: Path, report: Callable[[int], dict[str, Any]]) -> bool:
    """Have one more order come, and tell whether the last one went to the primary."""
    done = [int(path.stem) for path in files.glob("[0-9]*.json")]
    last = report(max(done))
    if last and last["sent"]:
        return True
    if last:
        rows_of(files, max(done) + 1, 1)
    return False
