"""Connections and sessions: opening, refusing, time-outs, limits, violations and every way to end."""

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.amqp.composites import encode_composite
from pairbus.amqp.conditions import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    UNAUTHORIZED_ACCESS,
    WINDOW_VIOLATION,
    AmqpError,
)
from pairbus.amqp.connection import Connection, ConnectionState, Side
from pairbus.amqp.events import (
    Authenticated,
    Closed,
    DeliveriesReceived,
    LinkAttached,
    LinkDetached,
    LinkRequested,
    Opened,
    SessionBegun,
    SessionEnded,
)
from pairbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, TLS_HEADER, frame
from pairbus.amqp.loopback import Loopback
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import (
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
    SaslInit,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sasl import ANONYMOUS, PLAIN, Credentials, SaslClient, SaslServer
from pairbus.amqp.session import SessionState
from pairbus.amqp.types import Symbol

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy


def make(
    *, client: ConnectionOptions | None = None, server: ConnectionOptions | None = None, sasl: str = ANONYMOUS,
    authenticate: Callable[[Credentials], bool] = lambda _: True,
    cut: Callable[[bytes], list[bytes]] = lambda data: [data],
) -> Loopback:  # fmt: skip
    return Loopback(
        Connection(
            Side.CLIENT,
            client or ConnectionOptions("client", hostname="host"),
            sasl=SaslClient(sasl, username="u", password="p"),  # noqa: S106 (a test's)
        ),
        Connection(
            Side.SERVER,
            server or ConnectionOptions("server", trusted=True),
            sasl=SaslServer(authenticate=authenticate),
        ),
        cut,
    )


def kinds(events: object) -> list[type]:
    assert isinstance(events, list)
    return [type(event) for event in events]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def open_server(*, trusted: bool = True, **options: float) -> Connection:
    """Make a server without SASL whose peer has opened."""
    server = Connection(
        Side.SERVER,
        ConnectionOptions("server", trusted=trusted, **options),  # type: ignore[arg-type]
    )
    server.receive_data(AMQP_HEADER + body(0, Open("peer")), 0.0)
    server.data_to_send()
    return server


def body(channel: int, *performatives: Composite) -> bytes:
    return b"".join(frame(channel, encode_composite(each)) for each in performatives)


BEGIN = body(0, Begin(None, 0, 100, 100))


def condition_of(events: object) -> Symbol | None:
    assert isinstance(events, list)
    (closed,) = [event for event in events if isinstance(event, Closed)]  # pyright: ignore[reportUnknownVariableType]
    return None if closed.error is None else closed.error.condition


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "PLAIN", "MSSBCBS", "EXTERNAL"])
def test_a_connection_opens_with_each_mechanism(mechanism: str) -> None:
    loop = make(sasl=mechanism)
    told_client, told_server = loop.take()
    assert kinds(told_client) == kinds(told_server) == [Authenticated, Opened]
    assert isinstance(told_server[0], Authenticated)
    assert told_server[0].credentials is not None
    assert told_server[0].credentials.mechanism == mechanism
    assert loop.server.remote is not None
    assert (loop.server.remote.container_id, loop.server.remote.hostname) == ("client", "host")
    assert loop.client.remote is not None
    assert loop.client.remote.container_id == "server"
    assert loop.server.state is loop.client.state is ConnectionState.OPEN


def test_plain_credentials_earn_trust_and_anonymous_ones_do_not() -> None:
    for mechanism, trusted in ((PLAIN, True), (ANONYMOUS, False)):
        loop = make(sasl=mechanism, server=ConnectionOptions("server"))
        loop.exchange()
        assert loop.server.trusted is trusted


def test_wrong_credentials_end_the_connection_on_both_sides() -> None:
    loop = make(sasl=PLAIN, authenticate=lambda shown: shown.password != "p")  # noqa: S105 (a test's)
    told_client, told_server = loop.take()
    assert condition_of(told_client) == condition_of(told_server) == UNAUTHORIZED_ACCESS


