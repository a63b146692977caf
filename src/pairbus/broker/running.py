"""A broker that runs: all its namespaces, on one event loop."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pairbus.broker.config import BrokerConfig, NamespaceConfig
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.namespace import Namespace
from pairbus.broker.refusals import Answer, RefusedError
from pairbus.broker.server import NamespaceServer
from pairbus.broker.store.base import Store
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.sqlite import SqliteStore

KEY_NAME = "RootManageSharedAccessKey"
TOKENS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a namespace can be reached. The connection string has its key: show it, and never log it."""

    namespace: str
    port: int
    connection_string: str


class Broker:
    """Serves namespaces until it is stopped. Use from within a running event loop.

    :param clock: tells the time, in milliseconds since the epoch; None: the machine's.
    """

    def __init__(self, config: BrokerConfig, *, clock: Callable[[], int] | None = None) -> None:
        self._config = config
        self._clock = clock or _now
        self._servers: dict[str, NamespaceServer] = {}
        self._keys = {namespace.name: secrets.token_urlsafe(32) for namespace in config.namespaces}

    async def start(self) -> None:
        """Open the stores and listen; what was started is stopped again when something fails."""
        try:
            for namespace in self._config.namespaces:
                await self._start(namespace)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, config: NamespaceConfig) -> None:
        loop = asyncio.get_running_loop()
        store = self._store(config.name, loop)
        namespace = Namespace(config.name, store, clock=self._clock, tokens=_new_tokens().__next__)
        server = self._servers[config.name] = NamespaceServer(namespace, loop)
        for path, settings in config.queues.items():
            if namespace.find(path) is None:
                namespace.create_queue(path, settings, lambda _refused: None)
        await server.start(self._config.host, config.port)
        server.changed()

    def _store(self, name: str, loop: asyncio.AbstractEventLoop) -> Store:
        def settle(call: Callable[[], None]) -> None:
            call()
            if name in self._servers:
                self._servers[name].flush()  # what was answered goes out at once

        def notify(call: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(settle, call)

        if self._config.data is None:
            return MemoryStore(notify)
        return SqliteStore(self._config.data / f"{name.lower()}.db", notify)

    def wake(self) -> None:
        """Do what is due now, without waiting for the next time that the broker looks at its clock."""
        for server in self._servers.values():
            server.wake()

    async def create_queue(self, namespace: str, path: str, settings: QueueSettings) -> None:
        """Make a queue, and return when it is durable."""
        await self._change(namespace, lambda target, answer: target.create_queue(path, settings, answer))

    async def update_queue(self, namespace: str, path: str, settings: QueueSettings) -> None:
        """Give a queue other settings, and return when they are durable."""
        await self._change(namespace, lambda target, answer: target.update_queue(path, settings, answer))

    async def delete_queue(self, namespace: str, path: str) -> None:
        """Delete a queue with its messages, and return when that is durable."""
        await self._change(namespace, lambda target, answer: target.delete_queue(path, answer))

    async def _change(self, namespace: str, change: Callable[[Namespace, Answer], None]) -> None:
        server = self._servers[namespace]
        done = asyncio.get_running_loop().create_future()

        def answer(refused: RefusedError | None) -> None:
            if refused is None:
                done.set_result(None)
            else:
                done.set_exception(refused)

        change(server.namespace, answer)
        server.changed()
        await done

    async def stop(self) -> None:
        """Tell the clients, make everything durable, and end."""
        for server in self._servers.values():
            await server.stop()
        self._servers.clear()

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """Where each namespace can be reached, by name."""
        return {
            name: Endpoint(
                name,
                server.port,
                f"Endpoint=sb://{self._config.host}:{server.port};SharedAccessKeyName={KEY_NAME};"
                f"SharedAccessKey={self._keys[name]};UseDevelopmentEmulator=true",
            )
            for name, server in self._servers.items()
        }


def _now() -> int:
    return time.time_ns() // 1_000_000


def _new_tokens() -> Iterator[bytes]:
    """Make lock tokens, many at a time: asking the system for each takes as long as all else about a lock."""
    while True:
        octets = os.urandom(16 * TOKENS_AT_ONCE)
        yield from (octets[start : start + 16] for start in range(0, len(octets), 16))
