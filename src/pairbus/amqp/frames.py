"""Bytes into frames, whatever the pieces they come in, and protocol headers."""

import struct
from collections.abc import Iterator
from typing import Final

from pairbus.amqp.conditions import FRAMING_ERROR, AmqpError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A heartbeat: a frame without a body."""
MIN_MAX_FRAME_SIZE: Final = 512
"""Every peer takes frames of this size."""

_FRAME_HEAD: Final = struct.Struct(">IBBH")
_unpack_head = _FRAME_HEAD.unpack_from
_pack_head = _FRAME_HEAD.pack
_MIN_OFFSET: Final = 2


def frame(channel: int, body: bytes, frame_type: int = AMQP_FRAME) -> bytes:
    """Put a body into a frame."""
    return frame_head(channel, len(body), frame_type) + body


def frame_head(channel: int, size: int, frame_type: int = AMQP_FRAME) -> bytes:
    """Return what goes before a body of this size."""
    return _pack_head(size + HEADER_SIZE, _MIN_OFFSET, frame_type, channel)


class FrameSplitter:
    """Splits a stream of bytes into frames, without copying them.

    ``feed`` takes what has arrived; then ``next_frame`` (or ``next_header``) is called until it gives ``None``.
    A frame lies in ``buffer`` until the next ``feed``. No more than one incomplete frame is kept, and a frame
    larger than ``max_size``, which may be changed between two frames, is refused when its first bytes are seen.
    ``position`` is where the next frame begins, for a caller that takes whole frames by itself.
    """

    __slots__ = ("_held", "_needed", "buffer", "max_size", "position")

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.buffer = b""
        self.position = 0
        self._held = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they have arrived."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            self.buffer = bytes(self._held)
            self._held = bytearray()
        else:
            self.buffer = data
        self.position = 0

    def next_frame(self) -> tuple[int, int, int, int] | None:
        """Return type, channel, and first and last position in ``buffer`` of the next frame's body, if it is there."""
        position = self.position
        left = len(self.buffer) - position
        if left < HEADER_SIZE:
            self._hold(HEADER_SIZE)
            return None
        size, offset, frame_type, channel = _unpack_head(self.buffer, position)
        if size > self.max_size:
            raise AmqpError(FRAMING_ERROR, f"a frame of {size} bytes; {self.max_size} are allowed")
        if offset < _MIN_OFFSET or offset * 4 > size:
            raise AmqpError(FRAMING_ERROR, f"a frame of {size} bytes whose body begins at {offset * 4}")
        if left < size:
            self._hold(size)
            return None
        self.position = position + size
        return frame_type, channel, position + offset * 4, position + size

    def let_go(self) -> bool:
        """Keep the buffer no longer if nothing is left in it, not even a part of a frame; tell whether that is so."""
        if self.position != len(self.buffer):
            return False
        self.buffer = b""
        self.position = 0
        return True

    def whole_frames(self) -> Iterator[tuple[int, int, int, int]]:
        """Give what ``next_frame`` gives, faster, while frames are there; it then tells why there are no more."""
        buffer = self.buffer
        length = len(buffer)
        position = self.position
        while length - position >= HEADER_SIZE:
            size, offset, frame_type, channel = _unpack_head(buffer, position)
            end = position + size
            if end > length or size > self.max_size or offset < _MIN_OFFSET or offset * 4 > size:
                return
            self.position = end
            yield frame_type, channel, position + offset * 4, end
            position = self.position  # which the caller may have moved on

    def next_header(self) -> bytes | None:
        """Return the protocol header that comes next, if it is there; what cannot become one is returned at once."""
        header = self.buffer[self.position : self.position + HEADER_SIZE]
        if len(header) < HEADER_SIZE and AMQP_HEADER.startswith(header[:4]):
            self._hold(HEADER_SIZE)
            return None
        self.position += len(header)
        return header

    def _hold(self, needed: int) -> None:
        if not self._held:  # else nothing has come that could change what is needed
            self._held = bytearray(self.buffer[self.position :])
            self._needed = needed
        self.buffer = b""
        self.position = 0
