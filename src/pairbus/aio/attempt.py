"""Deadlines that hold whatever the peer does (S10), and tasks that are not forgotten (C2)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

RECANCEL_SECONDS: Final = 0.1

_LOGGER = logging.getLogger(__name__)


def cancel(task: "asyncio.Future[Any]") -> None:
    """Cancel a task until it has ended: the SDK can miss a cancellation that comes together with an answer."""
    if task.done():
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
        return
    task.cancel()
    task.get_loop().call_later(RECANCEL_SECONDS, cancel, task)


async def within(seconds: float, work: Coroutine[Any, Any, T], *, overrun: Callable[[], None] | None = None) -> T:
    """Do a piece of work, and raise ``TimeoutError`` after so many seconds whatever it does.

    :param overrun: called when the work is given up, before it is cancelled.
    """
    task = asyncio.ensure_future(work)
    is_over = False
    try:
        await asyncio.wait({task}, timeout=seconds)
        is_over = task.done()
    finally:
        if not is_over:
            if overrun is not None and not task.done():
                overrun()
            cancel(task)
    if not is_over or task.cancelled():
        raise TimeoutError(f"not done within {seconds:g} s")
    return task.result()


class Chores:
    """The background tasks of one factory: none is lost, and a closed factory has none."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Start a task. What it raises is its owner's to look at; if nobody does, it is logged."""
        task = asyncio.create_task(work, name=f"pairbus {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self, seconds: float) -> None:
        """Wait until all tasks have ended; those that have not within so many seconds are cancelled."""
        for _ in range(2):
            if not self._tasks:
                return
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                _LOGGER.debug("%s is cancelled: it takes longer than %g s", task.get_name(), seconds)
                cancel(task)
