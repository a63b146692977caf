"""K3: the curve of an outage has a resolution that shows it, and shows nothing that was not so."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.rows import PLAN, naive, record, turn, write

from pairbus.core.ledger import Kind, Stage
from pairbus.spark.report.charts import drain_chart, outage_chart
from pairbus.spark.report.summary import gather
from pairbus.spark.tables.ledger_tables import Settings, Tables

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize(("start", "scale"), [(5, 1), (25, 2), (30, 600)], ids=["one minute", "two minutes", "hours"])
def test_k3_an_outage_of_any_length_is_drawn_as_it_was(
    spark: SparkSession, tmp_path: Path, start: int, scale: int
) -> None:
    def when(step: float) -> float:
        return start + step * scale

    records = [record(when(step), Kind.SEND, messages=2) for step in (*range(10), *range(30, 40))]
    records += [turn(when(10), "suspect"), turn(when(12), "engaged"), turn(when(28), "healthy")]
    records += [record(when(step), Kind.SEND, Stage.PARK, messages=3, destination="orders") for step in range(13, 28)]
    records += [record(when(29), Kind.SEND, Stage.SYPHON, messages=45, entity="orders", destination="orders")]
    write(tmp_path / "ledger", "ledger", records)
    tables = Tables(spark, str(tmp_path / "out"), Settings(PLAN, {}))
    tables.update([str(tmp_path / "ledger")])
    facts = gather(tables, PLAN)
    assert facts.largest is not None
    outage, curve = facts.largest
    step = timedelta(seconds=curve.seconds)
    assert 10 < len(curve.at) <= 120
    assert curve.at[0] < outage["began"] < outage["drained"] <= curve.at[-1]
    assert outage["began"] in curve.at
    assert (sum(curve.parked), sum(curve.delivered), max(curve.depth), curve.depth[-1]) == (45, 45, 45, 0)
    for at, direct, depth in zip(curve.at, curve.direct, curve.depth, strict=True):
        if naive(when(10)) <= at and at + step <= naive(when(28)):
            assert direct == 0
        if at + step <= naive(when(13)):
            assert depth == 0
    assert sum(curve.direct) > 0
    assert outage_chart(outage, curve).count("<path") > 3
    assert drain_chart(outage, curve).count("<path") > 3


def test_k3_a_ledger_that_ends_with_the_drain_shows_the_backlog_empty(spark: SparkSession, tmp_path: Path) -> None:
    """The demo's does: the last span is after the last record."""
    records = [record(step, Kind.SEND, messages=2) for step in range(10)]
    records += [turn(10, "suspect"), turn(12, "engaged"), turn(20, "healthy")]
    records += [record(15, Kind.SEND, Stage.PARK, messages=9, destination="orders")]
    records += [record(21.5, Kind.SEND, Stage.SYPHON, messages=9, entity="orders", destination="orders")]
    write(tmp_path / "ledger", "ledger", records)
    tables = Tables(spark, str(tmp_path / "out"), Settings(PLAN, {}))
    tables.update([str(tmp_path / "ledger")])
    facts = gather(tables, PLAN)
    assert facts.largest is not None
    outage, curve = facts.largest
    assert outage["drained"] <= curve.at[-1]
    assert (curve.delivered[-2:], curve.depth[-2:]) == ([9, 0], [0, 0])
