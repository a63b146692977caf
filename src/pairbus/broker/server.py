"""The broker on a socket: one event loop, a port per namespace, a connection per client."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pairbus.amqp import (
    AmqpError,
    Connection,
    ConnectionOptions,
    ReceiverLink,
    SaslServer,
    SenderLink,
    SentDelivery,
    Side,
)
from pairbus.amqp.conditions import CONNECTION_FORCED, INTERNAL_ERROR
from pairbus.amqp.events import (
    Closed,
    DeliveryReceived,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkDetached,
    LinkRequested,
    Opened,
    WindowOpened,
)
from pairbus.amqp.performatives import SENDER, Error, Source, Target
from pairbus.broker.door import Door
from pairbus.broker.namespace import Namespace
from pairbus.broker.nodes.cbs import TokenNode
from pairbus.broker.nodes.management import ManagementNode, QueueManagementNode
from pairbus.broker.nodes.receiving import ReceivingNode
from pairbus.broker.nodes.requests import Answers, RequestsNode
from pairbus.broker.nodes.sending import SendingNode
from pairbus.broker.refusals import RefusedError
from pairbus.broker.waiting import PATIENCE
from pairbus.broker.web import Routes

CBS: Final = "$cbs"
MANAGEMENT: Final = "/$management"
IDLE_TIMEOUT: Final = 120.0
LOOK_AGAIN: Final = 0.02
"""Seconds after which it is worked out anew when to wake, if something has happened: not for each message."""
LAST_WORDS: Final = 2.0
"""Seconds that a client has to take what it is told when the broker stops."""

_LOGGER = logging.getLogger(__name__)


class Node(Protocol):
    """What a link is attached to."""

    def attached(self) -> None:
        """Begin."""
        ...

    def detached(self) -> None:
        """End."""
        ...


class ServerConnection(asyncio.Protocol):
    """One client.

    :param arrived: is told when the client has opened its connection, or has gone.
    """

    def __init__(self, server: "NamespaceServer", arrived: Callable[[], None] = lambda: None) -> None:
        self._server = server
        self._arrived = arrived
        self._namespace = server.namespace
        self._transport: asyncio.Transport | None = None
        options = ConnectionOptions(container_id=server.namespace.name, idle_timeout=IDLE_TIMEOUT)
        self._connection = Connection(Side.SERVER, options, sasl=SaslServer(), now=server.monotonic())
        self._answers: dict[str, Answers] = {}

    # --- the socket ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Take what the client says."""
        self._handle(self._connection.receive_data(data, self._server.monotonic()))
        self._namespace.store.flush()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        self._arrived()
        self._handle(self._connection.connection_lost())
        self._namespace.store.flush()
        self._server.changed()
        self._server.lost(self)

    def pause_writing(self) -> None:
        """Read no more from a client that does not read what it is sent."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write what there is to be sent."""
        data = self._connection.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def tick(self, now: float) -> float | None:
        """Do what time demands; return when to come again."""
        self._handle(self._connection.tick(now))
        self.flush()
        return self._connection.wake_at

    def close(self, error: Error) -> None:
        """End the connection with an error that the client hears."""
        self._connection.close(error)
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection with a client that does not read what it is sent."""
        if self._transport is not None:
            self._transport.abort()

    # --- events --------------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in gathered(events):
            try:
                if isinstance(event, list):
                    self._on_deliveries(event)
                else:
                    self._on_event(event)
            except AmqpError as error:  # a message that cannot be read, where one must be
                self._connection.close(Error(error.condition, error.description))
            except Exception:  # the other events, and the other clients, must not suffer for it
                _LOGGER.exception("%s: a connection is closed for a bug of the broker", self._namespace.name)
                self._connection.close(Error(INTERNAL_ERROR, "An unexpected error; the broker's log has more."))
        if events:
            self._server.changed()

    def _on_event(self, event: Event) -> None:
        match event:
            case DispositionReceived():
                self._on_disposition(event)
            case FlowChanged(link) if isinstance(link, SenderLink):
                self._on_flow(link)
            case WindowOpened(session):
                for link in list(session.links.values()):
                    if isinstance(link, SenderLink):
                        self._on_flow(link)
            case LinkRequested(link):
                self._on_attach(link)
            case LinkDetached(link):
                self._on_detach(link)
            case Opened():
                self._arrived()
                self._server.opened.add(self)
            case Closed() if self._transport is not None:
                self.flush()
                self._transport.close()
            case _:
                pass

    @staticmethod
    def _on_deliveries(deliveries: list[DeliveryReceived]) -> None:
        node = deliveries[0].link.context
        assert isinstance(node, SendingNode | RequestsNode)  # noqa: S101 (what _on_attach has put there)
        node.on_deliveries(deliveries)

    def _on_disposition(self, event: DispositionReceived) -> None:
        by_node: dict[ReceivingNode, list[SentDelivery]] = {}
        for delivery in event.deliveries:
            node = delivery.link.context
            if isinstance(node, ReceivingNode):
                by_node.setdefault(node, []).append(delivery)
        for node, deliveries in by_node.items():
            node.on_disposition(event, deliveries)

    def _on_flow(self, link: SenderLink) -> None:
        if isinstance(link.context, ReceivingNode):
            link.context.on_flow()
        elif isinstance(link.context, Answers):
            link.context.flush()

    def _on_detach(self, link: object) -> None:
        context = getattr(link, "context", None)
        if isinstance(context, Answers) and isinstance(link, SenderLink):
            context.detach(link)
        elif isinstance(context, SendingNode | RequestsNode | ReceivingNode):
            context.detached()

    # --- attaching -----------------------------------------------------------------------------------------------

    def _on_attach(self, link: SenderLink | ReceiverLink) -> None:
        address = _address(link)
        try:
            if address.lower() == CBS:
                self._attach_requests(link, CBS, TokenNode(self._answers_of(CBS), self._accept_token).handle)
            elif address.lower().endswith(MANAGEMENT):
                self._attach_requests(link, address.lower(), self._management(address).handle)
            else:
                self._attach_entity(link, address)
        except RefusedError as refused:
            link.context = None
            link.refuse(refused.error)

    def _management(self, address: str) -> ManagementNode:
        path, answers = address[: -len(MANAGEMENT)], self._answers_of(address.lower())
        topic = self._namespace.topics.find(path)
        if topic is not None:
            return ManagementNode(self._namespace, topic, answers, self._server.changed)
        return QueueManagementNode(self._namespace, self._namespace.get(path), answers, self._server.changed)

    def _attach_requests(self, link: SenderLink | ReceiverLink, address: str, handle: Callable[..., None]) -> None:
        if isinstance(link, SenderLink):
            link.context = self._answers_of(address)
            link.context.attach(link)
        else:
            link.context = RequestsNode(link, handle)
            link.context.attached()

    def _attach_entity(self, link: SenderLink | ReceiverLink, address: str) -> None:
        if isinstance(link, SenderLink):
            node = self._namespace.get(address)
            link.context = ReceivingNode(self._namespace, node, link, self._server.changed)
        else:
            entity = self._namespace.get_destination(address)
            link.context = SendingNode(self._namespace, entity, link, self._server.changed)
        link.context.attached()

    def _answers_of(self, address: str) -> Answers:
        return self._answers.setdefault(address, Answers())

    def _accept_token(self, audience: str, token: str) -> bool:
        del audience, token
        self._connection.trust()
        return True


def gathered(events: list[Event]) -> Iterator[Event | list[DeliveryReceived]]:
    """Give events in their order, deliveries of one link that follow each other as one list."""
    deliveries: list[DeliveryReceived] = []
    for event in events:
        if isinstance(event, DeliveryReceived):
            if deliveries and event.link is not deliveries[0].link:
                yield deliveries
                deliveries = []
            deliveries.append(event)
            continue
        if deliveries:
            yield deliveries
            deliveries = []
        yield event
    if deliveries:
        yield deliveries


def _address(link: SenderLink | ReceiverLink) -> str:
    """Return the entity that a link is for, without the host: ``orders`` of ``amqps://host:port/orders``."""
    remote = link.remote
    terminus = None if remote is None else (remote.source if link.role is SENDER else remote.target)
    address = str(terminus.address or "") if isinstance(terminus, Source | Target) else ""
    if "://" in address:
        address = address.partition("://")[2].partition("/")[2]
    return address.strip("/")


