"""Where things lie in plain parked messages, worked out once for all that are laid out alike.

A broker lays out the messages of a queue alike, and an application's messages differ in what their properties say and
not in what they are. So one message tells where the numbers lie in the next ones, and which bytes must be the same for
that to hold: constructors, names, and the sizes of the standard properties.
"""

# ruff: noqa: PLR2004 (codes are AMQP's)

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pairbus.amqp.decoder import skip
from pairbus.amqp.message import Message, encode_header
from pairbus.amqp.sections import Header
from pairbus.core.envelope import PATH
from pairbus.messages.annotations import (
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MESSAGE_STATE,
    SEQUENCE_NUMBER,
)

PATH_ENTRY: Final = b"\xa1" + bytes((len(PATH),)) + PATH.encode() + b"\xa1"
"""How the destination begins, which parking puts first among the application properties."""
_NUMBER: Final = SEQUENCE_NUMBER.encode()
_ENQUEUED: Final = ENQUEUED_TIME.encode()
_LOCKED: Final = LOCKED_UNTIL.encode()
_STAMPS: Final = frozenset((_NUMBER, _ENQUEUED, _LOCKED))
_DROPPED: Final = frozenset((ENQUEUED_SEQUENCE_NUMBER.encode(), MESSAGE_STATE.encode()))
"""What a broker may say besides, and nobody needs."""
_LOCK_TOKEN: Final = b"\x00\x53\x71\xc1\x24\x02\xa3\x10" + LOCK_TOKEN.encode() + b"\x98"
"""How the delivery annotations of a message under lock begin, which say nothing else: the token follows."""
_GROUP_ID: Final = 10
_FORMATS: Final = {0x81: "q", 0x83: "q", 0x55: "b"}
"""How numbers and times are unpacked, by their constructors."""

_unpack_uint = struct.Struct(">I").unpack_from


@dataclass(frozen=True, slots=True)
class Layout:
    """How messages are laid out, as far as the destination.

    :ivar numbers_of: a message's sequence number, when it was enqueued and until when it is locked, the size of its
        application properties, and that of the destination.
    :ivar mask: the bytes that are the same in each, set, as one number whose lowest byte is the first.
    :ivar fixed: what they are.
    :ivar header: what the header becomes when it is sent on.
    :ivar bare_at: where the bare message begins.
    :ivar properties_at: where the application properties begin.
    :ivar sized_at: from where on their size counts.
    :ivar path_at: where the destination begins.
    """

    numbers_of: Callable[[bytes], tuple[int, int, int, int, int]]
    mask: int
    fixed: int
    header: bytes
    bare_at: int
    properties_at: int
    sized_at: int
    path_at: int

    def fits(self, payload: bytes) -> bool:
        """Tell whether a message is laid out so; one that is cut short may seem to be, and has no numbers."""
        return int.from_bytes(payload[: self.path_at], "little") & self.mask == self.fixed


class NotPlainError(Exception):
    """A message has more than a plain one, or is laid out in another way."""


class _Walk:
    """A walk through a message, which tells what is the same in the next ones from what is not.

    :ivar at: where it is; what it has passed over is the same in all, unless it was skipped or is a number.
    """

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 0
        self._mask = bytearray()
        self._format = ">"
        self._numbers = 0

    def take(self, expected: bytes) -> bool:
        """Pass over these bytes, if they are there."""
        found = self.payload.startswith(expected, self.at)
        if found:
            self.at += len(expected)
        return found

    def skip(self, size: int) -> None:
        """Pass over bytes that may be others in the next message."""
        self._pass(size, f"{size}x")

    def number(self, code: str) -> int:
        """Pass over a number; return its place among the numbers."""
        self._pass(struct.calcsize(">" + code), code)
        self._numbers += 1
        return self._numbers - 1

    def _pass(self, size: int, code: str) -> None:
        same = self.at - len(self._mask)
        self._mask += b"\xff" * same + bytes(size)
        self._format += f"{same}x{code}"
        self.at += size

    def end(self) -> tuple[struct.Struct, int]:
        """Return what unpacks the numbers, of which the last is the last that was passed over, and the mask."""
        return struct.Struct(self._format), int.from_bytes(self._mask, "little")


