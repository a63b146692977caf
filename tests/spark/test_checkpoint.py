"""A stream that is given the checkpoint of another entity says so, also if the other one had the same name."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.spark.buses import dead_letter, receive, send, send_many
from tests.spark.test_connector_streams import Reading

from pairbus.amqp import build_message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.errors import OptionError
from pairbus.spark.connector import renumbering
from pairbus.spark.connector.columns import READ
from pairbus.spark.connector.incoming import SCHEDULED, Found
from pairbus.spark.connector.options import read_options
from pairbus.spark.connector.reader import StreamReader
from pairbus.testing import EmbeddedBroker, QueueSettings

NOWHERE = "Endpoint=sb://nowhere.example/;SharedAccessKeyName=a;SharedAccessKey=b"
ALL = ReadAllAvailable()
AGAIN = (
    r"checkpointLocation='orders' is not valid: 'orders' was deleted and made again .* its message 1 was enqueued at"
)


class Namespace:
    """A broker whose clock is moved, with a queue that can be made again."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000
        self.broker = EmbeddedBroker(queues=["orders"], clock=lambda: self.now)

    def pass_hours(self, hours: float) -> None:
        self.now += round(hours * 3_600_000)
        self.broker.wake()

    def recreate(self) -> None:
        self.broker.delete_queue("orders")
        self.broker.create_queue("orders", QueueSettings())
        self.pass_hours(1)

    def send(self, count: int) -> None:
        send_many(self.broker, "orders", [f"{self.now}-{number}" for number in range(count)])

    def reader(self, **options: str) -> StreamReader:
        given = {"connectionString": self.broker.connection_string, "entity": "orders", "pollInterval": "0"}
        return StreamReader(read_options(given | options), READ)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    with made.broker:
        yield made


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_of_another_entity_is_refused() -> None:
    reader = StreamReader(read_options({"connectionString": NOWHERE, "entity": "orders"}), READ)
    with pytest.raises(
        OptionError, match=r"checkpointLocation='bills' is not valid: .* other entities than orders; begin"
    ):
        reader.latestOffset({"bills": 27}, ALL)


def test_a_query_that_starts_again_notices_a_queue_that_was_made_again(namespace: Namespace) -> None:
    """Its messages have lower numbers than the checkpoint: without a word none would come."""
    namespace.send(10)
    offset = namespace.reader().latestOffset({"orders": 1}, ALL)
    assert offset["orders"] == 11
    namespace.recreate()
    assert namespace.reader().latestOffset(offset, ALL) == offset  # nothing is there that could tell
    namespace.send(3)
    with pytest.raises(OptionError, match=rf"{AGAIN} .*; begin with an empty directory"):
        namespace.reader().latestOffset(offset, ALL)


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(4)], ids=["all", "some"])
def test_a_running_query_notices_it_before_it_passes_over_messages(
    namespace: Namespace, limit: ReadAllAvailable | ReadMaxRows
) -> None:
    """The new queue has grown beyond the offset meanwhile."""
    reader = namespace.reader()
    namespace.send(10)
    offset = reader.latestOffset({"orders": 1}, limit)
    while offset["orders"] < 11:
        offset = reader.latestOffset(offset, limit)
    namespace.recreate()
    namespace.send(20)
    with pytest.raises(OptionError, match=AGAIN):
        reader.latestOffset(offset, limit)


def test_a_query_that_waits_notices_it_within_a_minute(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = namespace.reader(startingSequenceNumber="latest")
    namespace.send(10)
    offset = reader.initialOffset()
    assert reader.latestOffset(offset, ALL) == offset
    namespace.recreate()
    namespace.send(3)
    assert reader.latestOffset(offset, ALL) == offset  # it has looked just now
    monkeypatch.setattr(renumbering, "EVERY", 0.0)
    with pytest.raises(OptionError, match=AGAIN):
        reader.latestOffset(offset, ALL)


def test_the_same_queue_is_never_taken_for_another(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by what stays in it, is scheduled, comes later, or is dead-lettered; nor if its clock is set back."""
    monkeypatch.setattr(renumbering, "EVERY", 0.0)
    reader, dead = namespace.reader(), namespace.reader(subQueue="deadletter")
    offset = {"orders": 1}
    letters = {"orders/$DeadLetterQueue": 1}
    later = datetime.fromtimestamp(namespace.now / 1000, UTC) + timedelta(hours=2)
    for step in range(4):
        namespace.send(5)
        send(namespace.broker, "orders", ServiceBusMessage("later", scheduled_enqueue_time_utc=later))
        before = offset["orders"]
        offset = reader.latestOffset(offset, ALL)
        assert offset["orders"] > before
        dead_letter(namespace.broker, "orders", 1)
        letters = dead.latestOffset(letters, ALL)
        receive(namespace.broker, "orders", 1)
        namespace.pass_hours(-0.5 if step == 1 else 1)
        offset = reader.latestOffset(offset, ALL)
    assert letters == {"orders/$DeadLetterQueue": 5}  # no time: its messages keep the one at which they came to orders


def found(number: int, enqueued: int, state: int = 0) -> Found:
    annotations = {"x-opt-sequence-number": number, "x-opt-enqueued-time": Timestamp(enqueued)}
    annotations |= {"x-opt-message-state": state} if state else {}
    return Found("orders", build_message(message_annotations={Symbol(name): at for name, at in annotations.items()}))


def test_scheduled_messages_say_nothing_about_a_queue() -> None:
    """Their time is yet to come, and they get another number then."""
    active, scheduled = found(1, 100), found(2, 10**12, SCHEDULED)
    assert renumbering.newest_of({1: active}) == 100
    assert renumbering.newest_of({1: active, 2: scheduled}) is None
    assert renumbering.noting({"orders": 3, "orders?enqueued": 100}, "orders", None) == {"orders": 3}
    renumbering.check("orders", 3, 100, [scheduled])


def test_a_clock_that_is_set_back_or_differs_a_little_is_no_other_queue() -> None:
    assert renumbering.newest_of({1: found(1, 900), 2: found(2, 100)}) == 900
    offset = renumbering.noting({"orders": 3, "orders?enqueued": 900}, "orders", 100)
    assert offset == {"orders": 3, "orders?enqueued": 900}
    renumbering.check("orders", 3, 900, [found(1, 1900)])
    with pytest.raises(OptionError, match=AGAIN):
        renumbering.check("orders", 3, 900, [found(1, 1901)])


def test_a_checkpoint_of_an_earlier_version_is_gone_on_with(namespace: Namespace) -> None:
    """It has numbers alone; the next one says more."""
    namespace.send(10)
    offset = namespace.reader().latestOffset({"orders": 5}, ALL)
    assert offset == {"orders": 11, "orders?enqueued": namespace.now}


def test_the_error_ends_a_query(spark: SparkSession, namespace: Namespace, tmp_path: Path) -> None:
    namespace.send(10)
    reading = Reading(spark, namespace.broker, "orders", tmp_path)
    reading.run()
    assert len(reading.batches[0]) == 10
    namespace.recreate()
    namespace.send(3)
    with pytest.raises(Exception, match="'orders' was deleted and made again"):
        reading.run()
