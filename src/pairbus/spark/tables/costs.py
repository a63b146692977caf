"""Records to money (K2, K3): what was done each hour, what it cost, and what a message costs.

What is charged is told by :mod:`pairbus.core.charging`. The arithmetic is that of :mod:`pairbus.core.pricing`: whole
numbers, and pieces that add up. Bandwidth has no tiers and no quota, so that each row of an hour is priced by itself,
rounded down to a nano-unit.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core import charging
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.core.pricing import Plan
from pairbus.spark.tables.ledger import NO_OPERATION
from pairbus.spark.tables.schemas import CLIENT_VS_BROKER, COST_HOURLY, MESSAGE_COST

FREE: Final = tuple(sorted(kind.value for kind in charging.FREE))
TRANSFERS: Final = tuple(kind.value for kind in Kind if charging.direction_of(kind) is not None)
SENDS: Final = (Kind.SEND.value, Kind.SCHEDULE.value)

_MILLION: Final = 1_000_000
_EXACT: Final = "decimal(19,0)"
"""Two of these multiplied still fit."""
_MEASURES: Final = ("messages", "operations", "bytes")
_ORDER: Final = ("namespace", "entity", "client", "stage", "kind")
_DIRECT, _BACKLOG, _UPKEEP, _OTHER = "direct", "backlog", "upkeep", "other"


def usage_hourly(silver: DataFrame) -> DataFrame:
    """Return what reached a broker, by the hour, as each side has metered it. What has failed costs nothing.

    Bytes are those that were transferred: a settlement's messages are not.
    """
    transferred = F.when(F.col("kind").isin(*TRANSFERS), F.col("bytes")).otherwise(0)
    return (
        silver.where((F.col("outcome") != Outcome.FAILED.value) & ~F.col("kind").isin(*NO_OPERATION))
        .withColumn("bytes", transferred)
        .groupBy("date", F.date_trunc("hour", "at").alias("hour"), "metered_by", "outcome", "pairing", *_ORDER)
        .agg(*(F.sum(measure).alias(measure) for measure in _MEASURES))
    )


def counted_once(usage: DataFrame) -> DataFrame:
    """Return what was done, whoever has metered it.

    In an hour in which a namespace's broker has metered, what it says is what is charged. The clients' records say who
    it was, and at which stage: those of operations that they know to be done are taken first, then those of which they
    do not know, as far as the broker's number goes; the rest of it is the broker's.

    Both meters tell of the same bytes with small differences, since clients do not encode a message to weigh it. So the
    broker's bytes go with the operations, to those sure, in doubt and left; among each of these they are shared out by
    the bytes that were metered there.
    """
    by_broker = F.col("metered_by") == MeteredBy.BROKER.value
    doubtful = F.col("outcome") == Outcome.UNKNOWN.value
    same = ["date", "hour", "namespace", "entity", "kind"]
    turn, has_broker = F.col("turn"), F.col("has_broker")
    rows = usage.withColumns({
        "turn": F.when(by_broker, 2).when(doubtful, 1).otherwise(0),
        "has_broker": F.max(by_broker).over(Window.partitionBy("date", "hour", "namespace")),
    })  # fmt: skip
    totals = {
        f"{measure}_{number}": F.sum(F.when(turn == number, F.col(measure)).otherwise(0))
        for measure in _MEASURES
        for number in range(3)
    }
    rows = rows.withColumns({name: total.over(Window.partitionBy(*same)) for name, total in totals.items()})
    due: dict[str, Column] = {}
    for measure in ("messages", "operations"):
        sure, doubted, broker = (F.col(f"{measure}_{number}") for number in range(3))
        sure = F.when(has_broker, F.least(sure, broker)).otherwise(sure)
        left = broker - sure
        doubted = F.when(has_broker, F.least(doubted, left)).otherwise(doubted)
        due[f"{measure}_due"] = F.when(turn == 0, sure).when(turn == 1, doubted).otherwise(left - doubted)
        due[f"{measure}_before"] = F.when(turn == 0, 0).when(turn == 1, sure).otherwise(sure + doubted)
    own = F.when(turn == 0, F.col("bytes_0")).when(turn == 1, F.col("bytes_1")).otherwise(F.col("bytes_2"))
    rows = rows.withColumns(due).withColumns({
        "bytes_due": F.when(has_broker, _with_operations("bytes_2")).otherwise(own),
        "bytes_weight": F.when(own > 0, F.col("bytes")).otherwise(F.col("operations")),
    })  # fmt: skip
    shared = {"messages": ("messages", "messages_due"), "operations": ("operations", "operations_due")}
    shared["bytes"] = "bytes_weight", "bytes_due"
    return (
        _shared(rows, shared, [*same, "turn"], ["client", "stage"])
        .where(" OR ".join(f"{measure} > 0" for measure in _MEASURES))
        .groupBy("date", "hour", "pairing", *_ORDER)
        .agg(*(F.sum(measure).alias(measure) for measure in _MEASURES))
    )


def cost_hourly(counted: DataFrame, plan: Plan, before: DataFrame | None = None) -> DataFrame:
    """Return operations, bytes and money by the hour, from what :func:`counted_once` has counted.

    Tiers and the free quota are those of the month and of all namespaces together, as they are charged. An hour's
    charge is shared out by operations. Bytes are priced by direction and stage.

    :param before: the charged operations of earlier days, by ``month``, where ``counted`` does not begin with one.
    """
    free = F.col("kind").isin(*FREE)
    rows = counted.withColumn("charged", F.when(free, 0).otherwise(F.col("operations")))
    rows = rows.withColumn("bandwidth_nanos", _bandwidth_charge(plan))
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
            *(F.sum(measure).alias(measure) for measure in ("nanos", "bytes", "bandwidth_nanos")),
        )
    )
    entity = Window.partitionBy(*day)
    straight = F.sum(F.when(F.col("way") == _DIRECT, F.col("messages")).otherwise(0)).over(entity)
    received = rows.withColumn("carried", F.sum("syphoned").over(entity)).withColumn("straight", straight)
    shared = ("operations", "nanos", "bytes", "bandwidth_nanos")
    parts = [
        received.where("way IS NOT NULL").select("date", "pairing", "way", "messages", *shared),
        *(
            received.where("way IS NULL").select(
                "date", "pairing", F.lit(part).alias("way"), F.lit(0).alias("messages"),
                *(_part(part, measure).alias(measure) for measure in shared),
            )
            for part in (_DIRECT, _BACKLOG)
        ),
    ]  # fmt: skip
    total = parts[0].unionByName(parts[1]).unionByName(parts[2])
    per_way = total.groupBy("date", "pairing", "way").agg(*(F.sum(name).alias(name) for name in ("messages", *shared)))
    some = F.when(F.col("messages") > 0, F.col("messages"))
    return (
        per_way.where("messages > 0 OR operations > 0 OR bytes > 0")
        .withColumn("operations_per_message", F.col("operations") / some)
        .withColumn("nanos_per_message", (F.col("nanos") + F.col("bandwidth_nanos")) / some)
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


def _with_operations(measure: str) -> Column:
    """What of the broker's total goes with the operations that are due to these rows; the parts add up."""
    reached, all_of_them = F.col("operations_before") + F.col("operations_due"), F.col("operations_2")
    first, last = (_divided(F.col(measure), at, all_of_them) for at in (F.col("operations_before"), reached))
    return F.when(all_of_them > 0, last - first).otherwise(0)


