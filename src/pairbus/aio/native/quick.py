"""Parked messages as most of them are, read and restored without decoding them.

A message that was parked with nothing but its destination needs little: its number and the end of its lock are found
where they lie in the bytes, and to restore it the broker's annotations and one application property are cut out. A
broker lays out the messages of a queue alike, so where things lie is worked out once and remembered. A message that has
more (a session, a time to live, a schedule, annotations of its own), or is laid out in another way, is *not plain* and
goes the general way, :mod:`pairbus.aio.relabel`, which does the same with any message.
"""

# ruff: noqa: PLR2004 (codes are AMQP's)

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from pairbus.aio.native.layout import Layout, NotPlainError, learn
from pairbus.aio.transport import Received
from pairbus.amqp import AmqpError
from pairbus.amqp.events import DeliveryReceived
from pairbus.amqp.message import Message
from pairbus.amqp.receiver import ReceiverLink
from pairbus.core.envelope import Label
from pairbus.core.routing import Deliver

PLAIN: Final = Label()
"""Stands for the label of a plain message, whose application properties have not been read."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OURS: Final = b"x-ms-"
"""How the names begin that parking adds; whatever else has it in it is not plain."""
_BEGINNING: Final = 20
"""Messages that begin with the same bytes, as far as the name of the first annotation, have the same annotations."""
_KEPT: Final = 1024

_unpack_uint = struct.Struct(">I").unpack_from
_pack_uint = struct.Struct(">I").pack


_bare_at: dict[bytes, int] = {}
"""Where bare messages begin, by the first bytes of messages."""
_layouts: dict[tuple[bytes, bytes], Layout] = {}
"""How messages are laid out, by their first bytes and by those of the bare message, which tell of its properties."""


@dataclass(slots=True, eq=False, kw_only=True)
class NativeReceived(Received):
    """A message under lock, and the delivery it came by."""

    link: ReceiverLink
    delivery_id: int
    delivery_tag: bytes


class PlainReceived(NativeReceived):
    """A plain message under lock; its label is read only if somebody wants to know it.

    :param path_end: where the destination ends in it.
    """

    __slots__ = ("_deliver", "_layout", "_path_end")

    def __init__(  # noqa: PLR0917 (made once for each message)
        self,
        delivery: DeliveryReceived,
        number: int,
        deliver: Deliver,
        layout: Layout,
        path_end: int,
        locked_until: datetime,
        enqueued_at: datetime,
    ) -> None:
        self.sequence_number = number
        self.payload = payload = delivery.payload
        self.size = len(payload)
        self.partition_key = None
        self.locked_until = locked_until
        self.enqueued_at = enqueued_at
        self.link = delivery.link
        self.delivery_id = delivery.delivery_id
        self.delivery_tag = delivery.delivery_tag
        self._layout = layout
        self._path_end = path_end
        self._deliver = deliver

    @property
    def label(self) -> Label:  # pyright: ignore[reportIncompatibleVariableOverride] (computed here)
        """Its label, decoded."""
        return Label(application_properties=Message(self.payload).application_properties())

    @property
    def routed(self) -> Deliver:
        """Where it goes, with :data:`PLAIN` as its label."""
        return self._deliver

    @property
    def unparked(self) -> Label:
        """Nothing but the destination goes: :data:`PLAIN`."""
        return PLAIN

    @property
    def names_session(self) -> bool:
        """It is of no session."""
        return False

    def restored(self, label: Label, now: datetime) -> bytes:
        """Cut out what parking has added; all other bytes are carried as they are."""
        if label is not PLAIN:
            return super().restored(label, now)
        payload, layout, end = self.payload, self._layout, self._path_end
        at = layout.properties_at
        if payload[at + 3] == 0xC1:
            count = payload[at + 5] - 2
            others = b"\x00\x53\x74\xc1" + bytes((payload[at + 4] - (end - at - 6), count))
        else:
            count = _unpack_uint(payload, at + 8)[0] - 2
            size = _unpack_uint(payload, at + 4)[0] - (end - at - 12)
            others = b"\x00\x53\x74\xd1" + _pack_uint(size) + _pack_uint(count)
        if not count:
            others = b""
        return b"".join((layout.header, payload[layout.bare_at : at], others, payload[end:]))


def read_plain(deliveries: Iterable[DeliveryReceived]) -> list[PlainReceived | None]:
    """Read messages, each of which is most likely laid out as the one before it; None stands for one not plain."""
    read: list[PlainReceived | None] = []
    layout: Layout | None = None
    for delivery in deliveries:
        payload = delivery.payload
        received = None
        try:
            if (
                layout is None
                or len(payload) < layout.path_at
                or layout.fixed_of(values := layout.unpack(payload)) != layout.fixed
            ):
                layout = _layout_of(payload)
                values = layout.unpack(payload)
            number, enqueued, locked, size, length = layout.numbers_of(values)
            path_at, end = layout.path_at, layout.sized_at + size
            path_end = path_at + length
            if number >= 0 and locked >= 0 and path_end <= end and payload.find(_OURS, path_end, end) < 0:
                deliver = _deliver(payload[path_at:path_end])
                if deliver is not None and _is_body(payload, end, len(payload)):
                    received = PlainReceived(
                        delivery, number, deliver, layout, path_end, _moment(locked), _moment(enqueued)
                    )
        except (NotPlainError, IndexError, struct.error, UnicodeDecodeError, OverflowError, AmqpError):
            pass  # has more, or is cut short, or odd: the general way says what is wrong
        read.append(received)
    return read


def _layout_of(payload: bytes) -> Layout:
    """Return how a message is laid out, from what is remembered or from itself."""
    beginning = payload[:_BEGINNING]
    at = _bare_at.get(beginning, 0)
    layout = _layouts.get((beginning, payload[at + 2 : at + 8]))
    if layout is None or layout.fixed_of(layout.unpack(payload)) != layout.fixed:
        layout = _learn(payload)
    return layout


def _learn(payload: bytes) -> Layout:
    """Work out how a message is laid out, and remember it for the next ones."""
    layout = learn(payload)
    if len(_layouts) >= _KEPT:
        _bare_at.clear()  # the usual ones are back after one message each
        _layouts.clear()
    beginning, at = payload[:_BEGINNING], layout.bare_at
    _bare_at[beginning] = at
    _layouts[beginning, payload[at + 2 : at + 8]] = layout
    return layout


def _is_body(payload: bytes, position: int, length: int) -> bool:
    """Tell whether nothing but sections of a body of data comes there."""
    while position < length:
        section = payload[position : position + 4]
        if section == b"\x00\x53\x75\xb0":
            position += 8 + _unpack_uint(payload, position + 4)[0]
        elif section == b"\x00\x53\x75\xa0":
            position += 5 + payload[position + 4]
        else:
            return False
    return position == length


@lru_cache(maxsize=1024)
def _deliver(path: bytes) -> Deliver | None:
    return Deliver(path.decode(), PLAIN) if path else None


@lru_cache(maxsize=1024)
def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
