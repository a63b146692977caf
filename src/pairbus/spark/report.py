"""What the tables say in short, and the page that shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.core.pricing import Plan
from pairbus.spark.ledger import malformed
from pairbus.spark.schemas import (
    AVAILABILITY_DAILY,
    BACKLOG_MINUTELY,
    BACKLOG_OPEN,
    BRONZE,
    CLIENT_VS_BROKER,
    COST_HOURLY,
    MESSAGE_COST,
    OUTAGES,
    SILVER,
)
from pairbus.spark.tables import Tables

SHOWN_OUTAGES: Final = 100
SHOWN_ENTITIES: Final = 50
SHOWN_MALFORMED: Final = 10
_POINTS: Final = 600
"""How many points a curve has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How messages went around one outage, point by point: messages of each span, and depth and age at its end."""

    minutes: int
    """How long a span is."""
    at: Sequence[datetime]
    direct: Sequence[int]
    parked: Sequence[int]
    delivered: Sequence[int]
    depth: Sequence[int]
    oldest_us: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the tables say, small enough for a page.

    :ivar dropped: records that found no room in the ledger, by what it says itself (ADR 0017).
    :ivar stages: ``operations``, ``charged`` and ``nanos`` by stage.
    :ivar ways: rows of ``message_cost``, summed over all days.
    :ivar outages: rows of ``outages``, the latest first.
    :ivar entities: rows of ``availability_daily``, summed over all days, the least available without pairing first.
    :ivar largest: the outage that most messages were parked in, and how they went.
    """

    plan: Plan
    days: Sequence[date]
    records: int
    malformed: int
    malformed_lines: Sequence[tuple[str, str, str]]
    dropped: int
    stages: Mapping[str, Mapping[str, int]]
    ways: Sequence[Mapping[str, Any]]
    outages: Sequence[Mapping[str, Any]]
    outage_count: int
    entities: Sequence[Mapping[str, Any]]
    totals: Mapping[str, Any]
    left: int
    differences: int
    largest: tuple[Mapping[str, Any], Curve] | None

    @property
    def base_nanos(self) -> int:
        """The plan's base charge for the days of the ledger."""
        return self.plan.base_charge(len(self.days))

    @property
    def charge_nanos(self) -> int:
        """What the operations cost."""
        return sum(stage["nanos"] for stage in self.stages.values())


def gather(tables: Tables, plan: Plan) -> Facts:
    """Read from the tables what a report says."""
    days = tables.days
    wrong = malformed(tables.read(BRONZE))
    stages = _rows(_sums(tables.read(COST_HOURLY), ["stage"], ["operations", "charged", "nanos"]))
    ways = _rows(_sums(tables.read(MESSAGE_COST), ["way"], ["messages", "operations", "nanos"]).orderBy("way"))
    counts = ["attempted", "direct", "parked", "failed", "retried"]
    entities = _sums(tables.read(AVAILABILITY_DAILY), ["namespace", "entity"], counts).persist()
    outages = tables.read(OUTAGES).persist()
    try:
        worst = entities.orderBy(F.try_divide("direct", "attempted"), F.desc("attempted"), "entity")
        totals = _rows(_sums(entities, [], counts))[0]
        latest = _rows(outages.orderBy(F.desc("began"), "namespace", "entity").limit(SHOWN_OUTAGES))
        largest = _rows(outages.where("parked > 0").orderBy(F.desc("parked"), "began").limit(1))
        return Facts(
            plan=plan,
            days=days,
            records=tables.read(SILVER).count(),
            malformed=wrong.count(),
            malformed_lines=[
                (row["file"], row["reason"], row["line"])
                for row in wrong.orderBy("file", "line").limit(SHOWN_MALFORMED).collect()
            ],
            dropped=_number(tables.read(SILVER).where(F.col("kind") == Kind.DROPPED.value), "messages"),
            stages={row["stage"]: {name: row[name] for name in row if name != "stage"} for row in stages},
            ways=ways,
            outages=latest,
            outage_count=outages.count(),
            entities=[_with_ratios(row) for row in _rows(worst.limit(SHOWN_ENTITIES))],
            totals=_with_ratios({name: value or 0 for name, value in totals.items()}),
            left=_number(tables.read(BACKLOG_OPEN, days[-1:]), "messages"),
            differences=tables.read(CLIENT_VS_BROKER)
            .where("client_operations > 0 AND operations_difference <> 0")
            .count(),
            largest=(largest[0], _curve(tables, largest[0], days)) if largest else None,
        )
    finally:
        entities.unpersist()
        outages.unpersist()


