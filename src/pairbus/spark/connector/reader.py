"""Reading by browsing: nothing is locked or removed, and the same range can be read again.

A batch is a range of sequence numbers per entity. It gives the messages of that range that are there when it is read:
what was completed, moved or has expired in the meantime is not, and nothing of another range ever is.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from azure.servicebus.exceptions import MessagingEntityNotFoundError
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pairbus.errors import OptionError
from pairbus.spark.connector import renumbering
from pairbus.spark.connector.arrow import RecordBatch
from pairbus.spark.connector.columns import check_readable
from pairbus.spark.connector.incoming import SCHEDULED, Found, Table
from pairbus.spark.connector.kept import kept
from pairbus.spark.connector.options import Entity, ReadOptions
from pairbus.spark.connector.pushdown import Pushed
from pairbus.spark.connector.ranges import FIRST, Range, available, share, split

NOTHING_PUSHED: Final = Pushed()
PAGE: Final = 250
"""How many messages one look asks for."""


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, entity: Entity, part: Range) -> None:
        self.entity = entity
        self.start = part.start
        self.end = part.end


class _Source:
    """What reads in batches and reads in streams have in common; it is carried to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_readable(schema, is_backlog=options.is_backlog)
        self.options = options
        self.schema = schema
        self.entities = {entity.path: entity for entity in options.entities}

    def parts(self, ranges: Iterable[Range]) -> list[Part]:
        return [Part(self.entities[each.path], each) for each in split(list(ranges), self.options.partitions)]

    async def look(self, starts: Mapping[str, int], most: int | None = None) -> list[Range]:
        """Find out what there is from each of these numbers on."""
        return await asyncio.gather(*(self._look_at(path, start, most) for path, start in starts.items()))

    async def _look_at(self, path: str, start: int, most: int | None) -> Range:
        entity = self.entities[path]
        browser = await kept().browser(self.options, entity)
        seen: dict[int, Found] = {}

        async def first_at(number: int) -> int | None:
            for payload in await browser.peek(number, 1):
                found = Found(path, payload)
                seen[found.sequence_number] = found
                return found.sequence_number
            return None

        try:
            there = await available(first_at, path, start, most)
        except MessagingEntityNotFoundError:
            if not self.options.is_backlog:
                raise
            return Range(path, start, start)  # a backlog queue that was never needed yet
        return replace(there, newest=renumbering.newest_of(seen) if entity.sub_queue is None else None)

    async def check_identity(self, offset: Mapping[str, int], paths: Iterable[str]) -> None:
        """Look whether entities are still the ones that an offset is about.

        :raises OptionError: one was deleted and made again.
        """
        known = {path: at for path in paths if (at := renumbering.newest_in(offset, path)) is not None}
        await asyncio.gather(*(self._check_identity(path, offset[path], at) for path, at in known.items()))

    async def _check_identity(self, path: str, start: int, newest: int) -> None:
        browser = await kept().browser(self.options, self.entities[path])
        try:
            first = await browser.peek(FIRST, renumbering.FIRST_MESSAGES)
        except MessagingEntityNotFoundError:
            if not self.options.is_backlog:
                raise
            return
        renumbering.check(path, start, newest, [Found(path, payload) for payload in first])

    def read(self, part: Part, *, scheduled: bool, pushed: Pushed = NOTHING_PUSHED) -> Iterator[RecordBatch]:
        table = Table(self.schema)
        here = kept()
        browser = here.run(here.browser(self.options, part.entity))
        path = part.entity.path
        number = part.start
        while number < part.end:
            page = here.run(browser.peek(number, min(PAGE, part.end - number)))
            messages = [Found(path, payload, is_parked=self.options.is_backlog) for payload in page]
            if not messages:
                break
            number = messages[-1].sequence_number + 1
            rows = [
                each
                for each in messages
                if each.sequence_number < part.end and (scheduled or each.state != SCHEDULED) and pushed.keeps(each)
            ]
            if rows:
                yield table.batch(rows)
        here.flush(self.options.ledger)


