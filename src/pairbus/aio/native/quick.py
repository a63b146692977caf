"""Parked messages as most of them are, read and restored without decoding them.

A message that was parked with nothing but its destination needs little: its number and the end of its lock are found
where they lie in the bytes, and to restore it the broker's annotations and one application property are cut out. A
message that has more (a session, a time to live, a schedule, annotations of its own), or is laid out in another way,
is *not plain* and goes the general way, :mod:`pairbus.aio.relabel`, which does the same with any message.
"""

# ruff: noqa: C901, PLR0911, PLR0912, PLR0915, PLR0917, PLR1714, PLR2004 (one pass without calls is the point; codes are AMQP's)

import struct
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from pairbus.aio.transport import Received
from pairbus.amqp.message import Message, encode_header
from pairbus.amqp.sections import Header
from pairbus.core.burst import Parked
from pairbus.core.envelope import PATH, RESERVED, Label
from pairbus.core.routing import Deliver

PLAIN: Final = Label()
"""Stands for the label of a plain message, whose application properties have not been read."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PATH: Final = PATH.encode()
_OURS: Final = frozenset(name.encode() for name in RESERVED)
_NUMBER: Final = b"x-opt-sequence-number"
_ENQUEUED: Final = b"x-opt-enqueued-time"
_LOCKED: Final = b"x-opt-locked-until"
_DROPPED: Final = frozenset((b"x-opt-enqueue-sequence-number", b"x-opt-message-state"))
"""What a broker may say besides, and nobody needs."""
_GROUP_ID: Final = 10
_WIDTHS: Final = tuple((0, 0, 0, 0, 1, 2, 3, 5, 9, 17)[code >> 4] if 0x40 <= code < 0xA0 else 0 for code in range(256))
"""How many bytes a value takes with its constructor, if that says it: else 0."""

_unpack_long = struct.Struct(">q").unpack_from
_unpack_uint = struct.Struct(">I").unpack_from
_pack_uint = struct.Struct(">I").pack


class PlainParked(Parked):
    """A plain message; its label is read only if somebody wants to know it."""

    __slots__ = ("_deliver", "bare_at", "cut", "payload", "properties_at")

    def __init__(
        self, number: int, payload: bytes, deliver: Deliver, bare_at: int, properties_at: int, cut: tuple[int, int]
    ) -> None:
        self.sequence_number = number
        self.size = len(payload)
        self.partition_key = None
        self.payload = payload
        self.bare_at = bare_at
        self.properties_at = properties_at
        self.cut = cut
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
    def names_session(self) -> bool:
        """It is of no session."""
        return False


class PlainReceived(Received):
    """A plain message under lock."""

    __slots__ = ()

    def restored(self, label: Label, now: datetime) -> bytes:
        """Cut out what parking has added; all other bytes are carried as they are."""
        if label is not PLAIN:
            return super().restored(label, now)
        parked = self.parked
        assert isinstance(parked, PlainParked)  # noqa: S101 (made below)
        payload, at, (start, end) = self.payload, parked.properties_at, parked.cut
        code, cut = payload[at + 3], end - start
        if code == 0xC1:
            count, entries = payload[at + 5] - 2, at + 6
            size = payload[at + 4] - cut
            head = b"\x00\x53\x74\xc1" + bytes((size, count))
        else:
            count, entries = _unpack_uint(payload, at + 8)[0] - 2, at + 12
            size = _unpack_uint(payload, at + 4)[0] - cut
            head = b"\x00\x53\x74\xd1" + _pack_uint(size) + _pack_uint(count)
        own = _own_header(payload[: parked.bare_at]) + payload[parked.bare_at : at]
        if not count:
            return own + payload[end:]
        return own + head + payload[entries:start] + payload[end:]


def read_plain(payload: bytes, handle: object) -> PlainReceived | None:
    """Read a message, or return None if it is not plain."""
    try:
        return _read(payload, handle)
    except (IndexError, struct.error, UnicodeDecodeError):
        return None  # cut short: the general way says what is wrong


def _read(payload: bytes, handle: object) -> PlainReceived | None:
    length = len(payload)
    position = 0
    if payload[:3] == b"\x00\x53\x70":
        if payload[3] == 0xC0:
            position = 5 + payload[4]
        elif payload[3] == 0x45:  # an empty list
            position = 4
        else:
            return None
    if payload[position : position + 4] != b"\x00\x53\x72\xc1":
        return None
    bare_at = position + 5 + payload[position + 4]
    number = enqueued = locked = -1
    count = payload[position + 5]
    position += 6
    for _ in range(count >> 1):
        if payload[position] != 0xA3:
            return None
        end = position + 2 + payload[position + 1]
        name = payload[position + 2 : end]
        code = payload[end]
        if code == 0x81 or code == 0x83:
            value = _unpack_long(payload, end + 1)[0]
            position = end + 9
        elif code == 0x55:
            value = payload[end + 1]  # below 128 as a broker numbers, and else not plain
            if value > 127:
                return None
            position = end + 2
        else:
            return None
        if name == _NUMBER:
            number = value
        elif name == _ENQUEUED:
            enqueued = value
        elif name == _LOCKED:
            locked = value
        elif name not in _DROPPED:
            return None
    if position != bare_at or number < 0 or locked < 0:
        return None
    if payload[position : position + 3] == b"\x00\x53\x73":
        after = _after_properties(payload, position + 3)
        if after < 0:
            return None
        position = after
    properties_at = position
    if payload[position : position + 3] != b"\x00\x53\x74":
        return None
    code = payload[position + 3]
    if code == 0xC1:
        end, count = position + 5 + payload[position + 4], payload[position + 5]
        position += 6
    elif code == 0xD1:
        end, count = position + 8 + _unpack_uint(payload, position + 4)[0], _unpack_uint(payload, position + 8)[0]
        position += 12
    else:
        return None
    deliver: Deliver | None = None
    cut = (0, 0)
    for _ in range(count >> 1):
        start = position
        if payload[position] != 0xA1:
            return None
        position += 2 + payload[position + 1]
        name = payload[start + 2 : position]
        code = payload[position]
        value = position
        width = _WIDTHS[code]
        if width:
            position += width
        elif code == 0xA1 or code == 0xA0 or code == 0xA3:
            position += 2 + payload[position + 1]
        elif code == 0xB1 or code == 0xB0:
            position += 5 + _unpack_uint(payload, position + 1)[0]
        else:
            return None
        if name in _OURS:
            if name != _PATH or deliver is not None or code != 0xA1:
                return None
            deliver = _deliver(payload[value + 2 : position])
            cut = (start, position)
    if position != end or deliver is None or not _is_body(payload, end, length):
        return None
    parked = PlainParked(number, payload, deliver, bare_at, properties_at, cut)
    return PlainReceived(parked, payload, _moment(locked), None if enqueued < 0 else _moment(enqueued), handle)


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
        elif code == 0xA1 or code == 0xA3 or code == 0xA0:
            position += 2 + payload[position + 1]
        elif code == 0xB1 or code == 0xB0 or code == 0xB3:
            position += 5 + _unpack_uint(payload, position + 1)[0]
        else:
            return -1
    return end if payload[position] == 0x40 else -1


def _is_body(payload: bytes, position: int, length: int) -> bool:
    """Tell whether nothing but sections of a body of data comes there."""
    while position < length:
        if payload[position : position + 3] != b"\x00\x53\x75":
            return False
        if payload[position + 3] == 0xB0:
            position += 8 + _unpack_uint(payload, position + 4)[0]
        elif payload[position + 3] == 0xA0:
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


def _own_header(head: bytes) -> bytes:
    """Return what a message keeps of its header, which comes first in these bytes, if it is there at all."""
    if not head.startswith(b"\x00\x53\x70"):
        return b""
    return _kept_header(head[: 5 + head[4]])


@lru_cache(maxsize=512)
def _kept_header(header: bytes) -> bytes:
    old = Message(header).header()
    if old is None or (old.durable is None and old.priority is None):
        return b""
    return encode_header(Header(old.durable, old.priority))
