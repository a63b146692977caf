"""Deadlines that hold whatever the peer does (S10), and tasks that are not forgotten (C2)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class AbandonedError(TimeoutError):
    """An attempt was given up before it was answered: failover has engaged, or the factory has ended."""


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


async def outcome_of(task: "asyncio.Task[T]", what: str) -> T:
    """Wait for a task that several wait for. A waiter that is cancelled leaves the task to the others.

    :param what: what the task does, for the error.
    :raises AbandonedError: the task was cancelled. A shield alone would raise ``CancelledError`` then, in a waiter that
        was not cancelled itself.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiter = asyncio.current_task()
        if not task.cancelled() or (waiter is not None and waiter.cancelling()):
            raise
        raise AbandonedError(f"{what} was given up") from None


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


class BackgroundTasks:
    """The background tasks of one factory: none is lost, and a closed factory has none."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str, *, shared: bool = False) -> "asyncio.Task[T]":
        """Start a task. What it raises is its owner's to look at; if nobody does, it is logged.

        :param shared: several may wait for it, each as long as it wants; what it raises after all have given up is
            not logged.
        """
        task = asyncio.create_task(work, name=f"pairbus {name}")
        if shared:
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
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
