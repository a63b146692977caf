"""The syphon on Spark: a plan that is read, and a sink that moves (ADR 0022).

The plan has a row per backlog queue and slot, and reading it has no side effect. All side effects are in the sink's
``write()``, on the executors: each task carries the shares of its partition home, with the same mover as everywhere.
What the sink needs to reach the namespaces travels inside its pickled class, so that no option of a plan, no page of
the web interface and no log has it.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType

from pairbus.aio.carrier import Carrier, Orders
from pairbus.aio.transports import open_transport
from pairbus.core.options import TransportName
from pairbus.core.slots import Share
from pairbus.spark.desk import Address, Desk, Line

PLAN: Final = "pairbus_plan"
SINK: Final = "pairbus_syphon"
PLAN_SCHEMA: Final = "queue string, slot int, quota long, weight long"


class PlanSource(DataSource):
    """Reads the plan of a round, one partition per task."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return PLAN

    def schema(self) -> str:
        """The columns of a share."""
        return PLAN_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 (Spark's)
        """Read the plan that is in the option ``tasks``."""
        return _PlanReader(json.loads(self.options["tasks"]))


class _Task(InputPartition):
    def __init__(self, shares: Sequence[dict[str, Any]]) -> None:
        super().__init__(0)
        self.shares = shares


class _PlanReader(DataSourceReader):
    def __init__(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [_Task(shares) for shares in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, _Task)  # noqa: S101 (one of those above)
        for share in partition.shares:
            yield share["queue"], share["slot"], share["quota"], share["weight"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a task needs to know.

    :ivar primary: connection string of the primary.
    :ivar secondary: connection string of the secondary.
    """

    desk: Address
    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    transport: TransportName


def moving_sink(job: Job) -> type[DataSource]:
    """Make the sink of a syphon. The class is pickled with what it closes over, and shows nothing of it."""

    class MovingSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return SINK

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002, FBT001 (Spark's)
            return MovingWriter(job, Orders(**json.loads(self.options["orders"])))

    return MovingSink


class MovingWriter(DataSourceWriter):
    """Moves messages where rows are written."""

    def __init__(self, job: Job, orders: Orders) -> None:
        self._job = job
        self._orders = orders

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Carry the shares of a partition home."""
        shares = [Share(**row.asDict()) for row in iterator]
        context = TaskContext.get()
        name = "task" if context is None else f"task/{context.taskAttemptId()}"
        asyncio.run(_carry(self._job, self._orders, name, shares))
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: all is in the books already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what was delivered is delivered."""


async def _carry(job: Job, orders: Orders, name: str, shares: Sequence[Share]) -> None:
    async with (
        Line(job.desk) as line,
        open_transport(job.primary, job.transport) as target,
        open_transport(job.secondary, job.transport) as source,
    ):
        await Carrier(name, shares, source=source, target=target, account=line, orders=orders).run(line.end)


class SparkEngine:
    """Has rounds done by a Spark session: each is one job, whose tasks carry."""

    def __init__(
        self, spark: SparkSession, desk: Desk, primary: str, secondary: str, *, transport: TransportName = "native"
    ) -> None:
        self._spark = spark
        self._desk = desk
        spark.dataSource.register(PlanSource)
        spark.dataSource.register(moving_sink(Job(desk.address, primary, secondary, transport)))

    @property
    def parallelism(self) -> int:
        """How many tasks Spark can run at once."""
        return self._spark.sparkContext.defaultParallelism

    async def carry(self, tasks: Sequence[Sequence[Share]], orders: Orders, end: asyncio.Event) -> None:
        """Do a round."""
        async with self._desk.round(end):
            await asyncio.to_thread(self._run, tasks, orders)

    def _run(self, tasks: Sequence[Sequence[Share]], orders: Orders) -> None:
        spark: Any = self._spark
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 (where a sink is looked up)
        plan = json.dumps([[asdict(share) for share in task] for task in tasks])
        rows = self._spark.read.format(PLAN).option("tasks", plan).load()
        rows.write.format(SINK).option("orders", json.dumps(asdict(orders))).mode("append").save()
