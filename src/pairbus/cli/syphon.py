"""``pairbus syphon``: carry parked messages to where they belong."""

import asyncio
import contextlib
import enum
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairbus.cli.connecting import PrimaryOption, SecondaryOption, Side, connection
from pairbus.cli.running import is_of_output
from pairbus.cli.terminal import console, line
from pairbus.errors import OptionError, PairbusError
from pairbus.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pairbus.cli.progress import ProgressDisplay
    from pairbus.core.options import TransportName
    from pairbus.core.reconciliation import Reconciliation
    from pairbus.syphon.accounts import Accounts
    from pairbus.syphon.draining import DrainResult
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
        code = asyncio.run(_look(wanted)) if dry_run else _drain(wanted)
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


def _drain(wanted: Wanted) -> int:
    from pairbus.cli.progress import ProgressDisplay
    from pairbus.cli.reconciliation import reconciliation_table

    terminal = console(stderr=True)
    with contextlib.ExitStack() as stack:
        if wanted.engine is EngineName.LOCAL:
            carry = _here(wanted)
        else:
            from pairbus.spark.platform.session import session_for_command

            with terminal.status("Starting Spark ..."):
                spark = stack.enter_context(
                    session_for_command("pairbus syphon", master=wanted.master, ui=wanted.ui, brief=True)
                )
            if wanted.ui:
                terminal.print(f"Spark's web page: {spark.sparkContext.uiWebUrl}")
            carry = _on_spark(wanted, spark)
        _interrupt_on_signals()
        with ProgressDisplay(terminal) as display:
            done = carry(display)
    if wanted.as_json:
        typer.echo(json.dumps(done.to_document(), indent=2))
    else:
        console().print(reconciliation_table(done))
    for queue, problem in done.problems.items():
        terminal.print(line((f"{queue} cannot be received from:", "bold red"), f" {problem}"))
    return LEFT_BEHIND if wanted.once and not done.is_complete else 0


def _on_spark(wanted: Wanted, spark: "SparkSession") -> "Callable[[ProgressDisplay], DrainResult]":
    from pairbus.spark.syphon.drain import drain

    return lambda display: drain(
        spark,
        wanted.primary,
        wanted.secondary,
        backlog_queues=wanted.backlog_queues,
        transport=wanted.transport,
        once=wanted.once,
        ledger=wanted.ledger,
        table=wanted.table,
        progress=display,
    )


def _here(wanted: Wanted) -> "Callable[[ProgressDisplay], DrainResult]":
    from pairbus.syphon.draining import drain_backlog, run_in_thread
    from pairbus.syphon.rounds import LocalEngine

    def engine(accounts: "Accounts") -> contextlib.nullcontext[LocalEngine]:
        return contextlib.nullcontext(LocalEngine(wanted.primary, wanted.secondary, accounts, wanted.transport))

    return lambda display: run_in_thread(
        lambda stop: drain_backlog(
            engine, _depths(wanted), stop=stop, once=wanted.once, ledger=wanted.ledger, progress=display
        )
    )


def _interrupt_on_signals() -> None:
    """End in order at the first signal; at the second, at once: nothing is lost then either."""

    def first(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, first)
