"""Parked messages as most of them are, read and restored without decoding them.

A message that was parked with nothing but its destination needs little: its number and the end of its lock are found
where they lie in the bytes, and to restore it the broker's annotations and one application property are cut out. A
broker lays out the messages of a queue alike, so where things lie is worked out once and remembered. A message that has
more (a session, a time to live, a schedule, annotations of its own), or is laid out in another way, is *not plain* and
goes the general way, :mod:`pairbus.aio.relabel`, which does the same with any message.
"""

# ruff: noqa: C901, PLR2004 (one pass without calls is the point; codes are AMQP's)

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pairbus.aio.transport import Received
from pairbus.amqp import AmqpError
from pairbus.amqp.events import DeliveryReceived
from pairbus.amqp.message import Message, encode_header
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.sections import Header
from pairbus.core.envelope import PATH, Label
from pairbus.core.routing import Deliver

PLAIN: Final = Label()
"""Stands for the label of a plain message, whose application properties have not been read."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PATH_ENTRY: Final = b"\xa1" + bytes((len(PATH),)) + PATH.encode() + b"\xa1"
"""How the destination begins, which parking puts first among the application properties."""
_PATH_AT: Final = len(_PATH_ENTRY)
_OURS: Final = b"x-ms-"
"""How the names begin that parking adds; whatever else has it in it is not plain."""
_NUMBER: Final = b"x-opt-sequence-number"
_ENQUEUED: Final = b"x-opt-enqueued-time"
_LOCKED: Final = b"x-opt-locked-until"
_DROPPED: Final = frozenset((b"x-opt-enqueue-sequence-number", b"x-opt-message-state"))
"""What a broker may say besides, and nobody needs."""
_GROUP_ID: Final = 10
_WIDTHS: Final = tuple((0, 0, 0, 0, 1, 2, 3, 5, 9, 17)[code >> 4] if 0x40 <= code < 0xA0 else 0 for code in range(256))
"""How many bytes a value takes with its constructor, if that says it: else 0."""
_FORMATS: Final = {0x81: "q", 0x83: "q", 0x55: "b"}
"""How numbers and times are unpacked, by their constructors."""
_KEPT_HEADS: Final = 256
_HEAD_KEY: Final = 20
"""Messages that begin with the same bytes, as far as the name of the first annotation, are laid out alike as a rule."""

_unpack_uint = struct.Struct(">I").unpack_from
_pack_uint = struct.Struct(">I").pack


class Head(NamedTuple):
    """How a broker lays out the header and the annotations of messages.

    :ivar unpack: takes them apart, into bytes that are the same in each message and numbers in between.
    :ivar size: where they end, and the bare message begins.
    :ivar own: the header that a message has when it is sent on.
    """

    unpack: Callable[[bytes], tuple[Any, ...]]
    fixed_of: Callable[[tuple[Any, ...]], tuple[bytes, ...]]
    fixed: tuple[bytes, ...]
    numbers_of: Callable[[tuple[Any, ...]], tuple[int, int, int]]
    size: int
    own: bytes


_heads: dict[bytes, Head] = {}


@dataclass(slots=True, eq=False, kw_only=True)
class NativeReceived(Received):
    """A message under lock, and the delivery it came by."""

    link: ReceiverLink
    delivery_id: int
    delivery_tag: bytes


class PlainReceived(NativeReceived):
    """A plain message under lock; its label is read only if somebody wants to know it.

    :ivar properties_at: where its application properties begin.
    :ivar path_end: where the first of them ends, which is the destination.
    """

    __slots__ = ("_deliver", "head", "path_end", "properties_at")

    def __init__(  # noqa: PLR0917 (made once for each message)
        self,
        delivery: DeliveryReceived,
        number: int,
        deliver: Deliver,
        head: Head,
        properties_at: int,
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
        self.head = head
        self.properties_at = properties_at
        self.path_end = path_end
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
        payload, at, end, head = self.payload, self.properties_at, self.path_end, self.head
        if payload[at + 3] == 0xC1:
            count = payload[at + 5] - 2
            others = b"\x00\x53\x74\xc1" + bytes((payload[at + 4] - (end - at - 6), count))
        else:
            count = _unpack_uint(payload, at + 8)[0] - 2
            size = _unpack_uint(payload, at + 4)[0] - (end - at - 12)
            others = b"\x00\x53\x74\xd1" + _pack_uint(size) + _pack_uint(count)
        if not count:
            others = b""
        return b"".join((head.own, payload[head.size : at], others, payload[end:]))


def read_plain(delivery: DeliveryReceived) -> PlainReceived | None:
    """Read a message, or return None if it is not plain."""
    try:
        return _read(delivery)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError, AmqpError):
        return None  # cut short, or odd: the general way says what is wrong


def _read(delivery: DeliveryReceived) -> PlainReceived | None:
    payload = delivery.payload
    head = _heads.get(payload[:_HEAD_KEY])
    values = () if head is None or len(payload) < head.size else head.unpack(payload)
    if head is None or not values or head.fixed_of(values) != head.fixed:
        head = _learn_head(payload)
        if head is None:
            return None
        values = head.unpack(payload)
    number, enqueued, locked = head.numbers_of(values)
    if number < 0 or locked < 0:
        return None
    at = head.size
    if payload[at : at + 4] == b"\x00\x53\x73\xc0" and payload[at + 5] <= _GROUP_ID:
        at += 5 + payload[at + 4]
    elif payload[at : at + 3] == b"\x00\x53\x73":
        at = _after_properties(payload, at + 3)
        if at < 0:
            return None
    section = payload[at : at + 4]
    if section == b"\x00\x53\x74\xc1":
        end, entry = at + 5 + payload[at + 4], at + 6
    elif section == b"\x00\x53\x74\xd1":
        end, entry = at + 8 + _unpack_uint(payload, at + 4)[0], at + 12
    else:
        return None
    path_at = entry + _PATH_AT + 1
    path_end = path_at + payload[path_at - 1]
    if path_end > end or payload[entry : path_at - 1] != _PATH_ENTRY or payload.find(_OURS, path_end, end) >= 0:
        return None
    deliver = _deliver(payload[path_at:path_end])
    if deliver is None or not _is_body(payload, end, len(payload)):
        return None
    return PlainReceived(delivery, number, deliver, head, at, path_end, _moment(locked), _moment(enqueued))


def _learn_head(payload: bytes) -> Head | None:
    """Work out how header and annotations are laid out, and remember it; None: they are not plain."""
    own, position = b"", 0
    if payload[:3] == b"\x00\x53\x70":
        position = 5 + payload[4] if payload[3] == 0xC0 else 4 if payload[3] == 0x45 else 0
        own = _kept_header(payload[:position])
    if payload[position : position + 4] != b"\x00\x53\x72\xc1":
        return None
    size = position + 5 + payload[position + 4]
    pairs = payload[position + 5] >> 1
    position += 6
    begin, layout, places = 0, ">", dict[bytes, int]()
    for pair in range(pairs):
        if payload[position] != 0xA3:
            return None
        at = position + 2 + payload[position + 1]
        name, code = payload[position + 2 : at], payload[at]
        if code not in _FORMATS or (name not in _DROPPED and name not in (_NUMBER, _ENQUEUED, _LOCKED)):
            return None
        layout += f"{at + 1 - begin}s{_FORMATS[code]}"
        places[name] = 2 * pair + 1
        begin = position = at + 1 + struct.calcsize(">" + _FORMATS[code])
    if position != size or len(places) != pairs or not places.keys() >= {_NUMBER, _ENQUEUED, _LOCKED}:
        return None
    taken = struct.Struct(layout)
    fixed_of = itemgetter(*range(0, 2 * pairs, 2))
    numbers_of = itemgetter(places[_NUMBER], places[_ENQUEUED], places[_LOCKED])
    head = Head(taken.unpack_from, fixed_of, fixed_of(taken.unpack_from(payload)), numbers_of, size, own)
    if len(_heads) >= _KEPT_HEADS:
        _heads.clear()  # the usual ones are back after one message each
    _heads[payload[:_HEAD_KEY]] = head
    return head


def _after_properties(payload: bytes, position: int) -> int:
    """Return where the standard properties end that begin there, or less than 0 if they have a group or are odd."""
    code = payload[position]
    if code == 0xC0:
        end, count = position + 2 + payload[position + 1], payload[position + 2]
        position += 3
    elif code == 0xD0:
        end, count = position + 5 + _unpack_uint(payload, position + 1)[0], _unpack_uint(payload, position + 5)[0]
        position += 9
    elif code == 0x45:  # an empty list
        return position + 1
    else:
        return -1
    if count <= _GROUP_ID:
        return end
    for _ in range(_GROUP_ID):
        code = payload[position]
        width = _WIDTHS[code]
        if width:
            position += width
        elif code in (0xA1, 0xA3, 0xA0):
            position += 2 + payload[position + 1]
        elif code in (0xB1, 0xB0, 0xB3):
            position += 5 + _unpack_uint(payload, position + 1)[0]
        else:
            return -1
    return end if payload[position] == 0x40 else -1


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


def _kept_header(header: bytes) -> bytes:
    """Return what a message keeps of its header."""
    old = Message(header).header()
    if old is None or (old.durable is None and old.priority is None):
        return b""
    return encode_header(Header(old.durable, old.priority))