@given(st.integers(0, 1 << 32))
@unhurried
def test_the_way_the_bytes_are_cut_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)

    def cut(data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        while data:
            size = chance.choice((1, 2, 3, 7, 50, 5000))
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    loop = make(cut=cut)
    loop.exchange()
    session = loop.client.begin()
    session.attach_sender("s", Target("q"))
    assert kinds(loop.take()[1]) == [Authenticated, Opened, SessionBegun, LinkRequested]


def test_a_client_may_say_everything_at_once() -> None:
    server = Connection(Side.SERVER, ConnectionOptions("s", trusted=True), sasl=SaslServer())
    pipelined = (
        SASL_HEADER
        + frame(0, encode_composite(SaslInit(ANONYMOUS)), 1)
        + AMQP_HEADER
        + body(0, Open("c"))
        + BEGIN
        + body(0, Attach("l", 0, RECEIVER, source=Source("q"), target=Target()))
    )
    assert kinds(server.receive_data(pipelined, 0.0)) == [Authenticated, Opened, SessionBegun, LinkRequested]


@pytest.mark.parametrize(
    ("sasl", "first", "answer"),
    [
        (True, AMQP_HEADER, SASL_HEADER),
        (True, TLS_HEADER, SASL_HEADER),
        (True, b"AMQP\x00\x00\x09\x01", SASL_HEADER),
        (True, b"GET / HTTP/1.1", SASL_HEADER),
        (False, SASL_HEADER, AMQP_HEADER),
        (False, b"\x16\x03\x01", AMQP_HEADER),
    ],
)
def test_another_protocol_is_answered_with_ours_and_the_end(sasl: bool, first: bytes, answer: bytes) -> None:  # noqa: FBT001
    server = Connection(Side.SERVER, ConnectionOptions("s"), sasl=SaslServer() if sasl else None)
    assert condition_of(server.receive_data(first, 0.0)) == NOT_IMPLEMENTED
    assert server.data_to_send() == answer
    assert server.receive_data(first, 0.0) == []


def test_sasl_can_be_left_out_where_it_is_not_required() -> None:
    options = ConnectionOptions("s", sasl_required=False)
    loop = Loopback(
        Connection(Side.CLIENT, ConnectionOptions("c")), Connection(Side.SERVER, options, sasl=SaslServer())
    )
    assert kinds(loop.take()[1]) == [Opened]


@pytest.mark.parametrize(
    ("opened", "condition"),
    [
        (body(0, Open("p", max_frame_size=511)), INVALID_FIELD),
        (body(0, Open("p", idle_time_out=1)), NOT_ALLOWED),
        (body(1, Open("p")), NOT_ALLOWED),
        (BEGIN, ILLEGAL_STATE),
        (body(0, Open("p" * 5000)), FRAMING_ERROR),
        (frame(0, b"\x00\x53\x10\x45"), INVALID_FIELD),
        (frame(0, encode_composite(Open("p")) + b"\x40"), DECODE_ERROR),
        (frame(0, b"junk"), DECODE_ERROR),
        (frame(0, encode_composite(SaslInit(ANONYMOUS)), 1), FRAMING_ERROR),
    ],
)
def test_a_bad_open_is_answered_with_open_and_close(opened: bytes, condition: Symbol) -> None:
    server = Connection(Side.SERVER, ConnectionOptions("s"))
    server.receive_data(AMQP_HEADER, 0.0)
    assert condition_of(server.receive_data(opened, 0.0)) == condition
    answer = server.data_to_send()
    assert answer.startswith(AMQP_HEADER + body(0, Open("s", None, 65536, 1023)))
    assert condition.encode() in answer
    assert answer.count(b"\x00\x53\x18") == 1


def test_a_malformed_sasl_frame_ends_with_an_outcome() -> None:
    server = Connection(Side.SERVER, ConnectionOptions("s"), sasl=SaslServer())
    server.receive_data(SASL_HEADER, 0.0)
    server.data_to_send()
    assert condition_of(server.receive_data(frame(0, b"junk", 1), 0.0)) == DECODE_ERROR
    assert server.data_to_send() == frame(0, bytes.fromhex("00 53 44 c0 03 01 50 03"), 1)


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_silent_peer_is_given_up_and_a_heartbeat_keeps_it() -> None:
    loop = make(
        client=ConnectionOptions("c", idle_timeout=20), server=ConnectionOptions("s", idle_timeout=60, trusted=True)
    )
    loop.exchange()
    client, server = loop.client, loop.server
    assert server.remote is not None
    assert server.remote.idle_time_out == 10_000  # half of what the client bears
    assert server.wake_at == 5.0  # and half of that is when it is told
    assert server.tick(4.9) == []
    assert server.data_to_send() == b""
    assert server.tick(5.0) == []
    assert server.data_to_send() == EMPTY_FRAME
    assert server.wake_at == 10.0
    client.receive_data(EMPTY_FRAME, 5.0)
    assert client.wake_at == 15.0  # to say something itself
    assert client.tick(24.9) == []
    assert condition_of(client.tick(25.0)) == CONNECTION_FORCED
    assert client.wake_at is None
    assert CONNECTION_FORCED.encode() in client.data_to_send()


def test_a_peer_that_never_speaks_is_given_up_too() -> None:
    server = Connection(Side.SERVER, ConnectionOptions("s", idle_timeout=30), sasl=SaslServer(), now=100.0)
    assert server.wake_at == 130.0
    assert condition_of(server.tick(130.0)) == CONNECTION_FORCED


def test_without_time_outs_there_is_nothing_to_wake_for() -> None:
    loop = make()
    loop.exchange()
    assert loop.server.wake_at is None
    assert loop.server.tick(1e9) == []


def test_traffic_puts_the_heartbeat_off() -> None:
    loop = make(client=ConnectionOptions("c", idle_timeout=20))
    loop.exchange()
    loop.now = 4.0
    loop.client.begin()
    loop.exchange()
    assert loop.server.wake_at == 9.0


# --- sessions --------------------------------------------------------------------------------------------------------


def test_sessions_begin_and_end_from_both_sides() -> None:
    loop = make()
    loop.take()
    ours, other = loop.client.begin(), loop.client.begin()
    told_client, told_server = loop.take()
    assert kinds(told_client) == [SessionBegun] * 2
    theirs = [event.session for event in told_server if isinstance(event, SessionBegun)]
    assert [(s.channel, s.remote_channel) for s in theirs] == [(0, 0), (1, 1)]
    ours.end()
    theirs[1].end(Error(Symbol("why")))
    told_client, told_server = loop.take()
    assert [(e.session, e.error) for e in told_client if isinstance(e, SessionEnded)] == [
        (other, Error(Symbol("why"))),
        (ours, None),
    ]
    assert kinds(told_server) == [SessionEnded] * 2
    assert not loop.client.sessions
    assert not loop.server.sessions
    assert loop.client.begin().channel == 0


def test_a_server_may_begin_a_session_as_well() -> None:
    loop = make()
    loop.take()
    session = loop.server.begin()
    assert kinds(loop.take()[1]) == [SessionBegun]
    assert session.is_active
    link = session.attach_receiver("up", Source("x"))
    (requested,) = loop.take()[0]
    assert isinstance(requested, LinkRequested)
    requested.link.accept()
    assert kinds(loop.take()[1]) == [LinkAttached]
    assert link.is_attached


def test_a_session_ended_before_it_had_begun_ends_well() -> None:
    loop = make()
    loop.take()
    session = loop.client.begin()
    session.end()
    told_client, told_server = loop.take()
    assert kinds(told_client) == [SessionEnded]
    assert kinds(told_server) == [SessionBegun, SessionEnded]
    assert session.state is SessionState.ENDED


def test_channels_above_the_peers_limit_are_not_used() -> None:
    loop = make(server=ConnectionOptions("s", channel_max=1, trusted=True))
    loop.exchange()
    loop.client.begin()
    loop.client.begin()
    with pytest.raises(AmqpError) as caught:
        loop.client.begin()
    assert caught.value.condition == RESOURCE_LIMIT_EXCEEDED


ATTACH = body(0, Attach("l", 0, SENDER, source=Source(), target=Target("q"), initial_delivery_count=0))


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        (body(2000, Begin(None, 0, 1, 1)), FRAMING_ERROR),
        (BEGIN + BEGIN, ILLEGAL_STATE),
        (body(0, Begin(7, 0, 1, 1)), NOT_ALLOWED),
        (body(0, Open("again")), ILLEGAL_STATE),
        (body(3, End()), NOT_ALLOWED),
        (body(3, Transfer(0, 0, b"")), NOT_ALLOWED),
        (body(3, Flow(0, 0, 0, 0)), NOT_ALLOWED),
        (body(3, Disposition(RECEIVER, 0)), NOT_ALLOWED),
        (BEGIN + body(0, Attach("l", 256, SENDER)), FRAMING_ERROR),
        (BEGIN + body(0, Attach("l", 0, SENDER, source=Source())), INVALID_FIELD),
        (BEGIN + ATTACH + body(0, Transfer(0, 0, b"t")), NOT_ALLOWED),  # not answered yet
        (BEGIN + body(0, Disposition(RECEIVER, 5, 4)), INVALID_FIELD),
        (BEGIN + frame(0, encode_composite(Disposition(RECEIVER, 5)) + b"\x40"), DECODE_ERROR),
        (BEGIN + frame(0, encode_composite(Flow(0, 0, 0, 0)) + b"\x40"), DECODE_ERROR),
        (BEGIN + frame(0, encode_composite(Detach(0)) + b"\x40"), DECODE_ERROR),
        (frame(0, b"\x00\x53\x99\x45"), NOT_IMPLEMENTED),
        (frame(0, b"\x40"), DECODE_ERROR),
        (frame(0, b"\x00"), DECODE_ERROR),
        (frame(0, b"\x00\x53"), DECODE_ERROR),
        (frame(0, b"\x00\xa3\x01x\x45"), NOT_IMPLEMENTED),
        (frame(0, b"", 1), FRAMING_ERROR),
        (b"\x7f\xff\xff\xff\x02\x00\x00\x00", FRAMING_ERROR),
    ],
)
def test_a_violation_of_the_connection_closes_it_with_its_condition(frames: bytes, condition: Symbol) -> None:
    server = open_server()
    assert condition_of(server.receive_data(frames, 0.0)) == condition
    sent = server.data_to_send()
    assert sent.count(b"\x00\x53\x18") == 1
    assert b"\x00\x53\x1d" in sent
    assert condition.encode() in sent
    assert server.state is ConnectionState.CLOSED
    assert server.receive_data(BEGIN, 0.0) == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        (body(0, Flow(0, 1, 0, 1, handle=4)), UNATTACHED_HANDLE),
        (body(0, Transfer(4, 0, b"t")), UNATTACHED_HANDLE),
        (body(0, Detach(4)), UNATTACHED_HANDLE),
        (ATTACH + ATTACH, HANDLE_IN_USE),
        (body(0, Attach("r", 0, RECEIVER, source=Source("q"))) + body(0, Transfer(0, 0, b"t")), NOT_ALLOWED),
    ],
)
def test_a_violation_of_a_session_ends_only_that(frames: bytes, condition: Symbol) -> None:
    server = open_server()
    events = server.receive_data(BEGIN + frames, 0.0)
    (ended,) = [event for event in events if isinstance(event, SessionEnded)]
    assert ended.error is not None
    assert ended.error.condition == condition
    assert not ended.by_peer
    assert server.state is ConnectionState.OPEN
    # Whatever comes before the peer's end is dropped; then the channel is free again.
    assert server.receive_data(frames + body(0, Flow(0, 1, 0, 1)), 0.0) == []
    assert server.receive_data(body(0, End()), 0.0) == []
    assert kinds(server.receive_data(BEGIN, 0.0)) == [SessionBegun]


