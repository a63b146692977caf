"""``pairbus drill``: the rehearsal of an outage against a real pair."""

import enum
import json
import secrets
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from pairbus.cli.connecting import (
    BacklogQueuesOption,
    Connection,
    PrimaryOption,
    SecondaryOption,
    Side,
    connection,
    optional,
)
from pairbus.cli.parsing import duration
from pairbus.cli.running import FAILED, REFUSED, explained, run, tidied
from pairbus.cli.terminal import console, line

if TYPE_CHECKING:
    from pairbus.operate.drill import Finding, Plan, Step

ADMINISTRATION_VARIABLE = "PAIRBUS_PRIMARY_ADMIN_CONNECTION_STRING"

_MEANING: Final = {
    "pair": "pair the namespaces, and make sure of the backlog queues",
    "queue": "make a queue of the drill's own on the primary",
    "healthy": "send while all is well",
    "fail over": "disable the queue, and send on: failover engages, messages are parked",
    "parked": "find the messages in the backlog",
    "switch back": "enable the queue: a ping finds out, failover ends",
    "healthy again": "send to the primary again",
    "drain": "carry the parked messages home, and receive every message",
}
_AT: Final = {
    "pair": (Side.SECONDARY, "Manage"),
    "queue": (Side.PRIMARY, "Manage"),
    "healthy": (Side.PRIMARY, "Send"),
    "parked": (Side.SECONDARY, "Listen"),
    "switch back": (Side.PRIMARY, "Manage"),
}
"""At which namespace a step can fail, and the right that it needs there."""


class Syphon(enum.Enum):
    """Who carries the drill's messages home."""

    OWN = "own"
    YOURS = "yours"


def drill(
    syphon: Annotated[
        Syphon,
        typer.Option(help="own: the drill carries its messages home itself; yours: the pair's own syphon has to."),
    ] = Syphon.OWN,
    messages: Annotated[int, typer.Option(min=1, max=1000, help="Messages before, during and after, each.")] = 5,
    failover_interval: Annotated[str, typer.Option(metavar="DURATION", help="Failover interval of the drill.")] = "2s",
    ping_interval: Annotated[str, typer.Option(metavar="DURATION", help="Ping interval of the drill.")] = "1s",
    drain_timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long the way home may take.")] = "60s",
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    primary_admin: Annotated[
        str | None,
        typer.Option(
            envvar=ADMINISTRATION_VARIABLE,
            metavar="CONNECTION_STRING",
            show_default=False,
            help="Connection string of the primary with the right to manage it, if --primary lacks that.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")] = False,
) -> None:
    """Rehearse an outage against a real pair, without harming it, and say whether the pair would have survived.

    The drill makes a queue of its own on the primary, disables it, and sends on: the messages are parked in the pair's
    backlog queues. It enables the queue again, waits for a ping to find out, and for the messages to come home. No
    other entity is touched, and everything is removed in the end, also after Ctrl-C.

    Give it the keys that the application and its syphon use: then it finds a right that is missing, too. To make and
    disable a queue it needs the right to manage the primary; if the application's key lacks it, give `--primary-admin`.

    Exit code: 0, it would have survived; 1, it would not; 2, the drill could not be done.

    Examples:
    `pairbus drill` with both connection strings in the environment takes about ten seconds.

    `pairbus drill --syphon yours --drain-timeout 5m` also finds out whether the pair's own syphon runs.

    """
    from pairbus.operate.drill import PREFIX, Plan

    one, other = connection(Side.PRIMARY, primary), connection(Side.SECONDARY, secondary)
    plan = Plan(
        primary=one,
        secondary=other,
        administration=optional(Side.PRIMARY, primary_admin) or one,
        queue=PREFIX + secrets.token_hex(4),
        backlog_queues=backlog_queues,
        failover_interval=duration("--failover-interval", failover_interval),
        ping_interval=duration("--ping-interval", ping_interval),
        messages=messages,
        syphon="own" if syphon is Syphon.OWN else "yours",
        drain_timeout=duration("--drain-timeout", drain_timeout),
    )
    screen = _DrillScreen(console(), {Side.PRIMARY: one, Side.SECONDARY: other}, quiet=as_json)
    found = run(screen.watch(plan))
    if as_json:
        typer.echo(json.dumps(screen.as_json(found), indent=2))
    else:
        screen.conclude(found)
    raise typer.Exit({True: 0, False: FAILED, None: REFUSED}[found.survived])


class _DrillScreen:
    """Tells of the steps as they are taken."""

    def __init__(self, terminal: Console, pair: dict[Side, Connection], *, quiet: bool) -> None:
        self._terminal = terminal
        self._pair = pair
        self._quiet = quiet

    async def watch(self, plan: "Plan") -> "Finding":
        """Have the drill done."""
        from pairbus.operate.drill import rehearse

        if not self._quiet:
            self._terminal.print(
                f"A drill of {self._pair[Side.PRIMARY].host} and {self._pair[Side.SECONDARY].host}, "
                f"with the queue {plan.queue}",
                soft_wrap=True,
            )
        status = self._terminal.status("working")
        with status:
            return await rehearse(plan, self._told)

    def _told(self, step: "Step") -> None:
        if self._quiet:
            return
        mark = ("✓ ", "green") if step.error is None else ("✗ ", "bold red")
        told = line(mark, (f"{step.name:<14}", "bold"), f"{step.seconds:6.2f} s  ", _MEANING[step.name])
        self._terminal.print(told, soft_wrap=True)
        said = step.detail if step.error is None else self._why(step)
        self._terminal.print(line((f"{'':26}{said}", "dim" if step.error is None else "")), soft_wrap=True)

    def _why(self, step: "Step") -> str:
        if step.error is None:
            return ""
        side, right = _AT.get(step.name, (None, "Send and Listen"))
        return explained(step.error, None if side is None else self._pair[side], right=right)

    def conclude(self, found: "Finding") -> None:
        """Say what it means."""
        for leftover in found.leftovers:
            self._terminal.print(line((f"left over: {tidied(leftover)}", "yellow")), soft_wrap=True)
        if found.survived:
            drained, failed = found.seconds("drain") or 0.0, found.seconds("fail over") or 0.0
            self._terminal.print(
                line(
                    ("This pair would have survived.", "bold green"),
                    f" {found.sent} messages sent, {found.parked} of them by way of the backlog, {found.lost} lost. "
                    f"Failing over took {failed:.1f} s, coming home {drained:.1f} s.",
                ),
                soft_wrap=True,
            )
        elif found.survived is None:
            self._terminal.print(
                line(("The drill could not be done", "bold yellow"), ": it says nothing about the pair.")
            )
        else:
            self._terminal.print(line(("This pair would not have survived.", "bold red")))

    def as_json(self, found: "Finding") -> dict[str, Any]:
        """Return it for machines."""
        return {
            "survived": found.survived,
            "primary": self._pair[Side.PRIMARY].host,
            "secondary": self._pair[Side.SECONDARY].host,
            "queue": found.queue,
            "sent": found.sent,
            "parked": found.parked,
            "received": found.received,
            "lost": found.lost,
            "duplicates": found.duplicates,
            "leftovers": list(map(tidied, found.leftovers)),
            "steps": [
                {
                    "name": step.name,
                    "ok": step.error is None,
                    "seconds": round(step.seconds, 3),
                    "detail": step.detail if step.error is None else self._why(step),
                }
                for step in found.steps
            ],
        }
