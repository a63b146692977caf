"""Two brokers, of which the primary can be made to fail, and a paired factory."""

# ruff: noqa: ANN401 (the options are handed on)

import asyncio
import http.client
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from tests.client.twins import Twin
from tests.support.ports import free_port

from pairbus.aio import MessagingFactory
from pairbus.core.health import State
from pairbus.core.ledger import Kind, Record
from pairbus.core.naming import namespace_label
from pairbus.instrument.hooks import Instrument, Operation
from pairbus.testing import EmbeddedBroker, QueueSettings

DEADLINE = 60.0


class Records(list[Record]):
    """A sink that keeps what it is told.

    :ivar heard: called with each record, in the factory's event loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard: Callable[[Record], None] = lambda _: None

    def record(self, record: Record) -> None:
        self.append(record)
        self.heard(record)


class Begun(Instrument):
    """An instrument that also keeps which operations have begun, of which there is no record yet."""

    def __init__(self, records: Records) -> None:
        super().__init__([records], client="test")
        self.begun: list[tuple[Kind, str]] = []

    def begin(self, namespace: str, entity: str, kind: Kind, *args: Any, **options: Any) -> Operation:
        operation = super().begin(namespace, entity, kind, *args, **options)
        self.begun.append((kind, entity.lower()))
        return operation


class Stage:
    """A primary, a secondary, and a factory of the primary; everything is closed at its end.

    :param process: run the primary in a process of its own, to be killed; it comes back at the same address.
    :param pairing: the options of the pairing; None: the factory is not paired.
    """

    def __init__(
        self,
        twin: Twin,
        *,
        queues: Mapping[str, QueueSettings] | None = None,
        topics: Mapping[str, Iterable[str]] | None = None,
        process: bool = False,
        data: Path | None = None,
        pairing: Mapping[str, Any] | None = None,
        factory: Mapping[str, Any] | None = None,
    ) -> None:
        self.twin = twin
        self.queues = {"orders": QueueSettings()} if queues is None else queues
        self.primary = EmbeddedBroker(
            namespaces=[f"localhost:{free_port()}" if process else "localhost"],
            queues=self.queues,
            topics=topics or {},
            process=process,
            data=data,
        )
        self.secondary = EmbeddedBroker()
        self.records = Records()
        self.instrument = Begun(self.records)
        self._pairing: Mapping[str, Any] = {} if pairing is None else pairing
        self._factory_options: Mapping[str, Any] = {} if factory is None else factory
        self._clients: list[ServiceBusClient] = []

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.primary.start)
        await asyncio.to_thread(self.secondary.start)
        self.address = self.primary.connection_string
        self.manager = self.twin.manager(self.secondary.connection_string)
        self.factory: MessagingFactory = self.twin.factory(
            self.address, **{"instrument": self.instrument, **self._factory_options}
        )
        label = namespace_label(self.factory.fully_qualified_namespace)
        self.backlog = f"{label}/x-servicebus-transfer"
        """Where the secondary has the backlog queues."""
        self.other: MessagingFactory = self.twin.factory(self.secondary.connection_string)
        if self._pairing.get("pair", True):
            await self.pair()
        return self

    async def pair(self, **options: Any) -> None:
        """Pair the factory, with short intervals unless it is said otherwise."""
        given = {name: value for name, value in self._pairing.items() if name != "pair"}
        short = {"backlog_queue_count": 2, "failover_interval": 0, "ping_primary_interval": 1, "attempt_timeout": 5}
        made = self.twin.options(self.manager, self.other, **{**short, **given, **options})
        await self.factory.pair_namespace(made)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.factory.close()
        await self.other.close()
        await self.twin.close_manager(self.manager)
        for client in self._clients:
            await client.close()
        await asyncio.to_thread(self.primary.stop)
        await asyncio.to_thread(self.secondary.stop)

    def fault(self, kind: str, **options: Any) -> None:
        """Have the primary fail in this way; ``clear`` ends it."""
        self.primary.fault("localhost", kind, **options)

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Have the primary stop in the midst of what it does, as a stopped process does; then it goes on."""
        stopped, go_on = threading.Event(), threading.Event()

        def stop() -> None:
            stopped.set()
            go_on.wait()

        running: Any = self.primary._running  # pyright: ignore[reportPrivateUsage] # it runs in a thread
        running._loop.call_soon_threadsafe(stop)
        stopped.wait()
        try:
            yield
        finally:
            go_on.set()

    async def until_begun(self, count: int = 1, kind: Kind = Kind.SEND, entity: str = "orders") -> None:
        """Wait until so many operations on an entity have begun, those that have ended included."""
        await self.until(lambda: self.instrument.begun.count((kind, entity)) >= count)

    async def links(self, at: str = "primary") -> int:
        """Tell how many links the entities of a broker have."""
        broker = self.primary if at == "primary" else self.secondary

        def ask() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", broker.endpoints["localhost"].port)
            try:
                connection.request("GET", "/$metrics")
                found = re.search(r"^pairbus_links (\d+)", connection.getresponse().read().decode(), re.MULTILINE)
            finally:
                connection.close()
            assert found is not None
            return int(found[1])

        return await asyncio.to_thread(ask)

    async def until_links(self, count: int, at: str = "primary") -> None:
        """Wait until the entities of a broker have so many links."""
        async with asyncio.timeout(DEADLINE):
            while await self.links(at) != count:  # noqa: ASYNC110 (the broker tells nobody)
                await asyncio.sleep(0.01)

    def receiver(self, queue: str, *, at: str = "primary", **options: Any) -> Any:
        """Make the bare SDK's receiver."""
        broker = self.primary if at == "primary" else self.secondary
        client = ServiceBusClient.from_connection_string(broker.connection_string)
        self._clients.append(client)
        return client.get_queue_receiver(queue, **options)

    async def take(
        self, queue: str = "orders", count: int = 1, *, at: str = "primary", **options: Any
    ) -> list[ServiceBusReceivedMessage]:
        """Receive exactly so many messages of a queue, and complete them."""
        got: list[ServiceBusReceivedMessage] = []
        ends = time.monotonic() + DEADLINE
        async with self.receiver(queue, at=at, **options) as receiver:
            while len(got) < count:
                assert time.monotonic() < ends, f"{len(got)} of {count} messages came"
                for message in await receiver.receive_messages(count - len(got), max_wait_time=2):
                    got.append(message)
                    await receiver.complete_message(message)
        return got

    async def parked(self, count: int, queues: int = 2) -> list[ServiceBusReceivedMessage]:
        """Receive exactly so many parked messages, whichever backlog queue has them."""
        got: list[ServiceBusReceivedMessage] = []
        ends = time.monotonic() + DEADLINE
        while len(got) < count:
            assert time.monotonic() < ends, f"{len(got)} of {count} messages were parked"
            for index in range(queues):
                async with self.receiver(f"{self.backlog}/{index}", at="secondary") as receiver:
                    for message in await receiver.receive_messages(count, max_wait_time=0.3):
                        got.append(message)
                        await receiver.complete_message(message)
        return got

    async def until(self, look: Callable[[], bool]) -> None:
        """Wait until something is so."""
        ends = time.monotonic() + DEADLINE
        while not look():
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)

    async def until_state(self, state: State, entity: str = "orders") -> None:
        """Wait until an entity's health is so."""
        await self.until(lambda: self.factory.availability.entity(entity).state is state)


def texts(messages: Iterable[ServiceBusMessage]) -> list[str]:
    """Return what messages say."""
    return [str(message) for message in messages]


__all__ = ["Stage", "State", "texts"]
