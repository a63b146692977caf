"""How a drain goes on: a bar per queue in a terminal, a line now and then where there is none."""

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from pairbus.cli.reconciliation import short
from pairbus.cli.terminal import visible
from pairbus.syphon.worker import pause

if TYPE_CHECKING:
    from rich.progress import TaskID

    from pairbus.syphon.accounts import Accounts
    from pairbus.syphon.rounds import Drain

DRAW_INTERVAL: Final = 0.25
TELL_INTERVAL: Final = 10.0


class Progress:
    """Shows the progress of a drain as long as it is entered."""

    def __init__(self, console: Console, drain: "Drain", accounts: "Accounts") -> None:
        self._console = console
        self._drain = drain
        self._accounts = accounts
        self._done = asyncio.Event()
        self._bars = Bars(
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
        self._began = time.monotonic()

    async def __aenter__(self) -> Self:
        self._showing = asyncio.create_task(self._draw() if self._console.is_terminal else self._tell())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        await self._showing

    async def _draw(self) -> None:
        with self._bars:
            while not await pause(DRAW_INTERVAL, self._done):
                self._update()
            self._update()

    def _update(self) -> None:
        for queue, depth in self._drain.depths.items():
            counts = self._accounts.of(queue).total()
            moved = counts.delivered + counts.dead_lettered.total()
            self._deepest[queue] = max(self._deepest.get(queue, 0), depth or 0, moved)
            if queue not in self._of:
                if not self._deepest[queue]:
                    continue
                self._of[queue] = self._bars.add_task(visible(f"queue {short(queue)}"), total=None, rate="")
            rate = f"{moved / max(0.1, time.monotonic() - self._began):,.0f}/s"
            self._bars.update(self._of[queue], completed=moved, total=self._deepest[queue], rate=rate)

    async def _tell(self) -> None:
        told = 0
        while not await pause(TELL_INTERVAL, self._done):
            counts = self._accounts.total().counts
            moved = counts.delivered + counts.dead_lettered.total()
            if moved != told:
                told = moved
                rate = moved / (time.monotonic() - self._began)
                self._console.print(f"{moved:,} moved, {rate:,.0f}/s, {counts.waiting.total():,} waiting")
