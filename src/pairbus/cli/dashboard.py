"""``pairbus dashboard``: the page of an operator."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pairbus.cli.connecting import PrimaryOption, SecondaryOption, Side, optional
from pairbus.cli.parsing import duration
from pairbus.cli.terminal import console, line
from pairbus.extras import require


def dashboard(
    ledger: Annotated[
        Path | None, typer.Option(file_okay=False, help="The directory into which clients, or brokers, write a ledger.")
    ] = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The page's port. 0: any free one.")] = 5680,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PAIRBUS_DASHBOARD_TOKEN",
            show_default=False,
            help="What a browser must show once; best given by its variable.",
        ),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Serve by TLS, with this certificate, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key, in PEM, without a password.")] = None,
    every: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How often to look at the namespaces; it costs operations."),
    ] = "5s",
    plan: Annotated[str, typer.Option(help="Which plan of the price file.")] = "standard",
    prices: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A price file of your own, in TOML.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="When ready, print one line of JSON with the address instead of words.")
    ] = False,
) -> None:
    """Serve a web page that shows what a pairing does: health, rates, backlog, outages, dead letters, money.

    It reads the ledger of the clients and asks both namespaces, each as far as it is given. By itself it
    changes nothing.

    Examples:
    `pairbus dashboard --ledger ./ledger` shows health, rates, outages and costs at http://127.0.0.1:5680.

    `PAIRBUS_DASHBOARD_TOKEN=$(openssl rand -hex 16) pairbus dashboard --ledger ./ledger --host 0.0.0.0` shows them to
    others who have the token.

    """
    require("dashboard", "pairbus dashboard")
    from pairbus.dashboard.monitor import Sources
    from pairbus.dashboard.serve import Where, serve
    from pairbus.operate.prices import read_plan

    one, other = optional(Side.PRIMARY, primary), optional(Side.SECONDARY, secondary)
    if ledger is None and one is None and other is None:
        raise typer.BadParameter(
            "give at least one of --ledger, --primary and --secondary: there is nothing to show", param_hint="--ledger"
        )
    sources = Sources(
        read_plan(plan, prices),
        ledger,
        None if one is None else one.secret,
        None if other is None else other.secret,
        every=max(0.5, duration("--every", every)),
    )

    def ready(url: str) -> None:
        if as_json:
            print(json.dumps({"url": url}), flush=True)  # noqa: T201 (for machines)
        else:
            console().print(line("The dashboard is at ", (url, "bold"), "\n", ("Ctrl+C ends it.", "dim")))

    serve(sources, Where(host, port, token, certificate, key), ready)
