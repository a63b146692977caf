"""An AMQP server that says what the cloud says, when a test wants it to, and keeps what its clients said.

It is made of the server's side of :mod:`pairbus.amqp`, on a socket of its own. Unless a test says otherwise it takes
every token, link and message, and knows no entity but those it was told to have messages for. What it is to do
otherwise is set as an attribute:

.. code-block:: python

    async with Peer() as peer:
        peer.judge = lambda transfer: RELEASED          # or None: no answer
        ...                                             # a client sends to peer.connection_string
        await peer.heard(lambda: len(peer.transfers) == 1)
        peer.detach("orders", DETACH_FORCED)            # now
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, cast

from pairbus.amqp import Connection, ConnectionOptions, ReceiverLink, SaslServer, SenderLink, Side, split_batch
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    Delivery,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkDetached,
    LinkRequested,
)
from pairbus.amqp.frames import EMPTY_FRAME
from pairbus.amqp.message import Message, build_message, encode_data_section
from pairbus.amqp.performatives import (
    ACCEPTED,
    BATCH_FORMAT,
    SENDER,
    DeliveryState,
    Error,
    Rejected,
    Source,
    Target,
)
from pairbus.amqp.types import Int, Symbol, Timestamp, Value
from pairbus.broker.nodes.requests import Answers, NodeRequest, RequestsNode

CBS: Final = "$cbs"
MANAGEMENT: Final = "/$management"
DEADLINE: Final = 30.0
"""Seconds after which what a test waits for is taken not to happen."""
LOCK_LOST: Final = "com.microsoft:message-lock-lost"

ServerLink: TypeAlias = SenderLink | ReceiverLink


@dataclass(eq=False)
class Transfer:
    """What a client has sent to an entity: a message, or a batch of messages."""

    entity: str
    delivery: Delivery
    link: ReceiverLink

    @property
    def is_batch(self) -> bool:
        return self.delivery.message_format == BATCH_FORMAT

    @property
    def envelope(self) -> Message:
        """The message, or what is said of a batch as a whole."""
        return Message(self.delivery.payload)

    @property
    def messages(self) -> list[Message]:
        payloads = split_batch(self.delivery.payload) if self.is_batch else [self.delivery.payload]
        return [Message(payload) for payload in payloads]

    @property
    def texts(self) -> list[str]:
        return [text_of(message) for message in self.messages]

    def answer(self, state: DeliveryState) -> None:
        """Answer it, now."""
        self.link.settle(self.delivery, state)
        _conversation(self.link).flush()


@dataclass(eq=False)
class Settled:
    """What a client wants to be done with messages that it has received."""

    entity: str
    state: DeliveryState | None
    tag: bytes


@dataclass(eq=False)
class Asked:
    """A request to ``$cbs`` or to the ``$management`` of an entity."""

    node: str
    operation: str
    body: Any
    properties: Mapping[str, Any]
    answered: Callable[[int, Value, str | None], None]

    def answer(self, status: int = 200, body: Value = None, condition: str | None = None) -> None:
        """Answer it, now."""
        self.answered(status, body, condition)


@dataclass(eq=False)
class Attached:
    """A link that a client has attached; the client sends on it, or receives."""

    entity: str
    link: ServerLink
    is_open: bool = True

    @property
    def sends(self) -> bool:
        return isinstance(self.link, ReceiverLink)


@dataclass(eq=False)
class Peer:
    """The server; see the module.

    :ivar judge: how a transfer is answered; None: not at all.
    :ivar admit: with which status a token is answered; None: not at all.
    :ivar respond: answers a request to the management of an entity, or does not.
    :ivar confirm: how a settlement of deliveries with this tag is answered; None: not at all.
    :ivar refuse: why a link to an entity is refused, if it is.
    :ivar ignore: whether a link to an entity is not answered at all.
    """

    credit: int = 1000
    max_message_size: int = 262_144
    idle_timeout: float | None = None
    judge: Callable[[Transfer], DeliveryState | None] = lambda _transfer: ACCEPTED
    admit: Callable[[Asked], int | None] = lambda _asked: 202
    respond: Callable[[Asked], None] = lambda asked: asked.answer()
    confirm: Callable[[Settled], DeliveryState | None] = lambda settled: settled.state
    refuse: Callable[[str], Error | None] = lambda _entity: None
    ignore: Callable[[str], bool] = lambda _entity: False
    transfers: list[Transfer] = field(default_factory=list[Transfer])
    tokens: list[Asked] = field(default_factory=list[Asked])
    asked: list[Asked] = field(default_factory=list[Asked])
    settled: list[Settled] = field(default_factory=list[Settled])
    attached: list[Attached] = field(default_factory=list[Attached])
    ignored: list[str] = field(default_factory=list[str])
    """The entities of the links that were not answered."""
    heartbeats: int = 0
    connections: "list[Conversation]" = field(default_factory=list["Conversation"])
    """Those that are open."""
    connected: int = 0
    """How many there have been."""
    queues: dict[str, deque[bytes]] = field(default_factory=dict[str, deque[bytes]])
    port: int = 0
    _server: asyncio.Server | None = None
    _something: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Conversation(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        await self.heard(lambda: not self.connections)

    @property
    def connection_string(self) -> str:
        """Where it is, for the SDK's clients."""
        access = "SharedAccessKeyName=owner;SharedAccessKey=c2VjcmV0"
        return f"Endpoint=sb://localhost:{self.port};{access};UseDevelopmentEmulator=true"

    # --- what it has heard ---------------------------------------------------------------------------------------

    async def heard(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at whenever a client has said something."""
        async with asyncio.timeout(DEADLINE):
            while not is_so():
                self._something.clear()
                await self._something.wait()

    def tell(self) -> None:
        """Have those who wait for something look again."""
        self._something.set()

    @property
    def texts(self) -> list[str]:
        """What the messages that it was sent say, in their order."""
        return [text for transfer in self.transfers for text in transfer.texts]

    def links(self, entity: str) -> list[Attached]:
        """The links to an entity, from the first one to the last."""
        return [each for each in self.attached if each.entity == entity]

    def open_links(self, entity: str) -> list[Attached]:
        """Those of them that are open."""
        return [each for each in self.links(entity) if each.is_open]

    # --- what it does on cue -------------------------------------------------------------------------------------

    def detach(self, entity: str, condition: str, description: str = "on cue") -> None:
        """Detach all links to an entity, and say why."""
        for each in self.open_links(entity):
            each.link.detach(Error(Symbol(condition), description))
            _conversation(each.link).flush()

    def grant(self, entity: str, credit: int) -> None:
        """Let the clients' senders to an entity send so many messages from now on."""
        for each in self.open_links(entity):
            if isinstance(each.link, ReceiverLink):
                each.link.grant(credit)
                _conversation(each.link).flush()

    def give(self, entity: str, *payloads: bytes, unasked: bool = False) -> None:
        """Have messages for an entity's receivers.

        :param unasked: send them although there is no credit, as if that had been withdrawn when they were on the way.
        """
        self.queues.setdefault(entity, deque()).extend(payloads)
        for each in self.open_links(entity):
            if unasked:
                each.link.credit = len(payloads)
            _conversation(each.link).serve(each.link)

    def cut(self) -> None:
        """End all connections, without a word."""
        for connection in list(self.connections):
            connection.abort()


class Conversation(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        options = ConnectionOptions("peer", idle_timeout=peer.idle_timeout, trusted=True)
        self._amqp = Connection(Side.SERVER, options, sasl=SaslServer(), now=self._loop.time())
        self._transport: asyncio.Transport | None = None
        self._answers: dict[str, Answers] = {}
        self._attached: dict[object, Attached] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._amqp.context = self
        self._peer.connections.append(self)
        self._peer.connected += 1

    def data_received(self, data: bytes) -> None:
        if data == EMPTY_FRAME:
            self._peer.heartbeats += 1
        for event in self._amqp.receive_data(data, self._loop.time()):
            self._on_event(event)
        self.flush()
        self._peer.tell()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for event in self._amqp.connection_lost():
            self._on_event(event)
        self._peer.connections.remove(self)
        self._peer.tell()

    def flush(self) -> None:
        data = self._amqp.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def beat(self) -> None:
        """Say that it is still there."""
        assert self._transport is not None
        self._transport.write(EMPTY_FRAME)

    def _on_event(self, event: Event) -> None:
        match event:
            case LinkRequested(link):
                self._on_attach(link)
            case DeliveriesReceived(link, deliveries):
                self._on_deliveries(link, deliveries)
            case DispositionReceived(role=role) if role is not SENDER:
                self._on_settled(event)
            case FlowChanged(link) if isinstance(link, SenderLink):
                self.serve(link)
            case LinkDetached(link):
                self._on_detached(link)
            case Closed():
                self.flush()
                if self._transport is not None:
                    self._transport.close()
            case _:
                pass

    def _on_attach(self, link: ServerLink) -> None:
        entity = address_of(link)
        if self._peer.ignore(entity):
            self._peer.ignored.append(entity)
            return
        refused = self._peer.refuse(entity)
        if refused is not None:
            link.refuse(refused)
            return
        attached = self._attached[link] = Attached(entity, link)
        self._peer.attached.append(attached)
        if entity == CBS or entity.endswith(MANAGEMENT):
            answers = self._answers.setdefault(entity, Answers())
            if isinstance(link, SenderLink):
                answers.attach(link)
            else:
                link.context = RequestsNode(link, lambda request: self._on_request(entity, answers, request))
                link.context.attached()
        elif isinstance(link, ReceiverLink):
            link.accept(max_message_size=self._peer.max_message_size)
            link.max_message_size = 1 << 30  # what is too large is heard all the same
            link.grant(self._peer.credit)
        else:
            link.accept()

    def _on_detached(self, link: object) -> None:
        attached = self._attached.pop(link, None)
        if attached is not None:
            attached.is_open = False

    def _on_deliveries(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        if isinstance(link.context, RequestsNode):
            link.context.on_deliveries(deliveries)
            return
        for delivery in deliveries:
            transfer = Transfer(address_of(link), delivery, link)
            self._peer.transfers.append(transfer)
            outcome = self._peer.judge(transfer)
            if outcome is not None:
                link.settle(delivery, outcome)

    def _on_request(self, node: str, answers: Answers, request: NodeRequest) -> None:
        told = {str(name): value for name, value in request.application_properties.items()}

        def answer(status: int, body: Value, condition: str | None) -> None:
            names = ("status-code", "status-description") if node == CBS else ("statusCode", "statusDescription")
            said: dict[str, Any] = {names[0]: Int(status), names[1]: "on cue"}
            if condition is not None:
                said["errorCondition"] = Symbol(condition)
            answers.send(request, said, body)
            self.flush()

        operation = str(told.get("operation", "")).removeprefix("com.microsoft:")
        asked = Asked(node.removesuffix(MANAGEMENT), operation, request.body, told, answer)
        if node == CBS:
            self._peer.tokens.append(asked)
            status = self._peer.admit(asked)
            if status is not None:
                asked.answer(status)
        else:
            self._peer.asked.append(asked)
            self._peer.respond(asked)

    def _on_settled(self, event: DispositionReceived) -> None:
        for delivery in event.deliveries:
            settled = Settled(address_of(delivery.link), event.state, bytes(delivery.tag))
            self._peer.settled.append(settled)
            if event.settled:
                continue
            outcome = self._peer.confirm(settled)
            if outcome is not None:
                delivery.link.settle(delivery, outcome)

    def serve(self, link: ServerLink) -> None:
        """Send what there is for a receiver, as far as it has credit."""
        if isinstance(link.context, RequestsNode) or not isinstance(link, SenderLink):
            return
        entity = address_of(link)
        if entity in self._answers:
            self._answers[entity].flush()
            return
        queue = self._peer.queues.get(entity)
        while queue and link.is_attached and link.sendable > 0:
            tag = uuid.uuid4().bytes_le
            link.send(queue.popleft(), tag, context=tag)
        self.flush()


def _conversation(link: ServerLink) -> Conversation:
    return cast("Conversation", link.session.connection.context)


def address_of(link: ServerLink) -> str:
    """Return the entity that a link is for, without the host."""
    remote = link.remote
    terminus = None if remote is None else (remote.source if link.role is SENDER else remote.target)
    address = str(terminus.address or "") if isinstance(terminus, Source | Target) else ""
    return address.partition("://")[2].partition("/")[2] if "://" in address else address


def text_of(message: Message) -> str:
    """Return the text of a message's body."""
    return b"".join(message.data_sections()).decode()


def stored(number: int, text: str = "", *, to: str | None = "orders", lock: float = 60.0) -> bytes:
    """Return a parked message as a broker delivers it."""
    now = datetime.now(UTC)
    return build_message(
        encode_data_section(text.encode()),
        message_annotations={
            Symbol("x-opt-sequence-number"): number,
            Symbol("x-opt-locked-until"): Timestamp.of(now + timedelta(seconds=lock)),
            Symbol("x-opt-enqueued-time"): Timestamp.of(now),
        },
        application_properties={"x-ms-path": to} if to is not None else None,
    )


def rejected(condition: str, description: str = "on cue") -> Rejected:
    """Return an outcome as the cloud words it: the SDK wants all three fields of its error."""
    return Rejected(Error(Symbol(condition), description, {}))
