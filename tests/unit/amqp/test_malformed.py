"""Whatever a peer sends: no exception, an end with an AMQP condition or none, valid bytes back, bounded memory."""

import random
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.composites import decode_performative, decode_sasl_frame, encode_composite
from pairbus.amqp.connection import Connection, ConnectionState, Side
from pairbus.amqp.encoder import encode
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkDetached,
    LinkRequested,
    SessionBegun,
    SessionEnded,
)
from pairbus.amqp.frames import AMQP_HEADER, HEADER_SIZE, SASL_HEADER, FrameSplitter, frame
from pairbus.amqp.loopback import Loopback
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import (
    ACCEPTED,
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.sasl import ANONYMOUS, PLAIN, SaslClient, SaslServer
from pairbus.amqp.sender import SenderLink
from pairbus.amqp.types import Array, Symbol


def options(name: str, *, trusted: bool = True) -> ConnectionOptions:
    return ConnectionOptions(name, trusted=trusted, max_frame_size=2048, idle_timeout=60, max_message_size=10_000)


def respond(events: list[Event]) -> None:
    """Do with events what a broker does."""
    for event in events:
        if isinstance(event, LinkRequested):
            _answer(event.link)
        elif isinstance(event, FlowChanged) and isinstance(event.link, SenderLink):
            _deliver(event.link)
        elif isinstance(event, DeliveriesReceived):
            for each in event.deliveries:
                event.link.settle(each, ACCEPTED if len(each.payload) % 2 else Rejected(Error(Symbol("odd"))))
        elif isinstance(event, DispositionReceived):
            for delivery in event.deliveries:
                delivery.link.settle(delivery, event.state)


def _answer(link: SenderLink | ReceiverLink) -> None:
    if link.name.startswith("no"):
        link.refuse(Error(Symbol("amqp:not-found"), "no"))
        return
    link.accept()
    if isinstance(link, ReceiverLink):
        link.grant(100, echo=True)


def _deliver(link: SenderLink) -> None:
    while link.is_attached and link.credit > 0 and len(link.session.sent) < 20:
        link.send(b"m" * 3000, b"tag", settled=link.credit % 3 == 0)
    if link.draining:
        link.drained()


def record() -> list[bytes]:
    """All that a client says in a conversation that uses everything, in the pieces between the server's answers."""
    client = Connection(Side.CLIENT, options("client"), sasl=SaslClient(PLAIN, username="u", password="p"))  # noqa: S106
    server = Connection(Side.SERVER, options("server"), sasl=SaslServer())
    said: list[bytes] = []

    def exchange() -> list[Event]:
        told: list[Event] = []
        while True:
            data = client.data_to_send()
            said.append(data)
            respond(server.receive_data(data, 0.0))
            answer = server.data_to_send()
            told += client.receive_data(answer, 0.0)
            if not data and not answer:
                return told

    exchange()
    session = client.begin()
    sender = session.attach_sender("up", Target("q"), properties={Symbol("a"): Array(0x70, [1, 2])})
    receiver = session.attach_receiver("down", Source("q", filter={Symbol("f"): None}, capabilities=(Symbol("x"),)))
    session.attach_receiver("no", Source("nowhere"))
    exchange()
    for size in (0, 10, 1000, 5000):
        sender.send(b"x" * size, b"tag-%d" % size)
    receiver.grant(4, drain=True)
    for event in exchange():
        if isinstance(event, DeliveriesReceived):
            for delivery in event.deliveries:
                receiver.settle(delivery, ACCEPTED, settled=False)
    exchange()
    other = client.begin()
    other.attach_sender("twice", Target("q"))
    exchange()
    receiver.detach()
    other.end()
    exchange()
    client.close()
    exchange()
    return [piece for piece in said if piece]


CONVERSATION = record()


def check_output(data: bytes) -> None:
    """Everything that was written is headers and well-formed frames."""
    while data:
        if data[:4] == b"AMQP":
            data = data[HEADER_SIZE:]
            continue
        splitter = FrameSplitter(1 << 20)
        splitter.feed(data)
        found = splitter.next_frame()
        assert found is not None
        kind, _channel, start, end = found
        if start != end:
            (decode_sasl_frame if kind else decode_performative)(data, start, end)
        data = data[end:]


def check_events(connection: Connection, events: list[Event]) -> None:
    """Exactly one end for each beginning, and the right kind of reason."""
    links = [event.link for event in events if isinstance(event, LinkRequested)]
    sessions = [event.session for event in events if isinstance(event, SessionBegun)]
    closed = [event for event in events if isinstance(event, Closed)]
    assert len(closed) == (connection.state is ConnectionState.CLOSED)
    if not closed:
        return
    assert events[-1] is closed[0]
    assert sorted(map(id, links)) == sorted(id(e.link) for e in events if isinstance(e, LinkDetached))
    assert sorted(map(id, sessions)) == sorted(id(e.session) for e in events if isinstance(e, SessionEnded))
    error = closed[0].error
    assert closed[0].by_peer or (error is not None and error.condition.startswith("amqp:"))


def feed(data: list[bytes], sizes: Callable[[], int], *, trusted: bool = True) -> list[Event]:
    """Send pieces, each cut further, to a server, let it answer, and see that it ends well at the latest by itself."""
    server = Connection(Side.SERVER, options("server", trusted=trusted), sasl=SaslServer())
    told: list[Event] = []
    written: list[bytes] = []
    for piece in data:
        position = 0
        while position < len(piece):
            size = sizes()
            events = server.receive_data(piece[position : position + size], 0.0)
            told += events
            respond(events)
            written.append(server.data_to_send())
            position += size
    told += server.tick(1000.0)
    written.append(server.data_to_send())
    assert server.state is ConnectionState.CLOSED
    check_events(server, told)
    check_output(b"".join(written))
    return told


def test_the_recorded_conversation_is_taken_to_its_end() -> None:
    told = feed(CONVERSATION, lambda: 100)
    assert isinstance(told[-1], Closed)
    assert told[-1].by_peer
    assert len([event for event in told if isinstance(event, LinkRequested)]) == 4
    assert sum(len(event.deliveries) for event in told if isinstance(event, DeliveriesReceived)) == 4
    assert any(isinstance(event, DispositionReceived) and event.deliveries for event in told)


def _mutate(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        at = chance.randrange(len(damaged))
        match chance.randrange(6):
            case 0:
                damaged[at] = chance.randrange(256)
            case 1:
                damaged[at] ^= 1 << chance.randrange(8)
            case 2:
                del damaged[at : at + chance.choice((1, 2, 8, 100))]
            case 3:
                damaged[at:at] = chance.randbytes(chance.choice((1, 4, 30)))
            case 4:
                other = chance.randrange(len(damaged))
                damaged[at:at] = damaged[other : other + chance.choice((8, 50, 300))]
            case _:
                damaged[at] = chance.choice((0x40, 0x43, 0x45, 0x00, 0xFF, 0x70, 0xC0, 0xD0, 0xF0))
        if not damaged:
            return b""
    return bytes(damaged)


@given(st.integers(0, 1 << 62), st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_damaged_conversation_ends_well(seed: int, trusted: bool) -> None:  # noqa: FBT001
    chance = random.Random(seed)
    pieces = list(CONVERSATION)
    for _ in range(chance.choice((1, 1, 2, 5))):
        number = chance.randrange(len(pieces))
        pieces[number] = _mutate(pieces[number] or b"x", chance)
    feed(pieces, lambda: chance.choice((1, 10, 300, 5000)), trusted=trusted)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_random_bytes_from_the_start_end_well(data: bytes) -> None:
    feed([data], lambda: 100)


OPENED = (
    SASL_HEADER
    + frame(0, encode_composite(SaslInit(ANONYMOUS)), 1)
    + AMQP_HEADER
    + frame(0, encode_composite(Open("c")))
    + frame(0, encode_composite(Begin(None, 0, 100, 100)))
    + frame(0, encode_composite(Attach("l", 0, SENDER, source=Source(), target=Target(), initial_delivery_count=0)))
)
OPENED_PIECES = [
    OPENED,
    frame(0, encode_composite(Attach("m", 1, RECEIVER, source=Source("q"), target=Target()))),
    frame(0, encode_composite(Flow(None, 5, 0, 100, 1, 0, 8))),
]


@given(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 9]), st.binary(max_size=80)), max_size=8))
@settings(deadline=None)
def test_random_frames_on_an_open_connection_end_well(frames: list[tuple[int, bytes]]) -> None:
    feed([OPENED, b"".join(frame(channel, body) for channel, body in frames)], lambda: 200)


