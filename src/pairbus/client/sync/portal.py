"""An event loop through which synchronous code uses the asynchronous client (ADR 0020).

A thread that calls drives the loop itself until its call is done, so that a call costs no change of threads. A
background thread drives it meanwhile: as long as nobody calls, and when calls of several threads are under way.
"""

import asyncio
import atexit
import importlib
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from types import FrameType
from typing import Any, Final, TypeVar

from pairbus.errors import FactoryClosedError, FactoryForkedError
from pairbus.links.deadlines import cancel

T = TypeVar("T")

# In Python 3.11 the public ones take ten times as long, which is a fortieth of a send: they make enums of everything.
_signal: Any = importlib.import_module("_signal")
# Unlike the public one, it does not raise where there is none, which is where it is asked nearly always.
_get_running_loop: Callable[[], asyncio.AbstractEventLoop | None] = asyncio._get_running_loop  # noqa: SLF001

_LOGGER = logging.getLogger(__name__)

GRACE_SECONDS: Final = 1.0
"""What a call may take beyond the time that it has, before it is given up from outside."""

HAND_OVER_SECONDS: Final = 0.05
"""How long a caller waits for the background thread to hand the loop over, before it leaves its call to it."""

FIRST_LOOK_SECONDS: Final = 0.001
LAST_LOOK_SECONDS: Final = 0.032
"""After how long the background thread looks whether nobody drives; it looks less often while it finds somebody."""

_BACKGROUND: Final = -1


class OverdueError(TimeoutError):
    """Work that did not end in its time was given up from outside; how far it had come is not known."""


