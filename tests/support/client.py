"""A fast AMQP client for tests and benchmarks: pre-encoded messages out, deliveries in, nothing decoded."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from pairbus.amqp import Connection, ConnectionOptions, ReceiverLink, SaslClient, SenderLink, Side
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    Delivery,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkAttached,
    LinkDetached,
    Opened,
    WindowOpened,
)
from pairbus.amqp.performatives import ACCEPTED, SETTLE_FIRST, SETTLE_SECOND, Accepted, Source, Target
from pairbus.testing import EmbeddedBroker


class ConnectionEndedError(Exception):
    """The broker or the network has ended the connection."""


class Login(NamedTuple):
    """With what a client says who it is."""

    name: str
    key: str

    @classmethod
    def of(cls, connection_string: str) -> Self:
        """Return what a connection string has."""
        fields = dict(part.split("=", 1) for part in connection_string.split(";"))
        return cls(fields["SharedAccessKeyName"], fields["SharedAccessKey"])


class Client(asyncio.Protocol):
    """One connection; ``lost`` is done when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, login: Login | None) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._handlers: dict[object, Callable[[Event], None]] = {}
        options = ConnectionOptions("load", hostname="localhost")
        sasl = SaslClient() if login is None else SaslClient("PLAIN", username=login.name, password=login.key)
        self.amqp = Connection(Side.CLIENT, options, sasl=sasl, now=loop.time())
        self.opened: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()

    @classmethod
    async def connect(cls, port: int, login: Login | None) -> Self:
        """Connect and open, with the name of a policy and its key, or as nobody in particular."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(loop, login), "127.0.0.1", port)
        await client.opened
        return client

    @classmethod
    async def of(cls, broker: EmbeddedBroker) -> Self:
        """Connect to a broker's first namespace as its owner."""
        endpoint = next(iter(broker.endpoints.values()))
        return await cls.connect(endpoint.port, Login.of(endpoint.connection_string))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.amqp.receive_data(data, self._loop.time()):
            self._on_event(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for event in self.amqp.connection_lost():
            self._on_event(event)
        if not self.opened.done():
            self.opened.set_exception(ConnectionEndedError())
        if not self.lost.done():
            self.lost.set_result(None)

    def flush(self) -> None:
        data = self.amqp.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def handle(self, link: object, handler: Callable[[Event], None]) -> None:
        self._handlers[link] = handler

    def _on_event(self, event: Event) -> None:
        match event:
            case Opened():
                self.opened.set_result(None)
            case DispositionReceived(session=session):
                for link, handler in list(self._handlers.items()):
                    if isinstance(link, SenderLink | ReceiverLink) and link.session is session:
                        handler(event)
            case FlowChanged(link) | LinkAttached(link) | LinkDetached(link) | DeliveriesReceived(link):
                if link in self._handlers:
                    self._handlers[link](event)
            case WindowOpened() | Closed():
                for handler in list(self._handlers.values()):
                    handler(event)
            case _:
                pass


@dataclass(eq=False)
class Producer:
    """Sends as fast as the broker takes it, with so many messages unanswered at most."""

    client: Client
    path: str
    next_payload: Callable[[], bytes | None]
    """The next message; None: there are no more."""
    window: int = 500
    on_accepted: Callable[[int], None] = lambda _number: None
    """Told the running number of each message that the broker has accepted."""
    sent: int = 0
    accepted: int = 0
    finished: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _exhausted: bool = False

    def __post_init__(self) -> None:
        self._link = self.client.amqp.begin().attach_sender(f"producer-{id(self)}", Target(self.path))
        self.client.handle(self._link, self._on_event)
        self.client.flush()

    def _on_event(self, event: Event) -> None:
        match event:
            case DispositionReceived(state=Accepted(), deliveries=deliveries):
                self.accepted += len(deliveries)
                for delivery in deliveries:
                    self.on_accepted(delivery.context)
            case DispositionReceived(state=state):
                self._fail(f"not accepted: {state}")
            case LinkDetached() | Closed():
                self._fail(str(event))
            case _:
                pass
        self._pump()

    def _pump(self) -> None:
        link = self._link
        while not self._exhausted and self.sent - self.accepted < self.window and link.sendable > 0:
            payload = self.next_payload()
            if payload is None:
                self._exhausted = True
                break
            link.send(payload, self.sent.to_bytes(4), context=self.sent)
            self.sent += 1
        if self._exhausted and self.accepted == self.sent and not self.finished.done():
            self.finished.set_result(None)

    def _fail(self, why: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(ConnectionEndedError(why))


@dataclass(eq=False)
class Worker:
    """Receives under lock and completes each message, with so much credit."""

    client: Client
    path: str
    until: int | None
    """How many messages to complete; None: without end."""
    credit: int = 500
    confirmed: bool = True
    """Whether the broker confirms each completion (rcv-settle-mode second), which not every broker can."""
    on_received: Callable[[Delivery], None] = lambda _delivery: None
    on_completed: Callable[[int], None] = lambda _delivery_id: None
    completed: int = 0
    finished: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _asked: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        session = self.client.amqp.begin()
        source = Source(self.path)
        mode = SETTLE_SECOND if self.confirmed else SETTLE_FIRST
        self._link = session.attach_receiver(f"worker-{id(self)}", source, rcv_settle_mode=mode)
        self.client.handle(self._link, self._on_event)
        self.client.flush()

    def _on_event(self, event: Event) -> None:
        match event:
            case LinkAttached():
                self._link.grant(self.credit)
            case DeliveriesReceived():
                for delivery in event.deliveries:
                    self.on_received(delivery)
                    self._asked.add(delivery.delivery_id)
                    self._link.settle(delivery, ACCEPTED, settled=not self.confirmed)
                    if not self.confirmed:
                        self._on_completed(delivery.delivery_id, delivery.delivery_id)
                if self._link.credit < self.credit // 2:
                    self._link.grant(self.credit)
            case DispositionReceived(first=first, last=last, state=Accepted()):
                self._on_completed(first, last)
            case LinkDetached() | Closed():
                if not self.finished.done():
                    self.finished.set_exception(ConnectionEndedError(str(event)))
            case _:
                pass

    def _on_completed(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            if number in self._asked:
                self._asked.discard(number)
                self.completed += 1
                self.on_completed(number)
        if self.until is not None and self.completed >= self.until and not self.finished.done():
            self.finished.set_result(None)
