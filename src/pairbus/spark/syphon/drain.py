"""The syphon as a function: carries a backlog home with a Spark session, and tells what became of every message."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pairbus.core.options import TransportName
from pairbus.operate.connection_strings import host_of
from pairbus.spark.syphon.account_server import AccountServer
from pairbus.spark.syphon.job import SparkEngine
from pairbus.spark.syphon.reconciliation import append
from pairbus.syphon.accounts import Accounts
from pairbus.syphon.draining import DrainProgress, DrainResult, drain_backlog, run_in_thread
from pairbus.syphon.survey import Depths


def drain(
    spark: SparkSession,
    primary: str,
    secondary: str,
    *,
    backlog_queues: int = 10,
    transport: TransportName = "native",
    once: bool = True,
    ledger: str | os.PathLike[str] | None = None,
    table: str | None = None,
    progress: Callable[[DrainProgress], None] | None = None,
) -> DrainResult:
    """Carry the parked messages of a pairing to the queues and topics they were meant for.

    A message leaves the backlog only after its destination has taken it. The call blocks until all is delivered that
    can be. It may be made where an event loop is running, as in a notebook. Nothing is set on the session, and it is
    not stopped. KeyboardInterrupt (Ctrl-C, a notebook's stop button) ends the drain in order: bursts that are under way
    are finished, and what was done until then is returned. A second one is raised at once; nothing is lost then either.

    :param primary: connection string of the primary, with the claim Send.
    :param secondary: connection string of the secondary, with Listen; with Manage, the depths of its queues are known.
    :param backlog_queues: how many backlog queues the pairing has, if the secondary's queues may not be listed.
    :param transport: ``native``, or ``sdk`` for the official client.
    :param once: False: keep the backlog empty, until interrupted.
    :param ledger: a directory of the driver's machine, where every operation is recorded.
    :param table: a Parquet table, wherever Spark can write, to which the reconciliation is appended.
    :param progress: called four times a second, in another thread.
    :raises ConnectionStringError: a connection string cannot be read.
    :raises PairbusError: the secondary cannot be asked for its queues.
    """
    host_of(secondary, "secondary")  # refused before anything is done

    @asynccontextmanager
    async def engine(accounts: Accounts) -> AsyncGenerator[SparkEngine]:
        host = spark.conf.get("spark.driver.host") or "127.0.0.1"
        bind = spark.conf.get("spark.driver.bindAddress", host) or host
        async with AccountServer(accounts, bind=bind, host=host) as account_server:
            yield SparkEngine(spark, account_server, primary, secondary, transport=transport)

    depths = Depths(secondary, host_of(primary, "primary"), backlog_queues)
    directory = None if ledger is None else Path(ledger)
    done = run_in_thread(
        lambda stop: drain_backlog(engine, depths, stop=stop, once=once, ledger=directory, progress=progress)
    )
    if table is not None:
        append(spark, table, done.rows())
    return done
