"""One client of a namespace: its AMQP connection, and what its links are attached to."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from pairbus.amqp import (
    AmqpError,
    Connection,
    ConnectionOptions,
    ReceiverLink,
    SaslServer,
    SenderLink,
    Session,
    Side,
)
from pairbus.amqp.conditions import CONNECTION_FORCED, INTERNAL_ERROR
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkDetached,
    LinkRequested,
    Opened,
    WindowOpened,
)
from pairbus.amqp.performatives import SENDER, Error, Open, Source, Target
from pairbus.broker.access.policies import Right
from pairbus.broker.access.tokens import Refused
from pairbus.broker.faults.board import Fault
from pairbus.broker.faults.wire import DisturbedWire
from pairbus.broker.meter.metering import ConnectionMeter
from pairbus.broker.nodes.cbs import TokenNode
from pairbus.broker.nodes.guard import LinkGuard
from pairbus.broker.nodes.management import ManagementNode, QueueManagementNode
from pairbus.broker.nodes.receiving import ReceivingNode
from pairbus.broker.nodes.requests import Answers, RequestsNode
from pairbus.broker.nodes.sending import SendingNode
from pairbus.broker.refusals import RefusedError, not_served, store_unreadable
from pairbus.broker.store.base import StoreError

if TYPE_CHECKING:
    from pairbus.broker.listen.server import NamespaceServer

CBS: Final = "$cbs"
CBS_BYTES: Final = 32 * 1024
"""How many bytes of answers to tokens wait for a client that takes none: it need not have shown who it is."""
MANAGEMENT: Final = "/$management"
IDLE_TIMEOUT: Final = 120.0
LINK_IDLE: Final = 600_000
"""Milliseconds after which a link to an entity that is not used is detached, as in the cloud."""

_LOGGER = logging.getLogger(__name__)


class ServerConnection(asyncio.Protocol, asyncio.BufferedProtocol):
    """One client. What it says comes in a buffer that all share, or by another protocol, which has unwrapped it.

    :param arrived: is told when the client has opened its connection, or has gone.
    """

    def __init__(self, server: "NamespaceServer", arrived: Callable[[], None] = lambda: None) -> None:
        self._server = server
        self._arrived = arrived
        self._namespace = server.namespace
        self._transport: asyncio.Transport | None = None
        options = ConnectionOptions(container_id=server.namespace.name, idle_timeout=IDLE_TIMEOUT)
        self._guard = LinkGuard(server.namespace.access, server.namespace.access_clock)
        sasl = SaslServer(authenticate=self._guard.log_in)
        self._connection = Connection(Side.SERVER, options, sasl=sasl, now=server.monotonic())
        self._answers: dict[str, Answers] = {}
        self._wire: DisturbedWire | None = None
        self._meters = ConnectionMeter(server.namespace.meter)
        self._idle_at = 0
        """When a link may have been idle for too long, at the earliest."""

    # --- the socket ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._server.connections.add(self)
        self._disturb_if_told()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Have what comes written where nobody keeps it: a new place for each read would cost more than the reading."""
        del sizehint
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what came."""
        self.data_received(bytes(self._server.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take what the client says."""
        if self._wire is None:
            self._take(data)
        else:
            self._wire.data_received(data)

    def _take(self, data: bytes) -> None:
        server = self._server
        server.begin_turn()
        try:
            self._handle(self._connection.receive_data(data, server.monotonic()))
        finally:
            server.end_turn(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        if self._wire is not None:
            self._wire.connection_lost()
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

    def changed(self) -> None:
        """Have what there is to be sent written, soon."""
        self._server.stirred.add(self)
        self._server.changed()

    def flush(self) -> None:
        """Write what there is to be sent."""
        data = self._connection.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def tick(self, now: float) -> float | None:
        """Do what time demands; return when to come again."""
        self._handle(self._connection.tick(now))
        self._guard.tick()
        if self._guard.is_overdue:
            self.close(Error(CONNECTION_FORCED, "No valid token was put to $cbs within 20 seconds."))
        self._detach_idle(self._namespace.clock())
        self.flush()
        return self._connection.wake_at

    def close(self, error: Error) -> None:
        """End the connection with an error that the client hears."""
        self._connection.close(error)
        self._hang_up()

    def abort(self) -> None:
        """End the connection with a client that does not read what it is sent."""
        if self._transport is not None:
            self._transport.abort()

    def _detach_idle(self, now: int) -> None:
        """Detach links to entities that were not used for ten minutes. Those to $cbs and $management stay."""
        if now < self._idle_at:
            return
        self._idle_at = now + LINK_IDLE
        for link in self._links():
            node = link.context
            if not link.is_attached or not isinstance(node, SendingNode | ReceivingNode):
                continue
            if node.used_at + LINK_IDLE <= now:
                node.let_go()
            else:
                self._idle_at = min(self._idle_at, node.used_at + LINK_IDLE)

    # --- faults --------------------------------------------------------------------------------------------------

    @property
    def paths(self) -> frozenset[str]:
        """The entities to which it has links."""
        return frozenset(_address(link).removesuffix(MANAGEMENT) for link in self._links())

    def _links(self) -> list[SenderLink | ReceiverLink]:
        return [link for session in self._connection.sessions.values() for link in session.links.values()]

    def _disturb_if_told(self) -> None:
        if self._namespace.faults:
            fault = self._server.injector.on_the_wire(self.paths)
            if fault is not None:
                self.disturb(fault)

    def disturb(self, fault: Fault) -> None:
        """Have what goes over the wire disturbed."""
        if self._wire is not None:
            self._wire.disturb(fault)
        elif self._transport is not None:
            self._transport = self._wire = DisturbedWire(fault, self._transport, self._take)

    def recover(self) -> None:
        """Have it disturbed no longer."""
        if self._wire is not None:
            self._wire.recover()

    def reset(self) -> None:
        """End, without a word."""
        plug = None if self._transport is None else self._transport.get_extra_info("socket")
        if plug is not None:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def sever(self, fault: Fault, refused: RefusedError) -> None:
        """End the links that a fault concerns."""
        for link in self._links():
            if fault.covers(_address(link)) and _address(link).lower() != CBS:
                link.detach(refused.error)
        self.flush()

    def expire_tokens(self) -> None:
        """Take the tokens that were given as expired."""
        self._guard.expire()
        self.flush()

    # --- events --------------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            try:
                self._on_event(event)
            except AmqpError as error:  # a message that cannot be read, where one must be
                self._connection.close(Error(error.condition, error.description))
            except StoreError as error:
                _LOGGER.error("%s: a connection is closed: %s", self._namespace.name, error)  # noqa: TRY400 (it says why)
                self._connection.close(store_unreadable(self._namespace.name).error)
            except Exception:  # the other events, and the other clients, must not suffer for it
                _LOGGER.exception("%s: a connection is closed for a bug of the broker", self._namespace.name)
                self._connection.close(Error(INTERNAL_ERROR, "An unexpected error; the broker's log has more."))
        if events:
            self._server.changed()

    def _on_event(self, event: Event) -> None:
        match event:
            case DeliveriesReceived(link, deliveries):
                assert isinstance(link.context, SendingNode | RequestsNode)  # noqa: S101 (see _on_attach)
                link.context.on_deliveries(deliveries)
            case DispositionReceived():
                self._on_disposition(event)
            case FlowChanged(link) if isinstance(link, SenderLink):
                self._on_flow(link)
            case WindowOpened(session):
                self._on_window(session)
            case LinkRequested(link):
                self._on_attach(link)
            case LinkDetached(link):
                self._on_detach(link)
            case Opened(peer):
                self._on_open(peer)
            case Closed():
                self._hang_up()
            case _:
                pass

    def _on_open(self, peer: Open) -> None:
        self._arrived()
        self._meters.client = str(peer.container_id)
        self._server.opened.add(self)
        if peer.hostname and not self._namespace.access.serves(peer.hostname):
            self._connection.close(not_served(peer.hostname).error)

    def _hang_up(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def _on_disposition(self, event: DispositionReceived) -> None:
        links = {delivery.link for delivery in event.deliveries}
        for link in links:
            if isinstance(link.context, ReceivingNode):
                deliveries = event.deliveries
                if len(links) > 1:
                    deliveries = [delivery for delivery in deliveries if delivery.link is link]
                link.context.on_disposition(event, deliveries)

    def _on_window(self, session: Session) -> None:
        for link in list(session.links.values()):
            if isinstance(link, SenderLink):
                self._on_flow(link)

    def _on_flow(self, link: SenderLink) -> None:
        if isinstance(link.context, ReceivingNode):
            link.context.on_flow()
        elif isinstance(link.context, Answers):
            link.context.flush()

    def _on_detach(self, link: object) -> None:
        context = getattr(link, "context", None)
        if isinstance(link, SenderLink | ReceiverLink):
            self._guard.forget(link)
        if isinstance(context, Answers) and isinstance(link, SenderLink):
            context.detach(link)
        elif isinstance(context, SendingNode | RequestsNode | ReceivingNode):
            context.detached()
        self._meters.detach(link)

    # --- attaching -----------------------------------------------------------------------------------------------

    def _on_attach(self, link: SenderLink | ReceiverLink) -> None:
        address = _address(link)
        self._disturb_if_told()
        try:
            if address.lower() == CBS:
                self._attach_requests(link, CBS, TokenNode(self._answers_of(CBS), self._put_token).handle)
            elif address.lower().endswith(MANAGEMENT):
                path = address[: -len(MANAGEMENT)]
                self._let_in(link, path, *Right)
                self._attach_requests(link, address.lower(), self._management(link, path, address.lower()).handle)
            else:
                self._attach_entity(link, address)
        except RefusedError as refused:
            link.context = None
            self._guard.forget(link)
            self._meters.detach(link)
            link.refuse(refused.error)

    def _management(self, link: SenderLink | ReceiverLink, path: str, address: str) -> ManagementNode:
        answers, changed = self._answers_of(address), self.changed
        check = partial(self._guard.check, path)
        topic = self._namespace.topics.find(path)
        if topic is not None:
            meter = self._meters.attach(link, topic.path)
            return ManagementNode(self._namespace, topic, answers, changed, check=check, meter=meter)
        node = self._namespace.entities.get(path)
        meter = self._meters.attach(link, node.queue.path)
        return QueueManagementNode(self._namespace, node, answers, changed, check=check, meter=meter)

    def _attach_requests(self, link: SenderLink | ReceiverLink, address: str, handle: Callable[..., None]) -> None:
        if isinstance(link, SenderLink):
            link.context = self._answers_of(address)
            link.context.attach(link)
        else:
            link.context = RequestsNode(link, handle)
            link.context.attached()

    def _attach_entity(self, link: SenderLink | ReceiverLink, address: str) -> None:
        self._let_in(link, address, Right.LISTEN if isinstance(link, SenderLink) else Right.SEND)
        if isinstance(link, SenderLink):
            node = self._namespace.entities.get(address)
            meter = self._meters.attach(link, node.queue.path)
            link.context = ReceivingNode(self._namespace, node, link, self.changed, meter)
        else:
            entity = self._namespace.entities.get_destination(address)
            meter = self._meters.attach(link, entity.path)
            link.context = SendingNode(self._namespace, entity, link, self.changed, meter)
        link.context.attached()

    def _answers_of(self, address: str) -> Answers:
        if address not in self._answers:
            self._answers[address] = Answers(CBS_BYTES) if address == CBS else Answers()
        return self._answers[address]

    def _let_in(self, link: SenderLink | ReceiverLink, path: str, *rights: Right) -> None:
        """Refuse a client without any of these rights before it learns what there is; end the link once it has none."""
        self._guard.check(path, *rights)
        self._namespace.faults.check(path)
        self._guard.watch(link, path, *rights)

    def _put_token(self, kind: str, audience: str, token: str) -> Refused | None:
        refused = self._guard.put_token(kind, audience, token)
        if refused is None:
            self._connection.trust()
        return refused


def _address(link: SenderLink | ReceiverLink) -> str:
    """Return the entity that a link is for, without the host: ``orders`` of ``amqps://host:port/orders``."""
    remote = link.remote
    terminus = None if remote is None else (remote.source if link.role is SENDER else remote.target)
    address = str(terminus.address or "") if isinstance(terminus, Source | Target) else ""
    if "://" in address:
        address = address.partition("://")[2].partition("/")[2]
    return address.strip("/")