def test_a_window_that_is_not_filled_again_by_itself_ends_the_session_when_overrun() -> None:
    server = open_server(incoming_window=2, replenish_window=False)
    (requested,) = [e for e in server.receive_data(BEGIN + ATTACH, 0.0) if isinstance(e, LinkRequested)]
    requested.link.accept()
    first, second, third = (body(0, Transfer(0, n, b"t")) for n in range(3))
    (received,) = server.receive_data(first + second, 0.0)
    assert isinstance(received, DeliveriesReceived)
    assert len(received.deliveries) == 2
    requested.link.session.replenish(1)
    assert len(server.receive_data(third, 0.0)) == 1
    ended = server.receive_data(body(0, Transfer(0, 3, b"t")), 0.0)[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == WINDOW_VIOLATION


def test_a_handle_is_free_again_after_detach() -> None:
    server = open_server(handle_max=1)
    attaches = [body(0, Attach(str(n), n, RECEIVER, source=Source("q"))) for n in (0, 1)]
    server.receive_data(BEGIN + b"".join(attaches), 0.0)
    server.receive_data(body(0, Detach(0)), 0.0)
    assert kinds(server.receive_data(attaches[0], 0.0)) == [LinkRequested]


# --- the end ---------------------------------------------------------------------------------------------------------


def _with_links(loop: Loopback) -> None:
    loop.exchange()
    session = loop.client.begin()
    session.attach_sender("s", Target("q"))
    session.attach_receiver("r", Source("q"))
    loop.take()


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_close_ends_links_then_sessions_then_the_connection_once_on_both_sides(side: str) -> None:
    loop = make()
    _with_links(loop)
    closing = loop.client if side == "client" else loop.server
    closing.close(Error(Symbol("amqp:why")))
    closing.close()
    told = loop.take()
    for events in told:
        assert kinds(events) == [LinkDetached, LinkDetached, SessionEnded, Closed]
    other = told[1 if side == "client" else 0]
    assert condition_of(other) == "amqp:why"
    assert loop.client.connection_lost() == loop.server.connection_lost() == []
    with pytest.raises(AmqpError):
        loop.client.begin()


def test_a_lost_transport_ends_everything_once() -> None:
    loop = make()
    _with_links(loop)
    assert kinds(loop.server.connection_lost()) == [LinkDetached, LinkDetached, SessionEnded, Closed]
    assert loop.server.connection_lost() == []
    assert loop.server.data_to_send() == b""


def test_a_connection_closed_before_it_opened_tells_so_at_the_next_call() -> None:
    client = Connection(Side.CLIENT, ConnectionOptions("c"), sasl=SaslClient())
    client.close()
    assert kinds(client.tick(0.0)) == [Closed]
    assert client.tick(0.0) == []


def test_while_closing_only_the_peers_close_counts_even_if_all_else_is_malformed() -> None:
    server = open_server()
    server.close()
    assert server.receive_data(BEGIN + EMPTY_FRAME + body(9, End()), 0.0) == []
    assert kinds(server.receive_data(body(0, Close()), 0.0)) == [Closed]
    server = open_server()
    server.close()
    server.data_to_send()
    assert kinds(server.receive_data(b"\xff" * 8, 0.0)) == [Closed]
    assert server.data_to_send() == b""


def test_a_peer_that_closes_instead_of_opening_is_answered() -> None:
    server = Connection(Side.SERVER, ConnectionOptions("s"))
    events = server.receive_data(AMQP_HEADER + body(0, Close(Error(Symbol("no")))), 0.0)
    assert condition_of(events) == "no"
    assert server.data_to_send().endswith(body(0, Close()))


@pytest.mark.parametrize(
    "options", [{"max_frame_size": 511}, {"incoming_window": 0}, {"channel_max": 65_536}, {"channel_max": -1}]
)
def test_options_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ConnectionOptions("c", **options)  # type: ignore[arg-type]
