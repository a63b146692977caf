"""A broker that runs: all its namespaces, on one event loop."""

import asyncio
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pairbus.broker.access.keyring import Keyring
from pairbus.broker.access.policies import ROOT, Policies, find
from pairbus.broker.config.options import BrokerConfig, NamespaceConfig
from pairbus.broker.config.topic_documents import SubscriptionConfig, TopicConfig
from pairbus.broker.faults.board import Fault
from pairbus.broker.faults.script import Order, TimedOrder, read_order
from pairbus.broker.listen.server import NamespaceServer
from pairbus.broker.listen.web import Admit, Handler, Request, when_asked
from pairbus.broker.meter.watching import metered, watch
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import Answer, RefusedError, no_answer
from pairbus.broker.store.base import Store
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.errors import OptionError
from pairbus.instrument.ledger import LedgerFile

if TYPE_CHECKING:
    from pairbus.broker.listen.certificates import Tls

_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 (it is only recognised)
TOKEN = struct.Struct("16s")
TOKENS_AT_ONCE = 256
GATHER_SECONDS = 1.0
"""How often what was metered goes to the ledger."""


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
    :param access_clock: tells the time by which access tokens expire; None: the machine's, by which clients make them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Callable[[], int] | None = None,
        access_clock: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or _now
        self._servers: dict[str, NamespaceServer] = {}
        self._tls: Tls | None = None
        self._access_clock = access_clock or _now
        self._keyrings: dict[str, Keyring] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._ledger: LedgerFile | None = None
        self._gathering: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open the stores and listen; what was started is stopped again when something fails."""
        config = self._config
        if config.tls is not None:
            from pairbus.broker.listen.certificates import Tls  # noqa: PLC0415 (cryptography takes long to import)

            self._tls = Tls(config.tls, config.host, config.data)
        if config.ledger is not None:
            self._ledger = LedgerFile(config.ledger)
        try:
            for namespace in config.namespaces:
                await self._start(namespace)
        except BaseException:
            await self.stop()
            raise
        self._gather()

    async def _start(self, config: NamespaceConfig) -> None:
        loop = asyncio.get_running_loop()
        store = self._store(config.name, loop)
        namespace = Namespace(
            config.name,
            store,
            clock=self._clock,
            tokens=_new_tokens().__next__,
            access_clock=self._access_clock,
            address=self._config.host,
        )
        server = self._servers[config.name] = NamespaceServer(
            namespace, loop, tls=None if self._tls is None else self._tls.context
        )
        namespace.meter.keeps_records = self._ledger is not None
        server.routes.administration = metered(when_asked(_administration(server)), namespace.meter)
        server.routes.may_administer = _administrators(namespace)
        watch(server, self._config.host)
        file = None if self._config.data is None else self._config.data / f"{config.name.lower()}.keys.json"
        keyring = self._keyrings[config.name] = Keyring(file, config.policies)
        namespace.policies = keyring.policies
        for path, settings in config.queues.items():
            if namespace.entities.find(path) is None:
                namespace.queues.create(path, settings, no_answer)
        for path, topic in config.topics.items():
            _make_topic(namespace, path, topic)
        await server.start(self._config.host, config.port)
        server.changed()

    def _store(self, name: str, loop: asyncio.AbstractEventLoop) -> Store:
        if self._config.data is None:
            return MemoryStore(lambda call: self._servers[name].call_soon(call))  # noqa: PLW0108 (it is made later)

        def settle(call: Callable[[], None]) -> None:
            call()
            if name in self._servers:
                self._servers[name].flush()  # what was answered goes out at once

        return SqliteStore(
            self._config.data / f"{name.lower()}.db",
            lambda call: loop.call_soon_threadsafe(settle, call),
            accept_loss=self._config.accept_loss,
        )

    def wake(self) -> None:
        """Do what is due now, without waiting for the next time that the broker looks at its clock."""
        for server in self._servers.values():
            server.wake()

    async def change_policies(self, namespace: str, entity: str | None, change: Callable[[Policies], Policies]) -> None:
        """Give an entity, or a namespace itself, other policies, and return when they are durable."""
        if entity is not None:
            await self.change(namespace, lambda target, answer: target.change_policies(entity, change, answer))
            return
        keyring = self._keyrings[namespace]
        keyring.keep(change(keyring.policies))
        self._servers[namespace].namespace.policies = keyring.policies

    def connection_string(
        self,
        namespace: str,
        policy: str = ROOT,
        *,
        entity: str | None = None,
        secondary: bool = False,
    ) -> str:
        """Return what a client connects with, with the key of a policy of a namespace, or of an entity."""
        return f"{self._secured(namespace, policy, entity, secondary=secondary)};UseDevelopmentEmulator=true"

    def _secured(self, namespace: str, policy: str, entity: str | None = None, *, secondary: bool = False) -> str:
        """Return what a client connects with by TLS."""
        server = self._servers[namespace]
        found = find(server.namespace.policies_of(entity or ""), policy)
        return (
            f"Endpoint=sb://{_authority(self._config.host, server.port)};SharedAccessKeyName={policy};"
            f"SharedAccessKey={found.keys[secondary]}" + ("" if entity is None else f";EntityPath={entity}")
        )

    # --- faults --------------------------------------------------------------------------------------------------

    def order(self, order: Order) -> int:
        """Switch a fault on, or off; return how many were switched off."""
        server = self._named(order.namespace)
        if (
            order.entity is not None
            and server.namespace.entities.find(order.entity) is None
            and server.namespace.topics.find(order.entity) is None
        ):
            raise OptionError("where", f"{order.namespace}/{order.entity}", "an entity that there is")
        if order.kind is None:
            cleared = server.injector.clear(entity=order.entity)
        else:
            server.injector.begin(order.fault(self._clock()))
            cleared = 0
        server.changed()
        return cleared

    def faults(self) -> Mapping[str, list[Fault]]:
        """Which faults are switched on, by namespace."""
        return {name: list(server.namespace.faults) for name, server in self._servers.items()}

    def play(self, timed_orders: Iterable[TimedOrder]) -> None:
        """Switch faults on and off as a script has it, from now on."""
        loop = asyncio.get_running_loop()
        for timed in timed_orders:
            self._named(timed.order.namespace)
            self._timers.append(loop.call_later(timed.at / 1000, self.order, timed.order))

    def _named(self, namespace: str) -> NamespaceServer:
        for name, server in self._servers.items():
            if name.lower() == namespace.lower():
                return server
        raise OptionError("namespace", namespace, "one of " + ", ".join(self._servers))

    def obey(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out what was asked for from outside; see :mod:`pairbus.broker.run.control`."""
        match request:
            case {"do": "namespaces"}:
                return {"namespaces": list(self._servers)}
            case {"do": "ports"}:
                return {"ports": {name: server.port for name, server in self._servers.items()}}
            case {"do": "fault", "where": str(where), "kind": str(kind), **options}:
                return {"cleared": self.order(read_order(where, kind, **options))}
            case {"do": "faults"}:
                faults = self.faults().items()
                return {"faults": {name: [fault.to_document() for fault in each] for name, each in faults}}
            case _:
                raise OptionError("do", request, "namespaces, ports, faults, or fault with where and kind")

    async def change(self, namespace: str, change: Callable[[Namespace, Answer], None]) -> None:
        """Change something in a namespace, and return when that is durable."""
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
        for timer in self._timers:
            timer.cancel()
        if self._gathering is not None:
            self._gathering.cancel()
        for server in self._servers.values():
            await server.stop()
        if self._ledger is not None:
            self._write_down(self._ledger)
            await asyncio.to_thread(self._ledger.close)
        self._servers.clear()
        if self._tls is not None:
            self._tls.close()

    def _gather(self) -> None:
        if self._ledger is not None:
            self._write_down(self._ledger)
            self._gathering = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._gather)

    def _write_down(self, ledger: LedgerFile) -> None:
        for server in self._servers.values():
            for record in server.namespace.meter.records():
                ledger.record(record)

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """Where each namespace can be reached, by name."""
        return {name: self._endpoint(name, server.port) for name, server in self._servers.items()}

    def _endpoint(self, name: str, port: int) -> Endpoint:
        address = f"sb://{_authority(self._config.host, port)}"
        plain = self.connection_string(name)
        if self._tls is None:
            return Endpoint(name, port, plain, address)
        return Endpoint(name, port, plain, address, self._secured(name, ROOT), self._tls.ca_file)


