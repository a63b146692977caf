"""The syphon on Spark: a round is one job, each task of which is a worker (ADR 0022).

The plan is made on the driver and has no side effect. All side effects are in the tasks, on the executors, with the
same mover as everywhere. What a task needs to reach the namespaces travels inside its pickled function, so that no
plan, no page of the web interface and no log has it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyspark import TaskContext
from pyspark.sql import SparkSession

from pairbus.core.options import TransportName
from pairbus.core.slots import Share
from pairbus.spark.syphon.account_server import AccountClient, AccountServer, Address
from pairbus.syphon.worker import Orders, work


@dataclass(frozen=True, slots=True)
class Job:
    """What a task needs to know.

    :ivar primary: connection string of the primary.
    :ivar secondary: connection string of the secondary.
    """

    account_server: Address
    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    transport: TransportName


async def _work(job: Job, orders: Orders, name: str, shares: Sequence[Share]) -> None:
    async with AccountClient(job.account_server) as line:
        await work(
            name,
            shares,
            orders,
            line,
            line.end,
            primary=job.primary,
            secondary=job.secondary,
            transport=job.transport,
        )


class SparkEngine:
    """Has rounds done by a Spark session: each is one job, whose tasks are workers."""

    def __init__(
        self,
        spark: SparkSession,
        account_server: AccountServer,
        primary: str,
        secondary: str,
        *,
        transport: TransportName = "native",
    ) -> None:
        self._context = spark.sparkContext
        self._desk = account_server
        self._job = Job(account_server.address, primary, secondary, transport)

    @property
    def parallelism(self) -> int:
        """How many tasks Spark can run at once."""
        return self._context.defaultParallelism

    async def run(self, tasks: Sequence[Sequence[Share]], orders: Orders, end: asyncio.Event) -> None:
        """Do a round."""
        async with self._desk.round(end):
            await asyncio.to_thread(self._run, tasks, orders)

    def _run(self, tasks: Sequence[Sequence[Share]], orders: Orders) -> None:
        job = self._job

        def move(rows: Iterable[Sequence[Share]]) -> None:
            context = TaskContext.get()
            name = "task" if context is None else f"task/{context.taskAttemptId()}"
            shares = [share for row in rows for share in row]
            asyncio.run(_work(job, orders, name, shares))

        self._context.parallelize(tasks, len(tasks)).foreachPartition(move)
