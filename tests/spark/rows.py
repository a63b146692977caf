"""What the tests of the tables share: rows to compare, and records to make them of."""

# ruff: noqa: ANN401 (a record's fields are of many types)

import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pairbus.core.charging import Direction
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Record, Stage
from pairbus.core.pricing import BandwidthPrice, Plan, Tier
from pairbus.spark.platform.frames import frame_of
from pairbus.spark.tables import ledger
from pairbus.spark.tables.schemas import LINES, Table

PLAN = Plan(
    "tiny",
    "USD",
    date(2026, 1, 1),
    0,
    (Tier(5_000, 0), Tier(40_000, 800_000_000), Tier(None, 500_000_000)),
    (
        BandwidthPrice(Direction.SEND, Stage.DIRECT, 7_000_000),
        BandwidthPrice(Direction.SEND, Stage.PARK, 20_000_000),
        BandwidthPrice(Direction.SEND, Stage.PING, 1_000_000_000),
        BandwidthPrice(Direction.RECEIVE, Stage.SYPHON, 33_333_333),
        BandwidthPrice(Direction.RECEIVE, Stage.DIRECT, 11_000_000),
    ),
)
NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)

_numbers = itertools.count()


def at(seconds: float) -> datetime:
    """Return a time, so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def naive(seconds: float) -> datetime:
    """Return the same as Spark gives it."""
    return at(seconds).replace(tzinfo=None)


def record(seconds: float, kind: Kind, stage: Stage = Stage.DIRECT, **fields: Any) -> Record:
    """Make a record of the client ``app`` at ``contoso/orders``; a backlog queue is at ``fabrikam``."""
    parked = stage in {Stage.PARK, Stage.SYPHON, Stage.IDLE} and fields.get("entity") is None
    given: dict[str, Any] = {
        "id": f"{next(_numbers):032x}",
        "at": at(seconds),
        "client": "app",
        "namespace": "fabrikam" if parked else "contoso",
        "entity": "contoso/x-servicebus-transfer/0" if parked else "orders",
        "outcome": Outcome.DONE,
    }
    count = fields.get("messages", 0)
    given |= {"operations": max(1, count)} | fields
    return Record(kind=kind, stage=stage, **given)


def turn(seconds: float, state: str, **fields: Any) -> Record:
    """Make the record of a turn of health."""
    return record(seconds, Kind.TURN, detail=state, **fields)


def by_broker(seconds: float, kind: Kind, messages: int, stage: Stage = Stage.DIRECT, **fields: Any) -> Record:
    """Make a record of a broker's."""
    return record(seconds, kind, stage, metered_by=MeteredBy.BROKER, client="SBLink", messages=messages, **fields)


def lines(spark: SparkSession, texts: Iterable[str]) -> DataFrame:
    """Make a frame of lines."""
    return frame_of(spark, [{"value": text, "file": "ledger.jsonl", "source": "s"} for text in texts], LINES)


def silver(spark: SparkSession, records: Iterable[Record], **aliases: str) -> DataFrame:
    """Make a frame of records: few, as the tables would read them."""
    made = ledger.silver(ledger.bronze(lines(spark, [each.to_json() for each in records])), aliases)
    return made.coalesce(1).localCheckpoint()


def write(directory: Path, name: str, records: Iterable[Record]) -> Path:
    """Write a ledger file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.jsonl"
    path.write_text("".join(each.to_json() + "\n" for each in records))
    return path


def rows(frame: DataFrame, table: Table) -> list[tuple[Any, ...]]:
    """Return a table's rows, in the order of its key."""
    assert frame.columns == table.columns
    return [tuple(row) for row in frame.orderBy(*table.key).collect()]


def pick(frame: DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return some columns of all rows, in order."""
    return [tuple(row) for row in frame.select(*columns).orderBy(*columns).collect()]
