"""Makes silver and gold again of the days that need it, and of no others (ADR 0024)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final, TypeAlias, cast

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.pricing import Plan
from pairbus.spark.tables import availability, backlog, costs, ledger
from pairbus.spark.tables.draft import Draft
from pairbus.spark.tables.schemas import (
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

STEPS: Final = ("bronze", "silver", "costs", "backlog", "availability")

Step: TypeAlias = Callable[[str], None]
"""Told which of :data:`STEPS` begins."""


class Refresh:
    """Stages silver and gold in a draft.

    :param aliases: other names of namespaces, see :func:`pairbus.spark.tables.ledger.silver`.
    """

    def __init__(self, draft: Draft, plan: Plan, aliases: Mapping[str, str], step: Step) -> None:
        self._draft = draft
        self._plan = plan
        self._aliases = aliases
        self._step = step

    def run(self, changed: set[date], more: set[date]) -> None:
        """Make days again, and those that depend on them.

        :param changed: whose bronze has changed.
        :param more: others, which were made with other settings, say.
        """
        touched = sorted(changed | more)
        draft = self._draft
        from_bronze = sorted(changed | (more & draft.recorded_days))
        if from_bronze:
            self._step("silver")
            records = ledger.silver(draft.read(BRONZE, from_bronze), self._aliases)
            draft.replace(SILVER, records, from_bronze, few=draft.are_few(BRONZE, from_bronze))
        known = sorted({*draft.days, *touched})  # of which some may have no records any more
        self._step("costs")
        self._costs([day for day in known if any(_in_month_after(day, first) for first in touched)], known)
        since = self._since(touched[0])
        self._availability([day for day in known if day >= since], known)

    def _costs(self, days: Sequence[date], known: Sequence[date]) -> None:
        """Price days again: what a day costs depends on what the days of the month before it have used up."""
        draft = self._draft
        earlier = [day for day in known if day not in days and any(_in_month_after(later, day) for later in days)]
        month = F.trunc("date", "month").alias("month")
        before = draft.read(COST_HOURLY, earlier).groupBy(month).agg(F.sum("charged").alias("charged"))
        usage = costs.usage_hourly(draft.read(SILVER, days)).persist(StorageLevel.MEMORY_AND_DISK)
        counted = costs.counted_once(usage).persist(StorageLevel.MEMORY_AND_DISK)
        few = draft.are_few(SILVER, days)
        try:
            draft.replace(COST_HOURLY, costs.cost_hourly(counted, self._plan, before), days, few=few)
            draft.replace(MESSAGE_COST, costs.message_cost(draft.read(COST_HOURLY, days)), days, few=few)
            draft.replace(CLIENT_VS_BROKER, costs.client_vs_broker(usage), days, few=few)
        finally:
            counted.unpersist()
            usage.unpersist()

    def _availability(self, days: Sequence[date], known: Sequence[date]) -> None:
        draft = self._draft
        silver = draft.read(SILVER, days)
        last_before = [day for day in known if day < days[0]][-1:]
        ends = silver.groupBy("date").agg(F.max("at").alias("last"))
        flows = backlog.flows(silver, draft.read(BACKLOG_OPEN, last_before)).persist(StorageLevel.MEMORY_AND_DISK)
        attempts = availability.attempts(silver).persist(StorageLevel.MEMORY_AND_DISK)
        few = draft.are_few(SILVER, days)
        try:
            self._step("backlog")
            minutes = backlog.minutes(flows).localCheckpoint()
            ends = ends.localCheckpoint()
            draft.replace(BACKLOG_MINUTELY, backlog.backlog_minutely(minutes, ends), days, few=few)
            draft.replace(BACKLOG_OPEN, backlog.backlog_open(minutes, ends), days, few=few)
            self._step("availability")
            draft.replace(OUTAGES, availability.outages(silver, attempts, flows), days, few=few)
            outages = draft.read(OUTAGES, days)
            draft.replace(AVAILABILITY_DAILY, availability.availability_daily(attempts, outages), days, few=few)
        finally:
            attempts.unpersist()
            flows.unpersist()

    def _since(self, first: date) -> date:
        """Return the day from which on outages and the backlog are to be told again.

        An outage is told whole, from the day on which it began. It belongs in here if it has not ended, if its backlog
        is not drained, or if it ended so shortly before the first day that what is new may join it.
        """
        open_still = F.col("ended").isNull() | (F.col("left") > 0)
        end = F.greatest("ended", "drained") + F.expr(availability.SILENCE)
        touches = open_still | (end >= F.lit(first).cast("timestamp"))
        row = self._draft.read(OUTAGES).where(touches).agg(F.min("date")).first()
        began = None if row is None else cast("date | None", row[0])
        return first if began is None else min(first, began)


def _in_month_after(day: date, first: date) -> bool:
    return (day.year, day.month) == (first.year, first.month) and day >= first