class BatchReader(DataSourceReader):
    """Reads what there is."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._source = _Source(options, schema)
        self._pushed = NOTHING_PUSHED

    def partitions(self) -> Sequence[Part]:
        """Find out what there is; on the driver."""
        options, (first, end) = self._source.options, self._pushed.bounds()
        if options.end is not None:
            end = options.end + 1 if end is None else min(end, options.end + 1)
        if options.start == "latest":
            return []
        first = max(first, options.start)
        starts = {path: first for path in self._source.entities if self._pushed.keeps_entity(path)}
        if end is not None and end <= first:
            return []
        ranges = kept().run(self._source.look(starts))
        return self._source.parts(
            each if end is None else Range(each.path, each.start, min(each.end, end)) for each in ranges
        )

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        """Read a part; on an executor."""
        if not isinstance(partition, Part):
            return iter(())  # Spark makes one of its own where there are none
        scheduled = self._source.options.include_scheduled is not False
        return self._source.read(partition, scheduled=scheduled, pushed=self._pushed)


class FilteringReader(BatchReader):
    """Reads what there is and passes some filters.

    It is a class of its own because Spark refuses a reader that takes filters unless it is set to push them down.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take filters; Spark applies all of them again."""
        self._pushed = Pushed(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what there is and what comes, batch by batch."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._source = _Source(options, schema)
        self._target: dict[str, int] | None = None
        self._nothing_since: tuple[dict[str, int], float] | None = None
        self._checked_at: float | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """Return where a new query begins; on the driver."""
        start = self._source.options.start
        if start == "latest":
            return self._offset(kept().run(self._source.look(dict.fromkeys(self._source.entities, FIRST))))
        return dict.fromkeys(self._source.entities, start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit that the options set."""
        most = self._source.options.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Remember what there is now: the query ends when it has come to that."""
        there = kept().run(self._source.look(dict.fromkeys(self._source.entities, FIRST)))
        self._target = {each.path: each.end for each in there}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """Return how far the next batch goes; on the driver."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._check_is_ours(start)
        if self._looked_just_now(start):
            return start
        starts = {path: start.get(path, FIRST) for path in self._source.entities}
        ranges = {each.path: self._until_target(each) for each in kept().run(self._source.look(starts, most))}
        ends = {path: each.end for path, each in ranges.items()}
        if most is not None:
            given = share({path: each.span for path, each in ranges.items()}, most)
            ends = {path: each.start + given[path] if given[path] else starts[path] for path, each in ranges.items()}
        further = {path: end for path, end in ends.items() if end > starts[path]}
        self._check_identity(start, further)
        latest = {**start, **{path: max(end, starts[path]) for path, end in ends.items()}}
        for path in further:
            latest = renumbering.noting(latest, path, ranges[path].newest)
        self._nothing_since = (start, time.monotonic()) if latest == start else None
        return latest

    def _check_identity(self, start: dict[str, int], further: Iterable[str]) -> None:
        """Look whether the entities whose offset advances are the same as before; now and then, whether all are."""
        paths, now = set(further), time.monotonic()
        if self._checked_at is None or now - self._checked_at >= renumbering.EVERY:
            paths, self._checked_at = set(self._source.entities), now
        kept().run(self._source.check_identity(start, paths))

    def _check_is_ours(self, start: dict[str, int]) -> None:
        """Refuse offsets of other entities: from there this one would be read from its beginning, or not at all."""
        entities = self._source.entities
        if start and not start.keys() & entities.keys():
            told = f"it is a checkpoint of other entities than {', '.join(entities)}; begin with an empty directory"
            raise OptionError("checkpointLocation", ", ".join(start), told)

    def _looked_just_now(self, start: dict[str, int]) -> bool:
        """Tell whether there was nothing a moment ago: Spark asks a hundred times a second, and each look costs."""
        if self._nothing_since is None or self._target is not None:
            return False
        at, when = self._nothing_since
        return at == start and time.monotonic() - when < self._source.options.poll_interval

    def _until_target(self, found: Range) -> Range:
        if self._target is None:
            return found
        end = min(found.end, self._target.get(found.path, FIRST))
        return replace(found, start=min(found.start, end), end=end)

    @staticmethod
    def _offset(ranges: Iterable[Range]) -> dict[str, int]:
        offset: dict[str, int] = {}
        for each in ranges:
            offset = renumbering.noting({**offset, each.path: each.end}, each.path, each.newest)
        return offset

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Part]:
        """Cut a batch into parts; on the driver."""
        return self._source.parts(
            Range(path, start.get(path, FIRST), end[path]) for path in self._source.entities if path in end
        )

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        """Read a part; on an executor."""
        if not isinstance(partition, Part):
            return iter(())
        return self._source.read(partition, scheduled=bool(self._source.options.include_scheduled))
