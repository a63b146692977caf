"""K1, K2, K3: what the tables say of small ledgers, computed by hand."""

# ruff: noqa: E501 (tables read best as tables)

import json
from datetime import date, datetime

import pytest
from pyspark.sql import SparkSession
from tests.spark.rows import at, by_broker, lines, naive, pick, record, rows, silver, turn

from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.core.pricing import Plan, Tier
from pairbus.errors import LedgerError
from pairbus.spark.platform.frames import frame_of
from pairbus.spark.tables import availability, backlog, costs, ledger
from pairbus.spark.tables.schemas import AVAILABILITY_DAILY, BACKLOG_MINUTELY, BACKLOG_OPEN, CLIENT_VS_BROKER, OUTAGES

pytestmark = pytest.mark.usefixtures("small")

DAY = date(2026, 3, 30)
MINUTE = 60_000_000


def test_k1_a_line_that_is_no_record_is_kept_with_its_reason(spark: SparkSession) -> None:
    """Each is refused by the ledger's own reader, too."""
    good = json.loads(record(0, Kind.SEND, messages=2).to_json())
    wrong = {
        "an empty line": "",
        "not a line of JSON": '{"id":',
        "not a JSON object, or a field that is to be a whole number is none": json.dumps({**good, "messages": "2"}),
        "field 'entity' is missing": json.dumps({**good, "entity": None}),
        "field 'messages' is -1: expected 0 or more": json.dumps({**good, "messages": -1}),
        "field 'at' is 2026-03-30T12:00:00: expected a time with its zone": json.dumps(
            {**good, "at": "2026-03-30T12:00:00"}
        ),
        "field 'outcome' is well: expected one of done, failed, unknown": json.dumps({**good, "outcome": "well"}),
    }
    least = {name: good[name] for name in ("id", "at", "client", "namespace", "entity", "kind", "stage", "outcome")}
    bronze = ledger.bronze(lines(spark, [*wrong.values(), json.dumps(least), json.dumps({**good, "new": [1]})]))
    found = {row["reason"]: row["line"] for row in ledger.malformed(bronze).collect()}
    assert found == wrong
    for line in wrong.values():
        with pytest.raises(LedgerError):
            Record.from_json(line)
    assert pick(
        bronze.where("date IS NOT NULL"), ["metered_by", "messages", "operations", "bytes", "oldest_at", "at"]
    ) == [
        ("client", 0, 1, 0, None, naive(0)),
        ("client", 2, 2, 0, None, naive(0)),
    ]


