"""``pairbus cost``: what a pairing will cost, before there is one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pairbus.cli.parsing import duration, size
from pairbus.cli.terminal import console, line
from pairbus.core.charging import GB

if TYPE_CHECKING:
    from pairbus.core.forecast import Forecast, Scenario
    from pairbus.core.pricing import Plan

MEANING = {
    "direct": "sent to the primary, received from it",
    "park": "sent to a backlog queue during failover",
    "syphon": "received from the backlog, sent to the primary",
    "ping": "asking whether the primary is back",
    "idle": "the syphon's empty long polls",
}


def cost(
    backlog_queues: Annotated[int, typer.Option(help="Backlog queues of the pairing.")] = 10,
    days: Annotated[int, typer.Option(help="How many days to forecast.")] = 30,
    clients: Annotated[int, typer.Option(help="Processes that send; each pings for itself.")] = 1,
    entities: Annotated[int, typer.Option(help="Queues and topics they send to.")] = 1,
    subscriptions: Annotated[int, typer.Option(help="How often each message is received at its destination.")] = 1,
    syphons: Annotated[int, typer.Option(help="Processes that carry parked messages home; 0: none runs.")] = 1,
    messages_per_day: Annotated[int, typer.Option(help="Messages sent a day, by all clients together.")] = 0,
    message_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of a message.")] = "1KB",
    outages_per_month: Annotated[float, typer.Option(help="Outages of the primary in 30 days.")] = 0.0,
    outage_length: Annotated[str, typer.Option(metavar="DURATION", help="How long an outage lasts.")] = "0s",
    failover_interval: Annotated[str, typer.Option(metavar="DURATION", help="Failover interval.")] = "60s",
    ping_interval: Annotated[str, typer.Option(metavar="DURATION", help="Ping interval.")] = "60s",
    plan: Annotated[str, typer.Option(help="Which plan of the price file.")] = "standard",
    prices: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A price file of your own, in TOML.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Forecast operations, bytes and money of a pairing, by stage.

    Every operation at a broker counts: a message that goes straight costs two (send, receive), one that goes by way
    of the backlog four (send to the backlog, receive from it, send to the primary, receive from the primary). A
    message counts once for each 64 KB or part of it. An idle syphon costs one receive per backlog queue and 15 minutes.

    The bytes of messages count at every stage, where they leave a region: what is sent leaves the client's, what is
    received leaves the namespace's. The price list has a price per GB for each stage; within a region it is zero.

    Examples:
    `pairbus cost --backlog-queues 10 --days 30` tells what an idle pairing costs.

    `pairbus cost --messages-per-day 2000000 --outages-per-month 1 --outage-length 2h --clients 20` tells what a
    busy one costs in a month with an outage.

    """
    from pairbus.core.forecast import Scenario, forecast
    from pairbus.operate.prices import read_plan

    scenario = Scenario(
        days=days,
        backlog_queues=backlog_queues,
        clients=clients,
        entities=entities,
        subscriptions=subscriptions,
        syphons=syphons,
        messages_per_day=messages_per_day,
        message_bytes=size("--message-size", message_size),
        outages_per_month=outages_per_month,
        outage_seconds=duration("--outage-length", outage_length),
        failover_interval=duration("--failover-interval", failover_interval),
        ping_interval=duration("--ping-interval", ping_interval),
    )
    result = forecast(scenario, read_plan(plan, prices))
    if as_json:
        typer.echo(json.dumps(_as_json(scenario, result), indent=2))
    else:
        _print(console(), scenario, result)


def _included(plan: "Plan") -> str:
    return "All" if plan.included_operations is None else f"{plan.included_operations:,}"


def _money(nanos: int) -> str:
    return f"{nanos // 10**9}.{nanos % 10**9:09d}"


def _as_json(scenario: "Scenario", result: "Forecast") -> dict[str, Any]:
    return {
        "days": scenario.days,
        "plan": result.plan.name,
        "currency": result.plan.currency,
        "prices_as_of": result.plan.as_of.isoformat(),
        "idle_receives": result.idle_receives,
        "parked_messages": result.parked_messages,
        "operations": result.operations,
        "bytes": result.bytes,
        "stages": {
            stage.value: {
                "operations": {kind.value: count for kind, count in cost.operations.items()},
                "total": cost.total,
                "cost": _money(cost.nanos),
                "bytes": {kind.value: size for kind, size in cost.bytes.items()},
                "total_bytes": cost.total_bytes,
                "bandwidth_cost": _money(cost.bandwidth_nanos),
            }
            for stage, cost in result.stages.items()
        },
        "base_charge": _money(result.base_nanos),
        "operations_charge": _money(result.charge_nanos),
        "bandwidth_charge": _money(result.bandwidth_nanos),
        "total": _money(result.total_nanos),
    }


def _print(terminal: Console, scenario: "Scenario", result: "Forecast") -> None:
    plan = result.plan
    table = Table(title=f"{scenario.days} days, plan {plan.name}", title_justify="left", show_footer=True)
    table.add_column("stage", "total")
    table.add_column("what")
    table.add_column("operations", f"{result.operations:,}", justify="right")
    table.add_column(plan.currency, f"{result.charge_nanos / 1e9:,.2f}", justify="right")
    table.add_column("GB", f"{result.bytes / GB:,.3f}", justify="right")
    table.add_column(plan.currency, f"{result.bandwidth_nanos / 1e9:,.2f}", justify="right")
    for stage, cost in result.stages.items():
        table.add_row(
            stage.value,
            MEANING[stage.value],
            f"{cost.total:,}",
            f"{cost.nanos / 1e9:,.2f}",
            f"{cost.total_bytes / GB:,.3f}",
            f"{cost.bandwidth_nanos / 1e9:,.2f}",
        )
    terminal.print(table)
    terminal.print(
        line(
            f"Messages by way of the backlog: {result.parked_messages:,}. "
            f"Base charge: {result.base_nanos / 1e9:,.2f} {plan.currency}. ",
            (f"Together: {result.total_nanos / 1e9:,.2f} {plan.currency}.", "bold"),
        )
    )
    terminal.print(
        f"{_included(plan)} operations a month are included in the base charge. GB are those of messages that are sent "
        f"or received; within a region they cost nothing. List prices as of {plan.as_of}; replace them with --prices. "
        "Settlements are not counted.",
        style="dim",
    )
