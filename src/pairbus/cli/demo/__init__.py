"""``pairbus demo``: an outage that would have lost orders, and none is lost."""

import asyncio
import json
import logging
import signal
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from pairbus.cli.terminal import console, line
from pairbus.extras import require

if TYPE_CHECKING:
    from pairbus.cli.demo.play import Ending


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Keep the brokers' data, the ledger, the tables and report.html here."),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve the dashboard meanwhile, and until Ctrl+C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, the story aside.")] = False,
) -> None:
    """Run a shop through an outage of its broker, on this machine: real brokers, real sockets, a real kill -9.

    Two embedded brokers are started, each a process of its own. Tills send orders with the paired client to a queue
    and a topic, clerks receive them. The primary is killed, orders are parked in the secondary, the primary returns,
    and the Spark syphon carries the parked orders home. At the end every order is accounted for.
    """
    require("broker", "pairbus demo")
    require("spark", "pairbus demo")
    if dashboard:
        require("dashboard", "pairbus demo --dashboard")
    from pairbus.cli.demo.jobs import serving_dashboard
    from pairbus.cli.demo.play import Play

    terminal = console(stderr=as_json)
    folder = _folder(keep)
    logging.basicConfig(filename=folder / "demo.log", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    play = Play(terminal, folder)
    with ExitStack() as running:
        running.callback(play.primary.stop)
        running.callback(play.secondary.stop)
        play.start_brokers()
        page = running.enter_context(serving_dashboard(play.ledger, play.environment)) if dashboard else None
        if page is not None:
            terminal.print(line("The dashboard is at ", (page, "bold"), "\n"))
        with play.screen.shown():
            ending = asyncio.run(play.run())
        if as_json:
            print(json.dumps(ending.as_json()), flush=True)  # noqa: T201 (for machines)
        else:
            _tell(terminal, ending, folder)
        if page is not None:
            terminal.print(line("The dashboard is still at ", (page, "bold"), ". Ctrl+C ends it."))
            with suppress(KeyboardInterrupt):
                signal.pause()
    if not ending.good:
        raise typer.Exit(1)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="pairbus-demo-"))
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty; give a directory that is, or a new one", param_hint="--keep")
    return keep


def _tell(terminal: Console, ending: "Ending", folder: Path) -> None:
    counts, unpaired = ending.counts, ending.unpaired
    table = Table(title="\nWhat became of the orders", title_justify="left", show_header=False, box=None)
    table.add_column(justify="right", style="bold")
    for number, what in (
        (counts.sent, "sent"),
        (counts.failed, "sends that failed"),
        (ending.parked, "parked while contoso was away"),
        (ending.delivered, "carried home by the Spark syphon"),
        (counts.received, "received by the clerks"),
        (len(counts.lost), "lost"),
        (counts.duplicates, "came twice"),
    ):
        table.add_row(str(number), what)
    terminal.print(table)
    costs = Table(title="\nWhat it cost", title_justify="left", box=None, header_style="dim")
    costs.add_column("stage")
    costs.add_column("operations", justify="right")
    costs.add_column(ending.report["currency"], justify="right")
    for stage, cost in ending.report["stages"].items():
        costs.add_row(stage, f"{cost['operations']:,}", cost["cost"])
    terminal.print(costs)
    if not float(ending.report["operations_charge"]):
        terminal.print(line(("So few operations are free: the plan's base charge covers them.", "dim")))
    for lost in counts.lost:
        terminal.print(line(("lost:", "red"), f" {lost}"))
    terminal.print(f"\nFailover engaged {ending.failover_seconds:.1f} s after the kill.")
    attempts = unpaired.sent + unpaired.failed
    terminal.print(f"Without pairing, the same shop turned away {unpaired.failed} of {attempts} customers.")
    if ending.good:
        terminal.print(line(("No send failed, and no order was lost.", "bold green")))
    else:
        terminal.print(line(("This is not what pairbus promises.", "bold red"), " Keep the folder below, and tell us."))
    terminal.print(f"\nThe report, with the outage on a time line: {folder / 'report' / 'report.html'}", soft_wrap=True)
