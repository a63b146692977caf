"""An event loop in a thread of its own, through which synchronous code uses the asynchronous client."""

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from pairbus.errors import FactoryClosedError, FactoryForkedError

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

GRACE_SECONDS: Final = 1.0
"""What a call may take beyond the time that it has, before it is given up from outside."""


class Portal:
    """Runs coroutines for threads that wait for them. Its thread starts with the first one.

    :param name: of the thread.
    :param at_exit: what to do when the interpreter exits and :meth:`stop` was not called.
    """

    def __init__(self, name: str, at_exit: Callable[[], None]) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid: int | None = None
        self._stopped = False
        self._at_exit = weakref.WeakMethod(at_exit)
        _portals.add(self)

    @property
    def is_running(self) -> bool:
        """Whether the thread has been started and not stopped."""
        return self._loop is not None and not self._stopped

    def exit(self) -> None:
        """Do what is to be done when the interpreter exits; in a forked process there is nothing to end."""
        at_exit = self._at_exit()
        if self._pid == os.getpid() and at_exit is not None:
            at_exit()

    def run(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run a coroutine to its end, and return or raise what it does.

        :param seconds: the time that the coroutine was given; soon after it, it is given up from outside.
        :raises FactoryForkedError: the thread was left behind in another process.
        """
        try:
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(work, self._started())
        except BaseException:
            work.close()
            raise
        return self._result(future, None if seconds is None else seconds + GRACE_SECONDS)

    def soon(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, without waiting for it; directly if the loop does not run."""
        with self._lock:
            if self._loop is not None and not self._stopped and self._pid == os.getpid():
                self._loop.call_soon_threadsafe(function)
                return
        function()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop, where nothing changes meanwhile; directly if the loop does not run."""

        async def call() -> T:
            return function()

        if not self.is_running or threading.current_thread() is self._thread:
            return function()
        return self.run(call())

    def stop(self) -> None:
        """End all that still runs, and the thread."""
        with self._lock:
            loop, thread, stopped = self._loop, self._thread, self._stopped
            self._stopped = True
        _portals.discard(self)
        if stopped or loop is None or thread is None or self._pid != os.getpid():
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._stopped:
            raise FactoryClosedError
        if self._loop is None:
            self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        elif self._pid != os.getpid():
            raise FactoryForkedError(self._pid or 0, os.getpid())
        elif threading.current_thread() is self._thread:
            raise RuntimeError("a callback of the factory must not wait for the factory: hand the work to a thread")
        return self._loop

    @staticmethod
    def _result(future: "Future[T]", seconds: float | None) -> T:
        try:
            return future.result(seconds)
        except CancelledError:
            raise FactoryClosedError from None
        except BaseException:
            future.cancel()  # if it still runs: the time is over, or the thread was interrupted
            raise


async def _end_all() -> None:
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    try:
        await loop.shutdown_default_executor()
    except RuntimeError:  # from Python 3.12 on no thread can be started at exit; the executor's own have ended then
        _LOGGER.debug("the executor was not shut down", exc_info=True)


_portals: "weakref.WeakSet[Portal]" = weakref.WeakSet()


@atexit.register
def _exit_all() -> None:
    for portal in list(_portals):
        portal.exit()