def learn(payload: bytes) -> Layout:
    """Work out how a message is laid out, or raise :class:`NotPlainError`; what is cut short raises anything."""
    walk = _Walk(payload)
    header = _pass_header(walk)
    if walk.take(_LOCK_TOKEN):
        walk.skip(16)
    stamps = _pass_annotations(walk)
    bare_at = walk.at
    if walk.take(b"\x00\x53\x73"):
        _pass_properties(walk)
    properties_at = walk.at
    if walk.take(b"\x00\x53\x74\xc1"):
        size, sized_at = walk.number("B"), walk.at
        walk.skip(1)
    elif walk.take(b"\x00\x53\x74\xd1"):
        size, sized_at = walk.number("I"), walk.at
        walk.skip(4)
    else:
        raise NotPlainError
    if not walk.take(PATH_ENTRY):
        raise NotPlainError
    places = (*stamps, size, walk.number("B"))
    numbers, mask = walk.end()
    fixed = int.from_bytes(payload[: walk.at], "little") & mask
    return Layout(_in_order(numbers, places), mask, fixed, header, bare_at, properties_at, sized_at, walk.at)


def _in_order(numbers: struct.Struct, places: tuple[int, ...]) -> Callable[[bytes], Any]:
    """Return what unpacks numbers in the order of these places."""
    unpack = numbers.unpack_from
    if places == tuple(range(len(places))):
        return unpack

    def in_order(payload: bytes) -> tuple[int, ...]:
        numbers = unpack(payload)
        return tuple([numbers[place] for place in places])

    return in_order


def _pass_header(walk: _Walk) -> bytes:
    """Pass over the header, if there is one, and return what is kept of it."""
    payload = walk.payload
    if not walk.take(b"\x00\x53\x70"):
        return b""
    if payload[3] not in (0xC0, 0x45):
        raise NotPlainError
    walk.at = 5 + payload[4] if payload[3] == 0xC0 else 4
    old = Message(payload[: walk.at]).header()
    if old is None or (old.durable is None and old.priority is None):
        return b""
    return encode_header(Header(old.durable, old.priority))


def _pass_annotations(walk: _Walk) -> tuple[int, int, int]:
    """Pass over the broker's annotations, and return the places of those that are to be known."""
    payload = walk.payload
    if not walk.take(b"\x00\x53\x72\xc1"):
        raise NotPlainError
    end, pairs = walk.at + 1 + payload[walk.at], payload[walk.at + 1] >> 1
    walk.at += 2
    places: dict[bytes, int] = {}
    for _ in range(pairs):
        if payload[walk.at] != 0xA3:
            raise NotPlainError
        at = walk.at + 2 + payload[walk.at + 1]
        name, code = payload[walk.at + 2 : at], payload[at]
        if code not in _FORMATS or (name not in _DROPPED and name not in _STAMPS) or name in places:
            raise NotPlainError
        walk.at = at + 1
        if name in _STAMPS:
            places[name] = walk.number(_FORMATS[code])
        else:
            walk.skip(struct.calcsize(_FORMATS[code]))
    if walk.at != end or len(places) != len(_STAMPS):
        raise NotPlainError
    return places[_NUMBER], places[_ENQUEUED], places[_LOCKED]


def _pass_properties(walk: _Walk) -> None:
    """Pass over the standard properties, which must not have a group; what they say may differ."""
    payload, code = walk.payload, walk.payload[walk.at]
    if code == 0xC0:
        end, count = walk.at + 2 + payload[walk.at + 1], payload[walk.at + 2]
        walk.at += 3
    elif code == 0xD0:
        end, count = walk.at + 5 + _unpack_uint(payload, walk.at + 1)[0], _unpack_uint(payload, walk.at + 5)[0]
        walk.at += 9
    elif code == 0x45:  # an empty list
        end, count = walk.at + 1, 0
        walk.at += 1
    else:
        raise NotPlainError
    for index in range(count):
        code = payload[walk.at]
        if not 0x40 <= code < 0xC0 or (index == _GROUP_ID and code != 0x40):
            raise NotPlainError
        after = skip(payload, walk.at, end)
        walk.at += 1 if code < 0xA0 else 2 if code < 0xB0 else 5  # the constructor, and the size if it has one
        if after > walk.at:
            walk.skip(after - walk.at)
    if walk.at != end:
        raise NotPlainError
