"""A broker that runs: all its namespaces, on one event loop."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairbus.broker.atom.handler import Administration
from pairbus.broker.certificates import Tls
from pairbus.broker.config import BrokerConfig, NamespaceConfig
from pairbus.broker.entities.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import Rule
from pairbus.broker.namespace import Namespace
from pairbus.broker.refusals import Answer, RefusedError
from pairbus.broker.server import NamespaceServer
from pairbus.broker.store.base import Store
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.sqlite import SqliteStore

_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 (it is only recognised)
KEY_NAME = "RootManageSharedAccessKey"
TOKENS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a namespace can be reached. The connection strings have its key: show them, and never log them.

    :ivar address: the SDK's ``custom_endpoint_address``, which a data client needs for TLS and for WebSocket.
    :ivar tls_connection_string: for TLS; None: the broker does not speak it.
    :ivar ca_file: the SDK's ``connection_verify`` for TLS; None: what the machine trusts anyway.
    """

    namespace: str
    port: int
    connection_string: str
    address: str = ""
    tls_connection_string: str | None = None
    ca_file: str | None = None


class Broker:
    """Serves namespaces until it is stopped. Use from within a running event loop.

    :param clock: tells the time, in milliseconds since the epoch; None: the machine's.
    """

    def __init__(self, config: BrokerConfig, *, clock: Callable[[], int] | None = None) -> None:
        self._config = config
        self._clock = clock or _now
        self._servers: dict[str, NamespaceServer] = {}
        self._tls: Tls | None = None
        self._keys = {namespace.name: secrets.token_urlsafe(32) for namespace in config.namespaces}

    async def start(self) -> None:
        """Open the stores and listen; what was started is stopped again when something fails."""
        config = self._config
        if config.tls is not None:
            self._tls = Tls(config.tls, config.host, config.data)
        try:
            for namespace in config.namespaces:
                await self._start(namespace)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, config: NamespaceConfig) -> None:
        loop = asyncio.get_running_loop()
        store = self._store(config.name, loop)
        namespace = Namespace(config.name, store, clock=self._clock, tokens=_new_tokens().__next__)
        server = self._servers[config.name] = NamespaceServer(
            namespace, loop, tls=None if self._tls is None else self._tls.context
        )
        server.routes.administration = Administration(namespace, server.changed)
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

    async def create_topic(self, namespace: str, path: str, settings: TopicSettings) -> None:
        """Make a topic, and return when it is durable."""
        await self._change(namespace, lambda target, answer: target.topics.create(path, settings, answer))

    async def update_topic(self, namespace: str, path: str, settings: TopicSettings) -> None:
        """Give a topic other settings, and return when they are durable."""
        await self._change(namespace, lambda target, answer: target.topics.update(path, settings, answer))

    async def delete_topic(self, namespace: str, path: str) -> None:
        """Delete a topic with its subscriptions, and return when that is durable."""
        await self._change(namespace, lambda target, answer: target.topics.delete(path, answer))

    async def create_subscription(
        self, namespace: str, topic: str, name: str, settings: SubscriptionSettings, rules: Sequence[Rule] = ()
    ) -> None:
        """Make a subscription with rules, and return when it is durable."""

        def create(target: Namespace, answer: Answer) -> None:
            target.topics.create_subscription(topic, name, settings, answer, *rules[:1])
            for rule in rules[1:]:
                target.topics.create_rule(topic, name, rule, _nobody)

        await self._change(namespace, create)

    async def update_subscription(self, namespace: str, topic: str, name: str, settings: SubscriptionSettings) -> None:
        """Give a subscription other settings, and return when they are durable."""
        await self._change(
            namespace, lambda target, answer: target.topics.update_subscription(topic, name, settings, answer)
        )

    async def delete_subscription(self, namespace: str, topic: str, name: str) -> None:
        """Delete a subscription with its messages, and return when that is durable."""
        await self._change(namespace, lambda target, answer: target.topics.delete_subscription(topic, name, answer))

    async def create_rule(self, namespace: str, topic: str, subscription: str, rule: Rule) -> None:
        """Give a subscription one more rule, and return when it is durable."""
        await self._change(
            namespace, lambda target, answer: target.topics.create_rule(topic, subscription, rule, answer)
        )

    async def update_rule(self, namespace: str, topic: str, subscription: str, rule: Rule) -> None:
        """Put a rule into the place of the one of the same name, and return when that is durable."""
        await self._change(
            namespace, lambda target, answer: target.topics.update_rule(topic, subscription, rule, answer)
        )

    async def delete_rule(self, namespace: str, topic: str, subscription: str, name: str) -> None:
        """Take a rule away from a subscription, and return when that is durable."""
        await self._change(
            namespace, lambda target, answer: target.topics.delete_rule(topic, subscription, name, answer)
        )

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
        if self._tls is not None:
            self._tls.close()

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """Where each namespace can be reached, by name."""
        return {name: self._endpoint(name, server.port) for name, server in self._servers.items()}

    def _endpoint(self, name: str, port: int) -> Endpoint:
        address = f"sb://{_authority(self._config.host, port)}"
        plain = f"Endpoint={address};SharedAccessKeyName={KEY_NAME};SharedAccessKey={self._keys[name]}"
        emulator = f"{plain};UseDevelopmentEmulator=true"
        if self._tls is None:
            return Endpoint(name, port, emulator, address)
        return Endpoint(name, port, emulator, address, plain, self._tls.ca_file)


def _authority(host: str, port: int) -> str:
    """Return where clients on this machine find a port; one that listens everywhere is also at localhost."""
    if host in _EVERYWHERE:
        host = "localhost"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _nobody(_refused: RefusedError | None) -> None:
    """Nobody waits for the answer: somebody waits for one that comes later."""


def _now() -> int:
    return time.time_ns() // 1_000_000


def _new_tokens() -> Iterator[bytes]:
    """Make lock tokens, many at a time: asking the system for each takes as long as all else about a lock."""
    while True:
        octets = os.urandom(16 * TOKENS_AT_ONCE)
        yield from (octets[start : start + 16] for start in range(0, len(octets), 16))
