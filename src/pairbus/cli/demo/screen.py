"""What the demo shows while it runs: the story line by line, and below it, in a terminal, how things stand."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

_RATE_OVER: Final = 2.0
"""Seconds over which a rate is taken."""
_BAR: Final = 12
_COLOURS: Final = {"healthy": "green", "suspect": "yellow", "engaged": "red"}


@dataclass(frozen=True, slots=True)
class Scene:
    """How things stand.

    :ivar states: of each entity, and for how many seconds.
    :ivar sent: messages that each entity's tills have got rid of, parked ones included.
    :ivar received: messages that have come to a clerk.
    :ivar backlog: how many messages each backlog queue has.
    :ivar primary: whether the primary runs.
    :ivar waits_for: what the demo waits for.
    """

    states: Mapping[str, tuple[str, float]]
    sent: Mapping[str, int]
    received: int
    backlog: Mapping[str, int]
    primary: bool
    waits_for: str


class Screen:
    """Tells the story; in a terminal it also shows the scene, five times a second."""

    def __init__(self, console: Console, look: Callable[[], Scene]) -> None:
        self._console = console
        self._look = look
        self._began = time.monotonic()
        self._past: deque[tuple[float, Scene]] = deque()

    @contextlib.contextmanager
    def shown(self) -> Generator[None]:
        """Show the scene as long as the block runs."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, get_renderable=self._render, refresh_per_second=5, transient=True):
            yield

    def tell(self, text: str, style: str = "") -> None:
        """Tell one more line of the story."""
        seconds = time.monotonic() - self._began
        line = Text.assemble((f"{seconds:6.1f} s  ", "dim"), (text, style))
        self._console.print(line, soft_wrap=False)

    def _render(self) -> RenderableType:
        now, scene = time.monotonic(), self._look()
        while self._past and self._past[0][0] < now - _RATE_OVER:
            self._past.popleft()
        self._past.append((now, scene))
        since, before = self._past[0]
        seconds = max(now - since, 0.2)
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for name in ("entity", "state", "for", "sent/s", "sent"):
            table.add_column(name, header_style="dim", justify="left" if name in {"entity", "state"} else "right")
        for entity, (state, lasted) in scene.states.items():
            sent = scene.sent[entity]
            rate = (sent - before.sent.get(entity, 0)) / seconds
            table.add_row(entity, Text(state, _COLOURS[state]), f"{lasted:.0f} s", f"{rate:.0f}", str(sent))
        received = (scene.received - before.received) / seconds
        primary = Text("runs", "green") if scene.primary else Text("is down", "bold red")
        return Group(
            Text(""),
            Text.assemble("primary ", primary, f"   received {scene.received} ({received:.0f}/s)"),
            table,
            *self._backlog(scene),
            Text(f"… {scene.waits_for}", "dim"),
        )

    @staticmethod
    def _backlog(scene: Scene) -> Iterator[Text]:
        most = max([1, *scene.backlog.values()])
        for queue, depth in scene.backlog.items():
            bar = "█" * (depth * _BAR // most)
            yield Text.assemble(("backlog ", "dim"), f"{queue:<9}", (f"{bar:<{_BAR}}", "yellow"), f" {depth:>5}")
