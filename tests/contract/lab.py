"""A broker to be driven by a scenario: its queues, its clock, and the clients that are open on it."""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from tests.contract.sdk import Sdk

from pairbus.aio import NamespaceManager
from pairbus.testing import EmbeddedBroker, QueueSettings

T = TypeVar("T")

DEADLINE = 15.0
"""Seconds after which what a test waits for has not happened."""
BRIEFLY = 0.3
"""Seconds in which a receiver would have got a message that must not come."""


class Clock:
    """The machine's clock, which can be moved on."""

    def __init__(self) -> None:
        self._ahead = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += round(seconds * 1000)

    def utc(self, seconds: float = 0) -> datetime:
        """Tell the time, or the one so many seconds later."""
        return datetime.fromtimestamp(self() / 1000 + seconds, UTC)


class Lab:
    """A broker with some queues, and clients on it. Everything that is opened is closed at its end."""

    def __init__(
        self, sdk: Sdk, queues: Mapping[str, QueueSettings], data: Path | None, *, process: bool = False
    ) -> None:
        self.sdk = sdk
        self.clock = Clock()
        self.broker = EmbeddedBroker(queues=queues, data=data, process=process, clock=None if process else self.clock)
        self._clients: list[ServiceBusClient | NamespaceManager] = []
        self._links: list[ServiceBusSender | ServiceBusReceiver] = []
        self._client: ServiceBusClient | None = None

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.broker.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_clients()
        await asyncio.to_thread(self.broker.stop)

    async def close_clients(self) -> None:
        """Close everything that is open, at once: the SDK takes half a second for each.

        It raises when it closes what the broker has ended already, which no test is about.
        """
        links, self._links = self._links, []
        clients, self._clients, self._client = self._clients, [], None
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

    async def restart(self) -> None:
        """Stop the broker in order and start it again; clients are closed before."""
        await self.close_clients()
        await asyncio.to_thread(self.broker.stop)
        await asyncio.to_thread(self.broker.start)

    def client(self, **options: Any) -> ServiceBusClient:
        """Make a client of its own."""
        made = self.sdk.client(self.broker.connection_string, **options)
        self._clients.append(made)
        return made

    def manager(self, **options: Any) -> NamespaceManager:
        """Make an administration client, from the same connection string."""
        made = self.sdk.manager(self.broker.connection_string, **options)
        self._clients.append(made)
        return made

    def _shared(self) -> ServiceBusClient:
        if self._client is None:
            self._client = self.client()
        return self._client

    async def sender(self, queue: str = "orders") -> ServiceBusSender:
        """Open a sender."""
        made = self._shared().get_queue_sender(queue)
        self._links.append(made)
        return await made.__aenter__()

    async def receiver(self, queue: str = "orders", **options: Any) -> ServiceBusReceiver:
        """Open a receiver."""
        made = self._shared().get_queue_receiver(queue, **options)
        self._links.append(made)
        return await made.__aenter__()

    async def topic_sender(self, topic: str) -> ServiceBusSender:
        """Open a sender to a topic."""
        made = self._shared().get_topic_sender(topic)
        self._links.append(made)
        return await made.__aenter__()

    async def subscription_receiver(self, topic: str, subscription: str, **options: Any) -> ServiceBusReceiver:
        """Open a receiver of a subscription."""
        made = self._shared().get_subscription_receiver(topic, subscription, **options)
        self._links.append(made)
        return await made.__aenter__()

    async def both(self, queue: str = "orders", **options: Any) -> tuple[ServiceBusSender, ServiceBusReceiver]:
        """Open a sender and a receiver at once."""
        return await asyncio.gather(self.sender(queue), self.receiver(queue, **options))

    async def pass_time(self, seconds: float) -> None:
        """Move the broker's clock on, and wait until the broker has done what was due by then."""
        self.clock.advance(seconds)
        await asyncio.to_thread(self.broker.wake)


async def send(sender: ServiceBusSender, *bodies: str, **options: Any) -> None:
    """Send messages one by one."""
    for body in bodies:
        await sender.send_messages(ServiceBusMessage(body, **options))


async def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages."""
    got: list[ServiceBusReceivedMessage] = []
    ends = time.monotonic() + DEADLINE
    while len(got) < count:
        left = ends - time.monotonic()
        assert left > 0, f"{len(got)} of {count} messages came: {got}"
        got += await receiver.receive_messages(count - len(got), max_wait_time=left)
    return got


async def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive one message."""
    return (await receive(receiver))[0]


async def nothing(receiver: ServiceBusReceiver) -> bool:
    """Tell whether no message comes."""
    return not await receiver.receive_messages(1, max_wait_time=BRIEFLY)


async def peek(receiver: ServiceBusReceiver, **options: Any) -> list[ServiceBusReceivedMessage]:
    """Look at all messages, from the first one on."""
    return await receiver.peek_messages(100, **{"sequence_number": 1, **options})


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """Return what messages say."""
    return [str(message) for message in messages]


async def eventually(look: Callable[[], Awaitable[T]], is_so: Callable[[T], bool]) -> T:
    """Look again and again until something is so, and return what was seen."""
    ends = time.monotonic() + DEADLINE
    while True:
        seen = await look()
        if is_so(seen):
            return seen
        assert time.monotonic() < ends, f"it is still {seen!r}"
        await asyncio.sleep(0.02)
