"""What comes before the first AMQP frame: protocol headers and SASL, as one side of them sees it."""

import enum
from typing import Final

from pairbus.amqp.composites import encode_composite
from pairbus.amqp.conditions import NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS, AmqpError
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import Open, SaslFrame, SaslOutcome
from pairbus.amqp.sasl import OK, PLAIN, SYSTEM_FAILED, Credentials, SaslClient, SaslServer


class Side(enum.Enum):
    """Which end of the connection this is."""

    CLIENT = "client"
    SERVER = "server"


class ConnectionState(enum.Enum):
    """Where a connection stands."""

    START = "start"
    """The peer's first protocol header is awaited."""
    SASL = "sasl"
    HEADER = "header"
    """SASL is done; the peer's AMQP header is awaited."""
    OPENING = "opening"
    """The peer's open is awaited."""
    OPEN = "open"
    CLOSING = "closing"
    """Our close waits for the peer's; whatever else comes is dropped."""
    CLOSED = "closed"


_MILLISECONDS: Final = 1000


class Handshake:
    """One side's headers and SASL frames; the connection keeps the state and carries the bytes."""

    __slots__ = ("_required", "_sasl", "_side")

    def __init__(self, side: Side, sasl: SaslServer | SaslClient | None, *, sasl_required: bool) -> None:
        self._side = side
        self._sasl = sasl
        self._required = sasl is not None and (sasl_required or side is Side.CLIENT)

    def on_header(self, state: ConnectionState, header: bytes) -> tuple[ConnectionState, bytes]:
        """Return the state after the peer's header, and what to answer."""
        first = state is ConnectionState.START
        if header == SASL_HEADER and first and self._sasl is not None:
            answer = b""
            if isinstance(self._sasl, SaslServer):
                answer = SASL_HEADER + _sasl_frame(self._sasl.offer())
            return ConnectionState.SASL, answer
        if header == AMQP_HEADER and not (first and self._required):
            return ConnectionState.OPENING, AMQP_HEADER if self._side is Side.SERVER else b""
        raise AmqpError(NOT_IMPLEMENTED, f"the protocol header {header!r} is not supported")

    def on_sasl_frame(self, received: SaslFrame) -> tuple[bool | None, bytes]:
        """Return whether the client is let in (``None``: not decided yet), and what to answer."""
        if isinstance(self._sasl, SaslServer):
            reply = self._sasl.answer(received)
            decided = reply.code == OK if isinstance(reply, SaslOutcome) else None
            return decided, _sasl_frame(reply)
        if self._sasl is None:
            raise AmqpError(UNAUTHORIZED_ACCESS, "SASL was not asked for")
        response = self._sasl.answer(received)
        return (True, b"") if response is None else (None, _sasl_frame(response))

    @property
    def credentials(self) -> Credentials | None:
        """What a client has shown of itself; a client knows its own."""
        return self._sasl.credentials if isinstance(self._sasl, SaslServer) else None

    @property
    def earns_trust(self) -> bool:
        """Whether SASL itself has shown who the client is; the other mechanisms leave that to a token."""
        return self.credentials is not None and self.credentials.mechanism == PLAIN

    def refusal(self, state: ConnectionState) -> bytes:
        """Return what a peer is told that does not get as far as an AMQP frame."""
        if self._side is Side.CLIENT:
            return b""
        if state is ConnectionState.SASL:
            return _sasl_frame(SaslOutcome(SYSTEM_FAILED))
        if state is ConnectionState.START and self._sasl is not None:
            return SASL_HEADER
        return AMQP_HEADER if state in {ConnectionState.START, ConnectionState.HEADER} else b""


def open_frame(options: ConnectionOptions) -> bytes:
    """Encode our open. The peer is asked to say something twice as often as we must hear it."""
    idle = options.idle_timeout
    return frame(
        0,
        encode_composite(
            Open(
                options.container_id,
                options.hostname,
                options.max_frame_size,
                options.channel_max,
                None if idle is None else int(idle / 2 * _MILLISECONDS),
                offered_capabilities=options.offered_capabilities,
                desired_capabilities=options.desired_capabilities,
                properties=options.properties,
            )
        ),
    )


def _sasl_frame(content: SaslFrame) -> bytes:
    return frame(0, encode_composite(content), SASL_FRAME)
