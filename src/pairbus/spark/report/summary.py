"""What the tables say in short, and the page that shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.core.pricing import Plan
from pairbus.spark.tables import backlog
from pairbus.spark.tables.ledger import malformed, newer
from pairbus.spark.tables.ledger_tables import Tables
from pairbus.spark.tables.schemas import (
    AVAILABILITY_DAILY,
    BACKLOG_OPEN,
    BRONZE,
    CLIENT_VS_BROKER,
    COST_HOURLY,
    MESSAGE_COST,
    OUTAGES,
    SILVER,
)

SHOWN_OUTAGES: Final = 100
SHOWN_ENTITIES: Final = 50
SHOWN_MALFORMED: Final = 10
_POINTS: Final = 120
"""How many points a curve has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How messages went around one outage, point by point: messages of each span, and depth and age at its end."""

    seconds: int
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

    :ivar newer: lines that a newer version has written, which this one cannot count, by file.
    :ivar dropped: records that found no room in the ledger, by what it says itself (ADR 0017).
    :ivar stages: ``operations``, ``charged``, ``nanos``, ``bytes`` and ``bandwidth_nanos`` by stage.
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
    newer: Mapping[str, int]
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

    @property
    def bytes(self) -> int:
        """How many bytes of messages were transferred."""
        return sum(stage["bytes"] for stage in self.stages.values())

    @property
    def bandwidth_nanos(self) -> int:
        """What these bytes cost."""
        return sum(stage["bandwidth_nanos"] for stage in self.stages.values())


def gather(tables: Tables, plan: Plan) -> Facts:
    """Read from the tables what a report says."""
    days = tables.days
    wrong = malformed(tables.read(BRONZE))
    count = wrong.count()
    costs = ["nanos", "bytes", "bandwidth_nanos"]
    stages = _rows(_sums(tables.read(COST_HOURLY), ["stage"], ["operations", "charged", *costs]))
    ways = _rows(_sums(tables.read(MESSAGE_COST), ["way"], ["messages", "operations", *costs]).orderBy("way"))
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
            malformed=count,
            malformed_lines=[
                (row["file"], row["reason"], row["line"])
                for row in wrong.orderBy("file", "line").limit(SHOWN_MALFORMED).collect()
            ],
            newer=_by_file(newer(wrong)) if count else {},
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


def _window(outage: Mapping[str, Any], known: tuple[datetime, datetime]) -> tuple[datetime, int, int]:
    """Return where the curve of an outage begins, how many seconds a span has, and how many spans there are.

    It goes from a while before the outage until a while after its backlog was drained, as far as there are records, and
    at least one span further, which shows that the backlog is empty. The outage begins where a span does.

    :param known: the times of the first and the last record.
    """
    began = outage["began"]
    ends = [outage[name] for name in ("engaged", "ended", "drained") if outage[name] is not None]
    ended = max([began, *ends, *(() if outage["drained"] else (known[1],))])
    margin = max((ended - began) / 6, timedelta(seconds=5))
    before = max(min(margin, began - known[0]), timedelta(0)).total_seconds()
    after = max(min(ended + margin, known[1]) - began, timedelta(0)).total_seconds()
    seconds = max(1, ceil((before + after) / (_POINTS - 3)))
    spans_before = ceil(before / seconds)
    return began - timedelta(seconds=seconds * spans_before), seconds, spans_before + int(after // seconds) + 2


def _curve(tables: Tables, outage: Mapping[str, Any], days: Sequence[date]) -> Curve:
    """Return how messages went from a while before an outage until a while after its backlog was drained."""
    mine = (F.col("pairing") == outage["namespace"]) & (
        (F.col("entity") == outage["entity"]) | (F.col("destination") == outage["entity"])
    )
    client = F.col("metered_by") == MeteredBy.CLIENT.value
    later = [day for day in days if day >= outage["began"].date() - timedelta(days=1)]
    silver = tables.read(SILVER, later).where(mine & client)
    extent = _rows(silver.agg(F.min("at").alias("first"), F.max("at").alias("last")))[0]
    first, seconds, count = _window(outage, (extent["first"], extent["last"]))
    before = [day for day in days if day < later[0]][-1:]
    offset = F.unix_micros("at") - F.unix_micros(F.lit(first.replace(tzinfo=UTC)))
    span = F.greatest(F.lit(-1), F.floor(offset / (seconds * 1_000_000))).alias("span")
    sent = (F.col("stage") == Stage.DIRECT.value) & F.col("kind").isin(Kind.SEND.value, Kind.SCHEDULE.value)
    straight = silver.where(sent & (F.col("outcome") == Outcome.DONE.value)).groupBy(span).agg(F.sum("messages"))
    carried = tables.read(BACKLOG_OPEN, before).where(
        (F.col("namespace") == outage["namespace"]) & (F.col("destination") == outage["entity"])
    )
    moved = backlog.flows(silver.where(F.col("destination") == outage["entity"]), carried)
    waiting = moved.groupBy(span).agg(
        F.sum("parked"), F.sum("delivered"), F.max_by("depth", "at"), F.max("come"),
        F.min(F.when(F.col("parked") > 0, F.col("at"))),
    )  # fmt: skip
    direct: dict[int, int] = {row[0]: row[1] for row in straight.collect()}
    flows: dict[int, Sequence[Any]] = {row[0]: tuple(map(_in_utc, row[1:])) for row in waiting.collect()}
    at = [first + timedelta(seconds=seconds * number) for number in range(count)]
    depth, oldest = _depths(flows, [each + timedelta(seconds=seconds) for each in at])
    return Curve(
        seconds=seconds,
        at=at,
        direct=[direct.get(number, 0) for number in range(count)],
        parked=[flows[number][0] if number in flows else 0 for number in range(count)],
        delivered=[flows[number][1] if number in flows else 0 for number in range(count)],
        depth=depth,
        oldest_us=oldest,
    )


def _depths(flows: Mapping[int, Sequence[Any]], ends: Sequence[datetime]) -> tuple[list[int], list[int]]:
    """Return depth and age of the backlog at the end of each span: first come, first served.

    :param flows: by the span's number, -1 for all before: parked, delivered, depth, all that was parked so far, and
        when it was first parked in it.
    """
    depth, come = (flows[-1][2], flows[-1][3]) if -1 in flows else (0, 0)
    parks = [(each[3], each[4]) for _, each in sorted(flows.items()) if each[4] is not None]
    depths: list[int] = []
    ages: list[int] = []
    for number, end in enumerate(ends):
        if number in flows:
            depth, come = flows[number][2], flows[number][3]
        parked_at = next((since for so_far, since in parks if so_far > come - depth), end) if depth else end
        depths.append(depth)
        ages.append((end - parked_at) // timedelta(microseconds=1))
    return depths, ages


def as_json(facts: Facts) -> dict[str, Any]:
    """Return the facts as plain data, which JSON can carry."""
    return {
        "days": [day.isoformat() for day in facts.days],
        "records": facts.records,
        "malformed": facts.malformed,
        "malformed_lines": [{"file": file, "reason": reason} for file, reason, _ in facts.malformed_lines],
        "newer": dict(facts.newer),
        "dropped": facts.dropped,
        "plan": facts.plan.name,
        "currency": facts.plan.currency,
        "prices_as_of": facts.plan.as_of.isoformat(),
        "stages": {
            name: {
                "operations": row["operations"],
                "charged": row["charged"],
                "cost": money(row["nanos"]),
                "bytes": row["bytes"],
                "bandwidth_cost": money(row["bandwidth_nanos"]),
            }
            for name, row in sorted(facts.stages.items())
        },
        "operations_charge": money(facts.charge_nanos),
        "bytes": facts.bytes,
        "bandwidth_charge": money(facts.bandwidth_nanos),
        "base_charge": money(facts.base_nanos),
        "messages": {
            row["way"]: {
                "messages": row["messages"],
                "operations": row["operations"],
                "operations_per_message": row["operations"] / row["messages"] if row["messages"] else None,
                "cost": money(row["nanos"]),
                "bytes": row["bytes"],
                "bandwidth_cost": money(row["bandwidth_nanos"]),
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
    return [{name: _in_utc(value) for name, value in row.asDict().items()} for row in frame.collect()]


def _in_utc(value: Any) -> Any:  # noqa: ANN401 (any column's)
    """Return a time as UTC has it: Spark hands times over in the zone of this process, without saying so."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _by_file(lines: DataFrame) -> dict[str, int]:
    return {row["file"]: row["count"] for row in lines.groupBy("file").count().orderBy("file").collect()}


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
