"""A connection, sans I/O: bytes in and events out, calls in and bytes out.

.. code-block:: python

    connection = Connection(Side.SERVER, ConnectionOptions("me"), sasl=SaslServer(), now=clock())
    for event in connection.receive_data(data, clock()):
        ...  # answer with the methods of connections, sessions and links
    transport.write(connection.data_to_send())

Whatever the bytes, ``receive_data`` raises nothing: a peer that breaks the protocol is told so with the close, end
or detach that AMQP has for it, and the caller with :class:`~pairbus.amqp.events.Closed` and the like. ``now`` is
any clock's time in seconds that does not go back; call ``tick`` when ``wake_at`` has come.
"""

from itertools import count
from typing import Final

from pairbus.amqp.composites import decode_performative, decode_sasl_frame, encode_composite, with_short_descriptor
from pairbus.amqp.conditions import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)
from pairbus.amqp.events import Authenticated, Closed, Event, Opened
from pairbus.amqp.fast.hotpath import DISPOSITION, FLOW, TRANSFER, read_flow
from pairbus.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    FrameSplitter,
    frame,
)
from pairbus.amqp.handshake import ConnectionState, Handshake, Side, open_frame
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Open,
    Performative,
    Transfer,
)
from pairbus.amqp.sasl import SaslClient, SaslServer
from pairbus.amqp.session import Session, SessionState

_OPEN: Final = ConnectionState.OPEN  # looking a member up in its enum takes longer than all else about it
_ACTIVE: Final = SessionState.ACTIVE
_SMALL_ULONG: Final = 0x53
_HEAD: Final = 4
"""The least that a performative takes: 00 53 code, and a list's constructor."""
_UNLIMITED: Final = 1 << 62
_SHORTEST_IDLE: Final = 0.1
"""We do not promise a peer to say something more often than this."""

__all__ = ["Connection", "ConnectionState", "Side"]