def _curve(tables: Tables, outage: Mapping[str, Any], days: Sequence[date]) -> Curve:
    """Return how messages went from a while before an outage until a while after its backlog was drained."""
    began = outage["began"]
    ended = max((outage[name] for name in ("engaged", "ended", "drained") if outage[name] is not None), default=began)
    if outage["drained"] is None:
        ended = max(ended, datetime.combine(days[-1], datetime.max.time()))
    margin = max((ended - began) / 6, timedelta(minutes=3))
    first, last = (began - margin).replace(second=0, microsecond=0), ended + margin
    minutes = max(1, -(-int((last - first).total_seconds() // 60) // _POINTS))
    touched = [day for day in days if first.date() <= day <= last.date()]

    def spans(frame: DataFrame, time: str) -> DataFrame:
        within = frame.where(F.col(time).between(F.lit(first), F.lit(last)))
        offset = F.unix_seconds(time) - F.unix_seconds(F.lit(first))
        return within.withColumn("span", F.floor(offset / (60 * minutes)))

    here = (F.col("pairing") == outage["namespace"]) & (F.col("entity") == outage["entity"])
    sent = (F.col("stage") == Stage.DIRECT.value) & F.col("kind").isin(Kind.SEND.value, Kind.SCHEDULE.value)
    done = (F.col("outcome") == Outcome.DONE.value) & (F.col("metered_by") == MeteredBy.CLIENT.value)
    straight = (
        spans(tables.read(SILVER, touched).where(here & sent & done), "at").groupBy("span").agg(F.sum("messages"))
    )
    mine = (F.col("namespace") == outage["namespace"]) & (F.col("destination") == outage["entity"])
    waiting = (
        spans(tables.read(BACKLOG_MINUTELY, touched).where(mine), "minute")
        .groupBy("span")
        .agg(F.sum("parked"), F.sum("delivered"), F.max_by("depth", "minute"), F.max("oldest_age_us"))
    )
    direct: dict[int, int] = {row[0]: row[1] for row in straight.collect()}
    backlog: dict[int, tuple[int, ...]] = {row[0]: (row[1], row[2], row[3], row[4]) for row in waiting.collect()}
    numbers = range(min([*direct, *backlog], default=0), max([*direct, *backlog], default=0) + 1)
    told = [backlog.get(number, (0, 0, 0, 0)) for number in numbers]
    return Curve(
        minutes=minutes,
        at=[first + timedelta(minutes=minutes * number) for number in numbers],
        direct=[direct.get(number, 0) for number in numbers],
        parked=[each[0] for each in told],
        delivered=[each[1] for each in told],
        depth=[each[2] for each in told],
        oldest_us=[each[3] for each in told],
    )


def as_json(facts: Facts) -> dict[str, Any]:
    """Return the facts as plain data, which JSON can carry."""
    return {
        "days": [day.isoformat() for day in facts.days],
        "records": facts.records,
        "malformed": facts.malformed,
        "dropped": facts.dropped,
        "plan": facts.plan.name,
        "currency": facts.plan.currency,
        "prices_as_of": facts.plan.as_of.isoformat(),
        "stages": {
            name: {"operations": row["operations"], "charged": row["charged"], "cost": money(row["nanos"])}
            for name, row in sorted(facts.stages.items())
        },
        "operations_charge": money(facts.charge_nanos),
        "base_charge": money(facts.base_nanos),
        "messages": {
            row["way"]: {
                "messages": row["messages"],
                "operations": row["operations"],
                "operations_per_message": row["operations"] / row["messages"] if row["messages"] else None,
                "cost": money(row["nanos"]),
            }
            for row in facts.ways
        },
        "availability": dict(facts.totals),
        "outages": facts.outage_count,
        "latest_outages": [{name: _plain(value) for name, value in row.items()} for row in facts.outages],
        "left_in_backlog": facts.left,
        "metered_differently": facts.differences,
    }


def money(nanos: int) -> str:
    """Write an amount without rounding."""
    return f"{nanos // 10**9}.{nanos % 10**9:09d}"


def _sums(frame: DataFrame, keys: Sequence[str], measures: Sequence[str]) -> DataFrame:
    return frame.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in measures))


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _number(frame: DataFrame, measure: str) -> int:
    row = frame.agg(F.sum(measure)).first()
    return 0 if row is None else int(row[0] or 0)


def _with_ratios(row: Mapping[str, Any]) -> dict[str, Any]:
    attempted = row["attempted"]
    accepted = row["direct"] + row["parked"]
    return {
        **row,
        "with_pairing": accepted / attempted if attempted else None,
        "without_pairing": row["direct"] / attempted if attempted else None,
    }


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='milliseconds')}Z"
    return value.isoformat() if isinstance(value, date) else value
