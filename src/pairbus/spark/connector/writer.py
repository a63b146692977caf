"""Writing: rows are sent, to the primary or, in an outage, to a backlog queue of the secondary."""

import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pairbus.errors import OptionError
from pairbus.spark.connector.arrow import RecordBatch
from pairbus.spark.connector.columns import check_writable
from pairbus.spark.connector.kept import kept
from pairbus.spark.connector.options import WriteOptions
from pairbus.spark.connector.outgoing import MessageIds, Rows

_LOGGER = logging.getLogger(__name__)

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """What one task has done.

    :ivar write: the id of the streaming query, or of the write.
    :ivar sent: messages that the primary has accepted.
    :ivar parked: messages that a backlog queue has accepted.
    """

    write: str
    partition: int
    attempt: int
    sent: int
    parked: int
    seconds: float


class _Task:
    """Sends the rows of one partition."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        where = check_writable(schema, options.entity)
        self._options = options
        self._rows = Rows(schema, where, options.entity)

    def run(self, batches: Iterator[RecordBatch], write: str, batch: str) -> Sent:
        context = TaskContext.get()
        partition, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        began = time.monotonic()
        here = kept()
        outbox = here.run(here.outbox(self._options))
        before = outbox.counts.sent, outbox.counts.parked
        ids = MessageIds(f"{write}/{batch}/{partition}")
        count = 0
        try:
            for each in batches:
                messages = list(self._rows.messages(each, ids, count))  # here, so that pings and links are not held up
                count += here.run(outbox.send(messages))
        finally:
            here.flush(self._options.ledger)
        return Sent(
            write=write,
            partition=partition,
            attempt=attempt,
            sent=outbox.counts.sent - before[0],
            parked=outbox.counts.parked - before[1],
            seconds=round(time.monotonic() - began, 3),
        )


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._id = options.write_id or uuid.uuid4().hex
        self._task = _Task(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> Sent:
        """Send the rows of a partition; on an executor."""
        return self._task.run(iterator, self._id, "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tell what was done; on the driver."""
        _tell(self._options, messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tell what was done before it failed; on the driver."""
        _tell_aborted(messages, None)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if options.write_id is not None:
            raise OptionError("writeId", options.write_id, "leave it out: a streaming query has an id of its own")
        self._options = options
        self._task = _Task(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> Sent:
        """Send the rows of a partition of a batch; on an executor."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if query is None or batch is None:
            raise RuntimeError("Spark does not tell which batch of which query this is; is it older than 4.2?")
        return self._task.run(iterator, query, batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Tell what was done; on the driver."""
        _tell(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Tell what was done before it failed; on the driver."""
        _tell_aborted(messages, batchId)


def _tell(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
    tasks = [each for each in messages if isinstance(each, Sent)]
    sent, parked = sum(each.sent for each in tasks), sum(each.parked for each in tasks)
    which = "the write" if batch is None else f"batch {batch}"
    level = logging.WARNING if parked else logging.INFO
    _LOGGER.log(level, "%s: %d messages sent, %d parked, by %d tasks", which, sent, parked, len(tasks))
    if options.report is not None and tasks:
        _write_report(Path(options.report), tasks, batch, sent, parked)


def _tell_aborted(messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
    done = [each for each in messages if isinstance(each, Sent)]
    _LOGGER.error(
        "%s failed; %d of its tasks had sent %d messages and parked %d, which get the same ids when sent again",
        "the write" if batch is None else f"batch {batch}",
        len(done),
        sum(each.sent for each in done),
        sum(each.parked for each in done),
    )


def _write_report(directory: Path, tasks: Sequence[Sent], batch: int | None, sent: int, parked: int) -> None:
    """Write what a batch has done into a file of its own; a batch that is committed again writes the same file."""
    write = tasks[0].write
    report = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "write": write,
        "batch": batch,
        "sent": sent,
        "parked": parked,
        "tasks": [{name: value for name, value in asdict(each).items() if name != "write"} for each in tasks],
    }
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{write}-{0 if batch is None else batch:010d}.json"
    part = directory / f".{name}.{os.getpid()}"
    part.write_text(json.dumps(report) + "\n", encoding="utf-8")
    part.replace(directory / name)
