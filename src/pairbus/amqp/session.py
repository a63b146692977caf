"""A session: the windows that bound transfers both ways, the links in it, and the settling of deliveries."""

import enum
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

from pairbus.amqp.composites import encode_composite
from pairbus.amqp.conditions import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    AmqpError,
)
from pairbus.amqp.events import (
    DispositionReceived,
    Event,
    LinkAttached,
    LinkRequested,
    SessionBegun,
    SessionEnded,
    WindowOpened,
)
from pairbus.amqp.fast.hotpath import (
    TransferTail,
    disposition_frame,
    disposition_tail,
    link_flow_frame,
    read_disposition,
    read_transfer,
    shape_of,
)
from pairbus.amqp.frames import frame, frame_head
from pairbus.amqp.link import HALF, SERIAL_MASK, Link, LinkState
from pairbus.amqp.performatives import (
    RECEIVER,
    SENDER,
    SETTLE_FIRST,
    SETTLE_MIXED,
    UINT_MAX,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    End,
    Error,
    Flow,
    Map,
    Performative,
    Source,
    Symbols,
    Target,
)
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.sender import SenderLink, SentDelivery
from pairbus.amqp.types import Symbol, Value

if TYPE_CHECKING:
    from pairbus.amqp.connection import Connection

_OUTGOING_WINDOW: Final = 0x7FFFFFFF
"""What we say we could send; we keep nothing back on its account."""
_FIRST_ID: Final = 1
_NONE: Final = -2
"""No delivery, and no delivery's neighbour."""


class SessionState(enum.Enum):
    """Where a session stands."""

    BEGINNING = "beginning"
    """Our begin waits for the peer's."""
    ACTIVE = "active"
    ENDING = "ending"
    """Our end waits for the peer's; whatever else comes is dropped."""
    ENDED = "ended"


_ACTIVE: Final = SessionState.ACTIVE  # looking a member up in its enum takes longer than all else about it


