"""Records to the backlog's depth and age (K3): what was parked, what was delivered, what is left, by destination."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.spark.tables.costs import SENDS
from pairbus.spark.tables.schemas import BACKLOG_MINUTELY, BACKLOG_OPEN

_QUEUE: Final = ("namespace", "destination")
_FOR_EVER: Final = "9999-12-31"


def flows(silver: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Return how the backlog changed at each instant, and how deep it was then.

    It is never less than empty: what was delivered beyond that was parked before the ledger began, or delivered twice.

    :param carried: what the day before the first one has left, as :func:`backlog_open` tells.
    :return: ``namespace``, ``destination``, ``at``, ``parked``, ``delivered``, ``depth`` and ``come``, all that was
        parked so far.
    """
    parks = (F.col("stage") == Stage.PARK.value) & F.col("kind").isin(*SENDS)
    leaves = (F.col("stage") == Stage.SYPHON.value) & F.col("kind").isin(Kind.SEND.value, Kind.DEAD_LETTER.value)
    moves = silver.where(
        (F.col("metered_by") == MeteredBy.CLIENT.value) & (F.col("outcome") == Outcome.DONE.value)
        & F.col("destination").isNotNull() & (parks | leaves)
    ).select(
        F.col("pairing").alias("namespace"), "destination", "at",
        F.when(parks, F.col("messages")).otherwise(0).alias("parked"),
        F.when(parks, 0).otherwise(F.col("messages")).alias("delivered"),
    )  # fmt: skip
    if carried is not None:
        left = carried.select(
            *_QUEUE, F.col("parked_at").alias("at"), F.col("messages").alias("parked"), F.lit(0).alias("delivered")
        )
        moves = moves.unionByName(left)
    instants = moves.groupBy(*_QUEUE, "at").agg(F.sum("parked").alias("parked"), F.sum("delivered").alias("delivered"))
    so_far = Window.partitionBy(*_QUEUE).orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        instants.withColumn("come", F.sum("parked").over(so_far))
        .withColumn("balance", F.sum(F.col("parked") - F.col("delivered")).over(so_far))
        .withColumn("lowest", F.least(F.lit(0), F.min("balance").over(so_far)))
        .withColumn("depth", F.col("balance") - F.col("lowest"))
        .drop("balance", "lowest")
    )


def minutes(flows: DataFrame) -> DataFrame:
    """Return the flows by the minute: also ``parked_at``, the first time that something was parked in it."""
    return (
        flows.groupBy(*_QUEUE, F.date_trunc("minute", "at").alias("minute"))
        .agg(
            F.sum("parked").alias("parked"),
            F.sum("delivered").alias("delivered"),
            F.min(F.when(F.col("parked") > 0, F.col("at"))).alias("parked_at"),
            F.max_by("depth", "at").alias("depth"),
            F.max("come").alias("come"),
        )
        .withColumn("gone", F.col("come") - F.col("depth"))
    )


def backlog_minutely(minutes: DataFrame, days: DataFrame) -> DataFrame:
    """Return depth and age for each minute in which the backlog changed or was not empty.

    :param minutes: as :func:`minutes` gives them.
    :param days: for each ``date`` that is wanted the time of its ``last`` record; nothing is told of what comes after.
    """
    following = F.lead("minute").over(Window.partitionBy(*_QUEUE).orderBy("minute"))
    one_minute = F.expr("INTERVAL 1 MINUTE")
    spans = minutes.withColumn("until", F.when(F.col("depth") > 0, following - one_minute).otherwise(F.col("minute")))
    in_day = (F.to_date("minute") <= F.col("date")) & (F.to_date("until") >= F.col("date"))
    first = F.greatest("minute", F.col("date").cast("timestamp"))
    last = F.least("until", F.date_trunc("minute", "last"))
    dense = (
        spans.withColumn("until", F.coalesce("until", F.lit(_FOR_EVER).cast("timestamp")))
        .join(F.broadcast(days), in_day)
        .where(first <= last)
        .select(*_QUEUE, "minute", "parked", "delivered", "depth", "gone", "date",
                F.explode(F.sequence(first, last, one_minute)).alias("now"))
    )  # fmt: skip
    aged = _with_oldest(dense, minutes)
    same = F.col("now") == F.col("minute")
    end = F.unix_micros(F.col("now") + one_minute)
    return aged.select(
        *_QUEUE,
        F.col("now").alias("minute"),
        F.when(same, F.col("parked")).otherwise(0).alias("parked"),
        F.when(same, F.col("delivered")).otherwise(0).alias("delivered"),
        "depth",
        "oldest_at",
        F.coalesce(end - F.unix_micros("oldest_at"), F.lit(0)).alias("oldest_age_us"),
        "date",
    ).select(*BACKLOG_MINUTELY.columns)


def backlog_open(minutes: DataFrame, days: DataFrame) -> DataFrame:
    """Return what is left at the end of each day, by when it was parked: first come, first served."""
    parks = minutes.where("parked > 0").select(*_QUEUE, "parked_at", "parked", "come")
    by_day = minutes.groupBy(*_QUEUE, F.to_date("minute").alias("on")).agg(F.max("gone").alias("gone"))
    ends = (
        days.select("date")
        .join(F.broadcast(by_day), F.col("on") <= F.col("date"))
        .groupBy("date", *_QUEUE)
        .agg(F.max("gone").alias("gone"))
    )
    return (
        parks.join(ends, list(_QUEUE))
        .where((F.to_date("parked_at") <= F.col("date")) & (F.col("come") > F.col("gone")))
        .withColumn("messages", F.least(F.col("parked"), F.col("come") - F.col("gone")))
        .select(*BACKLOG_OPEN.columns)
    )


def _with_oldest(dense: DataFrame, minutes: DataFrame) -> DataFrame:
    """Add when the oldest message was parked: of the last minute before whose parking not more had gone.

    An as-of join, done as a union and a window.
    """
    parks = minutes.where("parked > 0").select(
        *_QUEUE, (F.col("come") - F.col("parked")).alias("gone"), F.lit(0).alias("asks"), "parked_at"
    )
    asks = dense.withColumn("asks", F.lit(1))
    before = (
        Window.partitionBy(*_QUEUE)
        .orderBy("gone", "asks", "now")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    found = F.last("parked_at", ignorenulls=True).over(before)
    both = asks.unionByName(parks, allowMissingColumns=True).withColumn("found", found).where("asks = 1")
    return both.withColumn("oldest_at", F.when(F.col("depth") > 0, F.col("found")))
