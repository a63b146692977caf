"""What a connection is told when it is made. One object may serve any number of connections."""

from dataclasses import dataclass, field
from typing import Final

from pairbus.amqp.decoder import MAX_COUNT
from pairbus.amqp.frames import MIN_MAX_FRAME_SIZE
from pairbus.amqp.performatives import Map, Symbols


@dataclass(slots=True, frozen=True)
class Limits:
    """How much a peer may make us keep; for one that is not trusted yet, under 64 KB in all."""

    opening_frame_size: int = 4096
    """The largest frame before the connection is open: SASL and open."""
    untrusted_frame_size: int = 8192
    untrusted_message_size: int = 8192
    untrusted_control_size: int = 1024
    """The largest frame that is no transfer."""
    untrusted_sessions: int = 2
    untrusted_links: int = 3
    untrusted_elements: int = 96
    """How many values one frame may consist of."""
    elements: int = MAX_COUNT


@dataclass(slots=True, frozen=True)
class ConnectionOptions:
    """One side's terms. Times are seconds, sizes bytes."""

    container_id: str
    hostname: str | None = None
    """The server's name; a client says it when it opens."""
    max_frame_size: int = 65_536
    channel_max: int = 1023
    handle_max: int = 255
    idle_timeout: float | None = None
    """A silence after which the peer is given up. It is asked to say something twice as often."""
    incoming_window: int = 5000
    """How many transfers a session takes before the peer must hear from us; filled again at half."""
    replenish_window: bool = True
    """Whether the window is filled again by itself; if not, the caller does so with ``session.replenish``."""
    max_message_size: int = 1_048_576
    """The largest message of a link that does not set its own."""
    enforce_credit: bool = False
    """Whether a link is detached whose sender ignores its credit. Off: the SDK does not know about credit."""
    trusted: bool = False
    """Whether the peer is trusted from the start; if not, ``connection.trust()`` says when."""
    sasl_required: bool = True
    """Whether a server refuses clients that come without SASL."""
    properties: Map | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ValueError(f"max_frame_size={self.max_frame_size} is not valid: {MIN_MAX_FRAME_SIZE} or more")
        if self.incoming_window < _MIN_WINDOW:
            raise ValueError(f"incoming_window={self.incoming_window} is not valid: {_MIN_WINDOW} or more")
        if not 0 <= self.channel_max <= _USHORT_MAX:
            raise ValueError(f"channel_max={self.channel_max} is not valid: 0 to {_USHORT_MAX}")


_MIN_WINDOW: Final = 1
_USHORT_MAX: Final = 65_535
