"""A program with a Spark session of its own, as a notebook has one, that calls the jobs of pairbus.

``python -m tests.spark.notebook DIRECTORY`` writes what it found to ``told.json`` in that directory. The session is in
New York's time, and so is the process if its environment says so.
"""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.rows import record, turn, write
from tests.spark.stage import Pair, arrived, for_orders, pair

from pairbus.core.ledger import Kind
from pairbus.spark import DrainResult, LedgerReport, drain, make_report
from pairbus.spark.report.summary import as_json

ZONE = "America/New_York"
LATE = datetime(2026, 3, 30, 23, 30, tzinfo=UTC)


def main(directory: Path) -> dict[str, Any]:
    """Call each job more than once, and tell what it returned and what the session is like afterwards."""
    spark: SparkSession = (
        SparkSession.builder.appName("a notebook")
        .master("local[2]")
        .config("spark.sql.session.timeZone", ZONE)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # at runtime, as one does in a notebook
    before = spark.conf.getAll
    with pair(2) as stage:
        told = {"reports": reports(spark, directory), "drains": drains(spark, stage, directory)}
    told["session"] = {
        "unchanged": spark.conf.getAll == before,
        "active": SparkSession.getActiveSession() is spark,
        "name": spark.sparkContext.appName,
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "works": spark.range(1000).selectExpr("sum(id)").collect()[0][0],
    }
    spark.stop()
    return told


def reports(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """Report twice: of two days of UTC, which are one in New York, with an outage on the second."""
    ledger, out = directory / "ledger", str(directory / "tables")
    half, days = timedelta(minutes=30), [LATE, LATE + timedelta(hours=1)]
    write(ledger, "first", [record(0, Kind.SEND, messages=2, at=each) for each in days])
    steps: list[str] = []
    first = make_report(spark, str(ledger), out, step=steps.append)
    began = days[1] + half
    write(ledger, "second", [turn(0, "suspect", at=began), turn(0, "healthy", at=began + half)])

    async def in_a_loop() -> LedgerReport:
        return make_report(spark, [str(ledger)], out)

    second = asyncio.run(in_a_loop())
    return {
        "steps": steps,
        "read": [first.files_read, second.files_read],
        "page": Path(second.page).read_text(encoding="utf-8"),
        "facts": as_json(second.facts),
    }


def drains(spark: SparkSession, stage: Pair, directory: Path) -> dict[str, Any]:
    """Drain twice: from within a running loop, with all there is to say, and once more when nothing is left."""
    asyncio.run(stage.park([*for_orders(40), *for_orders(3, 1, "gone", "nowhere")]))
    both = stage.primary.connection_string, stage.secondary.connection_string
    seen: list[int] = []
    table = str(directory / "reconciliations")

    async def in_a_loop() -> DrainResult:
        return drain(
            spark,
            *both,
            ledger=directory / "syphon-ledger",
            table=table,
            progress=lambda progress: seen.append(progress.total),
        )

    first = asyncio.run(in_a_loop())
    second = drain(spark, *both, transport="sdk")
    rows = spark.read.parquet(table).selectExpr("queue", "destination", "delivered", "unix_micros(oldest_at) AS oldest")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    parked = [((each.oldest_at or epoch) - epoch) // timedelta(microseconds=1) for each in first.queues]
    return {
        "first": first.to_document(),
        "second": second.to_document(),
        "complete": [first.is_complete, second.is_complete],
        "arrived": len(asyncio.run(arrived(stage))),
        "progress": seen[-1],
        "ledger": sum(1 for _ in (directory / "syphon-ledger").iterdir()),
        "table": [[row["destination"], row["delivered"]] for row in rows.orderBy("queue").collect()],
        "times": sorted(row["oldest"] for row in rows.collect()) == sorted(parked),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "told.json").write_text(json.dumps(main(place)), encoding="utf-8")
