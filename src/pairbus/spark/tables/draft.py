"""The tables as a run will leave them: what it has staged so far, over what is there."""

from collections.abc import Iterable
from datetime import date
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pairbus.spark.platform.files import Files
from pairbus.spark.platform.frames import frame_of
from pairbus.spark.tables import ledger
from pairbus.spark.tables.journal import Change
from pairbus.spark.tables.schemas import BRONZE, SILVER, Table

_NO_DATE: Final = "__"
"""How the partition's value begins that has the lines which are no records."""


class Draft:
    """Reads tables, and stages days of them that :meth:`read` gives from then on; nothing of the tables is changed.

    :param out: the directory of the tables.
    :param staging: where to stage: the name of a directory in it.
    :param few_bytes: how much is too little to be shared by several tasks.
    """

    def __init__(self, spark: SparkSession, files: Files, out: str, staging: str, few_bytes: int) -> None:
        self._spark = spark
        self._files = files
        self._out = out
        self.staging = staging
        self._staging = f"{out}/{staging}"
        self._few_bytes = few_bytes
        self._days: dict[str, set[date]] = {}
        self._sources: set[str] = set()

    @cached_property
    def _parts(self) -> list[tuple[str, str]]:
        """The partitions of bronze that are there, by day and source: listed once in a run."""
        return self._parts_in(self._out)

    @cached_property
    def _staged_parts(self) -> list[tuple[str, str]]:
        return self._parts_in(self._staging) if self._sources else []

    @property
    def sources(self) -> set[str]:
        """What bronze has lines of."""
        there = {source for _, source in self._parts if source not in self._sources}
        return there | {source for _, source in self._staged_parts}

    @property
    def recorded_days(self) -> set[date]:
        """The days of which bronze has records."""
        there = {day for day, source in self._parts if source not in self._sources}
        return _dates(there | {day for day, _ in self._staged_parts})

    @property
    def days(self) -> list[date]:
        """The days of which there are records: in bronze, or in silver where its bronze was deleted by hand."""
        replaced = self._days.get(SILVER.name, set())
        names = self._files.names(f"{self._path(SILVER)}/date=*")
        silver = _dates(name.rpartition("=")[2] for name in names)
        return sorted(self.recorded_days | (silver - replaced))

    def read(self, table: Table, days: Iterable[date] | None = None) -> DataFrame:
        """Return a table, or some days of it; it is empty if it was not made yet."""
        wanted = None if days is None else set(days)
        old, new = self._there(table, wanted), self._there_staged(table, wanted)
        frames = [self._load(table, self._path(table), old)] if old else []
        if frames and table is BRONZE and self._sources:
            frames = [frames[0].where(~F.col("source").isin(*self._sources))]
        elif frames and wanted is None and self._days.get(table.name):
            frames = [frames[0].where(~F.col("date").isin(*self._days[table.name]))]
        if new:
            frames.append(self._load(table, f"{self._staging}/{table.name}", new))
        if not frames:
            return frame_of(self._spark, [], table.schema)
        rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        return rows.coalesce(1) if self._are_few([*old, *new]) else rows

    def are_few(self, table: Table, days: Iterable[date]) -> bool:
        """Tell whether one task can do what is to be done with these days of a table."""
        wanted = set(days)
        return self._are_few([*self._there(table, wanted), *self._there_staged(table, wanted)])

    def add(self, lines: DataFrame, sources: Iterable[str]) -> set[date]:
        """Stage lines for bronze, instead of what was read from the same sources before; tell which days they touch."""
        self._sources = set(sources)
        self._spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "16")  # a task writes few days: no sorting
        staged = f"{self._staging}/{BRONZE.name}"
        ledger.bronze(lines).write.mode("overwrite").partitionBy(*BRONZE.partitions).parquet(staged)
        self.__dict__.pop("_staged_parts", None)
        before = {day for day, source in self._parts if source in self._sources}
        return _dates(before | {day for day, _ in self._staged_parts})

    def replace(self, table: Table, rows: DataFrame, days: Iterable[date], *, few: bool) -> None:
        """Stage days of a table; a day that has no rows is removed from it. Once for each table.

        Each day gets one file, and more only of silver.

        :param few: whether one task can do it.
        """
        made = rows.select(*table.columns)
        if few:
            made = made.coalesce(1)
        elif table is not SILVER:
            made = made.repartition("date")
        made.write.mode("overwrite").partitionBy("date").parquet(f"{self._staging}/{table.name}")
        self._days[table.name] = set(days)

    def changes(self) -> list[Change]:
        """Return what the staged partitions replace, and what is to be removed."""
        staged = {_part(*each) for each in self._staged_parts}
        gone = {_part(*each) for each in self._parts if each[1] in self._sources} - staged
        partitions = [f"{BRONZE.name}/{each}" for each in sorted(staged | gone)]
        partitions += [f"{name}/date={day}" for name, days in self._days.items() for day in sorted(days)]
        return [self._change(each) for each in partitions]

    def _change(self, partition: str) -> Change:
        contents = self._files.contents(f"{self._staging}/{partition}")
        return Change(partition, 0, 0) if contents is None else Change(partition, *contents)

    def _load(self, table: Table, root: str, paths: list[str]) -> DataFrame:
        return self._spark.read.schema(table.schema).option("basePath", root).parquet(*paths)

    def _there(self, table: Table, days: set[date] | None) -> list[str]:
        """The paths of what is there and not replaced; of bronze also what is, if the same day has more."""
        if days is None:
            return self._existing([self._path(table)])
        return self._existing(f"{self._path(table)}/date={day}" for day in days - self._days.get(table.name, set()))

    def _there_staged(self, table: Table, days: set[date] | None) -> list[str]:
        root = f"{self._staging}/{table.name}"
        if table is BRONZE:
            staged = _dates(day for day, _ in self._staged_parts)
            is_staged = bool(self._sources)
        else:
            staged = self._days.get(table.name, set())
            is_staged = table.name in self._days
        if days is None:
            return [root] if is_staged else []
        return self._existing(f"{root}/date={day}" for day in days & staged)

    def _existing(self, paths: Iterable[str]) -> list[str]:
        return [path for path in sorted(paths) if self._files.exists(path)]

    def _are_few(self, paths: Iterable[str]) -> bool:
        return sum(contents[1] for path in paths if (contents := self._files.contents(path))) <= self._few_bytes

    def _parts_in(self, directory: str) -> list[tuple[str, str]]:
        names = self._files.names(f"{directory}/{BRONZE.name}/date=*/source=*")
        pieces = [name.rsplit("/", 2) for name in names]
        return [(day.partition("=")[2], source.partition("=")[2]) for _, day, source in pieces]

    def _path(self, table: Table) -> str:
        return f"{self._out}/{table.name}"


def _part(day: str, source: str) -> str:
    return f"date={day}/source={source}"


def _dates(names: Iterable[str]) -> set[date]:
    return {date.fromisoformat(name) for name in names if not name.startswith(_NO_DATE)}