def _part(way: str, measure: str) -> Column:
    carried, all_sent = F.col("carried"), F.col("carried") + F.col("straight")
    backlog = F.when(all_sent > 0, _divided(F.col(measure), carried, all_sent)).otherwise(0)
    return backlog if way == _BACKLOG else F.col(measure) - backlog


def _with_earlier(hours: DataFrame, before: DataFrame) -> DataFrame:
    earlier = before.select("month", F.col("charged").alias("earlier"))
    return hours.join(F.broadcast(earlier), "month", "left").fillna(0, ["earlier"])


def _bandwidth_charge(plan: Plan) -> Column:
    """What a row's bytes cost, as :meth:`pairbus.core.pricing.Plan.bandwidth_charge`."""
    price = F.lit(0)
    for stage, kind in itertools.product(Stage, Kind):
        nanos = plan.nanos_per_gb(stage, kind)
        if nanos:
            here = (F.col("stage") == stage.value) & (F.col("kind") == kind.value)
            price = F.when(here, F.lit(nanos)).otherwise(price)
    total = F.col("bytes").cast(_EXACT) * price.cast("decimal(18,0)")
    return F.call_function("div", total, F.lit(charging.GB).cast("decimal(10,0)"))


def _charge(plan: Plan, operations: Column) -> Column:
    """What the first so many operations of a month cost, as :meth:`pairbus.core.pricing.Plan.charge`."""
    total, start = F.lit(0).cast("decimal(38,0)"), 0
    for tier in plan.tiers:
        end = operations if tier.up_to is None else F.least(operations, F.lit(tier.up_to))
        within = F.greatest(F.lit(0), end - start).cast(_EXACT)
        total = total + within * F.lit(tier.nanos_per_million).cast("decimal(18,0)")
        start = tier.up_to or start
    return F.call_function("div", total, F.lit(_MILLION).cast("decimal(7,0)"))
