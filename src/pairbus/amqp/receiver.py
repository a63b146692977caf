"""The end of a link that receives: it grants credit, and puts deliveries together from their parts."""

from typing import TYPE_CHECKING, Final

from pairbus.amqp.conditions import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    TRANSFER_LIMIT_EXCEEDED,
    AmqpError,
)
from pairbus.amqp.events import DeliveriesReceived, Delivery, Event, FlowChanged
from pairbus.amqp.fast.hotpath import TransferShape, TransferTail
from pairbus.amqp.link import HALF, SERIAL_MASK, Link, LinkState
from pairbus.amqp.performatives import (
    RECEIVER,
    Attach,
    DeliveryState,
    Error,
    Flow,
    Map,
    Source,
    Symbols,
    Target,
)
from pairbus.amqp.types import Described

if TYPE_CHECKING:
    from pairbus.amqp.session import Session

_ATTACHED: Final = LinkState.ATTACHED  # looking a member up in its enum takes longer than all else about it

_MANY_PARTS: Final = 256
"""Tiny parts are joined now and then, so that they cost no more than their bytes."""


class ReceiverLink(Link):
    """Our end receives. ``credit`` is what is left of what ``grant`` gave; below 0 if the peer does not care."""

    __slots__ = ("_first", "_parts", "_size", "available", "max_message_size")

    role = RECEIVER

    def __init__(self, session: "Session", name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.available: int | None = None
        """How many messages the sender says it has."""
        self.max_message_size = session.max_message_size
        self._first: tuple[int, bytes, TransferTail] | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def accept(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Described | None = None,
        max_message_size: int | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        properties: Map | None = None,
        offered_capabilities: Symbols | None = None,
    ) -> None:
        """Answer the peer's attach; a message larger than ``max_message_size`` detaches the link."""
        if max_message_size:
            self.max_message_size = max_message_size
        super().accept(
            source=source,
            target=target,
            max_message_size=self.max_message_size,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            properties=properties,
            offered_capabilities=offered_capabilities,
        )

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Let the peer send ``credit`` deliveries from now on, in place of what it had."""
        if self.state is _ATTACHED:
            self.credit = credit
            self.session.send_link_flow(self, drain=drain, echo=echo)

    def settle(self, delivery: Delivery, state: DeliveryState | None = None, *, settled: bool = True) -> None:
        """Tell the outcome of a delivery; neighbours with equal outcomes go out as one range."""
        self.session.settle(delivery.delivery_id, state, role=RECEIVER, settled=settled)

    def on_transfer(
        self, payload: bytes, delivery_id: int | None, tag: bytes | None, tail: TransferTail, events: list[Event]
    ) -> None:
        """Take a transfer, which may be a part of a delivery or a whole one."""
        if self._first is None:
            if self.state is not _ATTACHED:
                if self.state is not LinkState.DETACHING:
                    raise AmqpError(NOT_ALLOWED, f"a transfer on a link that is {self.state.value}")
                return
            if delivery_id is None or tag is None:
                raise AmqpError(INVALID_FIELD, "a delivery without id or tag")
            if self.credit <= 0 and self.session.enforce_credit:
                self.fail(events, TRANSFER_LIMIT_EXCEEDED, "a transfer without credit")
                return
            if not tail.more and not tail.aborted:
                size, untrusted = len(payload), self.session.untrusted_message_size
                if size > self.max_message_size or (untrusted is not None and size > untrusted):
                    self._too_large(events)
                    return
                self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
                self.credit -= 1
                self._tell([Delivery(delivery_id, tag, tail.message_format or 0, tail.settled, payload)], events)
                return
            self._first = (delivery_id, tag, tail)
        self._on_part(payload, delivery_id, tail, events)

    def on_run(  # noqa: PLR0917 (called for each delivery that comes alone)
        self,
        data: bytes,
        position: int,
        shape: TransferShape,
        says: TransferTail,
        room: int,
        largest: int,
        events: list[Event],
    ) -> tuple[int, int]:
        """Take transfers that are laid out as the one before them, up to so many; return how many, and where they end.

        :param says: what their tails say: that each is a whole delivery.

        One that is not laid out so, or is not as it should be, is left to the general way.
        """
        if self.state is not _ATTACHED:
            return 0, position
        if self.session.enforce_credit:
            room = min(room, self.credit)
        head, tag_head, tail, layout, overhead = shape
        unpack = layout.unpack_from
        largest = min(largest, self.size_limit + overhead)
        last = len(data) - overhead
        message_format, settled = says.message_format or 0, says.settled
        taken: list[Delivery] = []
        while room > 0 and position <= last:
            size, its_head, number, its_tag_head, tag, its_tail = unpack(data, position)
            if its_head != head or its_tag_head != tag_head or its_tail != tail or not overhead <= size <= largest:
                break
            end = position + size
            if end > len(data):
                break
            taken.append(Delivery(number, tag, message_format, settled, data[position + overhead : end]))
            position = end
            room -= 1
        count = len(taken)
        if count:
            self._tell(taken, events)
        self.delivery_count = (self.delivery_count + count) & SERIAL_MASK
        self.credit -= count
        return count, position

    def _tell(self, deliveries: list[Delivery], events: list[Event]) -> None:
        last = events[-1] if events else None
        if isinstance(last, DeliveriesReceived) and last.link is self:
            last.deliveries += deliveries
        else:
            events.append(DeliveriesReceived(self, deliveries))

    def _on_part(self, part: bytes, delivery_id: int | None, tail: TransferTail, events: list[Event]) -> None:
        first = self._first
        if first is None or self.state is not _ATTACHED:
            return
        if delivery_id is not None and delivery_id != first[0]:
            raise AmqpError(NOT_ALLOWED, f"delivery {delivery_id} begins before {first[0]} has ended")
        self._size += len(part)
        if self._size > self.size_limit:
            self._too_large(events)
            return
        if not tail.aborted:
            self._parts.append(part)
            if len(self._parts) > _MANY_PARTS:
                self._parts = [b"".join(self._parts)]
            if tail.more:
                return
        payload = b"".join(self._parts)
        self._forget()
        self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
        self.credit -= 1
        if not tail.aborted:
            settled = first[2].settled or tail.settled
            self._tell([Delivery(first[0], first[1], first[2].message_format or 0, settled, payload)], events)

    def _too_large(self, events: list[Event]) -> None:
        self._forget()
        self.fail(events, MESSAGE_SIZE_EXCEEDED, f"a message has at most {self.size_limit} bytes on this link")

    def _forget(self) -> None:
        self._first = None
        self._parts = []
        self._size = 0

    @property
    def size_limit(self) -> int:
        """The largest message that is taken now: less while the peer is not trusted."""
        untrusted = self.session.untrusted_message_size
        return self.max_message_size if untrusted is None else min(untrusted, self.max_message_size)

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Take what the sender says: what it has, and the credit it gave back by moving its count on."""
        if self.state not in {_ATTACHED, LinkState.REQUESTED}:
            return
        self.available = flow.available
        if flow.delivery_count is not None:
            step = (flow.delivery_count - self.delivery_count) & SERIAL_MASK
            if 0 < step < HALF:
                self.delivery_count = flow.delivery_count
                self.credit = max(0, self.credit - step)
        events.append(FlowChanged(self))

    def on_attach(self, attach: Attach) -> bool:
        """Take the peer's attach and where its count begins."""
        if attach.initial_delivery_count is None and attach.source is not None:
            raise AmqpError(INVALID_FIELD, "a sender's attach without initial-delivery-count")
        self.delivery_count = attach.initial_delivery_count or 0
        return super().on_attach(attach)

    def report_detached(self, events: list[Event], error: Error | None, *, closed: bool, by_peer: bool) -> None:
        """Tell the caller, once, and drop what has arrived of an incomplete delivery."""
        self._forget()
        super().report_detached(events, error, closed=closed, by_peer=by_peer)
