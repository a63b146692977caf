"""Parked messages as most of them are, read and restored without decoding them.

A message that was parked with nothing but its destination needs little: its number and the end of its lock are found
where they lie in the bytes, and to restore it the broker's annotations and one application property are cut out. A
broker lays out the messages of a queue alike, so where things lie is worked out once and remembered. A message that has
more (a session, a time to live, a schedule, annotations of its own), or is laid out in another way, is *not plain* and
goes the general way, :mod:`pairbus.messages.encoded_labels`, which does the same with any message.
"""

# ruff: noqa: PLR2004 (codes are AMQP's)

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeVar

from pairbus.amqp import AmqpError
from pairbus.amqp.events import Delivery
from pairbus.amqp.message import Message
from pairbus.core.envelope import Label
from pairbus.core.routing import Deliver
from pairbus.links.native.fast.layout import PATH_ENTRY, Layout, NotPlainError, learn
from pairbus.links.native.receiving import ReceivingLink
from pairbus.links.transport import Received

PLAIN: Final = Label()
"""Stands for the label of a plain message, whose application properties have not been read."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OURS: Final = b"x-ms-"
"""How the names begin that parking adds; whatever else has it in it is not plain."""
_BEGINNING: Final = 20
"""Messages that begin with the same bytes, as far as the name of the first annotation, have the same annotations."""
_DATA: Final = 0x005375B0
"""How a section of data begins, whose size follows in four bytes."""
_KEPT: Final = 1024

R = TypeVar("R")

_from_bytes = int.from_bytes
_unpack_uint = struct.Struct(">I").unpack_from
_unpack_uints = struct.Struct(">II").unpack_from
_pack_uints = struct.Struct(">II").pack


_bare_at: dict[bytes, int] = {}
"""Where bare messages begin, by the first bytes of messages."""
_layouts: dict[tuple[bytes, bytes], Layout] = {}
"""How messages are laid out, by their first bytes and by those of the bare message, which tell of its properties."""


@dataclass(frozen=True, slots=True)
class _Opening:
    """How the application properties of a message begin, as far as the destination.

    :ivar deliver: where it goes.
    :ivar without_path: how they begin when the destination is cut out; nothing if there is nothing else.
    """

    deliver: Deliver
    without_path: bytes


@dataclass(slots=True, eq=False, kw_only=True)
class NativeReceived(Received):
    """A message under lock, and the delivery it came by."""

    link: ReceivingLink
    delivery_id: int
    delivery_tag: bytes


class PlainReceived(NativeReceived):
    """A plain message under lock; its label is read only if somebody wants to know it.

    :param path_end: where the destination ends in it.
    """

    __slots__ = ("_layout", "_opening", "_path_end")

    def __init__(  # noqa: PLR0917 (made once for each message)
        self,
        link: ReceivingLink,
        delivery: Delivery,
        number: int,
        opening: _Opening,
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
        self.link = link
        self.delivery_id = delivery.delivery_id
        self.delivery_tag = delivery.delivery_tag
        self._layout = layout
        self._path_end = path_end
        self._opening = opening

    @property
    def label(self) -> Label:  # pyright: ignore[reportIncompatibleVariableOverride] (computed here)
        """Its label, decoded."""
        return Label(application_properties=Message(self.payload).application_properties())

    @property
    def routed(self) -> Deliver:
        """Where it goes, with :data:`PLAIN` as its label."""
        return self._opening.deliver

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
        payload, layout, opening = self.payload, self._layout, self._opening
        bare = payload[layout.bare_at : layout.properties_at]
        return b"".join((layout.header, bare, opening.without_path, payload[self._path_end :]))


def read_plain(
    link: ReceivingLink, deliveries: Iterable[Delivery], otherwise: Callable[[ReceivingLink, Delivery], R]
) -> list[PlainReceived | R]:
    """Read messages, each of which is most likely laid out as the one before it; one not plain is read otherwise."""
    read: list[PlainReceived | R] = []
    layout: Layout | None = None
    enqueued_before = locked_before = None
    enqueued_at = locked_until = _EPOCH
    for delivery in deliveries:
        payload = delivery.payload
        received = None
        try:
            if layout is None or _from_bytes(payload[: layout.path_at], "little") & layout.mask != layout.fixed:
                layout = _layout_of(payload)
            number, enqueued, locked, size, length = layout.numbers_of(payload)
            path_end, end = layout.path_at + length, layout.sized_at + size
            if number >= 0 and locked >= 0 and path_end <= end and payload.find(_OURS, path_end, end) < 0:
                opening = _read_opening(payload[layout.properties_at : path_end])
                if opening is not None and _is_body(payload, end):
                    if enqueued != enqueued_before:
                        enqueued_before, enqueued_at = enqueued, _moment(enqueued)
                    if locked != locked_before:
                        locked_before, locked_until = locked, _moment(locked)
                    received = PlainReceived(
                        link, delivery, number, opening, layout, path_end, locked_until, enqueued_at
                    )
        except (NotPlainError, IndexError, struct.error, ValueError, OverflowError, AmqpError):
            pass  # has more, or is cut short, or odd: the general way says what is wrong
        read.append(otherwise(link, delivery) if received is None else received)
    return read


def _layout_of(payload: bytes) -> Layout:
    """Return how a message is laid out, from what is remembered or from itself."""
    beginning = payload[:_BEGINNING]
    at = _bare_at.get(beginning, 0)
    layout = _layouts.get((beginning, payload[at + 2 : at + 8]))
    if layout is None or not layout.fits(payload):
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


def _is_body(payload: bytes, position: int) -> bool:
    """Tell whether nothing but sections of a body of data comes there."""
    length = len(payload)
    if position + 8 <= length and _unpack_uints(payload, position) == (_DATA, length - position - 8):
        return True  # as a rule
    while position < length:
        section = payload[position : position + 4]
        if section == b"\x00\x53\x75\xb0":
            position += 8 + _unpack_uint(payload, position + 4)[0]
        elif section == b"\x00\x53\x75\xa0":
            position += 5 + payload[position + 4]
        else:
            return False
    return position == length


@lru_cache(maxsize=_KEPT)
def _read_opening(properties: bytes) -> _Opening | None:
    """Read application properties that end behind the destination; None: they are odd."""
    if properties[3] == 0xC1:
        first, size, count = 6, properties[4], properties[5]
        rest = size - 1 - (len(properties) - first)
        without_path = b"\x00\x53\x74\xc1" + bytes((rest + 1, count - 2))
    else:
        first = 12
        size, count = _unpack_uints(properties, 4)
        rest = size - 4 - (len(properties) - first)
        without_path = b"\x00\x53\x74\xd1" + _pack_uints(rest + 4, count - 2)
    path = properties[first + len(PATH_ENTRY) + 1 :]
    if not path or count & 1 or (count > 2) != (rest > 0):
        return None
    return _Opening(_deliver(path), without_path if rest else b"")


@lru_cache(maxsize=_KEPT)
def _deliver(path: bytes) -> Deliver:
    return Deliver(path.decode(), PLAIN)


@lru_cache(maxsize=_KEPT)
def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
