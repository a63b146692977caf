"""Records to money (K2, K3): what was done each hour, what it cost, and what a message costs.

The arithmetic is that of :mod:`pairbus.core.pricing`: whole numbers, and pieces that add up.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.core.pricing import Plan
from pairbus.spark.ledger import NO_OPERATION
from pairbus.spark.schemas import CLIENT_VS_BROKER, COST_HOURLY, MESSAGE_COST

FREE: Final = tuple(
    kind.value for kind in (Kind.COMPLETE, Kind.ABANDON, Kind.DEFER, Kind.DEAD_LETTER, Kind.RENEW)
)  # ADR 0012: settlements are metered and not charged
SENDS: Final = (Kind.SEND.value, Kind.SCHEDULE.value)

_MILLION: Final = 1_000_000
_EXACT: Final = "decimal(19,0)"
"""Two of these multiplied still fit."""
_ORDER: Final = ("namespace", "entity", "client", "stage", "kind")
_DIRECT, _BACKLOG, _UPKEEP, _OTHER = "direct", "backlog", "upkeep", "other"


def usage_hourly(silver: DataFrame) -> DataFrame:
    """Return what reached a broker, by the hour, as each side has metered it. What has failed costs nothing."""
    return (
        silver.where((F.col("outcome") != Outcome.FAILED.value) & ~F.col("kind").isin(*NO_OPERATION))
        .groupBy("date", F.date_trunc("hour", "at").alias("hour"), "metered_by", "outcome", "pairing", *_ORDER)
        .agg(F.sum("messages").alias("messages"), F.sum("operations").alias("operations"))
    )


def counted_once(usage: DataFrame) -> DataFrame:
    """Return what was done, whoever has metered it.

    In an hour in which a namespace's broker has metered, what it says is what is charged. The clients' records say who
    it was, and at which stage: those of operations that they know to be done are taken first, then those of which they
    do not know, as far as the broker's number goes; the rest of it is the broker's.
    """
    by_broker = F.col("metered_by") == MeteredBy.BROKER.value
    doubtful = F.col("outcome") == Outcome.UNKNOWN.value
    same = ["date", "hour", "namespace", "entity", "kind"]
    turn, has_broker = F.col("turn"), F.col("has_broker")
    rows = usage.withColumns({
        "turn": F.when(by_broker, 2).when(doubtful, 1).otherwise(0),
        "has_broker": F.max(by_broker).over(Window.partitionBy("date", "hour", "namespace")),
    })  # fmt: skip
    measures = ("operations", "messages")
    totals = {
        f"{measure}_{number}": F.sum(F.when(turn == number, F.col(measure)).otherwise(0))
        for measure in measures
        for number in range(3)
    }
    rows = rows.withColumns({name: total.over(Window.partitionBy(*same)) for name, total in totals.items()})
    due: dict[str, Column] = {}
    for measure in measures:
        sure, doubted, broker = (F.col(f"{measure}_{number}") for number in range(3))
        sure = F.when(has_broker, F.least(sure, broker)).otherwise(sure)
        left = broker - sure
        doubted = F.when(has_broker, F.least(doubted, left)).otherwise(doubted)
        due[f"{measure}_due"] = F.when(turn == 0, sure).when(turn == 1, doubted).otherwise(left - doubted)
    shared = {measure: (measure, f"{measure}_due") for measure in measures}
    return (
        _shared(rows.withColumns(due), shared, [*same, "turn"], ["client", "stage"])
        .where("operations > 0 OR messages > 0")
        .groupBy("date", "hour", "pairing", *_ORDER)
        .agg(F.sum("messages").alias("messages"), F.sum("operations").alias("operations"))
    )


def cost_hourly(counted: DataFrame, plan: Plan, before: DataFrame | None = None) -> DataFrame:
    """Return operations and money by the hour, from what :func:`counted_once` has counted.

    Tiers and the free quota are those of the month and of all namespaces together, as they are charged. An hour's
    charge is shared out by operations.

    :param before: the charged operations of earlier days, by ``month``, where ``counted`` does not begin with one.
    """
    free = F.col("kind").isin(*FREE)
    rows = counted.withColumn("charged", F.when(free, 0).otherwise(F.col("operations")))
    month = F.trunc("hour", "month")
    hours = rows.groupBy("date", "hour", month.alias("month")).agg(F.sum("charged").alias("in_hour"))
    hours = hours.withColumn("earlier", F.lit(0)) if before is None else _with_earlier(hours, before)
    reached = F.col("earlier") + F.sum("in_hour").over(Window.partitionBy("month").orderBy("hour"))
    hours = hours.withColumn("after", reached).withColumn("before", F.col("after") - F.col("in_hour"))
    due = (_charge(plan, F.col("after")) - _charge(plan, F.col("before"))).alias("due")
    priced = rows.join(hours.select("date", "hour", due), ["date", "hour"])
    return _shared(priced, {"nanos": ("charged", "due")}, ["date", "hour"], _ORDER).select(*COST_HOURLY.columns)


def message_cost(costs: DataFrame) -> DataFrame:
    """Return what messages cost by the way that they went, from :func:`cost_hourly`.

    Whether a message that is received came straight cannot be seen. So the receives of an entity are shared
    out by how many messages it got straight and how many from the backlog on that day.
    """
    send, direct = F.col("kind").isin(*SENDS), F.col("stage") == Stage.DIRECT.value
    syphoned = (F.col("stage") == Stage.SYPHON.value) & (F.col("kind") == Kind.SEND.value)
    way = (
        F.when(F.col("stage").isin(Stage.PARK.value, Stage.SYPHON.value), _BACKLOG)
        .when(F.col("stage").isin(Stage.PING.value, Stage.IDLE.value, Stage.SETUP.value), _UPKEEP)
        .when(direct & send, _DIRECT)
        .when(direct & (F.col("kind") == Kind.RECEIVE.value), F.lit(None))
        .otherwise(_OTHER)
    )
    day = ("date", "pairing", "target")
    target = F.substring_index(F.substring_index("entity", "/subscriptions/", 1), "/$", 1)
    rows = (
        costs.withColumn("way", way)
        .withColumn("target", target)
        .groupBy(*day, "way")
        .agg(
            F.sum(F.when(send & ~syphoned, F.col("messages")).otherwise(0)).alias("messages"),
            F.sum(F.when(syphoned, F.col("messages")).otherwise(0)).alias("syphoned"),
            F.sum("charged").alias("operations"),
            F.sum("nanos").alias("nanos"),
        )
    )
    entity = Window.partitionBy(*day)
    straight = F.sum(F.when(F.col("way") == _DIRECT, F.col("messages")).otherwise(0)).over(entity)
    received = rows.withColumn("carried", F.sum("syphoned").over(entity)).withColumn("straight", straight)
    parts = [
        received.where("way IS NOT NULL").select("date", "pairing", "way", "messages", "operations", "nanos"),
        *(
            received.where("way IS NULL").select(
                "date", "pairing", F.lit(part).alias("way"), F.lit(0).alias("messages"),
                _part(part, "operations").alias("operations"), _part(part, "nanos").alias("nanos"),
            )
            for part in (_DIRECT, _BACKLOG)
        ),
    ]  # fmt: skip
    total = parts[0].unionByName(parts[1]).unionByName(parts[2])
    per_way = total.groupBy("date", "pairing", "way").agg(
        *(F.sum(name).alias(name) for name in ("messages", "operations", "nanos"))
    )
    some = F.when(F.col("messages") > 0, F.col("messages"))
    return (
        per_way.where("messages > 0 OR operations > 0")
        .withColumn("operations_per_message", F.col("operations") / some)
        .withColumn("nanos_per_message", F.col("nanos") / some)
        .select(*MESSAGE_COST.columns)
    )


def client_vs_broker(usage: DataFrame) -> DataFrame:
    """Return what both meters say, from :func:`usage_hourly`, of namespaces that both have metered on a day."""
    by_broker = F.col("metered_by") == MeteredBy.BROKER.value
    day = Window.partitionBy("date", "namespace")
    both = usage.withColumn("both", F.max(by_broker).over(day) & F.max(~by_broker).over(day)).where("both")

    def total(condition: Column, measure: str) -> Column:
        return F.sum(F.when(condition, F.col(measure)).otherwise(0)).alias(measure)

    return (
        both.groupBy("date", "namespace", "entity", "kind")
        .agg(
            total(~by_broker, "operations").alias("client_operations"),
            total(~by_broker & (F.col("outcome") == Outcome.UNKNOWN.value), "operations").alias("client_unknown"),
            total(by_broker, "operations").alias("broker_operations"),
            total(~by_broker, "messages").alias("client_messages"),
            total(by_broker, "messages").alias("broker_messages"),
        )
        .withColumn("operations_difference", F.col("broker_operations") - F.col("client_operations"))
        .withColumn("messages_difference", F.col("broker_messages") - F.col("client_messages"))
        .select(*CLIENT_VS_BROKER.columns)
    )


def _shared(
    rows: DataFrame, shares: Mapping[str, tuple[str, str]], group: Sequence[str], order: Sequence[str]
) -> DataFrame:
    """Share out by weight what a group has due, as :func:`pairbus.core.pricing.share` does: the parts add up.

    :param shares: by the column that gets the part, the columns of the weight and of what is due.
    """
    window = Window.partitionBy(*group)
    upto = window.orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sums = {f"_upto_{into}": F.sum(weight).over(upto) for into, (weight, _) in shares.items()}
    sums |= {f"_whole_{into}": F.sum(weight).over(window) for into, (weight, _) in shares.items()}

    def part(into: str, weight: str, due: str) -> Column:
        reached, whole = F.col(f"_upto_{into}"), F.col(f"_whole_{into}")
        first, last = (_divided(F.col(due), at, whole) for at in (reached - F.col(weight), reached))
        return F.when(whole > 0, last - first).otherwise(0)

    return rows.withColumns(sums).withColumns({into: part(into, *share) for into, share in shares.items()})


def _divided(total: Column, part: Column, whole: Column) -> Column:
    """``total * part // whole``, which may be too large on its way."""
    return F.call_function("div", total.cast(_EXACT) * part.cast(_EXACT), whole.cast(_EXACT))


def _part(way: str, measure: str) -> Column:
    carried, all_sent = F.col("carried"), F.col("carried") + F.col("straight")
    backlog = F.when(all_sent > 0, _divided(F.col(measure), carried, all_sent)).otherwise(0)
    return backlog if way == _BACKLOG else F.col(measure) - backlog


def _with_earlier(hours: DataFrame, before: DataFrame) -> DataFrame:
    earlier = before.select("month", F.col("charged").alias("earlier"))
    return hours.join(F.broadcast(earlier), "month", "left").fillna(0, ["earlier"])


def _charge(plan: Plan, operations: Column) -> Column:
    """What the first so many operations of a month cost, as :meth:`pairbus.core.pricing.Plan.charge`."""
    total, start = F.lit(0).cast("decimal(38,0)"), 0
    for tier in plan.tiers:
        end = operations if tier.up_to is None else F.least(operations, F.lit(tier.up_to))
        within = F.greatest(F.lit(0), end - start).cast(_EXACT)
        total = total + within * F.lit(tier.nanos_per_million).cast("decimal(18,0)")
        start = tier.up_to or start
    return F.call_function("div", total, F.lit(_MILLION).cast("decimal(7,0)"))
