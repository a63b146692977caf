"""Fast paths for the frames that carry the traffic: transfers, dispositions, flows, and the properties of messages.

Peers repeat themselves: from one transfer of a link to the next only the delivery's id and tag change (AMQP 1.0,
section 2.7.5). What follows them in the frame is looked up whole, as bytes, in a small table of tails that were
decoded before; what is not there is decoded in the general way, and remembered if it is short and plain.

Skipped: the general decoder's calls per field. That is safe because a reader takes the position of the list's
constructor, after the descriptor, and accepts exactly what the general decoder accepts. ``python -m bench.amqp_codec``
measures what a frame costs, beside the codec of the official SDK.
"""

# ruff: noqa: C901, PLR0912, PLR2004 (one pass without calls is the point; constructor bytes are the specification's)

import struct
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from pairbus.amqp import frames
from pairbus.amqp.composites import decode_one, decode_performative, encode_composite
from pairbus.amqp.conditions import DECODE_ERROR, AmqpError
from pairbus.amqp.decoder import MAX_COUNT, MAX_NESTING, decode, decode_next
from pairbus.amqp.encoder import encode, encode_boolean, encode_uint
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Disposition,
    Flow,
    Map,
    Transfer,
)
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Described, Timestamp, Value

TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
FLOW: Final = 0x13

_T = TypeVar("_T")

_KEPT_TAILS: Final = 256
_LONGEST_TAIL: Final = 48
_NO_TAIL: Final = slice(0, 0)

_unpack_uint = struct.Struct(">I").unpack_from
_pack_uint = struct.Struct(">I").pack


class TransferTail(NamedTuple):
    """The fields of a transfer after its tag."""

    message_format: int | None
    settled: bool
    more: bool
    rcv_settle_mode: int | None
    state: DeliveryState | None
    aborted: bool


class DispositionTail(NamedTuple):
    """The fields of a disposition after its range."""

    settled: bool
    state: DeliveryState | None


_transfer_tails: dict[bytes, tuple[int, TransferTail]] = {}
_disposition_tails: dict[bytes, tuple[int, DispositionTail]] = {}


def read_transfer(
    data: bytes, start: int, end: int, max_elements: int
) -> tuple[int, int | None, bytes | None, TransferTail, int]:
    """Return handle, delivery id, tag, the other fields, and where the payload begins."""
    tail_start = stop = 0
    try:
        if data[start] == 0xC0:
            stop = start + 2 + data[start + 1]
            position = start + 3
            code = data[position]
            if code == 0x52:
                handle = data[position + 1]
                position += 2
            elif code == 0x43:
                handle = 0
                position += 1
            else:
                return _transfer(data, start, end, max_elements, _NO_TAIL)
            code = data[position]
            if code == 0x70:
                delivery_id = _unpack_uint(data, position + 1)[0]
                position += 5
            elif code == 0x52:
                delivery_id = data[position + 1]
                position += 2
            else:
                return _transfer(data, start, end, max_elements, _NO_TAIL)
            if data[position] == 0xA0:
                tail_start = position + 2 + data[position + 1]
                if tail_start <= stop <= end:
                    known = _transfer_tails.get(data[tail_start:stop])
                    if known is not None and known[0] == data[start + 2]:
                        return handle, delivery_id, data[position + 2 : tail_start], known[1], stop
    except (IndexError, struct.error):
        pass  # cut short: the general way says what is wrong
    return _transfer(data, start, end, max_elements, slice(tail_start, stop))


class TransferShape(NamedTuple):
    """What transfers of one kind have in common, each of which is a whole delivery in one frame.

    :ivar head: what is between the frame's size and the delivery's id.
    :ivar tag_head: what is between the id and the tag.
    :ivar layout: all of these, the id and the tag, in one go.
    :ivar overhead: the size of a frame without its payload.
    """

    head: bytes
    tag_head: bytes
    tail: bytes
    layout: struct.Struct
    overhead: int


