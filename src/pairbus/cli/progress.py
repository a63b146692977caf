"""How a drain goes on: a bar per queue in a terminal, a line now and then where there is none."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pairbus.cli.reconciliation import short
from pairbus.cli.terminal import visible

if TYPE_CHECKING:
    from rich.progress import TaskID

    from pairbus.syphon.draining import DrainProgress

TELL_INTERVAL: Final = 10.0


class ProgressDisplay:
    """Shows the progress that it is called with, as long as it is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>10}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._of: dict[str, TaskID] = {}
        self._deepest: dict[str, int] = {}
        self._began = self._told_at = time.monotonic()
        self._told = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def __call__(self, progress: "DrainProgress") -> None:
        """Show how far a drain is."""
        if self._console.is_terminal:
            self._draw(progress)
        elif time.monotonic() - self._told_at >= TELL_INTERVAL:
            self._tell(progress)

    def _draw(self, progress: "DrainProgress") -> None:
        for queue, depth in progress.depths.items():
            moved = progress.moved.get(queue, 0)
            self._deepest[queue] = max(self._deepest.get(queue, 0), depth or 0, moved)
            if queue not in self._of:
                if not self._deepest[queue]:
                    continue
                self._of[queue] = self._bars.add_task(visible(f"queue {short(queue)}"), total=None, rate="")
            rate = f"{moved / max(0.1, time.monotonic() - self._began):,.0f}/s"
            self._bars.update(self._of[queue], completed=moved, total=self._deepest[queue], rate=rate)

    def _tell(self, progress: "DrainProgress") -> None:
        self._told_at = time.monotonic()
        if progress.total != self._told:
            self._told = progress.total
            rate = self._told / (self._told_at - self._began)
            self._console.print(f"{self._told:,} moved, {rate:,.0f}/s, {progress.waiting:,} waiting")
