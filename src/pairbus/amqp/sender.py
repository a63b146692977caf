"""The end of a link that sends, and spends the credit that the peer grants."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pairbus.amqp.conditions import ILLEGAL_STATE, AmqpError
from pairbus.amqp.encoder import encode_binary, encode_boolean, encode_uint
from pairbus.amqp.events import Event, FlowChanged
from pairbus.amqp.fast.hotpath import TransferShape, transfer_shape
from pairbus.amqp.link import HALF, SERIAL_MASK, Link, LinkState
from pairbus.amqp.performatives import SENDER, Attach, DeliveryState, Flow
from pairbus.amqp.types import Value

if TYPE_CHECKING:
    from pairbus.amqp.session import Session

_ATTACHED: Final = LinkState.ATTACHED  # looking a member up in its enum takes longer than all else about it

_FRAME_HEAD_SIZE: Final = 8
_MAX_TAG: Final = 32
_UNUSED: Final = b"\x40\x40\x42\x42\x42"
"""Settle mode, state, resume, aborted and batchable: written out, as older versions of the SDK count on them."""
_PARTS_OVERHEAD: Final = 7 + len(_UNUSED)
"""Descriptor, list constructor, size, count, whether more follows, and what is not used."""


class SentDelivery:
    """A delivery that was sent and is not settled; ``context`` is what the caller gave to ``send``."""

    __slots__ = ("context", "delivery_id", "link", "tag")

    def __init__(self, link: "SenderLink", delivery_id: int, tag: bytes, context: Value) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.context = context


class SenderLink(Link):
    """Our end sends. ``credit`` says how many deliveries the peer takes now; :class:`FlowChanged` when it changes."""

    __slots__ = ("_shapes", "draining", "max_message_size")

    role = SENDER

    def __init__(self, session: "Session", name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.draining = False
        self.max_message_size: int | None = None
        """What the peer says it takes."""
        self._shapes: dict[tuple[int, bool, int], TransferShape] = {}

    def send(
        self, payload: bytes, tag: bytes, *, settled: bool = False, message_format: int = 0, context: Value = None
    ) -> int:
        """Send one delivery, in as many frames as it takes, and return its id.

        It must have been granted: ``credit`` is above 0. If the session's window is closed the frames wait in the
        session until it opens; no more than the credit can wait there.
        """
        if self.credit <= 0 or self.state is not _ATTACHED:
            raise AmqpError(ILLEGAL_STATE, f"link {self.name!r} is {self.state.value} with a credit of {self.credit}")
        shape = self._shapes.get((len(tag), settled, message_format))
        if shape is None:
            shape = self._shape(len(tag), message_format, settled=settled)
        head, tag_head, tail, layout, overhead = shape
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        size = overhead + len(payload)
        if size <= session.peer_max_frame_size and session.remote_incoming_window > 0:
            session.out += (layout.pack(size, head, delivery_id, tag_head, tag, tail), payload)
            session.next_outgoing_id = (session.next_outgoing_id + 1) & SERIAL_MASK
            session.remote_incoming_window -= 1
        else:
            self._send_in_parts(payload, tag, delivery_id, message_format, settled=settled)
        self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
        self.credit -= 1
        if not settled:
            session.sent[delivery_id] = SentDelivery(self, delivery_id, tag, context)
        return delivery_id

    def send_all(self, deliveries: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        """Send many deliveries, as :meth:`send` does one, which are to be settled.

        :param deliveries: of each its tag, which is its context too, and its payload in two parts: so that what
            somebody puts before a large one need not be joined with it.
        """
        session = self.session
        first, count = session.next_delivery_id, len(deliveries)
        after = first + count
        tag_sizes = {len(tag) for tag, _, _ in deliveries}
        if self.state is not _ATTACHED or count > self.sendable or after > SERIAL_MASK or len(tag_sizes) != 1:
            self._send_each(deliveries)
            return
        (tag_size,) = tag_sizes
        shape = self._shapes.get((tag_size, False, 0)) or self._shape(tag_size, 0, settled=False)
        head, tag_head, tail, layout, overhead = shape
        sizes = [overhead + len(front) + len(rest) for _, front, rest in deliveries]
        if max(sizes) > session.peer_max_frame_size:
            self._send_each(deliveries)
            return
        pack, out, sent = layout.pack, session.out, session.sent
        for delivery_id, size, (tag, front, rest) in zip(range(first, after), sizes, deliveries, strict=True):
            out += (pack(size, head, delivery_id, tag_head, tag, tail), front, rest)
            sent[delivery_id] = SentDelivery(self, delivery_id, tag, tag)
        session.next_delivery_id = after
        session.next_outgoing_id = (session.next_outgoing_id + count) & SERIAL_MASK
        session.remote_incoming_window -= count
        self.delivery_count = (self.delivery_count + count) & SERIAL_MASK
        self.credit -= count

    def _send_each(self, deliveries: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        for tag, front, rest in deliveries:
            self.send(front + rest, tag, context=tag)

    def _shape(self, tag_size: int, message_format: int, *, settled: bool) -> TransferShape:
        """Lay out once what the transfers of one kind have in common."""
        if tag_size > _MAX_TAG:
            raise ValueError(f"a delivery tag has at most {_MAX_TAG} bytes, not {tag_size}")
        handle = encode_uint(self.handle)
        tail = encode_uint(message_format) + encode_boolean(settled) + b"\x42" + _UNUSED
        size = 1 + len(handle) + 5 + 2 + tag_size + len(tail)
        head = (
            b"\x02\x00" + self.session.channel.to_bytes(2) + b"\x00\x53\x14\xc0" + bytes((size, 11)) + handle + b"\x70"
        )
        shape = self._shapes[tag_size, settled, message_format] = transfer_shape(head, tag_size, tail)
        return shape

    def _send_in_parts(
        self, payload: bytes, tag: bytes, delivery_id: int, message_format: int, *, settled: bool
    ) -> None:
        handle = encode_uint(self.handle)
        fields = handle + encode_uint(delivery_id) + encode_binary(tag) + encode_uint(message_format)
        fields += encode_boolean(settled)
        session = self.session
        unsent = memoryview(payload)
        while True:
            room = session.peer_max_frame_size - _FRAME_HEAD_SIZE - _PARTS_OVERHEAD - len(fields)
            more = len(unsent) > room
            body = fields + encode_boolean(more) + _UNUSED
            performative = b"\x00\x53\x14\xc0" + bytes((len(body) + 1, 11)) + body
            session.send_transfer(self, performative, unsent[:room])
            if not more:
                return
            unsent = unsent[room:]
            fields = handle + b"\x40\x40\x40\x40"

    @property
    def sendable(self) -> int:
        """How many deliveries can leave now: the credit, or less if the session's window does not let them pass."""
        return min(self.credit, self.session.remote_incoming_window)

    def settle(self, delivery: SentDelivery, state: DeliveryState | None = None) -> None:
        """Settle a delivery of ours, telling the receiver the outcome that was applied."""
        self.session.settle(delivery.delivery_id, state, role=SENDER)

    def drained(self) -> None:
        """Give back the credit that is left: there is nothing more to send now."""
        if self.state is _ATTACHED:
            self.delivery_count = (self.delivery_count + self.credit) & SERIAL_MASK
            self.credit = 0
            self.session.send_link_flow(self, drain=self.draining)
            self.draining = False

    def on_attach(self, attach: Attach) -> bool:
        """Take the peer's attach and how large a message it takes."""
        self.max_message_size = attach.max_message_size or None
        return super().on_attach(attach)

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Work out the credit from what the receiver says, which may not know yet what is on its way."""
        if self.state not in {_ATTACHED, LinkState.REQUESTED}:
            return
        if flow.link_credit is not None:
            unseen = (self.delivery_count - (flow.delivery_count or 0)) & SERIAL_MASK
            self.credit = max(0, flow.link_credit - (unseen if unseen < HALF else 0))
        self.draining = flow.drain
        events.append(FlowChanged(self))
