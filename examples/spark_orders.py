"""A Structured Streaming job whose orders arrive although their namespace is down for a while.

    pip install 'pairbus[broker,spark]'
    python examples/spark_orders.py

It runs as it stands: two embedded brokers are the namespaces, and the primary is killed while the job writes to it. The
job knows nothing of that but the options of its sink. At the end it is counted what has arrived; the exit code is 0 if
every order is there, and none twice.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from azure.servicebus import ServiceBusClient
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pairbus import MessagingFactory, NamespaceManager, SendAvailabilityPairedNamespaceOptions
from pairbus.spark import spark_session
from pairbus.testing import EmbeddedBroker, QueueSettings


def free_port() -> int:
    """Find a port for the primary, which is to be the same before and after the outage."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(spark: SparkSession, primary: str, secondary: str, rate: int, work: Path) -> StreamingQuery:
    """Write orders as they come; this is all that a job has to do."""
    orders = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    return (
        orders.selectExpr(
            "to_json(struct(value AS order, timestamp AS at)) AS body",
            "concat('order-', value) AS messageId",
            "concat('customer-', value % 5) AS sessionId",
            "map('total', value * 100) AS applicationProperties",
        )
        .writeStream.format("servicebus")
        .option("connectionString", primary)
        .option("secondaryConnectionString", secondary)
        .option("entity", "orders")
        .option("failoverInterval", "0s")
        .option("pingPrimaryInterval", "1s")
        .option("attemptTimeout", "5s")
        .option("reportDirectory", str(work / "reports"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .start()
    )


def counted(work: Path) -> tuple[int, int]:
    """Return how many orders the job has sent and how many it has parked, from the reports of its batches."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((work / "reports").glob("*.json"))]
    return sum(report["sent"] for report in reports), sum(report["parked"] for report in reports)


def wait(what: str, is_so: Callable[[], bool], query: StreamingQuery | None, seconds: float = 180.0) -> None:
    """Wait until something is so, and say it."""
    ends = time.monotonic() + seconds
    while not is_so():
        error = None if query is None else query.exception()
        if error is not None:
            raise error
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)  # between two looks at what other processes do
    print(what, flush=True)


def drain(spark: SparkSession, primary: str, secondary: str) -> None:
    """Carry home what is parked, and wait until the backlog is empty. ``pairbus syphon`` does the same at scale."""
    backlog = (
        spark.read.format("servicebus")
        .option("connectionString", primary)
        .option("secondaryConnectionString", secondary)
        .option("backlog", "true")
        .load()
    )
    backlog.groupBy("destination", "sessionId").count().orderBy("sessionId").show()
    other = MessagingFactory.from_connection_string(secondary)
    with (
        MessagingFactory.from_connection_string(primary) as factory,
        other,
        NamespaceManager.from_connection_string(secondary) as manager,
    ):
        factory.pair_namespace(SendAvailabilityPairedNamespaceOptions(manager, other, enable_syphon=True))
        wait("the syphon has carried everything home", backlog.isEmpty, None)


def arrived(primary: str) -> list[str]:
    """Return the ids of the orders that have arrived."""
    ids: list[str] = []
    with ServiceBusClient.from_connection_string(primary) as client, client.get_queue_receiver("orders") as receiver:
        first = 1
        while page := receiver.peek_messages(250, sequence_number=first):
            ids += [str(message.message_id) for message in page]
            first = (page[-1].sequence_number or 0) + 1
    return ids


def main() -> int:
    """Run the job through an outage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=50, help="orders a second")
    parser.add_argument("--orders", type=int, default=100, help="to wait for before, during and after the outage")
    arguments = parser.parse_args()
    queues = {"orders": QueueSettings(requires_duplicate_detection=True)}
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker() as backup:
        work = Path(name)
        names = [f"contoso:{free_port()}"]
        broker = EmbeddedBroker(namespaces=names, queues=queues, data=work / "data", process=True).start()
        primary, secondary = broker.connection_string, backup.connection_string
        spark = spark_session("orders")
        query = start(spark, primary, secondary, arguments.rate, work)
        try:
            more = arguments.orders
            wait(f"{more} orders are sent", lambda: counted(work)[0] >= more, query)
            broker.kill()
            print("the primary is down", flush=True)
            wait(f"{more} orders are parked", lambda: counted(work)[1] >= more, query)
            broker.start()
            before = counted(work)[0]
            print("the primary is back", flush=True)
            wait(f"{more} more orders are sent", lambda: counted(work)[0] >= before + more, query)
        finally:
            query.stop()
        drain(spark, primary, secondary)
        spark.stop()
        sent, parked = counted(work)
        ids = arrived(primary)
        broker.stop()
    expected = {f"order-{number}" for number in range(sent + parked)}
    missing, twice = len(expected - set(ids)), len(ids) - len(set(ids))
    print(f"{sent} orders were sent and {parked} parked; {len(set(ids))} have arrived")
    verdict = "nothing lost, nothing twice" if not missing and not twice else f"{missing} lost, {twice} twice"
    print(f"verdict: {verdict}")
    return 0 if not missing and not twice else 1


if __name__ == "__main__":
    sys.exit(main())
