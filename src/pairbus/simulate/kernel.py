"""Simulated time, and processes that live in it.

A process is a generator. It yields a number to sleep so many seconds, or a :class:`Wait` to wait for a
:class:`Future`; it is told the future's value, or :data:`TIMED_OUT`. Everything happens in an order that
depends on nothing but the seed.
"""

import heapq
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A value that is not there yet."""

    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._callbacks: list[Callable[[T], None]] = []

    def resolve(self, value: T) -> None:
        """Give the value to all that wait for it; a second value is ignored."""
        if self.done:
            return
        self.done, self._value = True, value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Call back with the value, now or when it comes."""
        if self.done:
            callback(self._value)  # pyright: ignore[reportArgumentType] (None only where T has None)
        else:
            self._callbacks.append(callback)


class TimedOut:
    """What a process is told whose wait has ended without a value."""


TIMED_OUT = TimedOut()


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a future until a deadline; None: for ever."""

    future: Future[Any]
    deadline: float | None = None


Request: TypeAlias = float | Wait
Running: TypeAlias = Generator[Request, Any, T]


class Process:
    """A running generator that can be killed between any two of its steps, and its children with it.

    A child's steps are counted as its parent's.
    """

    def __init__(self, kernel: "Kernel", generator: Running[None], parent: "Process | None" = None) -> None:
        self.alive = True
        self.children: list[Process] = []
        self._kernel = kernel
        self._generator = generator
        self._parent = parent
        self._turn = 0
        self.steps_left: int | None = None
        """Killed after so many more steps; None: not."""
        self.on_killed: Callable[[], None] | None = None
        if parent is not None:
            parent.children = [*(child for child in parent.children if child.alive), self]

    def kill(self) -> None:
        """End the process where it stands, as ``kill -9`` would: none of its code runs any more."""
        if self.alive:
            self.alive = False
            self._generator.close()
            for child in self.children:
                child.kill()
            if self.on_killed is not None:
                self.on_killed()

    def resume(self, turn: int, value: object) -> None:
        """Let the process go on, if it still waits for this."""
        if not self.alive or turn != self._turn:
            return
        counted = self._parent or self
        if counted.steps_left is not None:
            counted.steps_left -= 1
            if counted.steps_left < 0:
                counted.kill()
                return
        self._turn += 1
        turn = self._turn
        try:
            request = self._generator.send(value)
        except StopIteration:
            self.alive = False
            return
        if isinstance(request, Wait):
            request.future.then(lambda result: self.resume(turn, result))
            if request.deadline is not None and self.alive and turn == self._turn:
                self._kernel.at(request.deadline, lambda: self.resume(turn, TIMED_OUT))
        else:
            self._kernel.after(request, lambda: self.resume(turn, None))


class Kernel:
    """The clock, and what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def at(self, time: float, call: Callable[[], object]) -> None:
        """Call at a time, or now if that has passed; calls of the same time in the order in which they were made."""
        heapq.heappush(self._due, (max(time, self.now), next(self._order), call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call after so many seconds."""
        self.at(self.now + seconds, call)

    def spawn(self, generator: Running[None], parent: Process | None = None) -> Process:
        """Start a process."""
        process = Process(self, generator, parent)
        self.after(0, lambda: process.resume(0, None))
        return process

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heapq.heappop(self._due)
            call()
        self.now = until
