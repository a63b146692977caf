"""K2: bytes that leave a region, in the tables and in the report."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.rows import NOON, PLAN, by_broker, pick, record, rows, silver, write

from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.spark.report.page import render
from pairbus.spark.report.summary import as_json, gather
from pairbus.spark.tables import costs
from pairbus.spark.tables import ledger_tables as tables_module
from pairbus.spark.tables.ledger_tables import Settings, Tables
from pairbus.spark.tables.schemas import COST_HOURLY, GOLD, MESSAGE_COST

pytestmark = pytest.mark.usefixtures("small")

GB = 10**9

PARKED = [
    record(0, Kind.SEND, messages=3, bytes=3 * GB),
    record(1, Kind.SEND, Stage.PARK, messages=1, bytes=GB, destination="orders"),
    record(2, Kind.RECEIVE, Stage.SYPHON, messages=1, bytes=GB),
    record(3, Kind.SEND, Stage.SYPHON, messages=1, bytes=GB, entity="orders", destination="orders"),
    record(3, Kind.COMPLETE, Stage.SYPHON, messages=1, bytes=GB),
    record(4, Kind.RECEIVE, messages=4, bytes=4 * GB),
    record(5, Kind.SEND, messages=5, bytes=5 * GB, outcome=Outcome.FAILED),
    record(6, Kind.PING, Stage.PING, bytes=1_000_001),
    record(7, Kind.EMPTY_RECEIVE, Stage.IDLE),
]
"""Three messages went straight and one by way of the backlog, each of a GB."""


def test_k2_bandwidth_is_charged_in_all_stages_by_direction(spark: SparkSession) -> None:
    """A parked message is transferred four times. A settlement transfers none, and what failed costs nothing."""
    cost = costs.cost_hourly(costs.counted_once(costs.usage_hourly(silver(spark, PARKED))), PLAN)
    assert pick(cost, ["stage", "kind", "bytes", "bandwidth_nanos"]) == [
        ("direct", "receive", 4 * GB, 44_000_000),
        ("direct", "send", 3 * GB, 21_000_000),
        ("idle", "empty-receive", 0, 0),
        ("park", "send", GB, 20_000_000),
        ("ping", "ping", 1_000_001, 1_000_001),
        ("syphon", "complete", 0, 0),
        ("syphon", "receive", GB, 33_333_333),
        ("syphon", "send", GB, 0),
    ]
    for row in cost.collect():
        stage, kind = Stage(row["stage"]), Kind(row["kind"])
        assert row["bandwidth_nanos"] == PLAN.bandwidth_charge(stage, kind, row["bytes"])
    found = pick(costs.message_cost(cost), ["way", "messages", "bytes", "bandwidth_nanos", "nanos_per_message"])
    assert found == [
        ("backlog", 1, 4 * GB, 20_000_000 + 33_333_333 + 11_000_000, 64_333_333.0),
        ("direct", 3, 6 * GB, 21_000_000 + 33_000_000, 18_000_000.0),
        ("upkeep", 0, 1_000_001, 1_000_001, None),
    ]


def _of_both(of_shop: int, of_syphon: int) -> list[Record]:
    return [
        record(0, Kind.SEND, messages=30, client="shop", bytes=of_shop),
        record(1, Kind.SEND, Stage.SYPHON, messages=10, client="syphon", entity="orders", bytes=of_syphon),
        record(1, Kind.SEND, messages=9, client="till", outcome=Outcome.UNKNOWN, bytes=900),
        by_broker(2, Kind.SEND, 50, bytes=5_003),
        by_broker(2, Kind.COMPLETE, 50, bytes=5_003),
    ]


@pytest.mark.parametrize(
    ("of_shop", "of_syphon", "shares"),
    [(2_400, 1_600, (2_401, 1_601)), (0, 0, (3_001, 1_001)), (0, 77, (0, 4_002))],
)
def test_k2_bytes_that_both_sides_have_metered_count_once(
    spark: SparkSession, of_shop: int, of_syphon: int, shares: tuple[int, int]
) -> None:
    """The broker's total goes with the operations, and within those by what the clients have weighed."""
    usage = costs.usage_hourly(silver(spark, _of_both(of_shop, of_syphon)))
    counted = pick(costs.counted_once(usage).where("kind = 'send'"), ["client", "operations", "bytes"])
    assert counted == [("SBLink", 1, 101), ("shop", 30, shares[0]), ("syphon", 10, shares[1]), ("till", 9, 900)]
    assert sum(each[2] for each in counted) == 5_003


def test_k2_the_report_shows_bandwidth_beside_the_operations(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "ledger", "ledger-1", PARKED)
    tables = Tables(spark, str(tmp_path / "out"), Settings(PLAN, {}))
    tables.update([str(tmp_path / "ledger")])
    facts = gather(tables, PLAN)
    told = json.loads(json.dumps(as_json(facts)))
    assert (told["bytes"], told["bandwidth_charge"]) == (10 * GB + 1_000_001, "0.119333334")
    assert told["stages"]["park"] == {
        "operations": 1,
        "charged": 1,
        "cost": "0.000000000",
        "bytes": GB,
        "bandwidth_cost": "0.020000000",
    }
    assert told["messages"]["backlog"]["bytes"] == 4 * GB
    assert told["messages"]["backlog"]["bandwidth_cost"] == "0.064333333"
    page = render(facts, NOON)
    assert "<b>0.1193 USD</b><span>for 10.001 GB transferred</span>" in page
    assert "1.000000 GB · 0.0200 USD" in page  # of the stage park, in the chart
    assert "<td>4.000 GB</td><td>0.0643</td>" in page


def test_k3_tables_of_an_older_version_are_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if columns are missing in what is there; no ledger file is read again."""
    write(tmp_path / "ledger", "ledger-1", PARKED)
    out, added = tmp_path / "out", ("bytes", "bandwidth_nanos")
    with monkeypatch.context() as older:
        older.setattr(tables_module, "VERSION", tables_module.VERSION - 1)
        tables = Tables(spark, str(out), Settings(PLAN, {}))
        tables.update([str(tmp_path / "ledger")])
    expected = {table.name: rows(tables.read(table), table) for table in GOLD}
    for table in (COST_HOURLY, MESSAGE_COST):
        (part,) = (out / table.name).glob("date=*")
        kept = spark.read.parquet(str(part)).drop(*added).localCheckpoint()
        kept.write.mode("overwrite").parquet(str(part))
        assert {row[name] for row in tables.read(table).collect() for name in added} == {None}
    assert Tables(spark, str(out), Settings(PLAN, {})).update([str(tmp_path / "ledger")]) == 0
    spark.catalog.clearCache()
    assert {table.name: rows(tables.read(table), table) for table in GOLD} == expected
