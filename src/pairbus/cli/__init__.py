"""The ``pairbus`` command: one module per command, each of which imports what it needs when it runs."""

from typing import Annotated

import typer

import pairbus
from pairbus.cli.broker import broker
from pairbus.cli.cost import cost
from pairbus.cli.dashboard import dashboard
from pairbus.cli.deadletter import deadletter
from pairbus.cli.demo import demo
from pairbus.cli.drill import drill
from pairbus.cli.fault import fault
from pairbus.cli.receive import receive
from pairbus.cli.running import extra_with, say_error
from pairbus.cli.send import send
from pairbus.cli.simulate import simulate
from pairbus.cli.status import status
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
app.command()(dashboard)
app.add_typer(deadletter, name="deadletter")
app.command()(demo)
app.command()(drill)
app.command()(fault)
app.command()(receive)
app.command()(send)
app.command()(simulate)
app.command()(status)


def main() -> None:
    """Run the command; an error of ours ends it with one line that says what is wrong, and exit code 2."""
    try:
        app(prog_name="pairbus")
    except ModuleNotFoundError as error:
        extra = extra_with(error.name or "")
        if extra is None:
            raise
        say_error(f"{error.name} is not installed: pip install 'pairbus[{extra}]'")
        raise SystemExit(2) from None
    except PairbusError as error:
        say_error(str(error))
        raise SystemExit(2) from None