@given(st.lists(st.tuples(st.integers(0x10, 0x1A), st.binary(max_size=60)), min_size=1, max_size=6))
@settings(deadline=None)
def test_frames_with_random_fields_end_well(frames: list[tuple[int, bytes]]) -> None:
    bodies = (b"\x00\x53" + bytes((code, 0xC0, len(rest) + 1, 3)) + rest for code, rest in frames)
    feed([OPENED, b"".join(frame(0, body) for body in bodies)], lambda: 1 << 20)


def _any_frame(chance: random.Random) -> Composite:
    """Make a well-formed frame that may or may not fit what went before."""
    small = chance.choice((0, 0, 1, 2, 3))
    number = chance.choice((0, 1, 2, 3, 50, 0x7FFFFFFF, 0xFFFFFFFF))
    flag, other = chance.random() < 0.3, chance.random() < 0.3
    error = Error(Symbol("amqp:x")) if chance.random() < 0.3 else None
    match chance.randrange(12):
        case 0:
            return Begin(None, number, 1, 100, number) if chance.random() < 0.1 else Disposition(RECEIVER, number)
        case 1 | 2:
            source, target = chance.choice((Source("q"), None)), chance.choice((Target("q"), None))
            count = None if chance.random() < 0.03 else number
            return Attach(f"l{small}", small, flag, source=source, target=target, initial_delivery_count=count)
        case 3 | 4:
            handle = chance.choice((None, small, small))
            credit = chance.choice((None, 1, 5, number))
            return Flow(chance.choice((None, number)), 100, number, 100, handle, number, credit, None, flag, other)
        case 5 | 6 | 7:
            wild = chance.random() < 0.05  # most wild frames are the last ones
            return Transfer(
                small, number if wild else 7, None if wild else b"t", 0, other, flag, aborted=wild or small == 3
            )
        case 8:
            state = chance.choice((ACCEPTED, None, Rejected(error)))
            return Disposition(flag, number, None if chance.random() < 0.9 else 5, settled=other, state=state)
        case 9:
            return Detach(small, flag, error)
        case 10:
            return End(error) if flag else Flow(None, 0, 0, 0)
        case _:
            return Close(error) if chance.random() < 0.1 else Disposition(RECEIVER, 0, 100)