def transfer_shape(head: bytes, tag_size: int, tail: bytes) -> TransferShape:
    """Lay out transfers once."""
    layout = _layout(len(head), tag_size, len(tail))
    return TransferShape(head, bytes((0xA0, tag_size)), tail, layout, layout.size)


@lru_cache(maxsize=256)
def _layout(head: int, tag: int, tail: int) -> struct.Struct:
    return struct.Struct(f">I{head}sI2s{tag}s{tail}s")


def shape_of(data: bytes, start: int, payload: int) -> TransferShape | None:
    """Return how a transfer is laid out whose list begins at ``start``; None: in a rare way."""
    if data[start] != 0xC0 or data[start + 3] not in (0x43, 0x52):
        return None
    number_at = start + (4 if data[start + 3] == 0x43 else 5)
    tag_at = number_at + 7
    if tag_at > payload or data[number_at] != 0x70 or data[number_at + 5] != 0xA0:
        return None
    tail_at = tag_at + data[number_at + 6]
    if tail_at > payload:
        return None
    return transfer_shape(data[start - 7 : number_at + 1], tail_at - tag_at, data[tail_at:payload])


def _transfer(
    data: bytes, start: int, end: int, max_elements: int, tail_at: slice
) -> tuple[int, int | None, bytes | None, TransferTail, int]:
    frame, payload = decode_performative(data, start - 3, end, max_elements)
    assert isinstance(frame, Transfer)  # noqa: S101 (the descriptor was read; for the type checker)
    tail = transfer_tail(frame)
    if _is_short(tail_at) and frame.state is None:
        _keep(_transfer_tails, data[tail_at], (data[start + 2], tail))
    return frame.handle, frame.delivery_id, frame.delivery_tag, tail, payload


def transfer_tail(frame: Transfer) -> TransferTail:
    """Return what a transfer says after its tag."""
    return TransferTail(
        frame.message_format, bool(frame.settled), frame.more, frame.rcv_settle_mode, frame.state, frame.aborted
    )


def _keep(tails: dict[bytes, _T], key: bytes, value: _T) -> None:
    if len(tails) >= _KEPT_TAILS:
        tails.clear()  # somebody sends many kinds; the usual ones are back after one frame each
    tails[key] = value


def read_disposition(data: bytes, start: int, end: int, max_elements: int) -> tuple[bool, int, int, DispositionTail]:
    """Return role, first and last delivery id, and the other fields."""
    tail_start = stop = 0
    try:
        if data[start] == 0xC0 and data[start + 2] > 3:
            stop = start + 2 + data[start + 1]
            position = start + 3
            code = data[position]
            if 0x41 <= code <= 0x42:
                role = code == 0x41
                position += 1
            elif code == 0x56 and data[position + 1] < 2:
                role = data[position + 1] == 1
                position += 2
            else:
                return _disposition(data, start, end, max_elements, _NO_TAIL)
            code = data[position]
            if code == 0x70:
                first = _unpack_uint(data, position + 1)[0]
                position += 5
            elif code == 0x52:
                first = data[position + 1]
                position += 2
            else:
                return _disposition(data, start, end, max_elements, _NO_TAIL)
            code = data[position]
            if code == 0x70:
                last = _unpack_uint(data, position + 1)[0]
                tail_start = position + 5
            elif code == 0x52:
                last = data[position + 1]
                tail_start = position + 2
            elif code == 0x40:
                last = first
                tail_start = position + 1
            else:
                return _disposition(data, start, end, max_elements, _NO_TAIL)
            if tail_start <= stop == end:
                known = _disposition_tails.get(data[tail_start:stop])
                if known is not None and known[0] == data[start + 2]:
                    return role, first, last, known[1]
    except (IndexError, struct.error):
        pass  # cut short: the general way says what is wrong
    return _disposition(data, start, end, max_elements, slice(tail_start, stop))