@pytest.mark.parametrize("few", [1_000_000, 0], ids=["few come twice", "many come twice"])
def test_k1_a_record_counts_once_and_names_have_one_spelling(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("pairbus.spark.tables.ledger._FEW", few)
    twice = record(0, Kind.SEND, namespace="LOCALHOST-5672", entity="/Orders/", destination="A/B")
    parked = record(1, Kind.SEND, Stage.PARK, entity="Localhost-5672/x-servicebus-transfer/0", namespace="fabrikam")
    told = silver(spark, [twice, parked, twice, twice], **{"localhost-5672": "Contoso"})
    assert pick(told, ["namespace", "entity", "destination", "pairing"]) == [
        ("contoso", "orders", "a/b", "contoso"),
        ("fabrikam", "localhost-5672/x-servicebus-transfer/0", None, "contoso"),
    ]


def test_k2_tiers_and_the_free_quota_are_the_months(spark: SparkSession) -> None:
    """Hours add up to the month's charge, the next month begins anew, settlements and failures are free."""
    plan = Plan("p", "USD", DAY, 0, (Tier(100, 0), Tier(150, 2_000_000), Tier(None, 1_000_000)))  # 2 and 1 nanos each
    hour = 3600
    records = [
        record(0, Kind.SEND, messages=90),
        record(1, Kind.COMPLETE, messages=1000),
        record(2, Kind.SEND, messages=1000, outcome=Outcome.FAILED),
        record(hour, Kind.SEND, messages=20, client="a"),
        record(hour, Kind.SEND, messages=10, client="b", outcome=Outcome.UNKNOWN),
        record(2 * hour, Kind.SEND, messages=60),
        record(48 * hour, Kind.SEND, messages=101),
    ]
    usage = costs.usage_hourly(silver(spark, records))
    found = pick(
        costs.cost_hourly(costs.counted_once(usage), plan), ["hour", "client", "kind", "operations", "charged", "nanos"]
    )
    assert found == [
        (naive(0), "app", "complete", 1000, 0, 0),
        (naive(0), "app", "send", 90, 90, 0),
        (naive(hour), "a", "send", 20, 20, 26),  # 20 of 30 are beyond the quota: 40 nanos, shared by operations
        (naive(hour), "b", "send", 10, 10, 14),
        (naive(2 * hour), "app", "send", 60, 60, 90),  # 30 of the second tier, 30 of the third
        (naive(48 * hour), "app", "send", 101, 101, 2),  # April
    ]
    assert plan.charge(180) == 26 + 14 + 90
    before = frame_of(spark, [{"month": date(2026, 4, 1), "charged": 100}], "month DATE, charged BIGINT")
    later = costs.cost_hourly(costs.counted_once(costs.usage_hourly(silver(spark, records[-1:]))), plan, before)
    assert pick(later, ["nanos"]) == [(2 * 50 + 51,)]


def test_k1_what_both_sides_have_metered_counts_once(spark: SparkSession) -> None:
    """The broker's number is what is charged; the clients say who it was and at which stage."""
    records = [
        record(0, Kind.SEND, messages=30, client="shop"),
        record(1, Kind.SEND, Stage.SYPHON, messages=10, client="syphon", entity="orders", destination="orders"),
        record(1, Kind.SEND, messages=9, client="shop", outcome=Outcome.UNKNOWN),
        by_broker(2, Kind.SEND, 47),
        by_broker(2, Kind.COMPLETE, 1),
        by_broker(2, Kind.RECEIVE, 40),
        record(3, Kind.SEND, messages=8, client="shop", entity="bills", outcome=Outcome.UNKNOWN),
        by_broker(4, Kind.SEND, 6, entity="bills"),
        record(3600, Kind.SEND, messages=5, client="shop"),  # an hour in which the broker did not meter
        record(5, Kind.SEND, Stage.PARK, messages=3, destination="orders"),
    ]
    usage = costs.usage_hourly(silver(spark, records))
    counted = costs.counted_once(usage)
    assert pick(counted, ["entity", "hour", "kind", "client", "stage", "operations", "messages"]) == [
        ("bills", naive(0), "send", "shop", "direct", 6, 6),
        ("contoso/x-servicebus-transfer/0", naive(0), "send", "app", "park", 3, 3),
        ("orders", naive(0), "complete", "SBLink", "direct", 1, 1),
        ("orders", naive(0), "receive", "SBLink", "direct", 40, 40),
        ("orders", naive(0), "send", "shop", "direct", 37, 37),
        ("orders", naive(0), "send", "syphon", "syphon", 10, 10),
        ("orders", naive(3600), "send", "shop", "direct", 5, 5),
    ]
    assert rows(costs.client_vs_broker(usage), CLIENT_VS_BROKER) == [
        ("contoso", "bills", "send", 8, 8, 6, -2, 8, 6, -2, DAY),
        ("contoso", "orders", "complete", 0, 0, 1, 1, 0, 1, 1, DAY),
        ("contoso", "orders", "receive", 0, 0, 40, 40, 0, 40, 40, DAY),
        ("contoso", "orders", "send", 54, 9, 47, -7, 54, 47, -7, DAY),
    ]


def test_k2_a_message_by_way_of_the_backlog_costs_four(spark: SparkSession) -> None:
    """Straight two, by way of the backlog four, and 64 KB at a time; receives of a subscription are its topic's."""
    records = [
        record(0, Kind.SEND, messages=6),
        record(1, Kind.SEND, Stage.PARK, messages=2, operations=3, destination="orders"),
        record(2, Kind.RECEIVE, Stage.SYPHON, messages=2, operations=3),
        record(3, Kind.SEND, Stage.SYPHON, messages=2, operations=3, entity="orders", destination="orders"),
        record(3, Kind.COMPLETE, Stage.SYPHON, messages=2),
        record(4, Kind.RECEIVE, messages=8, operations=12, entity="orders/subscriptions/all"),
        record(5, Kind.EMPTY_RECEIVE, Stage.IDLE),
        record(6, Kind.PING, Stage.PING),
        record(7, Kind.PEEK),
    ]
    plan = Plan("p", "USD", DAY, 0, (Tier(None, 1_000_000),))
    cost = costs.cost_hourly(costs.counted_once(costs.usage_hourly(silver(spark, records))), plan)
    found = pick(costs.message_cost(cost), ["way", "messages", "operations", "nanos", "operations_per_message"])
    assert found == [
        ("backlog", 2, 12, 12, 6.0),  # 3 + 3 + 3, and 2 of 8 parts of the receives
        ("direct", 6, 15, 15, 2.5),
        ("other", 0, 1, 1, None),
        ("upkeep", 0, 2, 2, None),
    ]


def _told(spark: SparkSession, records: list[Record]) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    told = silver(spark, records)
    attempts = availability.attempts(told)
    outages = availability.outages(told, attempts, backlog.flows(told)).cache()
    return rows(outages, OUTAGES), rows(availability.availability_daily(attempts, outages), AVAILABILITY_DAILY)


def test_k3_outages_and_availability(spark: SparkSession) -> None:
    """S3, G2: two clients see one outage; another is over before failover; what failed in it was held, and is no loss."""
    records = [
        record(0, Kind.SEND, messages=90),
        record(99.5, Kind.SEND, messages=4, outcome=Outcome.FAILED),  # makes it suspect, and is parked later
        turn(100, "suspect", client="a"),
        turn(102, "suspect", client="b"),
        turn(160, "engaged", client="a"),
        turn(162, "engaged", client="b"),
        record(161, Kind.SEND, Stage.PARK, messages=4, destination="Orders"),
        record(170, Kind.SEND, Stage.PARK, messages=2, destination="orders"),
        record(171, Kind.SEND, Stage.PARK, messages=1, destination="orders", outcome=Outcome.FAILED),
        record(220, Kind.PING, Stage.PING, client="a", outcome=Outcome.FAILED),
        turn(280, "healthy", client="a"),
        turn(283, "healthy", client="b"),
        record(284, Kind.SEND, Stage.SYPHON, messages=5, entity="orders", destination="orders"),
        record(290, Kind.DEAD_LETTER, Stage.SYPHON, messages=1, destination="orders"),
        record(400, Kind.SEND, messages=3, outcome=Outcome.UNKNOWN),  # in no outage
        turn(500, "suspect", client="a"),
        turn(504, "healthy", client="a"),
    ]
    outages, daily = _told(spark, records)
    assert outages == [
        (
            "contoso",
            "orders",
            naive(100),
            naive(160),
            naive(283),
            2,
            MINUTE,
            183_000_000,
            6,
            0,
            naive(290),
            7_000_000,
            DAY,
        ),
        ("contoso", "orders", naive(500), None, naive(504), 1, None, 4_000_000, 0, 0, None, None, DAY),
    ]
    assert daily == [("contoso", "orders", 100, 90, 6, 4, 4, 0.96, 0.9, DAY)]


def test_k3_a_client_that_was_killed_does_not_make_an_outage_endless(spark: SparkSession) -> None:
    """Then it ends with the next message that anybody's send got accepted; without one it is not known to have ended."""
    killed = [
        turn(0, "suspect", client="a"),
        turn(60, "engaged", client="a"),
        record(120, Kind.PING, Stage.PING, client="a", outcome=Outcome.FAILED),
    ]
    again = [turn(7200, "suspect", client="a"), turn(7201, "healthy", client="a")]
    others = [
        turn(10, "suspect", client="b", entity="bills"),
        record(90, Kind.SEND, Stage.PARK, messages=2, destination="bills"),
    ]
    outages, _ = _told(spark, [*killed, record(1000, Kind.SEND, messages=1, client="new"), *again, *others])
    assert [(row[1], row[2], row[4], row[8], row[9], row[10]) for row in outages] == [
        ("bills", naive(10), None, 2, 2, None),
        ("orders", naive(0), naive(1000), 0, 0, None),
        ("orders", naive(7200), naive(7201), 0, 0, None),
    ]


def test_k3_the_backlog_by_the_minute(spark: SparkSession) -> None:
    """Depth and age, first come first served; it is told until the last record, and never less than empty."""
    records = [
        record(-30, Kind.SEND, Stage.SYPHON, messages=7, entity="orders", destination="orders"),  # parked before
        record(5, Kind.SEND, Stage.PARK, messages=3, destination="orders"),
        record(8, Kind.SEND, Stage.PARK, messages=1, destination="orders"),
        record(130, Kind.SEND, Stage.PARK, messages=2, destination="orders"),
        record(185, Kind.SEND, Stage.SYPHON, messages=5, entity="orders", destination="orders"),
        record(250, Kind.SEND, messages=1),
    ]
    told = silver(spark, records)
    days = frame_of(spark, [{"date": DAY, "last": at(250)}], "date DATE, last TIMESTAMP")
    minutes = backlog.minutes(backlog.flows(told)).cache()
    found = rows(backlog.backlog_minutely(minutes, days), BACKLOG_MINUTELY)
    assert [row[2:8] for row in found] == [
        (naive(-60), 0, 7, 0, None, 0),
        (naive(0), 4, 0, 4, naive(5), 55_000_000),
        (naive(60), 0, 0, 4, naive(5), 115_000_000),
        (naive(120), 2, 0, 6, naive(5), 175_000_000),
        (naive(180), 0, 5, 1, naive(130), 110_000_000),
        (naive(240), 0, 0, 1, naive(130), 170_000_000),
    ]
    left = rows(backlog.backlog_open(minutes, days), BACKLOG_OPEN)
    assert left == [("contoso", "orders", naive(130), 1, DAY)]


def test_k3_a_day_begins_with_what_the_day_before_has_left(spark: SparkSession) -> None:
    tomorrow = date(2026, 3, 31)
    left = {"namespace": "contoso", "destination": "orders", "parked_at": at(130), "messages": 4, "date": DAY}
    carried = frame_of(spark, [left], BACKLOG_OPEN.schema)
    half = 12 * 3600.0
    told = silver(
        spark, [record(half + 61, Kind.SEND, Stage.SYPHON, messages=3, entity="orders", destination="orders")]
    )
    days = frame_of(spark, [{"date": tomorrow, "last": at(half + 70)}], "date DATE, last TIMESTAMP")
    minutes = backlog.minutes(backlog.flows(told, carried)).cache()
    found = rows(backlog.backlog_minutely(minutes, days), BACKLOG_MINUTELY)
    assert [row[2:7] for row in found] == [
        (datetime(2026, 3, 31), 0, 0, 4, naive(130)),  # noqa: DTZ001
        (naive(half + 60), 0, 3, 1, naive(130)),
    ]
    assert [row[2:] for row in rows(backlog.backlog_open(minutes, days), BACKLOG_OPEN)] == [(naive(130), 1, tomorrow)]
