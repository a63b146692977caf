"""``pairbus syphon``: carry parked messages to where they belong."""

import asyncio
import contextlib
import enum
import json
import signal
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from pairbus.cli.connecting import PrimaryOption, SecondaryOption, Side, connection
from pairbus.cli.running import is_of_output
from pairbus.cli.terminal import console, line
from pairbus.errors import OptionError, PairbusError
from pairbus.extras import require

if TYPE_CHECKING:
    from pairbus.core.options import TransportName
    from pairbus.core.reconciliation import Reconciliation
    from pairbus.syphon.accounts import Accounts
    from pairbus.syphon.rounds import Engine
    from pairbus.syphon.survey import Depths

LEFT_BEHIND = 1
"""The exit code when messages that could be delivered later are still there."""


class EngineName(enum.Enum):
    """Who does the carrying."""

    SPARK = "spark"
    LOCAL = "local"


class TransportChoice(enum.Enum):
    """What carries the messages."""

    NATIVE = "native"
    SDK = "sdk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command was told."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    host: str
    once: bool
    engine: EngineName
    transport: "TransportName"
    master: str
    ui: bool
    backlog_queues: int
    ledger: Path | None
    table: str | None
    as_json: bool


def syphon(
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    once: Annotated[bool, typer.Option("--once", help="End when all that can be delivered is.")] = False,
    engine: Annotated[EngineName, typer.Option(help="Spark, or this process alone.")] = EngineName.SPARK,
    transport: Annotated[
        TransportChoice, typer.Option(help="What carries the messages: pairbus's own client, or the official SDK.")
    ] = TransportChoice.NATIVE,
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[*], local-cluster[2,1,1024], spark://..., k8s://..., yarn.")
    ] = "local[*]",
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's web page.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look, and tell what would go where.")] = False,
    backlog_queues: Annotated[
        int, typer.Option(min=1, help="Backlog queues of the pairing, for who may not list the secondary's queues.")
    ] = 10,
    ledger: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep account of every operation in this directory.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="DIR", help="Append the reconciliation to this Parquet table (Spark only).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one JSON object instead of a table.")] = False,
) -> None:
    """Carry parked messages to the queues and topics they were meant for.

    Runs until it is stopped, and then finishes the bursts that are under way; with `--once`, until all that can be
    delivered is. A message leaves the backlog only after its destination has taken it and it is accounted for.

    Exit code 0: all that could be delivered was. 1: some messages wait, for a destination that is down, say.
    2: an error.

    Examples:
    `pairbus syphon --once` empties the backlog with Spark on this machine.

    `pairbus syphon --dry-run` tells what would go where.

    `pairbus syphon --master spark://master:7077 --ledger /var/lib/pairbus` keeps it empty, on a cluster.

    """
    if table is not None and engine is EngineName.LOCAL:
        raise OptionError("table", table, "with --engine spark only: it is Spark that writes it")
    if engine is EngineName.SPARK and not dry_run:
        require("spark", "pairbus syphon --engine spark")
    one, other = connection(Side.PRIMARY, primary), connection(Side.SECONDARY, secondary)
    wanted = Wanted(
        primary=one.secret,
        secondary=other.secret,
        host=one.host,
        once=once,
        engine=engine,
        transport=transport.value,
        master=master,
        ui=ui,
        backlog_queues=backlog_queues,
        ledger=ledger,
        table=table,
        as_json=as_json,
    )
    try:
        code = asyncio.run(_look(wanted) if dry_run else _drain(wanted))
    except PairbusError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and is_of_output(error):
            raise
        from pairbus.spark.platform.session import reason_of

        raise PairbusError(f"the syphon has ended: {reason_of(error)}") from error
    raise typer.Exit(code)


def _depths(wanted: Wanted) -> "Depths":
    from pairbus.syphon.survey import Depths

    return Depths(wanted.secondary, wanted.host, wanted.backlog_queues)


