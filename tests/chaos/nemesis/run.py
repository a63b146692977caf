"""A run: two brokers, the journal, and at its end the official SDK that reads both namespaces."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient
from tests.chaos.nemesis.brokers import Side, Troubles
from tests.chaos.nemesis.checker import Checker
from tests.chaos.nemesis.journal import Journal
from tests.chaos.nemesis.reader import Found, read_all, wait_until_empty

from pairbus.core.naming import backlog_paths
from pairbus.testing import QueueSettings

THREADS = 400
"""For the calls of the synchronous clients, each of which blocks one; the default would be six."""


@dataclass(eq=False)
class Run:
    """What a scenario works with.

    :param queues: the queues of the primary.
    :param backlog_queue_count: how many backlog queues the secondary has.
    :param attempt_timeout: of the pairing, in seconds.
    """

    data: Path
    queues: Mapping[str, QueueSettings]
    backlog_queue_count: int = 10
    attempt_timeout: float = 5.0
    ping_interval: float = 1.0
    journal: Journal = field(default_factory=Journal)
    troubles: Troubles = field(default_factory=Troubles)
    destroyed: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.primary = Side("primary", self.troubles, self.data / "primary", self.queues)
        self.secondary = Side("secondary", self.troubles, self.data / "secondary")

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """Their names, which are known when the brokers run."""
        return backlog_paths(fully_qualified_namespace(self.primary.connection_string), self.backlog_queue_count)

    @property
    def pairing(self) -> dict[str, Any]:
        """The options of a pairing that the checker has to know."""
        return {
            "backlog_queue_count": self.backlog_queue_count,
            "attempt_timeout": self.attempt_timeout,
            "ping_primary_interval": self.ping_interval,
        }

    @asynccontextmanager
    async def brokers(self) -> AsyncGenerator[None]:
        """Start both brokers, and stop them at the end."""
        sides = (self.primary, self.secondary)
        await asyncio.gather(*(asyncio.to_thread(side.broker.start) for side in sides))
        watching = asyncio.create_task(self.journal.watch_lag())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(*(asyncio.to_thread(side.broker.stop) for side in sides))

    async def drain(self, seconds: float = 150.0) -> None:
        """Wait until a syphon has carried everything home."""
        left = await wait_until_empty(self.secondary.connection_string, self.backlog_queues, seconds)
        assert not left, f"{left} messages or more are still in the backlog after {seconds:g} s"

    async def read(self) -> list[Found]:
        """Read both namespaces with the official SDK."""
        return [
            *await read_all(self.primary.connection_string, self.queues, "primary"),
            *await read_all(self.secondary.connection_string, self.backlog_queues, "secondary"),
        ]

    def checker(self, there: list[Found]) -> Checker:
        notice = self.ping_interval + self.attempt_timeout
        return Checker(self.journal, self.troubles, there, self.attempt_timeout, notice, self.destroyed)


def fully_qualified_namespace(connection_string: str) -> str:
    with ServiceBusClient.from_connection_string(connection_string) as client:
        return client.fully_qualified_namespace


def play(scenario: Callable[[], Awaitable[None]], *, seconds: float) -> None:
    """Run a scenario, which must end by then; what the SDK's loggers say is not shown."""

    async def bounded() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS))
        async with asyncio.timeout(seconds):
            await scenario()

    logging.getLogger("azure").setLevel(logging.CRITICAL)
    asyncio.run(bounded())


async def every(
    interval: float, ends: Callable[[], bool], call: Callable[[], Awaitable[object]], *, most: int = 100
) -> None:
    """Begin a call at a steady rate, whatever becomes of those before it, until it is told to end; then wait for all.

    :param most: how many may be under way at once.
    """
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[object]] = set()
    due = loop.time()
    try:
        while not ends():
            if len(under_way) < most:
                task = asyncio.ensure_future(_as_coroutine(call()))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            due = max(due + interval, loop.time())
            await asyncio.sleep(due - loop.time())
        if under_way:
            await asyncio.wait(under_way)
    finally:
        for task in under_way:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*under_way, return_exceptions=True)


async def _as_coroutine(awaitable: Awaitable[object]) -> object:
    return await awaitable
