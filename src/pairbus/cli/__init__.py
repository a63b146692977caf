"""The ``pairbus`` command: one module per command, each of which imports what it needs when it runs."""

from typing import Annotated

import typer
from rich.console import Console

import pairbus
from pairbus.cli.broker import broker
from pairbus.cli.cost import cost
from pairbus.cli.demo import demo
from pairbus.cli.fault import fault
from pairbus.cli.report import report
from pairbus.cli.simulate import simulate
from pairbus.cli.syphon import syphon
from pairbus.errors import PairbusError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"pairbus {pairbus.__version__}")
        raise typer.Exit


@app.callback()
def pairbus_command(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Keep an application's message sends available while its Azure Service Bus namespace is not."""


app.command()(broker)
app.command()(cost)
app.command()(demo)
app.command()(fault)
app.command()(report)
app.command()(simulate)
app.command()(syphon)


def main() -> None:
    """Run the command; an error of ours ends it with one line that says what is wrong, and exit code 2."""
    try:
        app(prog_name="pairbus")
    except PairbusError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False)
        raise SystemExit(2) from None
