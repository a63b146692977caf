"""Promises of the pipeline that no other test would notice broken."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from tests.spark.rows import PLAN, by_broker, naive, pick, record, silver, turn

from pairbus.core.ledger import Kind, Outcome, Stage
from pairbus.spark.connector.pushdown import Pushed
from pairbus.spark.tables import availability, backlog, costs

pytestmark = pytest.mark.usefixtures("small")


def test_k2_renewals_and_settlements_are_metered_and_not_charged(spark: SparkSession) -> None:
    kinds = (Kind.RENEW, Kind.COMPLETE, Kind.ABANDON, Kind.DEFER, Kind.DEAD_LETTER)
    records = [record(0, kind, messages=3) for kind in (*kinds, Kind.SEND)]
    found = costs.cost_hourly(costs.counted_once(costs.usage_hourly(silver(spark, records))), PLAN)
    charged = {row["kind"]: (row["operations"], row["charged"]) for row in found.collect()}
    assert charged == {**{kind.value: (3, 0) for kind in kinds}, "send": (3, 3)}


def test_k1_sure_operations_are_counted_before_doubtful_ones(spark: SparkSession) -> None:
    records = [
        record(0, Kind.SEND, messages=9, client="a", outcome=Outcome.UNKNOWN),
        record(1, Kind.SEND, messages=30, client="b"),
        by_broker(2, Kind.SEND, 35),
    ]
    counted = costs.counted_once(costs.usage_hourly(silver(spark, records)))
    assert pick(counted, ["client", "operations"]) == [("a", 5), ("b", 30)]


def test_k3_what_is_parked_within_a_minute_of_an_outages_end_belongs_to_it(spark: SparkSession) -> None:
    """Its sending had begun before; what is parked later does not."""
    parks = [record(at, Kind.SEND, Stage.PARK, messages=count, destination="orders") for at, count in ((5, 1), (69, 2))]
    parks.append(record(71, Kind.SEND, Stage.PARK, messages=4, destination="orders"))
    told = silver(spark, [turn(0, "suspect"), turn(1, "engaged"), turn(10, "healthy"), *parks])
    found = availability.outages(told, availability.attempts(told), backlog.flows(told))
    assert pick(found, ["ended", "parked"]) == [(naive(10), 3)]


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [(LessThan, (1, 7)), (LessThanOrEqual, (1, 8)), (GreaterThan, (8, None)), (GreaterThanOrEqual, (7, None)),
     (EqualTo, (7, 8))],
)  # fmt: skip
def test_a_comparison_of_the_sequence_number_bounds_what_is_read(
    kind: type[LessThan], bounds: tuple[int, int | None]
) -> None:
    assert Pushed([kind(("sequenceNumber",), 7)]).bounds() == bounds
    assert Pushed([In(("sequenceNumber",), (3, 7))]).bounds() == (3, 8)
