"""What ``receive_data`` and ``tick`` tell the caller.

Each link that was told of (by :class:`LinkRequested` or by the call that made it) ends with exactly one
:class:`LinkDetached`, each session with one :class:`SessionEnded` after those of its links, and a connection with
one :class:`Closed` after those of its sessions, however it ended. So what belongs to them is cleaned up in one place.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pairbus.amqp.performatives import DeliveryState, Error, Open
from pairbus.amqp.sasl import Credentials

if TYPE_CHECKING:
    from pairbus.amqp.link import Link
    from pairbus.amqp.receiver import ReceiverLink
    from pairbus.amqp.sender import SenderLink, SentDelivery
    from pairbus.amqp.session import Session


@dataclass(slots=True)
class Authenticated:
    """SASL ended well. On the server, ``credentials`` tell with what."""

    credentials: Credentials | None


@dataclass(slots=True)
class Opened:
    """The connection is open on both sides; ``open`` is what the peer said."""

    open: Open


@dataclass(slots=True)
class SessionBegun:
    """A session has begun on both sides."""

    session: "Session"


@dataclass(slots=True)
class LinkRequested:
    """The peer wants a link: answer with ``link.accept(...)`` or ``link.refuse(...)``, now or later.

    What the peer asked for is in ``link.remote``.
    """

    link: "SenderLink | ReceiverLink"


@dataclass(slots=True)
class LinkAttached:
    """The peer has answered our attach; its answer is in ``link.remote``."""

    link: "SenderLink | ReceiverLink"


@dataclass(slots=True)
class FlowChanged:
    """The peer told a link's flow state: ``link.credit``, and for a sender ``link.draining``, are up to date."""

    link: "SenderLink | ReceiverLink"


@dataclass(slots=True)
class WindowOpened:
    """The peer takes transfers on this session again, after its window was closed."""

    session: "Session"


@dataclass(slots=True)
class Delivery:
    """A complete delivery; ``payload`` is the encoded message, byte for byte."""

    delivery_id: int
    delivery_tag: bytes
    message_format: int
    settled: bool
    payload: bytes


@dataclass(slots=True)
class DeliveriesReceived:
    """Deliveries of one link that came one after the other."""

    link: "ReceiverLink"
    deliveries: list[Delivery]


@dataclass(slots=True)
class DispositionReceived:
    """The peer told the state of deliveries.

    ``role`` is the peer's: a receiver's is about what we have sent, and ``deliveries`` are those of the range that
    are not settled yet (the peer chooses the range, so never walk it). A sender's is about what we have received.
    ``settled`` says that the peer has forgotten them; else settle them with ``link.settle`` when it is done.
    """

    session: "Session"
    role: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None
    deliveries: "list[SentDelivery]" = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]


@dataclass(slots=True)
class LinkDetached:
    """A link has ended, for whatever reason; ``error`` is the peer's, or ours if we ended it for a violation."""

    link: "Link"
    error: Error | None
    closed: bool
    by_peer: bool


@dataclass(slots=True)
class SessionEnded:
    """A session has ended, after its links."""

    session: "Session"
    error: Error | None
    by_peer: bool


@dataclass(slots=True)
class Closed:
    """The connection has ended, after its sessions: write what ``data_to_send`` gives and drop the transport."""

    error: Error | None
    by_peer: bool


Event: TypeAlias = (
    Authenticated
    | Opened
    | SessionBegun
    | LinkRequested
    | LinkAttached
    | FlowChanged
    | WindowOpened
    | DeliveriesReceived
    | DispositionReceived
    | LinkDetached
    | SessionEnded
    | Closed
)
