"""Transfers that come together are read as they would be one by one, whatever they are."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairbus.amqp.composites import encode_composite
from pairbus.amqp.connection import Connection, Side
from pairbus.amqp.events import DeliveriesReceived, Event, LinkRequested
from pairbus.amqp.frames import AMQP_HEADER, frame
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import BATCH_FORMAT, SENDER, Attach, Begin, Flow, Open, Source, Target, Transfer
from pairbus.amqp.receiver import ReceiverLink

FIRST_ID = 250  # ids of one byte, and of four


@dataclass(frozen=True)
class Piece:
    """A frame of a peer: a transfer, or a flow."""

    channel: int = 0
    handle: int = 0
    tag: bytes = b"tagged"
    message_format: int | None = 0
    settled: bool = False
    more: bool = False
    aborted: bool = False
    continues: bool = False
    payload: bytes = b"p" * 39
    extra_head: bytes = b""
    is_flow: bool = False

    def encoded(self, number: int) -> bytes:
        if self.is_flow:
            return frame(self.channel, encode_composite(Flow(0, 100, 0, 100)))
        transfer = Transfer(
            self.handle, number, self.tag, self.message_format, self.settled, self.more, aborted=self.aborted
        )
        performative = encode_composite(transfer)
        if self.continues:  # says nothing but the handle
            performative = b"\x00\x53\x14\xc0\x03\x01\x52" + bytes((self.handle,))
        body = performative + self.payload
        whole = frame(self.channel, body)
        if not self.extra_head:
            return whole
        size, offset = len(whole) + len(self.extra_head), 2 + len(self.extra_head) // 4
        return size.to_bytes(4) + bytes((offset,)) + whole[5:8] + self.extra_head + body


usual = st.builds(Piece, handle=st.sampled_from([0, 1, 1, 1, 2]), payload=st.binary(max_size=60))
odd = st.builds(
    Piece,
    channel=st.integers(0, 2),
    handle=st.integers(0, 3),
    tag=st.sampled_from([b"tagged", b"", b"another"]),
    message_format=st.sampled_from([0, None, BATCH_FORMAT]),
    settled=st.booleans(),
    more=st.booleans(),
    aborted=st.booleans(),
    continues=st.booleans(),
    payload=st.binary(max_size=60),
    extra_head=st.sampled_from([b"", b"", b"\x00\x00\x00\x2f\x02\x00\x00\x01", b"head"]),
    is_flow=st.booleans(),
)
pieces = st.lists(st.one_of(usual, usual, usual, usual, odd), max_size=30)
settings = st.fixed_dictionaries(
    {},
    optional={
        "enforce_credit": st.booleans(),
        "incoming_window": st.sampled_from([4, 8, 1000]),
        "replenish_window": st.booleans(),
        "max_message_size": st.sampled_from([40, 1000]),
    },
)


def attached(options: dict[str, Any], credit: int) -> Connection:
    """Return a server's connection to which a peer has attached three links on each of two sessions."""
    made = Connection(Side.SERVER, ConnectionOptions("s", trusted=True, **options))
    opening = AMQP_HEADER + frame(0, encode_composite(Open("c")))
    for channel in range(2):
        opening += frame(channel, encode_composite(Begin(None, 0, 1000, 1000)))
        for handle in range(3):
            attach = Attach(f"l{handle}", handle, SENDER, source=Source("q"), target=Target("q"))
            attach.initial_delivery_count = 0
            opening += frame(channel, encode_composite(attach))
    for event in made.receive_data(opening, 0.0):
        if isinstance(event, LinkRequested):
            event.link.accept()
            assert isinstance(event.link, ReceiverLink)
            event.link.grant(credit)
    made.data_to_send()
    return made


def told(events: list[Event]) -> list[object]:
    said: list[object] = []
    for event in events:
        if isinstance(event, DeliveriesReceived):
            said += [(event.link.session.channel, event.link.name, delivery) for delivery in event.deliveries]
        else:
            said.append(type(event).__name__)
    return said


def state(connection: Connection) -> list[object]:
    return [
        (session.channel, session.state, session.next_incoming_id, session.incoming_window,
         [(link.name, link.state, link.credit, link.delivery_count) for link in session.links.values()])
        for session in connection.sessions.values()
    ]  # fmt: skip


@given(pieces, settings, st.sampled_from([3, 1000]), st.integers(0, 3000))
@example([Piece()] * 20, {}, 1000, 800)
@example([Piece()] * 20, {}, 1000, 830)
@example([Piece(handle=1 + index // 10 % 2) for index in range(40)], {}, 1000, 0)
@example([Piece()] * 20, {"enforce_credit": True}, 15, 300)
@example([Piece()] * 20, {"incoming_window": 8}, 1000, 0)
@example([Piece()] * 20, {"incoming_window": 12, "replenish_window": False}, 1000, 0)
@example([*[Piece()] * 9, Piece(payload=b"x" * 41), *[Piece()] * 9], {"max_message_size": 40}, 1000, 0)
@example([*[Piece()] * 9, Piece(aborted=True), Piece(aborted=True), Piece()], {}, 1000, 0)
@example([*[Piece()] * 9, Piece(more=True), Piece(continues=True), *[Piece()] * 9], {}, 1000, 0)
@example([*[Piece()] * 9, Piece(extra_head=b"\x00\x00\x00\x2f\x02\x00\x00\x01"), Piece(channel=1)], {}, 1000, 0)
def test_what_comes_at_once_is_what_comes_frame_by_frame(
    given: list[Piece], options: dict[str, Any], credit: int, cut: int
) -> None:
    compare([piece.encoded(FIRST_ID + index) for index, piece in enumerate(given)], options, credit, cut)


@pytest.mark.parametrize("payload", [b"", b"\x70", b"\x70\x00\x00\x01\x00\xa0\x06tagged", b"\x70" * 5 + b"\xa0\xff"])
def test_wherever_it_is_cut(payload: bytes) -> None:
    given = [Piece(handle=1, more=True), Piece(handle=1, continues=True, payload=payload), Piece(), Piece(), Piece()]
    frames = [piece.encoded(1000 + index) for index, piece in enumerate(given)]
    for cut in range(len(b"".join(frames))):
        compare(frames, {}, 1000, cut)


def compare(frames: list[bytes], options: dict[str, Any], credit: int, cut: int) -> None:
    at_once, one_by_one = attached(options, credit), attached(options, credit)
    data = b"".join(frames)
    together = told([*at_once.receive_data(data[:cut], 1.0), *at_once.receive_data(data[cut:], 1.0)])
    apart = told([event for each in frames for event in one_by_one.receive_data(each, 1.0)])
    assert together == apart
    assert state(at_once) == state(one_by_one)
    assert at_once.data_to_send() == one_by_one.data_to_send()
