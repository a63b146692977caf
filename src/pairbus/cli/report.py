"""``pairbus report``: what a ledger says: costs, outages, availability."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pairbus.cli.cost import MEANING
from pairbus.cli.running import counted, say_error
from pairbus.cli.terminal import console, line
from pairbus.core.charging import GB
from pairbus.extras import require

if TYPE_CHECKING:
    from pairbus.spark.report.job import LedgerReport
    from pairbus.spark.report.summary import Facts

SHOWN = 10
"""How many outages the terminal shows."""
SMALL_BYTES = 32_000_000
"""Up to so much of ledgers, Java has more work with making itself fast than it saves by that."""

_TOLD = {
    "start": "starting Spark",
    "bronze": "reading ledgers",
    "silver": "counting each record once",
    "costs": "operations and money",
    "backlog": "the backlog, minute by minute",
    "availability": "outages and availability",
    "page": "the page",
}


def report(
    ledgers: Annotated[
        list[str], typer.Argument(metavar="LEDGER...", help="Directories with ledger files, files, or patterns.")
    ],
    out: Annotated[str, typer.Option(help="Where the tables are kept and report.html is written.")],
    master: Annotated[str, typer.Option(help="Where Spark runs: local[*], spark://…, k8s://… or yarn.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver, when it is started here.")] = "4g",
    plan: Annotated[str, typer.Option(help="Which plan of the price file.")] = "standard",
    prices: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A price file of your own, in TOML.")
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NAME", help="Another name of a namespace and the one that is meant; may be repeated."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Make tables of ledgers, and a page that shows them: costs, outages, availability, backlog.

    The tables are Parquet, by date, in the directory of --out. The next time only files that are new or have grown are
    read, and only the days computed again that they touch: run it as often as you like.

    Clients of an embedded broker know nothing but its address. If it has metered, too, name it:
    `--alias localhost-5672=contoso`.

    Examples:
    `pairbus report ledger/ --out tables/` makes the tables and tables/report.html.

    `pairbus report hdfs:///ledgers/2026-*/ --out hdfs:///tables --master yarn` does so on a cluster.

    """
    require("spark", "pairbus report")
    from pairbus.operate.prices import read_plan
    from pairbus.spark.platform.session import is_local, session_for_command

    names = dict(_alias(each) for each in alias or ())
    chosen = read_plan(plan, prices)
    began = time.monotonic()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console(stderr=True), transient=True
    ) as progress:
        bar = progress.add_task(_TOLD["start"], total=len(_TOLD))

        def step(name: str) -> None:
            progress.update(bar, completed=list(_TOLD).index(name), description=_TOLD[name])

        settings = {"spark.driver.memory": memory}
        if is_local(master):
            settings["spark.sql.shuffle.partitions"] = "8"
        with session_for_command("pairbus report", master=master, brief=are_small(ledgers), settings=settings) as spark:
            from pairbus.spark.report.job import make_report

            made = make_report(spark, ledgers, out, plan=chosen, aliases=names, step=step)
    seconds = time.monotonic() - began
    if as_json:
        typer.echo(json.dumps(_document(made, seconds), indent=2))
    else:
        _print(console(), made.facts)
        told = f"{made.files_read} ledger files read, {made.facts.records:,} records in the tables, {seconds:.0f} s. "
        console().print(line(told, (f"The page: {made.page}", "bold")), soft_wrap=True)
    for file, reason in made.set_aside.items():
        say_error(f"{file} was set aside, since it cannot be read: {reason}")
    for file, count in made.facts.newer.items():
        records = counted(count, "record")
        say_error(f"{file}: {records} of a newer pairbus cannot be read and not counted; update this one")
    if made.set_aside or made.facts.newer:
        raise typer.Exit(1)


def _document(made: "LedgerReport", seconds: float) -> dict[str, Any]:
    from pairbus.spark.report.summary import as_json

    return {
        **as_json(made.facts),
        "files_read": made.files_read,
        "set_aside": dict(made.set_aside),
        "report": made.page,
        "seconds": round(seconds, 1),
    }


def are_small(ledgers: Sequence[str]) -> bool:
    """Tell whether the ledgers are known to be small: files and directories of this machine, and not patterns."""
    found = [Path(each) for each in ledgers]
    inside = (file for each in found for file in (each.glob("*") if each.is_dir() else (each,)))
    size = sum(file.stat().st_size for file in inside if file.is_file())
    return all(each.exists() for each in found) and size <= SMALL_BYTES


def _alias(text: str) -> tuple[str, str]:
    name, equals, meant = text.partition("=")
    if not (name and equals and meant):
        raise typer.BadParameter(f"{text!r} is not two names; write it as localhost-5672=contoso", param_hint="--alias")
    return name, meant


def _print(terminal: Console, facts: "Facts") -> None:
    from pairbus.spark.report.page import duration, percent

    plan, totals = facts.plan, facts.totals
    costs = Table(title=f"{len(facts.days)} days, plan {plan.name}", title_justify="left", show_footer=True)
    costs.add_column("stage", "total")
    costs.add_column("what")
    costs.add_column("operations", f"{sum(row['operations'] for row in facts.stages.values()):,}", justify="right")
    costs.add_column("charged", f"{sum(row['charged'] for row in facts.stages.values()):,}", justify="right")
    costs.add_column(plan.currency, f"{facts.charge_nanos / 1e9:,.4f}", justify="right")
    costs.add_column("GB", f"{facts.bytes / GB:,.6f}", justify="right")
    costs.add_column(plan.currency, f"{facts.bandwidth_nanos / 1e9:,.4f}", justify="right")
    for name, row in sorted(facts.stages.items()):
        what = {**MEANING, "setup": "making sure of the backlog queues, looks"}[name]
        costs.add_row(
            name,
            what,
            f"{row['operations']:,}",
            f"{row['charged']:,}",
            f"{row['nanos'] / 1e9:,.4f}",
            f"{row['bytes'] / GB:,.6f}",
            f"{row['bandwidth_nanos'] / 1e9:,.4f}",
        )
    terminal.print(costs)
    if facts.outages:
        shown = Table(title=f"Outages: {facts.outage_count:,}", title_justify="left")
        for name in ("entity", "began (UTC)", "to fail over", "to recover", "parked", "to drain"):
            shown.add_column(name, justify="left" if name == "entity" else "right")
        for row in facts.outages[:SHOWN]:
            shown.add_row(
                f"{row['namespace']}/{row['entity']}",
                f"{row['began']:%Y-%m-%d %H:%M:%S}",
                duration(row["failover_us"]),
                duration(row["recovery_us"]) if row["ended"] else "goes on",
                f"{row['parked']:,}",
                duration(row["drain_us"]),
            )
        terminal.print(shown)
    terminal.print(
        line(
            f"Of {totals['attempted']:,} messages ",
            (percent(totals["with_pairing"]), "bold"),
            " were accepted; without pairing ",
            (percent(totals["without_pairing"]), "bold"),
            f" would have been. Parked: {totals['parked']:,}; still in the backlog: {facts.left:,}.",
        ),
        soft_wrap=True,
    )
    for count, what in (
        (facts.malformed, "lines are no records, and are kept apart in the table bronze"),
        (facts.dropped, "records found no room in the ledger: what is said here is too little by them"),
        (facts.differences, "counts differ between clients and broker: see the table client_vs_broker"),
    ):
        if count:
            terminal.print(line((f"{count:,} {what}.", "yellow")))