async def _look(wanted: Wanted) -> int:
    """Do nothing, and tell what would be done."""
    from azure.servicebus.aio import ServiceBusClient

    from pairbus.cli.reconciliation import foreseen_table
    from pairbus.syphon.survey import Seen, look_into

    depths = await _depths(wanted).look()
    async with ServiceBusClient.from_connection_string(wanted.secondary) as client:
        seen = {queue: Seen() for queue, depth in depths.items() if depth != 0}
        for queue, into in seen.items():
            await look_into(client, queue, into)
    foreseen = {queue: into.foreseen for queue, into in seen.items()}
    if wanted.as_json:
        typer.echo(json.dumps(_foreseen(foreseen), indent=2))
    else:
        console().print(foreseen_table(foreseen))
    return 0


def _foreseen(foreseen: "dict[str, Reconciliation]") -> dict[str, Any]:
    return {
        "found": sum(report.total().found for report in foreseen.values()),
        "queues": {
            queue: {
                destination: {
                    "deliver": counts.delivered,
                    "dead_letter": {reason.value: count for reason, count in counts.dead_lettered.items()},
                }
                for destination, counts in report.destinations.items()
            }
            for queue, report in foreseen.items()
        },
    }


async def _drain(wanted: Wanted) -> int:
    from pairbus.cli.progress import Progress
    from pairbus.cli.reconciliation import as_document, reconciliation_table
    from pairbus.instrument.ledger import LedgerFile
    from pairbus.syphon.accounts import Accounts
    from pairbus.syphon.rounds import Drain

    ledger = None if wanted.ledger is None else LedgerFile(wanted.ledger)
    accounts = Accounts(ledger)
    stop = asyncio.Event()
    terminal = console(stderr=True)
    try:
        async with _engine(wanted, accounts, terminal) as engine:
            _stop_on_signals(stop)
            began = time.monotonic()
            drain = Drain(_depths(wanted), engine, accounts, stop=stop, metered=ledger is not None)
            async with Progress(terminal, drain, accounts):
                await (drain.once() if wanted.once else drain.keep())
            seconds = time.monotonic() - began
            if wanted.table is not None:
                await asyncio.to_thread(_write_table, wanted.table, accounts, seconds)
    finally:
        if ledger is not None:
            await asyncio.to_thread(ledger.close)
    if wanted.as_json:
        typer.echo(json.dumps(as_document(accounts, seconds), indent=2))
    else:
        console().print(reconciliation_table(accounts, seconds))
    for queue, problem in accounts.problems.items():
        terminal.print(line((f"{queue} cannot be received from:", "bold red"), f" {problem}"))
    total = accounts.total()
    is_left = bool(total.waiting) or bool(accounts.problems)
    return LEFT_BEHIND if wanted.once and is_left else 0


@contextlib.asynccontextmanager
async def _engine(wanted: Wanted, accounts: "Accounts", terminal: Console) -> "AsyncGenerator[Engine]":
    if wanted.engine is EngineName.LOCAL:
        from pairbus.syphon.rounds import LocalEngine

        yield LocalEngine(wanted.primary, wanted.secondary, accounts, wanted.transport)
        return
    from pairbus.spark.platform.session import is_provided, spark_session

    with terminal.status("Starting Spark ..."):
        provided = await asyncio.to_thread(is_provided)
        spark = await asyncio.to_thread(spark_session, "pairbus syphon", master=wanted.master, ui=wanted.ui, brief=True)
    try:
        from pairbus.spark.syphon.desk import Desk
        from pairbus.spark.syphon.job import SparkEngine

        if wanted.ui:
            terminal.print(f"Spark's web page: {spark.sparkContext.uiWebUrl}")
        host = spark.conf.get("spark.driver.host") or "127.0.0.1"
        bind = spark.conf.get("spark.driver.bindAddress", host) or host
        async with Desk(accounts, bind=bind, host=host) as desk:
            yield SparkEngine(spark, desk, wanted.primary, wanted.secondary, transport=wanted.transport)
    finally:
        if not provided:
            await asyncio.to_thread(spark.stop)


def _stop_on_signals(stop: asyncio.Event) -> None:
    """End in order at the first signal; at the second, at once: nothing is lost then either."""
    loop = asyncio.get_running_loop()

    def first(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, first, each)


def _write_table(table: str, accounts: "Accounts", seconds: float) -> None:
    from pairbus.cli.reconciliation import rows
    from pairbus.spark.platform.session import spark_session
    from pairbus.spark.syphon.reconciliation import append

    append(spark_session("pairbus syphon"), table, rows(accounts, seconds))
