"""The tables of the ledger on disk, kept up to date with as little work as the new records ask for.

Each day's bronze and silver are a partition of their own, made again when a file with records of that day was read.
What gold tables need beyond the days that were touched is told in ADR 0024. A run stages all that it makes, and then
puts it in its place (:mod:`pairbus.spark.tables.journal`): a run that was killed has changed nothing, or the next run
finishes it.
"""

import hashlib
import json
import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final, cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from pairbus.core.ledger import VERSION as LEDGER_VERSION
from pairbus.core.pricing import Plan
from pairbus.errors import LedgerError
from pairbus.spark.platform.files import Files, LedgerPath
from pairbus.spark.tables import ledger
from pairbus.spark.tables.draft import Draft
from pairbus.spark.tables.journal import Journal
from pairbus.spark.tables.lock import directory_lock
from pairbus.spark.tables.refresh import Refresh, Step
from pairbus.spark.tables.schemas import BRONZE, Table

_LOGGER = logging.getLogger(__name__)

VERSION: Final = 3
"""Of what the tables mean; when it changes, silver and gold are made again from bronze."""
FEW_BYTES: Final = 4 * 1024 * 1024
"""So much of a table is read by one task, and nothing that is made of it needs to be exchanged between tasks."""
STREAM_WAITS: Final = 600.0
"""For how many seconds a batch of a stream waits for another process that brings the tables up to date."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the tables depend on beside the ledgers.

    :ivar aliases: other names of namespaces, see :func:`pairbus.spark.tables.ledger.silver`.
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

    One process at a time brings them up to date. On this machine's file systems a lock sees to that, which ends with
    its process. Elsewhere (HDFS, object stores) there is none: start one at a time. Of two that run at once the one
    that ends last is refused, unless both end in the same instant.

    :param out: a path or address that Spark can write to.
    :param few_bytes: how much is too little to be shared by several tasks.
    """

    def __init__(self, spark: SparkSession, out: str, settings: Settings, *, few_bytes: int = FEW_BYTES) -> None:
        self._spark = spark
        self._out = out.rstrip("/")
        self._settings = settings
        self._files = Files(spark)
        self._few_bytes = few_bytes
        self._journal = Journal(self._files, self._out)
        self._is_locked = False
        self.set_aside: dict[str, str] = {}
        """The files that the last update could not read, a truncated .gz say, and why; they are tried every time."""

    def read(self, table: Table, days: Iterable[date] | None = None) -> DataFrame:
        """Return a table, or some days of it; it is empty if it was not made yet."""
        return self._draft().read(table, days)

    @property
    def days(self) -> list[date]:
        """The days of which there are records."""
        return self._draft().days

    @contextmanager
    def lock(self, *, wait: float = 0.0) -> Generator[None]:
        """Keep other processes from changing the tables, and make good what one that was killed has left.

        It may be taken again by the object that holds it.

        :param wait: for how many seconds another process may still hold it.
        :raises TablesError: another process holds it.
        """
        if self._is_locked:
            yield
            return
        directory = self._files.local(self._out)
        if directory is None:
            with self._recovered():
                yield
        else:
            with directory_lock(directory, wait=wait), self._recovered():
                yield

    @contextmanager
    def _recovered(self) -> Generator[None]:
        if self._journal.recover():
            _LOGGER.warning("%s: a run that was killed while it replaced days of the tables is finished", self._out)
        self._is_locked = True
        try:
            yield
        finally:
            self._is_locked = False

    def update(self, ledgers: Sequence[str], step: Step = lambda _: None) -> int:
        """Bring the tables up to date with ledger files, and tell how many were new or had grown.

        Running it twice gives the same tables; the second time, nothing is read.

        :param ledgers: files, directories or patterns.
        :raises LedgerError: they name nothing, or nothing that has records, and there are none from before.
        :raises TablesError: another process brings the tables up to date.
        """
        with self.lock():
            new = self._update(self._files.ledgers(ledgers), step)
            if not self.days:
                raise LedgerError(
                    f"{', '.join(ledgers)}: there is no record of an operation{self._instead()}; name what a factory, "
                    "a broker or a syphon has written as its ledger"
                )
            return new

    def _instead(self) -> str:
        """Say what there is instead of records, if anything is."""
        found = list(self.set_aside.items())
        found += [(row["file"], row["reason"]) for row in ledger.malformed(self.read(BRONZE)).take(1)]
        return f" ({found[0][0]}: {found[0][1]})" if found else ""

    def ingest(self, lines: DataFrame) -> None:
        """Bring the tables up to date with lines, each source of which is whole: a batch of a stream.

        :raises TablesError: another process has been bringing the tables up to date for ten minutes.
        """
        kept = lines.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            sources = {str(row[0]) for row in kept.select("source").distinct().collect()}
            with self.lock(wait=STREAM_WAITS):
                draft, manifest = self._draft(), self._journal.manifest()
                changed = draft.add(kept, sources) if sources else set[date]()
                self._finish(draft, manifest, changed, manifest.get("files", {}), lambda _: None)
        finally:
            kept.unpersist()

    def _update(self, found: Sequence[LedgerPath], step: Step) -> int:
        draft, manifest = self._draft(), self._journal.manifest()
        known = cast("dict[str, list[int]]", manifest.get("files", {}))
        if manifest.get("reads") != LEDGER_VERSION:
            known = {}  # lines that could not be read then may be records now
        there = draft.sources
        new = [
            each
            for each in found
            if known.get(each.path) != [each.length, each.modified]
            or (each.length and ledger.source_of(each) not in there)  # its lines were deleted
        ]
        changed: set[date] = set()
        self.set_aside = {}
        if new:
            step("bronze")
            try:
                changed = draft.add(ledger.lines_of(self._spark, new), map(ledger.source_of, new))
            except Exception:  # a file that is damaged fails the whole job
                new = self._readable(new)
                if not self.set_aside:
                    raise
                draft = self._draft()
                if new:
                    changed = draft.add(ledger.lines_of(self._spark, new), map(ledger.source_of, new))
            there = draft.sources
            unread = [each.path for each in new if each.length and ledger.source_of(each) not in there]
            if unread:
                raise LedgerError(f"{unread[0]}: no line of it was read; is its name one that Spark passes over?")
        files = known | {each.path: [each.length, each.modified] for each in new}
        self._finish(draft, manifest, changed, files, step)
        return len(new)

    def _readable(self, files: Sequence[LedgerPath]) -> list[LedgerPath]:
        """Return the files that can be read to their end; the others are set aside."""
        try:
            ledger.lines_of(self._spark, files).write.format("noop").mode("overwrite").save()
        except Exception as error:  # noqa: BLE001 (Spark's, which is told)
            if len(files) == 1:
                self.set_aside[files[0].path] = _cause(error)
                return []
            half = len(files) // 2
            return self._readable(files[:half]) + self._readable(files[half:])
        return list(files)

    def _finish(
        self,
        draft: Draft,
        before: Mapping[str, Any],
        changed: set[date],
        files: Mapping[str, Sequence[int]],
        step: Step,
    ) -> None:
        """Make the days again that have changed, or were made with other settings; put it all in its place."""
        made_with = cast("dict[str, str]", before.get("days", {}))
        mine = self._settings.fingerprint
        stale = {day for day in draft.days if made_with.get(str(day)) != mine}
        if changed or stale:
            Refresh(draft, self._settings.plan, self._settings.aliases, step).run(changed, stale)
        manifest = {
            "version": VERSION,
            "reads": LEDGER_VERSION,
            "days": {str(day): mine for day in draft.days},
            "files": dict(files),
        }
        changes = draft.changes()
        if changes or manifest != before:
            self._journal.commit(draft.staging, changes, manifest, before)

    def _draft(self) -> Draft:
        return Draft(self._spark, self._files, self._out, self._journal.new_staging(), self._few_bytes)


def _cause(error: BaseException) -> str:
    """Say what is wrong with a file: the first cause that Java tells last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or [type(error).__name__])[-1]
