"""``pairbus simulate``: live through many worlds and see whether every rule holds."""

import json
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pairbus.cli.terminal import console, line

CHUNK = 50
"""Seeds that one worker lives through before it reports."""

SHOWN_LINES = 80

MEANING = {
    "accepted": "messages that a broker accepted, as far as their sender knows",
    "unknown": "messages whose sender never heard the answer, or crashed",
    "refused": "messages whose sender was told that they were not sent",
    "parked": "messages stored in backlog queues",
    "delivered": "messages that arrived",
    "dead_lettered": "messages whose destination was deleted, or that were not ours",
    "repeated": "messages that arrived more than once, each for a lost answer or a crash",
    "pings": "pings",
}


@dataclass(slots=True)
class WorldCounts:
    """What became of some worlds."""

    worlds: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    broken: list[int] = field(default_factory=list[int])
    """Seeds of worlds in which a rule was broken."""

    def add(self, other: "WorldCounts") -> None:
        """Add the counts of other worlds."""
        self.worlds += other.worlds
        self.counts += other.counts
        self.broken += other.broken


def live_through(seeds: range) -> WorldCounts:
    """Live through the worlds of some seeds."""
    from pairbus.simulate.world import run_seed

    found = WorldCounts(worlds=len(seeds))
    for seed in seeds:
        result = run_seed(seed)
        found.counts.update({fate.value: count for fate, count in result.fates.items()})
        for name in ("parked", "delivered", "dead_lettered", "repeated", "pings"):
            found.counts[name] += getattr(result, name)
        if not result.ok:
            found.broken.append(seed)
    return found


def count_worlds(seeds: range, jobs: int) -> Iterator[WorldCounts]:
    """Live through the worlds of all seeds, in so many processes, and tell of each chunk as it ends."""
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        yield from map(live_through, chunks)
        return
    with ProcessPoolExecutor(jobs, initializer=_end_with_parent) as pool:
        futures: list[Future[WorldCounts]] = [pool.submit(live_through, chunk) for chunk in chunks]
        for future in as_completed(futures):
            yield future.result()


def _end_with_parent() -> None:
    """Have a worker end as soon as the command has, however that ended: by SIGTERM or SIGKILL it cannot tell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), name="parent", daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def simulate(
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds to live through.")] = 1000,
    seed: Annotated[int | None, typer.Option(help="Live through this one world and tell its history.")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.", show_default="one per core")] = os.cpu_count() or 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Prove the rules: live through simulated worlds in which everything goes wrong.

    Each seed is a world of its own: clients that send, a primary and a secondary broker, syphons, and faults (brokers
    down, silent, slow, full, throttled, answers lost, clients and syphons that crash between any two steps, clocks
    that are set), in simulated time. The rules are pairbus's own, not a copy. Afterwards every message is accounted
    for: none that was accepted is missing, none appears that was never sent, none arrives twice without a reason,
    sessions are in order, pings come when they should.

    Exit code 1, with the seed, when a rule was broken. The seed tells the same story again:
    `pairbus simulate --seed S`.
    """
    terminal = console(stderr=as_json)
    if seed is not None:
        raise typer.Exit(0 if _tell(terminal, seed, everything=True) else 1)
    began = time.monotonic()
    total = WorldCounts()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task("worlds", total=seeds)
        for some in count_worlds(range(first, first + seeds), jobs):
            total.add(some)
            progress.advance(bar, some.worlds)
    rate = total.worlds / (time.monotonic() - began)
    broken = sorted(total.broken)
    if as_json:
        counts = {name: total.counts[name] for name in MEANING}
        typer.echo(
            json.dumps({"worlds": total.worlds, **counts, "broken_seeds": broken, "seeds_per_second": round(rate)})
        )
    else:
        _print(terminal, total, rate)
    if broken:
        _tell(terminal, broken[0], everything=False)
        raise typer.Exit(1)


def _print(terminal: Console, total: WorldCounts, rate: float) -> None:
    table = Table(title=f"{total.worlds:,} worlds, {rate:,.0f} a second", title_justify="left")
    table.add_column("count", justify="right")
    table.add_column("what")
    for name, meaning in MEANING.items():
        table.add_row(f"{total.counts[name]:,}", meaning)
    terminal.print(table)
    if not total.broken:
        terminal.print(line(("Every rule held in every world.", "bold green")))


def _tell(terminal: Console, seed: int, *, everything: bool) -> bool:
    from pairbus.simulate.world import run_seed

    result = run_seed(seed)
    if everything or result.ok:
        lines = [str(each) for each in result.history.lines]
    else:
        lines = list(result.history.about(result.violations[0].about))
    shown = lines if everything else lines[-SHOWN_LINES:]
    for told in shown:
        terminal.print(told, soft_wrap=True)
    if len(shown) < len(lines):
        terminal.print(line((f"({len(lines) - len(shown)} earlier lines: pairbus simulate --seed {seed})", "dim")))
    for violation in result.violations:
        terminal.print(line(("broken:", "bold red"), f" {violation}"), soft_wrap=True)
    if result.ok:
        terminal.print(line((f"Every rule held in the world of seed {seed}.", "bold green")))
    else:
        terminal.print(line((f"The world of seed {seed}:", "bold"), f" pairbus simulate --seed {seed}"), soft_wrap=True)
    return result.ok
