"""The switchboard on the page: outages on command, where the broker is the embedded one."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from nicegui import ui

from pairbus.dashboard.faults import KINDS, Board, FaultOn
from pairbus.dashboard.monitor import Monitor
from pairbus.dashboard.widgets import Live, panel
from pairbus.dashboard.words import clock
from pairbus.errors import PairbusError

_UNTIL_CLEARED: Final = "until cleared"
_LASTS: Final = ("10s", "30s", "2m", "10m", _UNTIL_CLEARED)
_ONCE: Final = frozenset({"cut", "expire-tokens"})
_LATENCY: Final = "500ms"


class Switchboard:
    """Shows which faults are on, and switches them; there is nothing of it unless a broker takes orders."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._shown: list[Board] = []
        self._place = ui.element("div")

    def refresh(self) -> None:
        """Show what is known now."""
        boards = self._monitor.boards
        if boards != self._shown:
            names = [board.namespace for board in self._shown]
            self._shown = list(boards)
            if names != [board.namespace for board in boards]:
                self._build()
            self._faults()

    def _build(self) -> None:
        self._place.clear()
        if not self._shown:
            return
        with self._place, panel("Faults"):
            Live('<p class="small">Outages on command, at the embedded brokers of this machine.</p>')
            with ui.element("div").classes("form"):
                names = [board.namespace for board in self._shown]
                self._where = ui.select(names, value=names[0], label="Namespace").props("outlined dense")
                self._kind = ui.select(list(KINDS), value=KINDS[0], label="Fault").props("outlined dense")
                self._entity = ui.input("Entity, or all").props("outlined dense")
                self._lasts = ui.select(list(_LASTS), value=_LASTS[1], label="For").props("outlined dense")
                ui.button("Switch on", on_click=self._switch_on).props("outline no-caps color=ink")
            self._list = ui.element("div").props('role=list aria-label="Faults that are on"').classes("faults")

    def _faults(self) -> None:
        if not self._shown:
            return
        self._list.clear()
        with self._list:
            for board in self._shown:
                for fault in board.faults:
                    with ui.element("div").props("role=listitem").classes("fault"):
                        ui.label(_told(fault))
                if board.faults:
                    ui.button(f"Clear {board.namespace}", on_click=partial(self._clear, board)).props(
                        "flat no-caps dense color=ink"
                    )

    async def _switch_on(self) -> None:
        board = next((board for board in self._shown if board.namespace == self._where.value), None)
        if board is None:
            return
        kind = str(self._kind.value)
        lasts = "" if kind in _ONCE or self._lasts.value == _UNTIL_CLEARED else str(self._lasts.value)
        order = partial(
            board.switch_on,
            kind,
            entity=str(self._entity.value or "").strip(),
            lasts=lasts,
            latency=_LATENCY if kind == "slow" else "",
        )
        await self._order(order)

    async def _clear(self, board: Board) -> None:
        await self._order(board.clear)

    async def _order(self, order: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(order)
        except PairbusError as error:
            ui.notify(str(error), type="negative")
            return
        await self._monitor.ask_boards()
        self.refresh()


def _told(fault: FaultOn) -> str:
    until = "until cleared" if fault.until is None else f"until {clock(fault.until)}"
    return f"{fault.where}: {fault.kind}, {until}"