def _administration(server: NamespaceServer) -> Callable[[], Handler]:
    opened_at = server.namespace.clock()

    def make() -> Handler:
        from pairbus.broker.admin.handler import Administration  # noqa: PLC0415 (few ask, and a start is quick without)

        return Administration(server.namespace, server.changed, opened_at)

    return make


def _administrators(namespace: Namespace) -> Admit:
    def may_administer(request: Request) -> bool:
        from pairbus.broker.admin.guard import may_administer  # noqa: PLC0415 (as above)

        return may_administer(namespace, request)

    return may_administer


def _authority(host: str, port: int) -> str:
    """Return where clients on this machine find a port; one that listens everywhere is also at localhost."""
    if host in _EVERYWHERE:
        host = "localhost"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _make_topic(namespace: Namespace, path: str, config: TopicConfig) -> None:
    """Make a topic and its subscriptions; what is there already stays as it is."""
    if namespace.topics.find(path) is None:
        namespace.topics.create(path, config.settings, no_answer)
    topic = namespace.topics.get(path)
    for name, subscription in config.subscriptions.items():
        if topic.find_subscription(name) is None:
            make_subscription(namespace, path, name, subscription, no_answer)


def make_subscription(namespace: Namespace, topic: str, name: str, config: SubscriptionConfig, answer: Answer) -> None:
    """Make a subscription with its rules."""
    namespace.topics.create_subscription(topic, name, config.settings, answer, *config.rules[:1])
    for rule in config.rules[1:]:
        namespace.topics.create_rule(topic, name, rule, no_answer)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _new_tokens() -> Iterator[bytes]:
    """Make lock tokens, many at a time: asking the system for each takes as long as all else about a lock."""
    octets = iter(lambda: os.urandom(TOKEN.size * TOKENS_AT_ONCE), b"")
    return chain.from_iterable(chain.from_iterable(map(TOKEN.iter_unpack, octets)))
