"""``pairbus status``: the backlog queues of a pairing."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from pairbus.cli.connecting import (
    BacklogQueuesOption,
    Connection,
    PrimaryOption,
    SecondaryOption,
    Side,
    connection,
)
from pairbus.cli.running import counted, explained, run
from pairbus.cli.terminal import console, line, visible

if TYPE_CHECKING:
    from pairbus.syphon.survey import BacklogSurvey, Survey


MISSING_SHOWN: Final = 100
"""How many missing queues are listed one by one."""


def status(
    backlog_queues: BacklogQueuesOption = 10,
    look_at: Annotated[
        int, typer.Option(min=0, help="At how many messages of each queue to look for their destinations.")
    ] = 1000,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show the backlog queues of a pairing: which there are, how deep, how old, and where their messages belong.

    The secondary is asked; the primary may be away. `missing` queues are made when a factory is paired; `extra` ones
    are beyond `--backlog-queues`, and nobody parks messages in them nor deletes them. It needs the right to manage the
    secondary. Destinations are found by peeking: nothing is locked.

    Exit code: 0; 2, the secondary could not be asked.
    """
    one, other = connection(Side.PRIMARY, primary), connection(Side.SECONDARY, secondary)
    found = run(_look(one, other, backlog_queues, look_at), other, right="Manage, Listen")
    if as_json:
        typer.echo(json.dumps(_as_json(one, other, found), indent=2))
    else:
        _print(console(), one, other, found)


async def _look(one: Connection, other: Connection, count: int, look_at: int) -> "Survey":
    from pairbus.syphon.survey import survey

    async with other.client(retry_total=0) as client, other.manager() as manager:
        return await survey(manager, client, one.host, count, look_at=look_at)


def _as_json(one: Connection, other: Connection, found: "Survey") -> dict[str, Any]:
    return {
        "primary": one.host,
        "secondary": other.host,
        "depth": found.depth,
        "dead_lettered": found.dead_lettered,
        "oldest_at": _moment(found.oldest_at),
        "oldest_seconds": _seconds(found.oldest_at),
        "destinations": dict(found.destinations.most_common()),
        "queues": [
            {
                "path": queue.path,
                "state": _state(queue),
                "depth": queue.active,
                "dead_lettered": queue.dead_lettered,
                "bytes": queue.size_in_bytes,
                "oldest_at": _moment(queue.oldest_at),
                "oldest_seconds": _seconds(queue.oldest_at),
                "looked_at": queue.looked_at,
                "destinations": dict(queue.destinations),
                "problem": None if queue.problem is None else explained(queue.problem, other, right="Listen"),
            }
            for queue in found.queues
        ]
        + [{"path": path, "state": "missing"} for path in found.missing[:MISSING_SHOWN]],
        "missing": len(found.missing),
    }


def _print(terminal: Console, one: Connection, other: Connection, found: "Survey") -> None:
    terminal.print(line("Backlog queues of ", (one.label, "bold"), " in ", (other.host, "bold")))
    table = Table("queue", "state")
    for name in ("depth", "dead letters", "oldest"):
        table.add_column(name, justify="right")
    table.add_column("destinations", overflow="fold")
    for queue in found.queues:
        table.add_row(
            queue.path.rpartition("/")[2],
            _state(queue),
            f"{queue.active:,}",
            f"{queue.dead_lettered:,}",
            age(queue.oldest_at),
            _destinations(queue) if queue.problem is None else explained(queue.problem, right="Listen"),
        )
    for path in found.missing[:MISSING_SHOWN]:
        table.add_row(path.rpartition("/")[2], line(("missing", "yellow")), "", "", "", "")
    terminal.print(table)
    if len(found.missing) > MISSING_SHOWN:
        terminal.print(f"{len(found.missing) - MISSING_SHOWN:,} more are missing.")
    if not any(not queue.is_extra for queue in found.queues):
        terminal.print("There is no backlog queue yet: pairing a factory makes them.")
    elif not found.depth:
        terminal.print(line(("The backlog is empty.", "green")))
    else:
        since = f", the oldest for {age(found.oldest_at)}" if found.oldest_at is not None else ""
        terminal.print(f"{counted(found.depth, 'message')} to be carried home{since}.")
    if found.dead_lettered:
        told = (f"{found.dead_lettered:,} could not be delivered:", "yellow")
        terminal.print(line(told, " pairbus deadletter list"), soft_wrap=True)


def _state(queue: "BacklogSurvey") -> str:
    return "extra" if queue.is_extra else "in use"


def _destinations(queue: "BacklogSurvey") -> str:
    named = ", ".join(f"{visible(name) or '(none)'} {count:,}" for name, count in queue.destinations.items())
    return named + (f" (of the first {queue.looked_at:,})" if 0 < queue.looked_at < queue.active else "")


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else round((datetime.now(UTC) - at).total_seconds(), 3)


def age(at: datetime | None) -> str:
    """Say how long ago something was, in two units at most."""
    if at is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    for unit, name, below, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= unit:
            return f"{seconds // unit}{name} {seconds % unit // below}{part}"
    return f"{seconds}s"
