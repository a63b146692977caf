"""A fast AMQP client for benchmarks: messages that are encoded already go out, deliveries are completed undecoded."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

from pairbus.amqp import Connection, ConnectionOptions, SaslClient, Side
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    Delivery,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    Opened,
)
from pairbus.amqp.performatives import ACCEPTED, SETTLE_FIRST, SETTLE_SECOND, Accepted, Source, Target


class LoadError(Exception):
    """The broker has refused a message, or has ended a link or the connection."""


class Login(NamedTuple):
    """The name of a policy, and its key."""

    name: str
    key: str

    @classmethod
    def of(cls, connection_string: str) -> Self:
        fields = dict(part.split("=", 1) for part in connection_string.split(";"))
        return cls(fields["SharedAccessKeyName"], fields["SharedAccessKey"])


class Client(asyncio.Protocol):
    """One connection with one link, whose events go to ``on_event``."""

    transport: asyncio.Transport

    def __init__(self, login: Login) -> None:
        self.loop = asyncio.get_running_loop()
        sasl = SaslClient("PLAIN", username=login.name, password=login.key)
        options = ConnectionOptions("load", hostname="localhost")
        self.amqp = Connection(Side.CLIENT, options, sasl=sasl, now=self.loop.time())
        self.opened: asyncio.Future[None] = self.loop.create_future()
        self.on_event: Callable[[Event], None] = self._on_opening

    @classmethod
    async def connect(cls, port: int, login: Login) -> Self:
        """Connect, and wait until the broker has opened the connection."""
        _, client = await asyncio.get_running_loop().create_connection(lambda: cls(login), "127.0.0.1", port)
        await client.opened
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.amqp.receive_data(data, self.loop.time()):
            self.on_event(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for event in self.amqp.connection_lost():
            self.on_event(event)

    def flush(self) -> None:
        if data := self.amqp.data_to_send():
            self.transport.write(data)

    def close(self) -> None:
        self.transport.close()

    def _on_opening(self, event: Event) -> None:
        if isinstance(event, Opened):
            self.opened.set_result(None)
        elif isinstance(event, Closed):
            self.opened.set_exception(LoadError(str(event)))


def fail(finished: "asyncio.Future[None]", event: Event) -> None:
    if not finished.done():
        finished.set_exception(LoadError(str(event)))


async def produce(
    port: int,
    login: Login,
    path: str,
    payloads: Iterable[bytes],
    *,
    window: int = 500,
    on_accepted: Callable[[], None] = lambda: None,
) -> None:
    """Send messages as fast as the broker accepts them, at most ``window`` of them unanswered."""
    client = await Client.connect(port, login)
    link = client.amqp.begin().attach_sender("producer", Target(path))
    left, sent, accepted = iter(payloads), 0, 0
    finished: asyncio.Future[None] = client.loop.create_future()

    def send_more() -> None:
        nonlocal sent
        while sent - accepted < window and link.sendable > 0:
            if (payload := next(left, None)) is None:
                if accepted == sent and not finished.done():
                    finished.set_result(None)
                return
            link.send(payload, sent.to_bytes(4))
            sent += 1

    def on_event(event: Event) -> None:
        nonlocal accepted
        match event:
            case DispositionReceived(state=Accepted(), deliveries=deliveries):
                accepted += len(deliveries)
                for _ in deliveries:
                    on_accepted()
            case DispositionReceived() | LinkDetached() | Closed():
                fail(finished, event)
            case _:
                pass
        send_more()

    client.on_event = on_event
    client.flush()
    await finished
    client.close()


async def consume(port: int, login: Login, path: str, count: int, *, credit: int = 500, confirmed: bool = True) -> None:
    """Receive messages under lock and complete each.

    :param confirmed: whether the broker confirms each completion (rcv-settle-mode second), which not every broker can.
    """
    client = await Client.connect(port, login)
    mode = SETTLE_SECOND if confirmed else SETTLE_FIRST
    link = client.amqp.begin().attach_receiver("consumer", Source(path), rcv_settle_mode=mode)
    completed = 0
    finished: asyncio.Future[None] = client.loop.create_future()

    def complete(deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            link.settle(delivery, ACCEPTED, settled=not confirmed)
        if link.credit < credit // 2:
            link.grant(credit)

    def on_event(event: Event) -> None:
        nonlocal completed
        match event:
            case LinkAttached():
                link.grant(credit)
            case DeliveriesReceived(deliveries=deliveries):
                complete(deliveries)
                completed += 0 if confirmed else len(deliveries)
            case DispositionReceived(first=first, last=last, state=Accepted()):
                completed += last - first + 1
            case LinkDetached() | Closed():
                fail(finished, event)
            case _:
                pass
        if completed >= count and not finished.done():
            finished.set_result(None)

    client.on_event = on_event
    client.flush()
    await finished
    client.flush()
    client.close()