def _disposition(
    data: bytes, start: int, end: int, max_elements: int, tail_at: slice
) -> tuple[bool, int, int, DispositionTail]:
    frame, after = decode_performative(data, start - 3, end, max_elements)
    assert isinstance(frame, Disposition)  # noqa: S101 (the descriptor was read; for the type checker)
    if after != end:
        raise AmqpError(DECODE_ERROR, "bytes follow a disposition")
    tail = DispositionTail(frame.settled, frame.state)
    if _is_short(tail_at) and _is_plain(frame.state):
        _keep(_disposition_tails, data[tail_at], (data[start + 2], tail))
    return frame.role, frame.first, frame.first if frame.last is None else frame.last, tail


def _is_short(tail_at: slice) -> bool:
    return 0 < tail_at.start <= tail_at.stop <= tail_at.start + _LONGEST_TAIL


def _is_plain(state: DeliveryState | None) -> bool:
    """Tell whether nobody can change the state, so that one object may stand for many."""
    return state is None or state is ACCEPTED or state is RELEASED


def read_flow(data: bytes, start: int, end: int, max_elements: int) -> Flow:
    """Read a flow without properties in one pass; any other goes the general way."""
    values: list[int | None] = []
    flags: list[bool] = []
    try:
        count, stop = data[start + 2], end
        if data[start] == 0xC0 and start + 2 + data[start + 1] == end and count <= 11:
            position = start + 3
            if count == 11 and data[end - 1] == 0x40:  # no properties
                count -= 1
                stop -= 1
            for index in range(count):
                code = data[position]
                if code == 0x40:
                    position += 1
                    values.append(None) if index < 8 else flags.append(False)
                elif index < 8 and code == 0x52:
                    values.append(data[position + 1])
                    position += 2
                elif index < 8 and code == 0x70:
                    values.append(_unpack_uint(data, position + 1)[0])
                    position += 5
                elif index < 8 and code == 0x43:
                    values.append(0)
                    position += 1
                elif index >= 8 and 0x41 <= code <= 0x42:
                    flags.append(code == 0x41)
                    position += 1
                elif index >= 8 and code == 0x56 and data[position + 1] < 2:
                    flags.append(data[position + 1] == 1)
                    position += 2
                else:
                    break
            else:
                if position == stop and len(values) > 3 and None not in values[1:4]:
                    return Flow(*values, *flags) if len(values) == 8 else Flow(*values)  # type: ignore[arg-type]
    except (IndexError, struct.error):
        pass  # cut short: the general way says what is wrong
    frame, after = decode_performative(data, start - 3, end, max_elements)
    assert isinstance(frame, Flow)  # noqa: S101 (the descriptor was read; for the type checker)
    if after != end:
        raise AmqpError(DECODE_ERROR, "bytes follow a flow")
    return frame


def read_properties(data: bytes, section: int, start: int, end: int) -> Properties:
    """Read a message's properties: a section that begins at ``section``, whose list begins at ``start``."""
    try:
        if data[start] == 0xC0 and start + 2 + data[start + 1] == end and data[start + 2] <= _PROPERTY_COUNT:
            values: list[Value] = []
            position = start + 3
            for index in range(data[start + 2]):
                code = data[position]
                if code == 0x40:
                    if data[position:end] == _NULLS[index : data[start + 2]]:  # as in most, but for their id
                        return Properties(*values)
                    values.append(None)
                    position += 1
                elif code == 0xA1 and index in _STRINGS:
                    stop = position + 2 + data[position + 1]
                    values.append(data[position + 2 : stop].decode())
                    position = stop
                elif code == 0xA3 and index in _SYMBOLS:
                    values.append(decode_next(data, position, end, _NO_BUDGET)[0])
                    position += 2 + data[position + 1]
                elif code == 0x83 and index in _TIMES and position + 9 <= end:
                    values.append(Timestamp(_unpack_long(data, position + 1)[0]))
                    position += 9
                else:
                    break
            else:
                if position == end:
                    return Properties(*values)
    except (IndexError, UnicodeDecodeError):
        pass  # the general way says what is wrong
    return decode_one(Properties, data, section, end)


