"""Frames come out whole whatever the pieces they came in, and what is too large is refused before it is kept."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.amqp.conditions import FRAMING_ERROR, AmqpError
from pairbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, FrameSplitter, frame

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy


def _all_frames(splitter: FrameSplitter) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    while (extent := splitter.next_frame()) is not None:
        frame_type, channel, start, end = extent
        found.append((frame_type, channel, splitter.buffer[start:end]))
    return found


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(marks)]


FRAMES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 65535), st.binary(max_size=100)), max_size=8)


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=30))
@unhurried
def test_frames_come_out_whole_whatever_the_pieces(frames: list[tuple[int, int, bytes]], places: list[int]) -> None:
    splitter = FrameSplitter(512)
    found: list[tuple[int, int, bytes]] = []
    for piece in cuts(b"".join(frame(channel, body, kind) for kind, channel, body in frames), places):
        splitter.feed(piece)
        found += _all_frames(splitter)
    assert found == frames


def test_an_extended_header_is_skipped_and_an_empty_frame_has_no_body() -> None:
    splitter = FrameSplitter(512)
    splitter.feed(b"\x00\x00\x00\x0d\x03\x00\x00\x01" + b"more" + b"!" + EMPTY_FRAME)
    assert _all_frames(splitter) == [(0, 1, b"!"), (0, 0, b"")]


@pytest.mark.parametrize(
    "head",
    [
        "00 00 02 01 02 00 00 00",
        "ff ff ff ff 02 00 00 00",
        "00 00 00 07 02 00 00 00",
        "00 00 00 00 02 00 00 00",
        "00 00 00 08 01 00 00 00",
        "00 00 00 08 03 00 00 00",
    ],
)
def test_a_frame_too_large_too_small_or_with_its_body_elsewhere_is_a_framing_error(head: str) -> None:
    splitter = FrameSplitter(512)
    splitter.feed(bytes.fromhex(head))
    with pytest.raises(AmqpError) as caught:
        splitter.next_frame()
    assert caught.value.condition == FRAMING_ERROR


def test_a_frame_that_comes_byte_by_byte_is_copied_once() -> None:
    """Not once per byte: that would be quadratic."""
    splitter = FrameSplitter(1 << 20)
    data = frame(0, bytes(200_000))
    for position in range(0, len(data) - 1, 7):
        splitter.feed(data[position : min(position + 7, len(data) - 1)])
        assert splitter.next_frame() is None
        assert splitter.buffer == b""
    splitter.feed(data[-1:])
    assert splitter.next_frame() == (0, 0, 8, len(data))


@given(st.lists(st.integers(0, 40), max_size=20))
@unhurried
def test_a_header_comes_out_whole_and_frames_after_it(places: list[int]) -> None:
    splitter = FrameSplitter(512)
    header = None
    found: list[tuple[int, int, bytes]] = []
    for piece in cuts(AMQP_HEADER + frame(1, b"abc"), places):
        splitter.feed(piece)
        if header is None:
            header = splitter.next_header()
        if header is not None:
            found += _all_frames(splitter)
    assert header == AMQP_HEADER
    assert found == [(0, 1, b"abc")]


@pytest.mark.parametrize(("data", "header"), [(b"GET", b"GET"), (SASL_HEADER, SASL_HEADER), (b"AM", None), (b"", None)])
def test_what_cannot_become_a_header_is_told_at_once(data: bytes, header: bytes | None) -> None:
    splitter = FrameSplitter(512)
    splitter.feed(data)
    assert splitter.next_header() == header