class NamespaceServer:
    """One namespace on one port.

    :ivar routes: who answers HTTP requests.
    :param tls: makes the port understand TLS too.
    :param patience: the seconds that a client has to show what it wants.
    """

    def __init__(
        self,
        namespace: Namespace,
        loop: asyncio.AbstractEventLoop,
        *,
        tls: ssl.SSLContext | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.namespace = namespace
        self.connections: set[ServerConnection] = set()
        self.opened: set[ServerConnection] = set()
        """Those of them that may be told something: the others have not opened their connection yet."""
        self.routes = Routes()
        self.port = 0
        self._loop = loop
        self._door = Door(
            loop, lambda arrived: ServerConnection(self, arrived), self.routes, tls=tls, patience=patience
        )
        self._planned_flush: asyncio.Handle | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._wake_is_right = False
        """Whether nothing has happened since it was worked out when to wake."""
        self._stopped = False
        self._deserted = asyncio.Event()
        """Set when it stops and the last client is gone."""

    def monotonic(self) -> float:
        """The loop's time."""
        return self._loop.time()

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0: any that is free."""
        self.port = await self._door.open(host, port)
        self._look_for_wake()

    def changed(self) -> None:
        """Have all connections write what they have to say, and the store what has gathered, once, soon."""
        if self._planned_flush is None:
            self._planned_flush = self._loop.call_soon(self.flush)

    def lost(self, connection: ServerConnection) -> None:
        """Take note that a client is gone."""
        self.connections.discard(connection)
        self.opened.discard(connection)
        if not self.connections:
            self._deserted.set()

    def flush(self) -> None:
        """Have all connections write what they have to say, and the store what has gathered, now."""
        if self._planned_flush is not None:
            self._planned_flush.cancel()
            self._planned_flush = None
        if self._stopped:
            return
        self.namespace.store.flush()
        for connection in list(self.opened):
            connection.flush()
        if self._wake_is_right:
            self._wake_is_right = False
            self._wake_in(LOOK_AGAIN)

    def _look_for_wake(self) -> None:
        """Wake when the next lock, message, schedule or heartbeat is due."""
        self._wake_is_right = True
        due = self.namespace.wake_at
        self._wake_in(1.0 if due is None else min(1.0, (due - self.namespace.clock()) / 1000))

    def _wake_in(self, seconds: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        look_only = not self._wake_is_right
        self._wake = self._loop.call_later(max(0.0, seconds), self._look_for_wake if look_only else self.wake)

    def wake(self) -> None:
        """Do what is due."""
        now = self.monotonic()
        for connection in list(self.opened):
            connection.tick(now)
        self.namespace.tick()
        self.flush()
        self._look_for_wake()

    async def stop(self) -> None:
        """Take no more clients, tell those that are there, and make everything durable."""
        await self._door.close(LAST_WORDS)
        self._deserted.clear()
        for connection in list(self.connections):
            connection.close(Error(CONNECTION_FORCED, "The broker is shutting down."))
        if self.connections:
            late = self._loop.call_later(LAST_WORDS, self._abort)
            await self._deserted.wait()
            late.cancel()
        self._stopped = True
        if self._wake is not None:
            self._wake.cancel()
        self.namespace.store.close()

    def _abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