class Session:
    """One session: ``connection.begin()`` makes it, or the peer. ``context`` is the caller's own."""

    __slots__ = (
        "_attaching", "_backlog", "_by_remote_handle", "_frame_head", "_remote_handle_max", "_reported",
        "_settling_first", "_settling_last", "_settling_role", "_settling_settled", "_settling_state", "_window",
        "channel", "connection", "context", "enforce_credit", "incoming_window", "links", "max_message_size",
        "next_delivery_id", "next_incoming_id", "next_outgoing_id", "out", "peer_max_frame_size", "remote_channel",
        "remote_incoming_window", "sent", "state", "untrusted_message_size",
    )  # fmt: skip

    def __init__(self, connection: "Connection", channel: int) -> None:
        options = connection.options
        self.connection = connection
        self.channel = channel
        self.remote_channel: int | None = None
        self._frame_head = b""
        self.state = SessionState.BEGINNING
        self.context: Value = None
        self.out = connection.out
        self.peer_max_frame_size = connection.peer_max_frame_size
        self.max_message_size = options.max_message_size
        self.untrusted_message_size = None if connection.trusted else options.limits.untrusted_message_size
        self.enforce_credit = options.enforce_credit
        self.links: dict[int, SenderLink | ReceiverLink] = {}
        """By our handle."""
        self.sent: dict[int, SentDelivery] = {}
        """What we have sent and nobody has settled, by delivery id."""
        self.next_delivery_id = _FIRST_ID
        self.next_outgoing_id = _FIRST_ID
        self.next_incoming_id = 0
        self.incoming_window = self._window = options.incoming_window
        self.remote_incoming_window = 0
        self._remote_handle_max = UINT_MAX
        self._by_remote_handle: dict[int, SenderLink | ReceiverLink] = {}
        self._attaching: dict[tuple[str, bool], SenderLink | ReceiverLink] = {}
        self._backlog: deque[tuple[Link, bytes, memoryview]] = deque()
        self._reported = False
        self._settling_role = SENDER
        self._settling_first = _NONE
        self._settling_last = _NONE
        self._settling_state: DeliveryState | None = None
        self._settling_settled = False

    @property
    def is_active(self) -> bool:
        """Whether frames can be sent on it."""
        return self.state is _ACTIVE or self.state is SessionState.BEGINNING

    # --- what the caller does ----------------------------------------------------------------------------------

    def attach_sender(
        self, name: str, target: Target, source: Source | None = None, *, snd_settle_mode: int = SETTLE_MIXED,
        rcv_settle_mode: int = SETTLE_FIRST, properties: Map | None = None, capabilities: Symbols | None = None,
    ) -> SenderLink:  # fmt: skip
        """Ask the peer for a link on which we send; :class:`LinkAttached` or :class:`LinkDetached` follows."""
        link = SenderLink(self, name, self._free_handle())
        self._attach(
            link,
            Attach(name, link.handle, SENDER, snd_settle_mode, rcv_settle_mode, source or Source(), target,
                   initial_delivery_count=0, desired_capabilities=capabilities, properties=properties),
        )  # fmt: skip
        return link

    def attach_receiver(
        self, name: str, source: Source, target: Target | None = None, *, snd_settle_mode: int = SETTLE_MIXED,
        rcv_settle_mode: int = SETTLE_FIRST, properties: Map | None = None, capabilities: Symbols | None = None,
        max_message_size: int | None = None,
    ) -> ReceiverLink:  # fmt: skip
        """Ask the peer for a link on which we receive; :class:`LinkAttached` or :class:`LinkDetached` follows."""
        link = ReceiverLink(self, name, self._free_handle())
        link.max_message_size = max_message_size or self.max_message_size
        self._attach(
            link,
            Attach(name, link.handle, RECEIVER, snd_settle_mode, rcv_settle_mode, source, target or Target(),
                   max_message_size=link.max_message_size, desired_capabilities=capabilities, properties=properties),
        )  # fmt: skip
        return link

    def _attach(self, link: SenderLink | ReceiverLink, attach: Attach) -> None:
        if not self.is_active:
            raise AmqpError(ILLEGAL_STATE, f"the session is {self.state.value}")
        if (link.name, link.role) in self._attaching:
            raise AmqpError(NOT_ALLOWED, f"a link {link.name!r} is being attached")
        self.links[link.handle] = link
        self._attaching[link.name, link.role] = link
        self.send(attach)

    def _free_handle(self) -> int:
        handle = next(number for number in count() if number not in self.links)
        if handle > min(self._remote_handle_max, self.connection.options.handle_max):
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a session has at most {handle} links")
        return handle

    def settle(self, delivery_id: int, state: DeliveryState | None, *, role: bool, settled: bool = True) -> None:
        """Tell the outcome of a delivery; calls for neighbours with equal outcomes become one range."""
        if role is SENDER and settled:
            self.sent.pop(delivery_id, None)
        if (
            delivery_id == self._settling_last + 1
            and role is self._settling_role
            and settled is self._settling_settled
            and (state is self._settling_state or state == self._settling_state)
        ):
            self._settling_last = delivery_id
            return
        if self.state is not _ACTIVE:
            return
        if self._settling_first >= 0:
            self.flush_settled()
        else:
            self.connection.settling.append(self)
        self._settling_role = role
        self._settling_first = self._settling_last = delivery_id
        self._settling_state = state
        self._settling_settled = settled

    def settle_run(self, first: int, last: int, state: DeliveryState | None, *, settled: bool = True) -> None:
        """Tell the outcome of deliveries that we have received and that follow each other, by one frame."""
        if self.state is _ACTIVE:
            self.flush_settled()
            tail = disposition_tail(state, settled=settled)
            self.out.append(disposition_frame(self.channel, first, last, tail, role=RECEIVER))

    def replenish(self, window: int | None = None) -> None:
        """Let the peer send ``window`` more transfers; needed only without ``replenish_window``."""
        self.incoming_window = self._window if window is None else window
        if self.state is _ACTIVE:
            flow = Flow(self.next_incoming_id, self.incoming_window, self.next_outgoing_id, _OUTGOING_WINDOW)
            self.out.append(frame(self.channel, encode_composite(flow)))

    def end(self, error: Error | None = None) -> None:
        """End the session; :class:`SessionEnded` follows when the peer has answered."""
        if self.is_active:
            self.send(End(error))
            self._stop(SessionState.ENDING)

    # --- what its links and its connection do ---------------------------------------------------------------------

    def send(self, performative: Performative) -> None:
        """Send a frame, after the outcomes that were told before it."""
        if self.is_active:
            self.flush_settled()
            self.out.append(frame(self.channel, encode_composite(performative)))

    def send_link_flow(self, link: Link, *, drain: bool = False, echo: bool = False) -> None:
        """Send a link's flow state."""
        if self.state is _ACTIVE:
            flow = Flow(
                self.next_incoming_id, self.incoming_window, self.next_outgoing_id, _OUTGOING_WINDOW,
                link.handle, link.delivery_count, max(0, link.credit), None, drain, echo,
            )  # fmt: skip
            self.out.append(link_flow_frame(self.channel, flow))

    def send_transfer(self, link: Link, performative: bytes, payload: memoryview) -> None:
        """Send one frame of a delivery now, or when the peer's window opens."""
        if self.remote_incoming_window > 0:
            self.remote_incoming_window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & SERIAL_MASK
            self.out += (frame_head(self.channel, len(performative) + len(payload)) + performative, payload)
        else:
            self._backlog.append((link, performative, payload))

    def drop_backlog(self, link: Link) -> None:
        """Forget what a link that ends has not sent or not settled."""
        if self._backlog:
            self._backlog = deque(entry for entry in self._backlog if entry[0] is not link)
        if self.sent:
            self.sent = {key: delivery for key, delivery in self.sent.items() if delivery.link is not link}

    def flush_settled(self) -> None:
        """Write the range of outcomes that has been gathered."""
        if self._settling_first >= 0:
            tail = disposition_tail(self._settling_state, settled=self._settling_settled)
            self.out.append(
                disposition_frame(
                    self.channel, self._settling_first, self._settling_last, tail, role=self._settling_role
                )
            )
            self._settling_first = self._settling_last = _NONE

    def begin(self, remote_channel: int | None = None) -> None:
        """Send our begin."""
        options = self.connection.options
        self.send(
            Begin(remote_channel, self.next_outgoing_id, self.incoming_window, _OUTGOING_WINDOW, options.handle_max)
        )

    def on_begin(self, begin: Begin, remote_channel: int, events: list[Event]) -> None:
        """Take the peer's begin."""
        self.remote_channel = remote_channel
        self._frame_head = b"\x02\x00" + remote_channel.to_bytes(2)
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window = begin.incoming_window
        self._remote_handle_max = begin.handle_max
        if self.state is not SessionState.BEGINNING:
            return  # ended before it had begun; the peer's end follows
        self.state = _ACTIVE
        events.append(SessionBegun(self))

    def on_attach(self, attach: Attach, events: list[Event]) -> None:
        """Take an attach: the answer to one of ours, or a new link."""
        if attach.handle > self.connection.options.handle_max:
            raise AmqpError(FRAMING_ERROR, f"handle {attach.handle} is above handle-max")
        known = self._by_remote_handle.get(attach.handle)
        if known is not None:
            if known.state is not LinkState.DETACHING:  # else it crossed our detach; the peer's own follows
                self.fail(events, HANDLE_IN_USE, f"handle {attach.handle} is in use")
            return
        link = self._attaching.pop((attach.name, not attach.role), None)
        if link is not None:
            self._by_remote_handle[attach.handle] = link
            if link.on_attach(attach):
                events.append(LinkAttached(link))
            return
        self._on_new_link(attach, events)

    def _on_new_link(self, attach: Attach, events: list[Event]) -> None:
        if not self.connection.has_room_for_link():
            self.fail(events, RESOURCE_LIMIT_EXCEEDED, "too many links before authentication")
            return
        try:
            handle = self._free_handle()
        except AmqpError as error:
            self.fail(events, error.condition, error.description)
            return
        link = (SenderLink if attach.role is RECEIVER else ReceiverLink)(self, attach.name, handle)
        link.state = LinkState.REQUESTED
        link.on_attach(attach)
        self.links[handle] = link
        self._by_remote_handle[attach.handle] = link
        events.append(LinkRequested(link))

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Take the peer's flow state, and send what waited for it."""
        was_closed = self.remote_incoming_window <= 0
        self.next_incoming_id = flow.next_outgoing_id
        seen = _FIRST_ID if flow.next_incoming_id is None else flow.next_incoming_id
        unseen = (self.next_outgoing_id - seen) & SERIAL_MASK
        self.remote_incoming_window = max(0, flow.incoming_window - (unseen if unseen < HALF else 0))
        while self._backlog and self.remote_incoming_window > 0:
            self.send_transfer(*self._backlog.popleft())
        link = None
        if flow.handle is not None:
            link = self._by_remote_handle.get(flow.handle)
            if link is None:
                self.fail(events, UNATTACHED_HANDLE, f"a flow for handle {flow.handle}")
                return
            link.on_flow(flow, events)
        if was_closed and self.remote_incoming_window > 0:
            events.append(WindowOpened(self))
        if flow.echo:
            if link is not None and link.state is LinkState.ATTACHED:
                self.send_link_flow(link)
            else:
                self.replenish(self.incoming_window)

    def on_transfers(self, data: bytes, start: int, end: int, largest: int, events: list[Event]) -> int:
        """Take a transfer, and those behind it that are laid out alike; return where the last of them ends.

        :param start: where the list of its fields begins; the frame's head and the descriptor are before it.
        :param largest: the largest frame that is allowed.
        """
        taken = self.on_transfer(data, start, end, events)
        room = self.incoming_window - (self._window >> 1) - 1  # the next one is to look at the window
        if taken is None or len(data) == end or room <= 0:
            return end
        link, tail, payload = taken
        shape = None if tail.more or tail.aborted else shape_of(data, start, payload)
        if shape is None or not shape.head.startswith(self._frame_head):
            return end
        count, end = link.on_run(data, end, shape, tail, room, largest, events)
        self.next_incoming_id = (self.next_incoming_id + count) & SERIAL_MASK
        self.incoming_window -= count
        return end

    def on_transfer(
        self, data: bytes, start: int, end: int, events: list[Event]
    ) -> tuple[ReceiverLink, TransferTail, int] | None:
        """Take a transfer; return its link, what it says, and where its payload begins, if all is well."""
        handle, delivery_id, tag, tail, payload = read_transfer(data, start, end, self.connection.max_elements)
        if self.state is not _ACTIVE:
            return None
        self.next_incoming_id = (self.next_incoming_id + 1) & SERIAL_MASK
        self.incoming_window -= 1
        if self.incoming_window <= self._window >> 1:
            if self.connection.options.replenish_window:
                self.replenish()
            elif self.incoming_window < 0:
                self.fail(events, WINDOW_VIOLATION, "a transfer beyond the window")
                return None
        link = self._by_remote_handle.get(handle)
        if link is None:
            self.fail(events, UNATTACHED_HANDLE, f"a transfer for handle {handle}")
        elif isinstance(link, ReceiverLink):
            link.on_transfer(data[payload:end], delivery_id, tag, tail, events)
            return link, tail, payload
        else:
            self.fail(events, NOT_ALLOWED, f"a transfer for handle {handle}, on which the peer receives")
        return None

    def on_disposition(self, data: bytes, start: int, end: int, events: list[Event]) -> None:
        """Take a disposition; ``start`` is where the list of its fields begins."""
        role, first, last, (settled, state) = read_disposition(data, start, end, self.connection.max_elements)
        if self.state is not _ACTIVE:
            return
        if role is SENDER:
            events.append(DispositionReceived(self, role, first, last, settled, state))
            return
        sent = self.sent
        span = (last - first) & SERIAL_MASK
        if span >= HALF:
            raise AmqpError(INVALID_FIELD, f"a disposition from {first} to {last}")
        if span < len(sent):
            numbers = range(first, last + 1) if first <= last else [(first + n) & SERIAL_MASK for n in range(span + 1)]
        else:
            numbers = [number for number in sent if (number - first) & SERIAL_MASK <= span]
        find = sent.pop if settled else sent.get
        deliveries = [delivery for number in numbers if (delivery := find(number, None)) is not None]
        events.append(DispositionReceived(self, role, first, last, settled, state, deliveries))

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """Take a detach and free the link's handles."""
        link = self._by_remote_handle.pop(detach.handle, None)
        if link is None:
            self.fail(events, UNATTACHED_HANDLE, f"a detach for handle {detach.handle}")
            return
        link.on_detach(detach, events)
        self.links.pop(link.handle, None)

    def on_end(self, end: End, events: list[Event]) -> None:
        """Take the peer's end, and answer it unless it is an answer itself."""
        self.end()
        self._stop(SessionState.ENDED)
        self.report_ended(events, end.error, by_peer=True)

    def fail(self, events: list[Event], condition: Symbol, description: str) -> None:
        """End the session for a violation of the peer's; the caller hears of it at once."""
        error = Error(condition, description)
        self.end(error)
        self.report_ended(events, error, by_peer=False)

    def _stop(self, state: SessionState) -> None:
        self.state = state
        self._settling_first = self._settling_last = _NONE
        self._backlog.clear()
        self.sent = {}
        for link in self.links.values():
            link.credit = 0
            link.state = LinkState.DETACHED

    def report_ended(self, events: list[Event], error: Error | None, *, by_peer: bool) -> None:
        """Tell the caller, once, that the links and then the session have ended."""
        if self.is_active:
            self._stop(SessionState.ENDED)
        for link in self.links.values():
            link.report_detached(events, error, closed=False, by_peer=by_peer)
        if not self._reported:
            self._reported = True
            events.append(SessionEnded(self, error, by_peer))
