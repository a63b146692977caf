"""What two peers say to each other, as dataclasses: performatives, SASL frames, termini, delivery states, errors.

A field that AMQP gives a default has it here too; ``None`` is null. How they become bytes is in ``composites``.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pairbus.amqp.types import Described, Symbol, Value

Map: TypeAlias = dict[Any, Any]
Symbols: TypeAlias = tuple[Symbol, ...]

SENDER: Final = False
RECEIVER: Final = True
"""The roles of a link's two ends, as attach and disposition carry them."""

SETTLE_UNSETTLED: Final = 0
SETTLE_SETTLED: Final = 1
SETTLE_MIXED: Final = 2
"""The settle modes of a sender: all deliveries unsettled, all settled (at most once), as each transfer says."""

SETTLE_FIRST: Final = 0
SETTLE_SECOND: Final = 1
"""The settle modes of a receiver: at once, or after the sender has settled."""

UINT_MAX: Final = 0xFFFFFFFF
BATCH_FORMAT: Final = 0x80013700
"""The message format of a transfer whose data sections are one encoded message each."""


@dataclass(slots=True)
class Error:
    """Why a connection, session, link or delivery was refused or ended."""

    condition: Symbol
    description: str | None = None
    info: Map | None = None


@dataclass(slots=True, frozen=True)
class Received:
    """A delivery's state: so much of it has arrived."""

    section_number: int
    section_offset: int


@dataclass(slots=True, frozen=True)
class Accepted:
    """A delivery's outcome: taken."""


@dataclass(slots=True)
class Rejected:
    """A delivery's outcome: invalid and not to be processed."""

    error: Error | None = None


@dataclass(slots=True, frozen=True)
class Released:
    """A delivery's outcome: not processed, may go elsewhere."""


@dataclass(slots=True)
class Modified:
    """A delivery's outcome: not processed, and the message changed."""

    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Map | None = None


ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
DeliveryState: TypeAlias = Received | Accepted | Rejected | Released | Modified | Described
"""A state that is not of the core specification (a transaction's) stays :class:`Described`."""


@dataclass(slots=True)
class Source:
    """Where a link's messages come from. ``None`` is null, which stands for the specification's default."""

    address: Value = None
    durable: int | None = None
    expiry_policy: Symbol | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Map | None = None
    distribution_mode: Symbol | None = None
    filter: Map | None = None
    default_outcome: DeliveryState | None = None
    outcomes: Symbols | None = None
    capabilities: Symbols | None = None


@dataclass(slots=True)
class Target:
    """Where a link's messages go. ``None`` is null, which stands for the specification's default."""

    address: Value = None
    durable: int | None = None
    expiry_policy: Symbol | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Map | None = None
    capabilities: Symbols | None = None


Terminus: TypeAlias = Source | Target | Described
"""A target may also be a transaction coordinator, which stays :class:`Described`."""


@dataclass(slots=True)
class Open:
    """Negotiates a connection."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 65535
    idle_time_out: int | None = None
    """Milliseconds."""
    outgoing_locales: Symbols | None = None
    incoming_locales: Symbols | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Map | None = None


@dataclass(slots=True)
class Begin:
    """Begins a session on a channel."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = UINT_MAX
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Map | None = None


@dataclass(slots=True)
class Attach:
    """Attaches a link to a session."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = SETTLE_MIXED
    rcv_settle_mode: int = SETTLE_FIRST
    source: Source | Described | None = None
    target: Target | Described | None = None
    unsettled: Map | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Map | None = None


@dataclass(slots=True)
class Flow:
    """Tells the state of a session's windows and, with a handle, of a link's credit."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Map | None = None


@dataclass(slots=True)
class Transfer:
    """A delivery, or a part of one; the payload is what follows it in the frame."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@dataclass(slots=True)
class Disposition:
    """Tells the state of a range of deliveries; ``role`` is the sender's of this frame."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@dataclass(slots=True)
class Detach:
    """Detaches a link, for good if ``closed``."""

    handle: int
    closed: bool = False
    error: Error | None = None


@dataclass(slots=True)
class End:
    """Ends a session."""

    error: Error | None = None


@dataclass(slots=True)
class Close:
    """Closes a connection."""

    error: Error | None = None


@dataclass(slots=True)
class SaslMechanisms:
    """The mechanisms that a server offers."""

    sasl_server_mechanisms: Symbols


@dataclass(slots=True)
class SaslInit:
    """The mechanism that a client chose."""

    mechanism: Symbol
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslChallenge:
    """A server's question."""

    challenge: bytes


@dataclass(slots=True)
class SaslResponse:
    """A client's answer."""

    response: bytes


@dataclass(slots=True)
class SaslOutcome:
    """How the authentication ended; 0 is well."""

    code: int
    additional_data: bytes | None = None


Performative: TypeAlias = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslFrame: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
Composite: TypeAlias = Performative | SaslFrame | Source | Target | DeliveryState | Error