def feed_frames(chance: random.Random) -> list[Event]:
    bodies = [_any_frame(chance) for _ in range(60)]
    pieces = [frame(int(chance.random() < 0.02), encode_composite(body)) for body in bodies]
    return feed([*OPENED_PIECES, *pieces], lambda: chance.choice((50, 1000)))


@given(st.integers(0, 1 << 62))
@settings(max_examples=200, deadline=None)
def test_well_formed_frames_in_any_order_end_well(seed: int) -> None:
    feed_frames(random.Random(seed))


@pytest.mark.parametrize("sasl", [SaslClient(), None])
@given(st.integers(0, 1 << 62))
@settings(max_examples=100, deadline=None)
def test_a_client_survives_a_damaged_server(sasl: SaslClient | None, seed: int) -> None:
    chance = random.Random(seed)
    client = Connection(Side.CLIENT, options("client"), sasl=sasl)
    server = Connection(Side.SERVER, options("server"), sasl=None if sasl is None else SaslServer())
    loop = Loopback(client, server)
    if chance.random() < 0.8:
        loop.exchange()
        session = client.begin()
        session.attach_sender("up", Target("q"))
        session.attach_receiver("down", Source("q"))
    respond(server.receive_data(client.data_to_send(), 0.0))
    told = client.receive_data(_mutate(server.data_to_send() or b"x", chance), 0.0)
    told += client.tick(1000.0)
    assert isinstance(told[-1], Closed)
    check_output(client.data_to_send())


