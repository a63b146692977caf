"""What became of the backlog, as a table for the terminal."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.table import Table

from pairbus.cli.terminal import visible

if TYPE_CHECKING:
    from pairbus.core.reconciliation import Reconciliation
    from pairbus.syphon.draining import DrainResult, MessageCounts


def reconciliation_table(done: "DrainResult") -> Table:
    """Return the reconciliation for the terminal."""
    what = f"{done.total.found:,} messages{_of_queues(each.queue for each in done.queues)} in {done.seconds:,.1f} s"
    table = Table(title=what, title_justify="left", show_footer=True, box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("queue", "total")
    table.add_column("to", overflow="fold")
    for name, footer in zip(_COLUMNS, _cells(done, done.total), strict=True):
        table.add_column(name, footer, justify="right")
    for counts in done.queues:
        table.add_row(short(counts.queue), visible(counts.destination or "") or "-", *_cells(done, counts))
    return table


def short(queue: str) -> str:
    """Return the number of a backlog queue, which tells those of one pairing apart."""
    return queue.rpartition("/")[2]


def _of_queues(queues: Iterable[str]) -> str:
    prefix = next((queue.rpartition("/")[0] for queue in queues), None)
    return "" if prefix is None else f" of {prefix}/..."


_COLUMNS = ("found", "delivered", "dead", "waiting", "twice?", "oldest", "per s")


def _cells(done: "DrainResult", counts: "MessageCounts") -> tuple[str, ...]:
    return (
        f"{counts.found:,}",
        f"{counts.delivered:,}",
        _reasons(counts.dead_lettered),
        _reasons(counts.waiting),
        f"{counts.duplicates_suspected:,}",
        _age(counts.oldest_at, done.at),
        f"{counts.delivered / done.seconds:,.0f}" if done.seconds else "-",
    )


def _age(oldest_at: datetime | None, now: datetime) -> str:
    return "-" if oldest_at is None else duration(max(0.0, (now - oldest_at).total_seconds()))


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
    now = datetime.now(UTC)
    for queue, report in foreseen.items():
        for destination, counts in sorted(report.destinations.items()):
            dead = {reason.value: count for reason, count in counts.dead_lettered.items()}
            table.add_row(
                short(queue),
                visible(destination) or "-",
                f"{counts.delivered:,}",
                _reasons(dead),
                _age(counts.oldest_at, now),
            )
    return table


def duration(seconds: float) -> str:
    """Write a duration as people say it."""
    units: Iterable[tuple[int, str]] = ((86400, "d"), (3600, "h"), (60, "min"))
    for size, unit in units:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
