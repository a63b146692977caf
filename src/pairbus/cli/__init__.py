"""The ``pairbus`` command: one module per command, each of which imports what it needs when it runs."""

import sys
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
from pairbus.cli.report import report
from pairbus.cli.running import discard_output, is_of_output, say_error
from pairbus.cli.send import send
from pairbus.cli.simulate import simulate
from pairbus.cli.status import status
from pairbus.cli.syphon import syphon
from pairbus.errors import PairbusError
from pairbus.extras import extra_with

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
app.add_typer(deadletter, name="deadletter")
app.command()(dashboard)
app.command()(demo)
app.command()(drill)
app.command()(fault)
app.command()(receive)
app.command()(send)
app.command()(report)
app.command()(simulate)
app.command()(status)
app.command()(syphon)


def main() -> None:
    """Run the command; an error of ours ends it with one line that says what is wrong, and exit code 2."""
    try:
        try:
            app(prog_name="pairbus")
        finally:
            sys.stdout.flush()  # while there is still somebody to tell that it failed
    except OSError as error:
        if not is_of_output(error):
            raise
        discard_output()
        say_error(f"the output cannot be written: {error.strerror}")
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        extra = extra_with(error.name or "")
        if extra is None:
            raise
        say_error(f"{error.name} is not installed: pip install 'pairbus[{extra}]'")
        raise SystemExit(2) from None
    except PairbusError as error:
        say_error(str(error))
        raise SystemExit(2) from None
