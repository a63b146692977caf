"""A clock that a test moves: what is due in an hour happens now, and nothing waits for it."""

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_TIME, _MONOTONIC = time.time, time.monotonic
_moved = 0.0

LIMIT: Final = 60.0
"""Seconds, by the machine's clock, after which a test that has not ended is ended."""


def run(work: Coroutine[Any, Any, T], limit: float = LIMIT) -> T:
    """Run it to its end; meanwhile :func:`move` moves the clocks of the process, those of event loops too."""
    global _moved  # noqa: PLW0603 (a process has one clock)
    _moved = 0.0
    time.time, time.monotonic = lambda: _TIME() + _moved, lambda: _MONOTONIC() + _moved
    try:
        return asyncio.run(_limited(work, limit))
    finally:
        time.time, time.monotonic = _TIME, _MONOTONIC


def move(seconds: float) -> None:
    """Move the clocks on: timers that are due by then are called in the loop's next turn."""
    global _moved  # noqa: PLW0603 (a process has one clock)
    _moved += seconds


async def _limited(work: Coroutine[Any, Any, T], limit: float) -> T:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    timer = threading.Timer(limit, lambda: loop.call_soon_threadsafe(task.cancel))  # it has the machine's clock
    timer.start()
    try:
        return await work
    finally:
        timer.cancel()
        gc.collect()  # what a task raised that is forgotten is logged now, not during the next test
