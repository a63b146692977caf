"""Records to availability (K3): outages as the clients saw them, and how many messages were accepted."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.health import State
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.spark.tables.costs import SENDS
from pairbus.spark.tables.schemas import AVAILABILITY_DAILY, OUTAGES

SILENCE: Final = "INTERVAL 31 MINUTES"
"""A client in failover pings at least every 30 minutes; one that does not has gone."""
_GRACE: Final = "INTERVAL 1 MINUTE"
"""How long after an outage's end a message may still be parked whose sending had begun before."""
_JUST_BEFORE: Final = "INTERVAL 1 SECOND"
"""The failure that makes an entity suspect is recorded right before the turn."""
_ENTITY: Final = ("namespace", "entity")


def attempts(silver: DataFrame) -> DataFrame:
    """Return what the clients wanted to send: accepted messages by the minute, others one by one.

    :return: ``date``, ``namespace`` and ``entity`` that were meant, ``stage``, ``outcome``, ``at``, ``messages``.
    """
    is_park = F.col("stage") == Stage.PARK.value
    wanted = silver.where(
        (F.col("metered_by") == MeteredBy.CLIENT.value) & F.col("kind").isin(*SENDS)
        & (is_park | (F.col("stage") == Stage.DIRECT.value))
    )  # fmt: skip
    slot = F.when(F.col("outcome") == Outcome.DONE.value, F.date_trunc("minute", "at")).otherwise(F.col("at"))
    return (
        wanted.withColumn("entity", F.when(is_park, F.coalesce("destination", "entity")).otherwise(F.col("entity")))
        .groupBy("date", F.col("pairing").alias("namespace"), "entity", "stage", "outcome", slot.alias("slot"))
        .agg(F.min("at").alias("at"), F.sum("messages").alias("messages"))
        .drop("slot")
    )


def outages(silver: DataFrame, attempts: DataFrame, flows: DataFrame) -> DataFrame:
    """Return every outage, from the turns of health and the pings of its clients.

    Clients see an outage each for itself; what overlaps is one. A client that was killed while failing over never says
    that it is over: then it is when anybody's message is accepted again.

    :param attempts: as :func:`attempts` gives them.
    :param flows: as :func:`pairbus.spark.tables.backlog.flows` gives them.
    """
    seen = _merged(_episodes(silver))
    direct = (F.col("stage") == Stage.DIRECT.value) & (F.col("outcome") == Outcome.DONE.value)
    accepted = attempts.where(direct).select(*_ENTITY, F.col("at").alias("accepted"))
    later = accepted.join(F.broadcast(seen.where("NOT over")), list(_ENTITY)).where("accepted > reach")
    again = later.groupBy(*_ENTITY, "began").agg(F.min("accepted").alias("accepted"))
    following = F.lead("began").over(Window.partitionBy(*_ENTITY).orderBy("began"))
    known = (
        seen.join(again, [*_ENTITY, "began"], "left")
        .withColumn("ended", F.when(F.col("over"), F.col("reach")).otherwise(F.col("accepted")))
        .withColumn("next", following)
        .localCheckpoint()  # few, and used more than once
    )
    return (
        known.join(_parked(known, flows), [*_ENTITY, "began"], "left")
        .fillna(0, ["parked", "left"])
        .withColumn("failover_us", _between("began", "engaged"))
        .withColumn("recovery_us", _between("began", "ended"))
        .withColumn("drain_us", _between("ended", "drained"))
        .withColumn("date", F.to_date("began"))
        .select(*OUTAGES.columns)
    )


def availability_daily(attempts: DataFrame, outages: DataFrame) -> DataFrame:
    """Return how many messages were accepted, of those that clients wanted to send.

    While an outage is under way, an attempt that fails is made again with the same message, or parks it: it counts as
    that, and the failure as ``retried``.
    """
    done, direct = F.col("outcome") == Outcome.DONE.value, F.col("stage") == Stage.DIRECT.value
    spans = outages.select(
        *_ENTITY,
        (F.col("began") - F.expr(_JUST_BEFORE)).alias("first"),
        F.coalesce("ended", F.lit("9999-12-31").cast("timestamp")).alias("last"),
    )
    failures = attempts.where(~done & direct)
    during = [failures[name] == spans[name] for name in _ENTITY]
    during += [failures["at"] >= spans["first"], failures["at"] <= spans["last"]]
    held = failures.join(F.broadcast(spans), during, "left_semi")
    retried = held.groupBy("date", *_ENTITY).agg(F.sum("messages").alias("retried"))

    def total(condition: Column) -> Column:
        return F.sum(F.when(condition, F.col("messages")).otherwise(0))

    counts = attempts.groupBy("date", *_ENTITY).agg(
        total(done & direct).alias("direct"), total(done & ~direct).alias("parked"), total(~done).alias("unaccepted")
    )
    sums = (
        counts.join(retried, ["date", *_ENTITY], "left")
        .fillna(0, ["retried"])
        .withColumn("failed", F.col("unaccepted") - F.col("retried"))
        .withColumn("attempted", F.col("direct") + F.col("parked") + F.col("failed"))
    )
    some = F.when(F.col("attempted") > 0, F.col("attempted"))
    return (
        sums.withColumn("with_pairing", (F.col("direct") + F.col("parked")) / some)
        .withColumn("without_pairing", F.col("direct") / some)
        .select(*AVAILABILITY_DAILY.columns)
    )