def read_map(data: bytes, start: int, end: int) -> Map:
    """Read a map of a message whose constructor is at ``start``: annotations, or the application's properties."""
    try:
        if data[start] == 0xC1 and start + 2 + data[start + 1] == end and data[start + 2] & 1 == 0:
            values: Map = {}
            budget = [MAX_NESTING - 1, MAX_COUNT]
            position = start + 3
            for _ in range(data[start + 2] >> 1):
                code = data[position]
                stop = position + 2 + data[position + 1]
                if code == 0xA1:
                    key = data[position + 2 : stop].decode()
                elif code == 0xA3:
                    key = decode_next(data, position, end, budget)[0]
                else:
                    break
                if data[stop] == 0xA1:
                    position = stop + 2 + data[stop + 1]
                    values[key] = data[stop + 2 : position].decode()
                else:
                    values[key], position = decode_next(data, stop, end, budget)
            else:
                if position == end and len(values) == data[start + 2] >> 1:
                    return values
    except (IndexError, UnicodeDecodeError):
        pass  # the general way says what is wrong
    return decode(data, start, end)[0]


_PROPERTY_COUNT: Final = 13
_NULLS: Final = b"\x40" * _PROPERTY_COUNT
_STRINGS: Final = frozenset((0, 2, 3, 4, 5, 10, 12))
_SYMBOLS: Final = frozenset((6, 7))
_TIMES: Final = frozenset((8, 9))
_NO_BUDGET: Final = [0, 0]
"""A symbol needs none."""

_unpack_long = struct.Struct(">q").unpack_from
_pack_disposition = struct.Struct(">IBBHIBBcBIBI").pack
_pack_link_flow = struct.Struct(">IBBHIBBBIBIBIBIBIBIBIBBBB").pack
_DISPOSITION_HEAD: Final = 0x005315C0
_FLOW_HEAD: Final = 0x005313C0
_SHORT_TAIL: Final = 200
_SETTLED_ACCEPTED: Final = b"\x41\x00\x53\x24\x45\x40"
_ACCEPTED: Final = b"\x42\x00\x53\x24\x45\x40"


def disposition_tail(state: DeliveryState | None, *, settled: bool) -> bytes:
    """Encode the fields of a disposition after its range."""
    if state is ACCEPTED:
        return _SETTLED_ACCEPTED if settled else _ACCEPTED
    if state is None:
        return b"\x41\x40\x40" if settled else b"\x42\x40\x40"
    encoded = encode(state) if isinstance(state, Described) else encode_composite(state)
    return (b"\x41" if settled else b"\x42") + encoded + b"\x40"


def disposition_frame(channel: int, first: int, last: int, tail: bytes, *, role: bool) -> bytes:
    """Encode a whole frame that tells the state of a range of deliveries."""
    size = len(tail)
    if size <= _SHORT_TAIL:
        code = b"\x41" if role else b"\x42"
        return (
            _pack_disposition(size + 25, 2, 0, channel, _DISPOSITION_HEAD, size + 12, 6, code, 0x70, first, 0x70, last)
            + tail
        )
    fields = encode_boolean(role) + encode_uint(first) + encode_uint(last) + tail
    return frames.frame(channel, b"\x00\x53\x15\xd0" + _pack_uint(len(fields) + 4) + _pack_uint(6) + fields)


def link_flow_frame(channel: int, flow: Flow) -> bytes:
    """Encode a whole frame with a session's and a link's flow state; every count must be set."""
    return _pack_link_flow(
        53, 2, 0, channel, _FLOW_HEAD, 40, 11,
        0x70, flow.next_incoming_id, 0x70, flow.incoming_window, 0x70, flow.next_outgoing_id,
        0x70, flow.outgoing_window, 0x70, flow.handle, 0x70, flow.delivery_count, 0x70, flow.link_credit,
        0x40, 0x41 if flow.drain else 0x42, 0x41 if flow.echo else 0x42, 0x40,
    )  # fmt: skip
