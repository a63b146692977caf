"""``pairbus fault``: outages on command, at a broker that runs on this machine."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from pairbus.cli.terminal import console


def fault(
    where: Annotated[
        str | None, typer.Argument(help="A namespace, or an entity of one: contoso, contoso/orders.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Argument(
            help="down, cut, silent, stall, slow, lose-answers, busy, full, disabled, deny, expire-tokens; or clear."
        ),
    ] = None,
    lasts: Annotated[str | None, typer.Option("--for", help="End it after this long: 30s, 2m.")] = None,
    latency: Annotated[str | None, typer.Option(help="slow: each piece takes this much longer: 200ms.")] = None,
    rate: Annotated[str | None, typer.Option(help="slow: bytes a second: 10KB.")] = None,
    pid: Annotated[
        int | None, typer.Option(help="The broker's process, where several serve a namespace of that name.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="List as JSON.")] = False,
) -> None:
    """Switch an outage on or off at a `pairbus broker` that runs on this machine; without arguments, list them.

    Examples:
    `pairbus fault contoso down --for 30s` takes a namespace away for half a minute.

    `pairbus fault contoso/orders lose-answers` stores messages and never says so, until `pairbus fault contoso clear`.

    """
    from pairbus.broker.faults.script import read_order
    from pairbus.broker.run.control import ask, find, running, socket_of

    if where is None:
        _show(
            {name: faults for path, _ in running() for name, faults in ask(path, {"do": "faults"})["faults"].items()},
            as_json,
        )
        return
    if kind is None:
        raise typer.BadParameter("say what is to fail, or clear", param_hint="KIND")
    order = read_order(where, kind, lasts=lasts, latency=latency, rate=rate)
    options = {"lasts": lasts, "latency": latency, "rate": rate}
    broker = find(order.namespace) if pid is None else socket_of(pid)
    answer = ask(broker, {"do": "fault", "where": where, "kind": kind, **options})
    terminal = console()
    if order.kind is None:
        terminal.print(f"{where}: {answer['cleared']} cleared")
    else:
        terminal.print(f"{where}: {kind}" + (f" for {lasts}" if lasts is not None else ""))


def _show(faults: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(faults))  # noqa: T201 (for machines)
        return
    terminal = console()
    rows = [(name, each) for name, found in faults.items() for each in found]
    if not rows:
        terminal.print("No fault is switched on." if faults else "No broker of yours runs on this machine.")
        return
    table = Table("where", "fault", "until")
    for name, each in rows:
        until = each.get("until")
        when = "cleared" if until is None else datetime.fromtimestamp(until / 1000, UTC).strftime("%H:%M:%S UTC")
        details = "".join(
            f", {key} {each[key]}{unit}" for key, unit in (("latency", " ms"), ("rate", " B/s")) if key in each
        )
        table.add_row(f"{name}/{each['entity']}" if "entity" in each else name, each["kind"] + details, when)
    terminal.print(table)