def _episodes(silver: DataFrame) -> DataFrame:
    """Return each client's own view of an outage: from its first turn to trouble to its last one, or its last ping."""
    told = (
        silver.where(
            (F.col("metered_by") == MeteredBy.CLIENT.value) & F.col("kind").isin(Kind.TURN.value, Kind.PING.value)
        )
        .withColumn("state", F.when(F.col("kind") == Kind.TURN.value, F.col("detail")))
        .select(*_ENTITY, "client", "at", "state", "id")
    )
    view = Window.partitionBy(*_ENTITY, "client").orderBy("at", "id")
    before = view.rowsBetween(Window.unboundedPreceding, -1)
    was = F.coalesce(F.last("state", ignorenulls=True).over(before), F.lit(State.HEALTHY.value))
    silent = F.col("at") > F.lag("at").over(view) + F.expr(SILENCE)
    trouble = F.col("state").isin(State.SUSPECT.value, State.ENGAGED.value)
    begins = F.coalesce(trouble & ((was == State.HEALTHY.value) | silent), F.lit(False))  # noqa: FBT003
    numbered = told.withColumn("begins", begins).withColumn("episode", F.sum(F.col("begins").cast("int")).over(view))
    turned = F.col("state").isNotNull()
    healed = F.max(F.when(F.col("state") == State.HEALTHY.value, F.col("at")))
    return (
        numbered.where("episode > 0")
        .groupBy(*_ENTITY, "client", "episode")
        .agg(
            F.min("at").alias("began"),
            F.min(F.when(F.col("state") == State.ENGAGED.value, F.col("at"))).alias("engaged"),
            healed.alias("healed"),
            F.max_by(F.when(turned, F.col("state")), F.when(turned, F.struct("at", "id"))).alias("last_state"),
            F.max("at").alias("last_at"),
        )
        .withColumn("over", F.col("last_state") == State.HEALTHY.value)
        .withColumn("reach", F.when(F.col("over"), F.col("healed")).otherwise(F.col("last_at")))
    )


def _merged(episodes: DataFrame) -> DataFrame:
    """Return what overlaps as one; it is over if the client says so that saw the longest of it."""
    entity = Window.partitionBy(*_ENTITY).orderBy("began", "reach", "client")
    reached = F.max("reach").over(entity.rowsBetween(Window.unboundedPreceding, -1))
    apart = F.coalesce(F.col("began") > reached, F.lit(True))  # noqa: FBT003
    return (
        episodes.withColumn("apart", apart)
        .withColumn("island", F.sum(F.col("apart").cast("int")).over(entity))
        .groupBy(*_ENTITY, "island")
        .agg(
            F.min("began").alias("began"),
            F.min("engaged").alias("engaged"),
            F.max("reach").alias("reach"),
            F.max_by("over", F.struct("reach", "over")).alias("over"),
            F.count_distinct("client").alias("clients"),
        )
    )


def _parked(known: DataFrame, flows: DataFrame) -> DataFrame:
    """Return what was parked in each outage, and when the backlog of its entity was empty again."""
    moves = flows.withColumnRenamed("destination", "entity")
    during = (
        moves.join(F.broadcast(known), list(_ENTITY))
        .where("at >= began AND (next IS NULL OR at < next)")
        .where(F.col("ended").isNull() | (F.col("at") <= F.col("ended") + F.expr(_GRACE)))
        .groupBy(*_ENTITY, "began")
        .agg(F.sum("parked").alias("parked"), F.max(F.when(F.col("parked") > 0, F.col("at"))).alias("last_park"))
        .where("parked > 0")
    )
    latest = moves.groupBy(*_ENTITY).agg(F.max_by("depth", "at").alias("depth"))
    empty = moves.where("depth = 0").select(*_ENTITY, "at")
    drained = (
        empty.join(F.broadcast(during), list(_ENTITY))
        .where("at >= last_park")
        .groupBy(*_ENTITY, "began")
        .agg(F.min("at").alias("drained"))
    )
    return (
        during.join(drained, [*_ENTITY, "began"], "left")
        .join(latest, list(_ENTITY))
        .withColumn("left", F.when(F.col("drained").isNull(), F.col("depth")).otherwise(0))
        .select(*_ENTITY, "began", "parked", "left", "drained")
    )


def _between(start: str, end: str) -> Column:
    """The time between two; none if the second came first: clocks differ."""
    spent = F.unix_micros(end) - F.unix_micros(start)
    return F.when(spent < 0, 0).otherwise(spent)
