"""Two brokers and the SDK on both, for the tests of the syphon."""

# ruff: noqa: ANN401 (options are handed on)

import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, cast

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.core.backoff import Backoff
from pairbus.core.moving import Pace
from pairbus.core.naming import backlog_paths
from pairbus.core.options import TransportName
from pairbus.core.routing import Destinations
from pairbus.links.transport import Transport
from pairbus.messages.sdk_batches import Message
from pairbus.messages.sdk_messages import parked
from pairbus.syphon.in_process import Syphon
from pairbus.syphon.mover import Mover
from pairbus.syphon.transports import transport_to
from pairbus.testing import EmbeddedBroker, QueueSettings

DEADLINE = 180.0

IGNORED = (
    "ignore:unclosed <socket:ResourceWarning",
    r"ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)
"""What the SDK leaves open when its peer has gone."""


class Pair:
    """A primary with some queues, a secondary with backlog queues, and links of the SDK to both.

    :cvar carrier: what carries messages for the movers; see the fixture of the same name.
    """

    carrier: TransportName = "sdk"

    def __init__(
        self,
        queues: Mapping[str, QueueSettings] | None = None,
        *,
        backlogs: int = 1,
        data: Path | None = None,
        ports: tuple[int, int] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.backlogs = backlog_paths("contoso", backlogs)
        process = ports is not None
        suffixes = ("", "") if ports is None else tuple(f":{port}" for port in ports)
        self.primary = EmbeddedBroker(
            namespaces=[f"contoso{suffixes[0]}"],
            queues=queues or {"orders": QueueSettings()},
            data=data and data / "primary",
            process=process,
        )
        self.secondary = EmbeddedBroker(
            namespaces=[f"fabrikam{suffixes[1]}"],
            queues={path: QueueSettings(max_delivery_count=2**31 - 1) for path in self.backlogs},
            data=data and data / "secondary",
            process=process,
            clock=clock,
        )
        self._stack = AsyncExitStack()
        self.clients: dict[EmbeddedBroker, ServiceBusClient] = {}

    async def __aenter__(self) -> Self:
        for broker in (self.primary, self.secondary):
            await asyncio.to_thread(broker.start)
            self._stack.push_async_callback(asyncio.to_thread, broker.stop)
            client = ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0)
            self.clients[broker] = client
            self._stack.push_async_callback(client.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def transport(self, broker: EmbeddedBroker, **options: Any) -> Transport:
        """Make a transport, which is closed at the end."""
        made = transport_to(self.clients[broker], self.carrier, **options)
        self._stack.push_async_callback(made.close)
        return made

    def syphon(self, **options: Any) -> Syphon:
        """Make a syphon."""
        return Syphon(self.transport(self.primary), self.transport(self.secondary), self.backlogs, **options)

    def mover(self, queue: str | None = None, **pace: Any) -> Mover:
        """Make a mover for one queue."""
        return Mover(
            queue or self.backlogs[0],
            self.transport(self.secondary),
            self.transport(self.primary),
            destinations=Destinations(Backoff(0.1, 0.2), Random(1)),
            pace=Pace(retry_interval=0.1, **pace),
        )

    async def sender(self, queue: str) -> ServiceBusSender:
        """Open a sender, to the broker that has the queue."""
        broker = self.secondary if queue in self.backlogs else self.primary
        return await self._stack.enter_async_context(self.clients[broker].get_queue_sender(queue))

    async def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        """Open a receiver, to the broker that has the queue."""
        broker = self.secondary if queue in self.backlogs else self.primary
        return await self._stack.enter_async_context(self.clients[broker].get_queue_receiver(queue, **options))

    async def park(self, messages: Iterable[Message], destination: str = "orders", queue: str | None = None) -> None:
        """Park messages in a backlog queue."""
        async with self.clients[self.secondary].get_queue_sender(queue or self.backlogs[0]) as sender:
            await send(sender, [parked(each, destination) for each in messages])


async def send(sender: ServiceBusSender, messages: Sequence[Message]) -> None:
    """Send messages in batches."""
    for start in range(0, len(messages), 100):
        await sender.send_messages(cast("list[AmqpAnnotatedMessage]", list(messages[start : start + 100])))


async def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages."""
    got: list[ServiceBusReceivedMessage] = []
    ends = time.monotonic() + DEADLINE
    while len(got) < count:
        assert time.monotonic() < ends, f"{len(got)} of {count} came"
        for message in await receiver.receive_messages(count - len(got), max_wait_time=5):
            await receiver.complete_message(message)
            got.append(message)
    return got


async def count_of(receiver: ServiceBusReceiver) -> int:
    """Tell how many messages a queue has, locked ones too."""
    return len(await receiver.peek_messages(250, sequence_number=1))


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < ends, "it does not happen"
        await asyncio.sleep(0.02)