class Connection:
    """One connection, either end; see the module. A client speaks first: its first bytes are there at once."""

    __slots__ = (
        "_by_remote_channel", "_control_limit", "_handshake", "_last_received", "_last_sent", "_now", "_open_sent",
        "_pending", "_remote_idle", "_side", "_splitter", "context", "max_elements", "options", "out",
        "peer_max_frame_size", "remote", "sessions", "settling", "state", "trusted",
    )  # fmt: skip

    def __init__(
        self, side: Side, options: ConnectionOptions, *, sasl: SaslServer | SaslClient | None = None, now: float = 0.0
    ) -> None:
        limits = options.limits
        self.options = options
        self.state = ConnectionState.START
        self.context: object = None
        self.remote: Open | None = None
        """What the peer said when it opened."""
        self.sessions: dict[int, Session] = {}
        """By our channel."""
        self.out: list[bytes | memoryview] = []
        self.settling: list[Session] = []
        self.peer_max_frame_size = MIN_MAX_FRAME_SIZE
        self.trusted = False
        self.max_elements = limits.untrusted_elements
        self._control_limit = limits.opening_frame_size
        self._side = side
        self._handshake = Handshake(side, sasl, sasl_required=options.sasl_required)
        self._splitter = FrameSplitter(limits.opening_frame_size)
        self._by_remote_channel: dict[int, Session] = {}
        self._pending: list[Event] = []
        self._open_sent = False
        self._now = self._last_received = self._last_sent = now
        self._remote_idle: float | None = None
        if side is Side.CLIENT:
            self.out.append(AMQP_HEADER if sasl is None else SASL_HEADER)
            if sasl is None:
                self._send_open()
        if options.trusted or side is Side.CLIENT:
            self.trust()

    # --- bytes and time ------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take bytes as they came and return what they mean."""
        self._now = now
        events = self._take_pending()
        if self.state is ConnectionState.CLOSED or not data:
            return events
        self._last_received = now
        self._splitter.feed(data)
        try:
            while self._take_frames(events) if self.state is _OPEN else self._step(events):
                pass
        except AmqpError as error:
            self._fail(events, error)
        return events

    def data_to_send(self) -> bytes:
        """Return all that is to be written, once."""
        if self.settling:
            for session in self.settling:
                session.flush_settled()
            self.settling.clear()
        if not self.out:
            return b""
        data = b"".join(self.out)
        self.out.clear()
        self._last_sent = self._now
        return data

    def tick(self, now: float) -> list[Event]:
        """Do what time demands: a heartbeat, or giving up a silent peer."""
        self._now = now
        events = self._take_pending()
        if self.state is ConnectionState.CLOSED:
            return events
        idle = self.options.idle_timeout
        if idle is not None and now >= self._last_received + idle:
            self._fail(events, AmqpError(CONNECTION_FORCED, f"nothing was received for {idle:g} s"))
        elif self._remote_idle is not None and not self.out and now >= self._last_sent + self._remote_idle / 2:
            self.out.append(EMPTY_FRAME)
        return events

    @property
    def wake_at(self) -> float | None:
        """When ``tick`` is to be called next, if nothing is received or sent before."""
        if self.state is ConnectionState.CLOSED:
            return None
        idle = self.options.idle_timeout
        times = [self._last_received + idle] if idle is not None else []
        if self._remote_idle is not None:
            times.append(self._last_sent + self._remote_idle / 2)
        return min(times, default=None)

    def connection_lost(self) -> list[Event]:
        """Take note that the transport is gone."""
        events = self._take_pending()
        self._finish(events, None, by_peer=True)
        return events

    def _take_pending(self) -> list[Event]:
        pending = self._pending
        self._pending = []
        return pending

    # --- what the caller does ------------------------------------------------------------------------------------

    def trust(self) -> None:
        """Lift the limits for peers that are not known yet: it has authenticated itself."""
        self.trusted = True
        for session in self.sessions.values():
            session.untrusted_message_size = None
        self._set_limits()

    def begin(self) -> Session:
        """Begin a session; :class:`~pairbus.amqp.events.SessionBegun` follows. Links may be attached at once."""
        if self.state is ConnectionState.CLOSED or not self._open_sent:
            raise AmqpError(ILLEGAL_STATE, f"the connection is {self.state.value}")
        channel = self._free_channel(0)
        session = self.sessions[channel] = Session(self, channel)
        session.begin()
        return session

    def close(self, error: Error | None = None) -> None:
        """Close the connection; :class:`~pairbus.amqp.events.Closed` follows when the peer has answered."""
        if self.state in {ConnectionState.OPENING, ConnectionState.OPEN}:
            self._send_close(error)
            self.state = ConnectionState.CLOSING
        elif self.state is not ConnectionState.CLOSING:
            self._finish(self._pending, error, by_peer=False)

    # --- the way to an open connection ---------------------------------------------------------------------------

    def _step(self, events: list[Event]) -> bool:
        """Take one header or frame on the way to an open connection, or after its end; tell whether to go on."""
        state = self.state
        if state in {ConnectionState.START, ConnectionState.HEADER}:
            header = self._splitter.next_header()
            if header is None:
                return False
            self.state, answer = self._handshake.on_header(state, header)
            self._write(answer)
            return True
        if state is ConnectionState.CLOSED:
            return False
        found = self._splitter.next_frame()
        if found is None:
            return False
        frame_type, channel, start, end = found
        if frame_type != (SASL_FRAME if state is ConnectionState.SASL else AMQP_FRAME):
            raise AmqpError(FRAMING_ERROR, f"a frame of type {frame_type} is not expected here")
        if state is ConnectionState.SASL:
            self._on_sasl_frame(start, end, events)
        elif start != end:
            self._on_control(self._splitter.buffer, (start, end), channel, events)
        return True

    def _on_sasl_frame(self, start: int, end: int, events: list[Event]) -> None:
        received = decode_sasl_frame(self._splitter.buffer, start, end, self.options.limits.untrusted_elements)
        let_in, answer = self._handshake.on_sasl_frame(received)
        self._write(answer)
        if let_in is None:
            return
        if not let_in:
            self._finish(events, Error(UNAUTHORIZED_ACCESS, "authentication failed"), by_peer=False)
            return
        self.state = ConnectionState.HEADER
        events.append(Authenticated(self._handshake.credentials))
        if self._side is Side.CLIENT:
            self.out.append(AMQP_HEADER)
            self._send_open()
        elif self._handshake.earns_trust:
            self.trust()

    def _write(self, data: bytes) -> None:
        if data:
            self.out.append(data)

    def _send_open(self) -> None:
        self._open_sent = True
        self.out.append(open_frame(self.options))

    def _on_open(self, opened: Open, events: list[Event]) -> None:
        if self.state is not ConnectionState.OPENING:
            raise AmqpError(ILLEGAL_STATE, "a second open")
        if opened.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise AmqpError(INVALID_FIELD, f"max-frame-size is {opened.max_frame_size}; {MIN_MAX_FRAME_SIZE} at least")
        if opened.idle_time_out:
            self._remote_idle = opened.idle_time_out / 1000
            if self._remote_idle < _SHORTEST_IDLE:
                raise AmqpError(NOT_ALLOWED, f"idle-time-out is {opened.idle_time_out} ms; {_SHORTEST_IDLE} s at least")
        self.remote = opened
        self.peer_max_frame_size = opened.max_frame_size
        if not self._open_sent:
            self._send_open()
        self.state = ConnectionState.OPEN
        for session in self.sessions.values():
            session.peer_max_frame_size = opened.max_frame_size
        self._set_limits()
        events.append(Opened(opened))

    def _set_limits(self) -> None:
        options, limits = self.options, self.options.limits
        if self.trusted:
            self.max_elements = limits.elements
            self._control_limit = _UNLIMITED
        if self.state is ConnectionState.OPEN:
            self._splitter.max_size = options.max_frame_size
            if not self.trusted:
                self._splitter.max_size = min(limits.untrusted_frame_size, options.max_frame_size)
                self._control_limit = limits.untrusted_control_size

    def has_room_for_link(self) -> bool:
        """Tell whether the peer may have another link."""
        return self.trusted or sum(len(s.links) for s in self.sessions.values()) < self.options.limits.untrusted_links

    # --- an open connection ----------------------------------------------------------------------------------------

    def _take_frames(self, events: list[Event]) -> bool:
        """Take all frames that are there; transfers and their answers, which most are, go straight to their session."""
        splitter = self._splitter
        data, sessions = splitter.buffer, self._by_remote_channel
        for frame_type, channel, start, end in splitter.whole_frames():
            if frame_type != AMQP_FRAME:
                raise AmqpError(FRAMING_ERROR, f"a frame of type {frame_type} is not expected here")
            if end - start >= _HEAD and data[start] == 0 and data[start + 1] == _SMALL_ULONG:
                session = sessions.get(channel)
                code = data[start + 2]
                if session is not None and code == TRANSFER:
                    splitter.position = session.on_transfers(data, start + 3, end, splitter.max_size, events)
                elif session is not None and code == DISPOSITION and end - start <= self._control_limit:
                    session.on_disposition(data, start + 3, end, events)
                else:
                    self._on_frame(data, (start, end), channel, events)
            elif start != end:  # else a heartbeat
                spelled = with_short_descriptor(data, start, end)
                self._on_frame(spelled, (0, len(spelled)), channel, events)
            if self.state is not _OPEN:
                return True
        return not splitter.let_go() and splitter.next_frame() is not None

    def _on_frame(self, data: bytes, extent: tuple[int, int], channel: int, events: list[Event]) -> None:
        start, end = extent
        code = data[start + 2]
        session = self._by_remote_channel.get(channel)
        if code == TRANSFER and session is not None:
            session.on_transfer(data, start + 3, end, events)
            return
        if end - start > self._control_limit:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a frame of {end - start} bytes before authentication")
        if code == DISPOSITION and session is not None:
            session.on_disposition(data, start + 3, end, events)
        elif code == FLOW and session is not None:
            flow = read_flow(data, start + 3, end, self.max_elements)
            if session.state is _ACTIVE:
                session.on_flow(flow, events)
        else:
            self._on_control(data, extent, channel, events)

    def _on_control(self, data: bytes, extent: tuple[int, int], channel: int, events: list[Event]) -> None:
        performative, after = decode_performative(data, *extent, self.max_elements)
        if after != extent[1] and not isinstance(performative, Transfer):
            raise AmqpError(DECODE_ERROR, f"bytes follow {type(performative).__name__}")
        if isinstance(performative, Close):
            self._on_close(performative, events)
        elif self.state is ConnectionState.CLOSING:
            return
        elif isinstance(performative, Open):
            if channel != 0:
                raise AmqpError(NOT_ALLOWED, f"an open on channel {channel}")
            self._on_open(performative, events)
        elif self.state is not ConnectionState.OPEN:
            raise AmqpError(ILLEGAL_STATE, f"{type(performative).__name__} before open")
        elif isinstance(performative, Begin):
            self._on_begin(performative, channel, events)
        else:
            self._on_session_frame(performative, channel, events)

    def _on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if channel > self.options.channel_max:
            raise AmqpError(FRAMING_ERROR, f"channel {channel} is above channel-max")
        if channel in self._by_remote_channel:
            raise AmqpError(ILLEGAL_STATE, f"a second begin on channel {channel}")
        if begin.remote_channel is None:
            if not self.trusted and len(self.sessions) >= self.options.limits.untrusted_sessions:
                raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "too many sessions before authentication")
            session = Session(self, self._free_channel(channel))
            self.sessions[session.channel] = session
            session.begin(channel)
        else:
            answered = self.sessions.get(begin.remote_channel)
            if answered is None or answered.remote_channel is not None:
                raise AmqpError(NOT_ALLOWED, f"a begin for channel {begin.remote_channel}, which has not begun")
            session = answered
        self._by_remote_channel[channel] = session
        session.on_begin(begin, channel, events)

    def _free_channel(self, preferred: int) -> int:
        highest = min(self.options.channel_max, _UNLIMITED if self.remote is None else self.remote.channel_max)
        if preferred <= highest and preferred not in self.sessions:
            return preferred
        channel = next(number for number in count() if number not in self.sessions)
        if channel > highest:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {channel} sessions")
        return channel

    def _on_session_frame(self, performative: Performative, channel: int, events: list[Event]) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None:
            raise AmqpError(NOT_ALLOWED, f"{type(performative).__name__} on channel {channel}, which has not begun")
        if isinstance(performative, End):
            session.on_end(performative, events)
            del self.sessions[session.channel]
            del self._by_remote_channel[channel]
        elif session.state is not SessionState.ACTIVE:
            return
        elif isinstance(performative, Attach):
            session.on_attach(performative, events)
        elif isinstance(performative, Detach):
            session.on_detach(performative, events)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if self.state is not ConnectionState.CLOSING:
            self._send_close(None)
        self._finish(events, close.error, by_peer=True)

    def _send_close(self, error: Error | None) -> None:
        if not self._open_sent:
            self._send_open()
        for session in self.sessions.values():
            session.flush_settled()
        self.out.append(frame(0, encode_composite(Close(error))))

    def _fail(self, events: list[Event], cause: AmqpError) -> None:
        """End the connection for what the peer did, telling it as well as the state allows."""
        error = Error(cause.condition, cause.description)
        if self.state in {ConnectionState.OPENING, ConnectionState.OPEN}:
            self._send_close(error)
        else:
            self._write(self._handshake.refusal(self.state))
        self._finish(events, error, by_peer=False)

    def _finish(self, events: list[Event], error: Error | None, *, by_peer: bool) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self.state = ConnectionState.CLOSED
        for session in self.sessions.values():
            session.report_ended(events, error, by_peer=by_peer)
        self.sessions.clear()
        self._by_remote_channel.clear()
        self.settling.clear()
        self._splitter = FrameSplitter(0)
        events.append(Closed(error, by_peer))
