"""The tables of the ledger on disk, kept up to date with as little work as the new records ask for.

Each day's bronze and silver are a partition of their own, made again when a file with records of that day was read.
What gold tables need beyond the days that were touched is told in ADR 0024.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final, TypeAlias, cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pairbus.core.pricing import Plan
from pairbus.errors import LedgerError
from pairbus.spark import availability, backlog, costs, ledger
from pairbus.spark.files import Files
from pairbus.spark.frames import frame_of
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
    Table,
)

VERSION: Final = 1
"""Of what the tables mean; when it changes, silver and gold are made again from bronze."""
FEW_BYTES: Final = 4 * 1024 * 1024
"""So much of a table is read by one task, and nothing that is made of it needs to be exchanged between tasks."""
STEPS: Final = ("bronze", "silver", "costs", "backlog", "availability")

Step: TypeAlias = Callable[[str], None]
"""Told which of :data:`STEPS` begins."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the tables depend on beside the ledgers.

    :ivar aliases: other names of namespaces, see :func:`pairbus.spark.ledger.silver`.
    """

    plan: Plan
    aliases: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """The same for the same settings."""
        told = json.dumps([VERSION, asdict(self.plan), sorted(self.aliases.items())], default=str)
        return hashlib.sha256(told.encode()).hexdigest()


class Tables:
    """The tables in one directory.

    :param out: a path or address that Spark can write to.
    :param few_bytes: how much is too little to be shared by several tasks.
    """

    def __init__(self, spark: SparkSession, out: str, settings: Settings, *, few_bytes: int = FEW_BYTES) -> None:
        self._spark = spark
        self._out = out.rstrip("/")
        self._settings = settings
        self._files = Files(spark)
        self._few_bytes = few_bytes

    def read(self, table: Table, days: Iterable[date] | None = None) -> DataFrame:
        """Return a table, or some days of it; it is empty if it was not made yet."""
        there = self._there(table, days)
        if not there:
            return frame_of(self._spark, [], table.schema)
        rows = self._spark.read.schema(table.schema).option("basePath", self._path(table)).parquet(*there)
        return rows.coalesce(1) if self._are_few(there) else rows

    @property
    def days(self) -> list[date]:
        """The days of which there are records."""
        names = self._files.names(f"{self._path(SILVER)}/date=*")
        return [date.fromisoformat(name.rpartition("=")[2]) for name in names]

    def update(self, ledgers: Sequence[str], step: Step = lambda _: None) -> int:
        """Bring the tables up to date with ledger files, and tell how many were new or had grown.

        Running it twice gives the same tables; the second time, nothing is read.

        :param ledgers: files, directories or patterns.
        :raises LedgerError: they name nothing, or nothing that has records, and there are none from before.
        """
        manifest = self._manifest()
        known = cast("dict[str, list[int]]", manifest.get("files", {}))
        found = self._files.ledgers(ledgers)
        new = [each for each in found if known.get(each.path) != [each.length, each.modified]]
        stale = manifest.get("settings") not in {None, self._settings.fingerprint}
        if new or stale:
            touched: set[date] = set()
            if new:
                step("bronze")
                sources = {ledger.source_of(each) for each in new}
                touched = self.add(ledger.lines_of(self._spark, new), sources)
                unread = [each.path for each in new if each.length and ledger.source_of(each) not in self._sources()]
                if unread:
                    raise LedgerError(f"{unread[0]}: no line of it was read; is its name one that Spark passes over?")
            self.refresh(self.days if stale else touched, touched, step)
            known |= {each.path: [each.length, each.modified] for each in new}
            manifest = {"version": VERSION, "settings": self._settings.fingerprint, "files": known}
            self._files.write(self._manifest_path, json.dumps(manifest, indent=1))
        if not self.days:
            raise LedgerError(
                f"{', '.join(ledgers)}: there is no record of an operation; name what a factory, a broker or a syphon "
                "has written as its ledger"
            )
        return len(new)

    def ingest(self, lines: DataFrame) -> None:
        """Bring the tables up to date with lines, each source of which is whole: a batch of a stream."""
        kept = lines.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            sources = [str(row[0]) for row in kept.select("source").distinct().collect()]
            self.refresh(self.add(kept, sources))
        finally:
            kept.unpersist()

    def add(self, lines: DataFrame, sources: Iterable[str]) -> set[date]:
        """Write lines to bronze, instead of what was read from the same sources before; tell which days they touch."""
        names = set(sources)
        self._forget(names)
        self._spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "16")  # a task writes few days: no sorting
        ledger.bronze(lines).write.mode("append").partitionBy(*BRONZE.partitions).parquet(self._path(BRONZE))
        return {
            date.fromisoformat(day)
            for day, source in self._parts()
            if source in names and not day.startswith("__")  # which lines have that are no records
        }

    def refresh(self, days: Iterable[date], again: Iterable[date] = (), step: Step = lambda _: None) -> None:
        """Make silver and gold again for days that were touched.

        :param again: more days: those whose bronze has changed.
        """
        touched = sorted({*days, *again})
        if not touched:
            return
        step("silver")
        records = ledger.silver(self.read(BRONZE, touched), self._settings.aliases)
        self._replace(SILVER, records, touched, few=self._are_few(self._there(BRONZE, touched)))
        known = self.days
        step("costs")
        self._refresh_costs([day for day in known if any(_in_month_after(day, first) for first in touched)], known)
        since = self._since(touched[0])
        self._refresh_availability([day for day in known if day >= since], known, step)

    def _refresh_costs(self, days: Sequence[date], known: Sequence[date]) -> None:
        """Price the days again: what a day costs depends on what the days of the month before it have used up."""
        earlier = [day for day in known if day not in days and any(_in_month_after(later, day) for later in days)]
        month = F.trunc("date", "month").alias("month")
        before = self.read(COST_HOURLY, earlier).groupBy(month).agg(F.sum("charged").alias("charged"))
        usage = costs.usage_hourly(self.read(SILVER, days)).persist(StorageLevel.MEMORY_AND_DISK)
        counted = costs.counted_once(usage).persist(StorageLevel.MEMORY_AND_DISK)
        few = self._are_few(self._there(SILVER, days))
        try:
            self._replace(COST_HOURLY, costs.cost_hourly(counted, self._settings.plan, before), days, few=few)
            self._replace(MESSAGE_COST, costs.message_cost(self.read(COST_HOURLY, days)), days, few=few)
            self._replace(CLIENT_VS_BROKER, costs.client_vs_broker(usage), days, few=few)
        finally:
            counted.unpersist()
            usage.unpersist()

    def _refresh_availability(self, days: Sequence[date], known: Sequence[date], step: Step) -> None:
        silver = self.read(SILVER, days)
        last_before = [day for day in known if day < days[0]][-1:]
        ends = silver.groupBy("date").agg(F.max("at").alias("last"))
        flows = backlog.flows(silver, self.read(BACKLOG_OPEN, last_before)).persist(StorageLevel.MEMORY_AND_DISK)
        attempts = availability.attempts(silver).persist(StorageLevel.MEMORY_AND_DISK)
        few = self._are_few(self._there(SILVER, days))
        try:
            step("backlog")
            minutes = backlog.minutes(flows).localCheckpoint()
            ends = ends.localCheckpoint()
            self._replace(BACKLOG_MINUTELY, backlog.backlog_minutely(minutes, ends), days, few=few)
            self._replace(BACKLOG_OPEN, backlog.backlog_open(minutes, ends), days, few=few)
            step("availability")
            self._replace(OUTAGES, availability.outages(silver, attempts, flows), days, few=few)
            outages = self.read(OUTAGES, days)
            self._replace(AVAILABILITY_DAILY, availability.availability_daily(attempts, outages), days, few=few)
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
        row = self.read(OUTAGES).where(touches).agg(F.min("date")).first()
        began = None if row is None else cast("date | None", row[0])
        return first if began is None else min(first, began)

    def _replace(self, table: Table, rows: DataFrame, days: Iterable[date], *, few: bool) -> None:
        """Write days of a table anew, beside it first; a day that has no rows any more is removed.

        Each gets one file, and more only of silver.

        :param few: whether one task can do it.
        """
        aside = f"{self._out}/.new/{table.name}"
        made = rows.select(*table.columns)
        if few:
            made = made.coalesce(1)
        elif table is not SILVER:
            made = made.repartition("date")
        made.write.mode("overwrite").partitionBy("date").parquet(aside)
        for day in days:
            place, made_at = self._day(table, day), f"{aside}/date={day}"
            if self._files.exists(made_at):
                self._files.move(made_at, place)
            else:
                self._files.delete(place)
        self._files.delete(aside)

    def _there(self, table: Table, days: Iterable[date] | None) -> list[str]:
        paths = [self._path(table)] if days is None else [self._day(table, day) for day in days]
        return [path for path in paths if self._files.exists(path)]

    def _are_few(self, paths: Iterable[str]) -> bool:
        return sum(map(self._files.size, paths)) <= self._few_bytes

    def _forget(self, sources: set[str]) -> None:
        for day, source in self._parts():
            if source in sources:
                self._files.delete(f"{self._path(BRONZE)}/date={day}/source={source}")

    def _parts(self) -> list[tuple[str, str]]:
        names = self._files.names(f"{self._path(BRONZE)}/date=*/source=*")
        pieces = [name.rsplit("/", 2) for name in names]
        return [(day.partition("=")[2], source.partition("=")[2]) for _, day, source in pieces]

    def _sources(self) -> set[str]:
        return {source for _, source in self._parts()}

    def _path(self, table: Table) -> str:
        return f"{self._out}/{table.name}"

    def _day(self, table: Table, day: date) -> str:
        return f"{self._path(table)}/date={day}"

    @property
    def _manifest_path(self) -> str:
        return f"{self._out}/manifest.json"

    def _manifest(self) -> dict[str, Any]:
        text = self._files.read(self._manifest_path)
        return {} if text is None else json.loads(text)


def _in_month_after(day: date, first: date) -> bool:
    return (day.year, day.month) == (first.year, first.month) and day >= first