# --- memory before authentication ------------------------------------------------------------------------------------


def _body(channel: int, *performatives: Composite) -> bytes:
    return b"".join(frame(channel, encode_composite(each)) for each in performatives)


def _greedy_map(entries: int) -> dict[Symbol, object]:
    return {Symbol(f"{number}"): [] for number in range(entries)}


_GREEDY_ATTACHES = b"".join(
    _body(
        0,
        Attach(
            f"{number}", number, SENDER, source=Source("s" * 300), target=Target("t" * 300), initial_delivery_count=0,
            properties=_greedy_map(20),
        ),
    )
    for number in range(3)
)  # fmt: skip
_PARTS = b"".join(
    frame(0, encode_composite(Transfer(number, number, b"t", more=True)) + bytes(2700))
    for number in range(3)
    for _ in range(3)
)
GREEDY = {
    "nothing but a header cut short": b"AMQ",
    "a SASL frame cut short": SASL_HEADER + b"\x00\x00\x0f\xff\x02\x01\x00\x00" + bytes(4000),
    "a frame that says it is a gigabyte": AMQP_HEADER + b"\x40\x00\x00\x00\x02\x00\x00\x00" + bytes(4000),
    "an open of empty lists": AMQP_HEADER + frame(0, b"\x00\x53\x10" + encode([[]] * 3000)),
    "an open of nulls out of nothing": AMQP_HEADER
    + frame(0, b"\x00\x53\x10\xc0\x14\x01" + bytes.fromhex("f0 00 00 00 05 00 00 ff ff 40") + bytes(8)),
    "links, parts of messages and half a frame": AMQP_HEADER
    + _body(0, Open("c" * 200, properties=_greedy_map(40)))
    + _body(0, Begin(None, 0, 100, 100))
    + _body(1, Begin(None, 0, 100, 100))
    + _GREEDY_ATTACHES
    + _PARTS
    + b"\x00\x00\x20\x00\x02\x00\x00\x00"
    + bytes(8000),
    "more credit than anybody has": AMQP_HEADER
    + _body(
        0,
        Open("c"),
        Begin(None, 0, 100, 100),
        Attach("r", 0, RECEIVER, source=Source("q"), target=Target()),
        Flow(0, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0, 0, 0xFFFFFFFF),
    ),
}


@pytest.mark.parametrize("name", GREEDY)
def test_a_stranger_makes_us_keep_less_than_64_kilobytes_and_never_more_on_the_way(name: str) -> None:
    data = GREEDY[name]
    pieces = [data[start : start + 512] for start in range(0, len(data), 512)]
    terms = ConnectionOptions("s", sasl_required=False)

    def run() -> Connection:
        server = Connection(Side.SERVER, terms, sasl=SaslServer())
        for piece in pieces:
            for event in server.receive_data(piece, 0.0):
                if isinstance(event, LinkRequested):
                    event.link.accept()
            server.data_to_send()
        return server

    run()  # what is made once for all connections is not counted
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        kept = run()
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.state is not None
    assert current - before < 64 * 1024
    assert peak - before < 64 * 1024
