"""An event loop whose time passes only when nothing is left to do: hours go by in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        assert ready or timeout is not None, "everybody waits for what nobody will do"
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next moment at which something is due."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def monotonic() -> float:
    """Tell the loop's time."""
    return asyncio.get_running_loop().time()


def utc() -> datetime:
    """Tell the loop's time as a date."""
    return BEGINNING + timedelta(seconds=monotonic())