class Portal:
    """Runs coroutines for threads that wait for them. Its thread starts with the first one.

    :param name: of the thread.
    :param at_exit: what to do when the interpreter exits and :meth:`stop` was not called.
    """

    def __init__(self, name: str, at_exit: Callable[[], None]) -> None:
        self._name = name
        self._lock = threading.Lock()
        """Guards all below."""
        self._turn = threading.Condition(self._lock)
        """Told when the loop may change hands."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid: int | None = None
        self._stopped = False
        self._driver: int | None = None
        """The thread that drives the loop: a caller's, or the one in the background."""
        self._asking = 0
        """How many callers wait to be handed the loop by the background thread."""
        self._followers = 0
        """How many calls are under way whose threads do not drive."""
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
        :raises FactoryForkedError: the loop was left behind in another process.
        :raises OverdueError: it was given up.
        """
        try:
            loop = self._checked_loop()
        except BaseException:
            work.close()
            raise
        return self._run(loop, work, None if seconds is None else seconds + GRACE_SECONDS)

    def soon(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, without waiting for it; directly if the loop does not run."""
        if self._pid == os.getpid():
            with self._lock:
                if self._loop is not None and not self._stopped:
                    self._loop.call_soon_threadsafe(function)
                    return
        function()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop, where nothing changes meanwhile; directly if the loop does not run."""

        async def call() -> T:
            return function()

        if not self.is_running or _get_running_loop() is self._loop:
            return function()
        return self.run(call())

    def stop(self) -> None:
        """End all that still runs, and the thread."""
        _portals.discard(self)
        if self._pid != os.getpid():
            self._stopped = True
            return
        with self._lock:
            loop, thread, stopped = self._loop, self._thread, self._stopped
            self._stopped = True
        if stopped or loop is None or thread is None:
            return
        self._run(loop, _end_all(), None)
        with self._lock:
            self._thread = None  # which tells it to end
            self._turn.notify_all()
            loop.call_soon_threadsafe(loop.stop)
        thread.join()
        with self._lock:  # somebody whose call has just been cancelled may still have to leave
            self._turn.wait_for(lambda: self._driver is None)
        loop.close()

    # --- who drives ----------------------------------------------------------------------------------------------

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        if self._pid is not None and self._pid != os.getpid():  # before any lock: somebody may have held it
            raise FactoryForkedError(self._pid, os.getpid())
        if self._stopped:
            raise FactoryClosedError
        loop = self._loop
        if loop is None:
            return self._start()
        if _get_running_loop() is loop:
            raise RuntimeError("a callback of the factory must not wait for the factory: hand the work to a thread")
        return loop

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                # A selector's loop can be driven by one thread after another.
                self._loop, self._pid = asyncio.SelectorEventLoop(), os.getpid()
                self._thread = threading.Thread(
                    target=self._drive_meanwhile, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        me = threading.get_ident()
        future: Future[T] | None = None
        try:
            try:
                with self._lock:
                    if not self._take_over(loop, me):
                        future = self._submit(loop, work)
            except BaseException:
                work.close()
                raise
            return self._lead(loop, work, seconds) if future is None else self._follow(future, seconds)
        finally:
            if self._driver == me:
                self._leave()

    def _take_over(self, loop: asyncio.AbstractEventLoop, me: int) -> bool:
        """Become the one who drives, if nobody else has calls under way; the lock is held."""
        if _get_running_loop() is not None:
            return False  # this thread drives another loop, and blocks it: two at once cannot be
        if self._driver == _BACKGROUND and not self._followers:
            ends = time.monotonic() + HAND_OVER_SECONDS
            self._asking += 1
            try:
                while self._driver == _BACKGROUND and not self._followers and (left := ends - time.monotonic()) > 0:
                    loop.call_soon_threadsafe(loop.stop)
                    self._turn.wait(left)
            finally:
                self._asking -= 1
        if self._driver is not None:
            return False
        self._driver = me
        return True

    def _leave(self) -> None:
        with self._lock:
            self._driver = None
            if self._followers or self._asking or self._stopped:
                self._turn.notify_all()

    def _drive_meanwhile(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drive the loop whenever nobody else does, in the background thread."""
        pause = FIRST_LOOK_SECONDS
        while True:
            with self._lock:
                if self._thread is None:
                    return
                if self._driver is not None or self._asking:
                    self._turn.wait(pause)
                    pause = min(2 * pause, LAST_LOOK_SECONDS)
                    continue
                self._driver = _BACKGROUND
            loop.run_forever()
            with self._lock:
                self._driver = None
                self._turn.notify_all()
                pause = FIRST_LOOK_SECONDS
                self._turn.wait(pause)

    # --- calls ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _lead(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        """Drive the loop until the work is done or its time is over."""
        task = loop.create_task(_stopping(loop, work))
        overdue = None if seconds is None else loop.call_later(seconds, loop.stop)
        interrupts = _Interrupts(loop)
        try:
            loop.run_forever()
            while not (task.done() or interrupts.seen or (overdue is not None and overdue.when() <= loop.time())):
                loop.run_forever()  # somebody else has stopped it
        finally:
            interrupts.end()
            if overdue is not None:
                overdue.cancel()
            if not task.done():
                cancel(task)
        if interrupts.seen:
            raise KeyboardInterrupt
        if not task.done():
            raise OverdueError
        if task.cancelled():
            raise FactoryClosedError
        return task.result()

    def _submit(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> "Future[T]":
        self._followers += 1
        self._turn.notify_all()  # if nobody drives, the background thread does so at once
        return asyncio.run_coroutine_threadsafe(work, loop)

    def _follow(self, future: "Future[T]", seconds: float | None) -> T:
        """Wait for work while somebody else drives the loop."""
        try:
            try:
                return future.result(seconds)
            except TimeoutError:
                if future.done():  # its own, or it has ended just now
                    return future.result()
                raise OverdueError from None
        except CancelledError:
            raise FactoryClosedError from None
        except BaseException:
            future.cancel()  # if it still runs: the time is over, or the thread was interrupted
            raise
        finally:
            with self._lock:
                self._followers -= 1


class _Interrupts:
    """Has Ctrl-C leave the loop in order, not in the midst of somebody else's task, as asyncio's own runner does."""

    __slots__ = ("_is_ours", "_loop", "seen")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.seen = False
        self._is_ours = (
            threading.get_ident() == _MAIN_THREAD and _signal.getsignal(_SIGINT) is signal.default_int_handler
        )
        if self._is_ours:
            _signal.signal(_SIGINT, self._interrupt)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def end(self) -> None:
        """Let Ctrl-C do what it did before."""
        if self._is_ours:
            _signal.signal(_SIGINT, signal.default_int_handler)


_SIGINT: Final = int(signal.SIGINT)
_MAIN_THREAD: Final = threading.main_thread().ident


async def _stopping(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    finally:
        loop.stop()


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
