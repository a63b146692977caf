"""Nodes that answer requests: a pair of links, one for requests and one for what is answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.amqp import Message, ReceiverLink, SenderLink, build_message
from pairbus.amqp.events import Delivery
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import ACCEPTED, Map
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Int, Value

CREDIT: Final = 100
WAITING: Final = 200
"""Answers that wait for a client's credit; a client that asks for more and takes none is not served."""
WAITING_BYTES: Final = 4 * 1024 * 1024
"""And how large they may be together, but for the first."""


@dataclass(slots=True)
class NodeRequest:
    """What a client asks for."""

    message: Message
    properties: Properties
    application_properties: Map
    reply_to: str | None
    sizes: Sequence[int] = ()
    """The size of each message that it brings, or that is answered, for the meter."""

    @property
    def body(self) -> Value:
        """The request's value."""
        values = self.message.body_values()
        return values[0] if values else None


@dataclass(slots=True)
class Answers:
    """The links of one connection on which a node's answers go, by the address that requests name.

    :ivar most: how many bytes may wait for the client's credit.
    """

    most: int = WAITING_BYTES
    links: dict[str, SenderLink] = field(default_factory=dict[str, SenderLink])
    waiting: list[tuple[SenderLink, bytes]] = field(default_factory=list[tuple[SenderLink, bytes]])
    _tag: int = 0

    def attach(self, link: SenderLink) -> None:
        """Let answers go by a link."""
        link.accept()
        target = link.remote.target if link.remote is not None else None
        self.links[str(getattr(target, "address", None) or link.name)] = link

    def detach(self, link: SenderLink) -> None:
        """Let no more answers go by a link."""
        self.links = {address: each for address, each in self.links.items() if each is not link}
        self.waiting = [entry for entry in self.waiting if entry[0] is not link]

    def send(self, request: NodeRequest, application_properties: dict[str, Any], body: Value) -> None:
        """Answer a request, now or when the client takes answers."""
        link = self.links.get(request.reply_to or "") or next(iter(self.links.values()), None)
        if link is None or len(self.waiting) >= WAITING:
            return
        properties = Properties(correlation_id=request.properties.message_id)
        payload = build_message(
            encode_value_section(body), properties=properties, application_properties=application_properties
        )
        waiting = sum(len(each) for _, each in self.waiting)
        if waiting and waiting + len(payload) > self.most:
            return
        self.waiting.append((link, payload))
        self.flush()

    def flush(self) -> None:
        """Send the answers that clients take now."""
        left: list[tuple[SenderLink, bytes]] = []
        for link, payload in self.waiting:
            if link.is_attached and link.credit > 0:
                self._tag += 1
                link.send(payload, self._tag.to_bytes(8), settled=True)
            else:
                left.append((link, payload))
        self.waiting = left


class RequestsNode:
    """Takes requests and hands them to ``handle``."""

    def __init__(self, link: ReceiverLink, handle: Callable[[NodeRequest], None]) -> None:
        self._link = link
        self._handle = handle

    def attached(self) -> None:
        """Begin."""
        self._link.accept()
        self._link.grant(CREDIT)

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Take requests."""
        for delivery in deliveries:
            self._on_delivery(delivery)

    def _on_delivery(self, delivery: Delivery) -> None:
        if not delivery.settled:
            self._link.settle(delivery, ACCEPTED)
        if self._link.credit < CREDIT // 2:
            self._link.grant(CREDIT)
        message = Message(delivery.payload)
        properties = message.properties() or Properties()
        self._handle(NodeRequest(message, properties, message.application_properties(), properties.reply_to))

    def detached(self) -> None:
        """End."""


def status(code: int) -> Int:
    """Return a status as the SDK reads it: an int, not a long."""
    return Int(code)
