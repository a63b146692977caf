"""What became of the backlog, as a table and as JSON."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from pairbus.cli.terminal import visible
from pairbus.syphon.accounts import Row, oldest_age

if TYPE_CHECKING:
    from pairbus.core.reconciliation import Reconciliation
    from pairbus.syphon.accounts import Accounts


def as_document(accounts: "Accounts", seconds: float) -> dict[str, Any]:
    """Return the reconciliation as one JSON object."""
    lines = accounts.rows()
    return {
        **_totals(accounts.total(), seconds),
        "seconds": round(seconds, 3),
        "queues": [
            {"queue": line.queue, "destination": line.destination or None, **_totals(line, seconds)} for line in lines
        ],
        "problems": accounts.problems,
    }


def rows(accounts: "Accounts", seconds: float) -> list[dict[str, Any]]:
    """Return the reconciliation as rows of a table."""
    at = datetime.now(UTC)
    return [
        {
            "at": at,
            "queue": line.queue,
            "destination": line.destination or None,
            "found": line.found,
            "delivered": line.counts.delivered,
            "dead_lettered": _dead(line),
            "waiting": line.waiting,
            "duplicates_suspected": line.counts.duplicates_suspected,
            "oldest_at": line.counts.oldest_at,
            "seconds": seconds,
        }
        for line in accounts.rows()
    ]


def _totals(line: Row, seconds: float) -> dict[str, Any]:
    counts = line.counts
    return {
        "found": line.found,
        "delivered": counts.delivered,
        "dead_lettered": counts.dead_lettered.total(),
        "waiting": sum(line.waiting.values()),
        "duplicates_suspected": counts.duplicates_suspected,
        "dead_lettered_by_reason": _dead(line),
        "waiting_by_reason": line.waiting,
        "oldest_age_seconds": oldest_age(counts, datetime.now(UTC)),
        "rate": round(counts.delivered / seconds, 1) if seconds else 0.0,
    }


def _dead(line: Row) -> dict[str, int]:
    return {reason.value: count for reason, count in line.counts.dead_lettered.items() if count}


def reconciliation_table(accounts: "Accounts", seconds: float) -> Table:
    """Return the reconciliation for the terminal."""
    lines, total = accounts.rows(), accounts.total()
    what = f"{total.found:,} messages{_of_queues(line.queue for line in lines)} in {seconds:,.1f} s"
    table = Table(title=what, title_justify="left", show_footer=True, box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("queue", "total")
    table.add_column("to", overflow="fold")
    for name, footer in zip(_COLUMNS, _cells(total, seconds), strict=True):
        table.add_column(name, footer, justify="right")
    for line in lines:
        table.add_row(short(line.queue), visible(line.destination) or "-", *_cells(line, seconds))
    return table


def short(queue: str) -> str:
    """Return the number of a backlog queue, which tells those of one pairing apart."""
    return queue.rpartition("/")[2]


def _of_queues(queues: Iterable[str]) -> str:
    prefix = next((queue.rpartition("/")[0] for queue in queues), None)
    return "" if prefix is None else f" of {prefix}/..."


_COLUMNS = ("found", "delivered", "dead", "waiting", "twice?", "oldest", "per s")


def _cells(line: Row, seconds: float) -> tuple[str, ...]:
    age = oldest_age(line.counts, datetime.now(UTC))
    return (
        f"{line.found:,}",
        f"{line.counts.delivered:,}",
        _reasons(_dead(line)),
        _reasons(line.waiting),
        f"{line.counts.duplicates_suspected:,}",
        "-" if age is None else duration(age),
        f"{line.counts.delivered / seconds:,.0f}" if seconds else "-",
    )


def _reasons(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{count:,} {reason}" for reason, count in counts.items()) or "0"


def foreseen_table(foreseen: "Mapping[str, Reconciliation]") -> Table:
    """Return what a syphon would try, for the terminal."""
    found = sum(report.total().found for report in foreseen.values())
    table = Table(
        title=f"{found:,} messages{_of_queues(foreseen)}; nothing was touched", title_justify="left", box=SIMPLE
    )
    table.add_column("queue")
    table.add_column("destination", overflow="fold")
    for name in ("deliver", "dead-letter", "oldest"):
        table.add_column(name, justify="right")
    for queue, report in foreseen.items():
        for destination, counts in sorted(report.destinations.items()):
            age = oldest_age(counts, datetime.now(UTC))
            dead = {reason.value: count for reason, count in counts.dead_lettered.items()}
            table.add_row(
                short(queue),
                visible(destination) or "-",
                f"{counts.delivered:,}",
                _reasons(dead),
                "-" if age is None else duration(age),
            )
    return table


def duration(seconds: float) -> str:
    """Write a duration as people say it."""
    units: Iterable[tuple[int, str]] = ((86400, "d"), (3600, "h"), (60, "min"))
    for size, unit in units:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
