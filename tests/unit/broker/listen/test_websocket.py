"""AMQP over WebSocket, without AMQP and without a socket: any bytes, in any pieces."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.listen.wire import Wire, no_clients
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    Request,
    TextMessage,
)

from pairbus.broker.listen.http import Upgrade
from pairbus.broker.listen.websocket import MAX_MESSAGE, PATH, WebSocketTransport, accept_websocket


class Inner(asyncio.Protocol):
    """What AMQP would be: keeps what it gets, and how it is treated."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.arrived = arrived
        self.got = bytearray()
        self.told: list[str] = []
        self.transport: WebSocketTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, WebSocketTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.told.append("lost")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Peer:
    """A connection that was upgraded, and the client that asked for it."""

    def __init__(self, path: str = PATH, subprotocols: tuple[str, ...] = ("AMQPWSB10",), trailing: bytes = b"") -> None:
        self.pending = no_clients()
        self.wire = Wire()
        self.inners: list[Inner] = []
        self.client = WSConnection(ConnectionType.CLIENT)
        asked = h11.Connection(h11.SERVER)
        asked.receive_data(self.client.send(Request(host="x", target=path, subprotocols=list(subprotocols))))
        request = asked.next_event()
        assert isinstance(request, h11.Request)
        pending_client = self.pending.enter(lambda: None)
        self.refused = accept_websocket(
            self.amqp, self.pending, self.wire, Upgrade(request, path, pending_client, trailing)
        )

    def amqp(self, arrived: Callable[[], None]) -> Inner:
        self.inners.append(Inner(arrived))
        return self.inners[-1]

    @property
    def inner(self) -> Inner:
        return self.inners[0]

    @property
    def transport(self) -> WebSocketTransport:
        assert self.inner.transport is not None
        return self.inner.transport

    def say(self, *pieces: bytes) -> None:
        protocol = self.wire.protocol
        assert isinstance(protocol, asyncio.Protocol)
        for piece in pieces:
            protocol.data_received(piece)

    def heard(self) -> list[Event]:
        """Return what the client makes of what was written since it was asked last."""
        self.client.receive_data(bytes(self.wire.written))
        self.wire.written.clear()
        return list(self.client.events())


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("offered", "chosen"), [(("AMQPWSB10",), "AMQPWSB10"), (("amqp",), "amqp"), (("x", "amqp"), "amqp")]
)
def test_bytes_go_both_ways(offered: tuple[str, ...], chosen: str) -> None:
    async def scenario() -> None:
        peer = Peer(subprotocols=offered)
        assert peer.refused is None
        (accepted,) = peer.heard()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == chosen
        peer.say(peer.client.send(BytesMessage(b"AMQP")))
        peer.say(peer.client.send(BytesMessage(b"\x03", message_finished=False)))
        peer.say(peer.client.send(Ping(b"there?")))
        peer.say(peer.client.send(BytesMessage(b"\x01\x00\x00")))
        assert peer.inner.got == b"AMQP\x03\x01\x00\x00"
        peer.transport.write(b"AMQP")
        peer.transport.writelines([b"a", b"b"])
        assert peer.heard() == [Pong(b"there?"), BytesMessage(b"AMQP"), BytesMessage(b"ab")]
        assert len(peer.pending) == 1
        peer.inner.arrived()
        assert len(peer.pending) == 0, "it waits no more when AMQP is open"

    play(scenario)


def test_what_came_with_the_request_is_not_lost() -> None:
    async def scenario() -> None:
        trailing = Connection(ConnectionType.CLIENT).send(BytesMessage(b"early"))
        assert Peer(trailing=trailing).inner.got == b"early"

    play(scenario)


@pytest.mark.parametrize(
    ("path", "offered", "says"),
    [
        ("/elsewhere", ("AMQPWSB10",), "spoken at /$servicebus/websocket, not at /elsewhere"),
        (PATH, (), "must be AMQPWSB10, and none was offered"),
        (PATH, ("mqtt", "stomp"), "must be AMQPWSB10, and mqtt, stomp was offered"),
    ],
)
def test_who_asks_for_something_else_is_told_so(path: str, offered: tuple[str, ...], says: str) -> None:
    async def scenario() -> None:
        peer = Peer(path, offered)
        assert peer.refused is not None
        assert says in peer.refused
        assert not peer.inners
        assert not peer.wire.written

    play(scenario)


def test_a_handshake_that_is_none_is_refused() -> None:
    async def scenario() -> None:
        pending, wire = no_clients(), Wire()
        headers = [("host", "x"), ("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-version", "1")]
        request = h11.Request(method="GET", target=PATH, headers=headers)
        assert accept_websocket(Inner, pending, wire, Upgrade(request, PATH, pending.enter(wire.abort), b""))

    play(scenario)


def test_text_and_messages_without_end_are_refused() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.heard()
        peer.say(peer.client.send(TextMessage("AMQP")))
        assert peer.heard() == [CloseConnection(1003, "AMQP is binary")]
        assert peer.wire.closed
        peer = Peer()
        peer.heard()
        for _ in range(MAX_MESSAGE // 65_536):
            peer.say(peer.client.send(BytesMessage(b"x" * 65_536, message_finished=False)))
        assert not peer.wire.closed
        peer.say(peer.client.send(BytesMessage(b"x", message_finished=False)))
        assert peer.heard() == [CloseConnection(1009, f"a message has at most {MAX_MESSAGE} bytes")]
        assert len(peer.inner.got) == MAX_MESSAGE
        peer.say(b"anything")
        peer.transport.write(b"nobody hears it")
        assert not peer.wire.written

    play(scenario)


def test_each_side_can_end_it() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.heard()
        peer.say(peer.client.send(CloseConnection(1001)))
        assert peer.heard() == [CloseConnection(1001, "")]
        assert peer.wire.closed
        peer = Peer()
        peer.heard()
        peer.transport.close()
        peer.transport.close()
        assert peer.heard() == [CloseConnection(1000, "")]
        assert peer.transport.is_closing()
        peer = Peer()
        peer.transport.abort()
        assert peer.wire.aborted

    play(scenario)


def test_pressure_is_handed_on_both_ways() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.transport.pause_reading()
        assert peer.wire.paused
        peer.transport.resume_reading()
        assert not peer.wire.paused
        peer.wire.untaken = 7
        assert peer.transport.get_write_buffer_size() == 7
        protocol = peer.wire.protocol
        assert isinstance(protocol, asyncio.Protocol)
        protocol.pause_writing()
        protocol.resume_writing()
        protocol.connection_lost(None)
        assert peer.inner.told == ["pause", "resume", "lost"]

    play(scenario)


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(BytesMessage, st.binary(max_size=300), st.just(value=True), st.booleans()),
    st.builds(Ping, st.binary(max_size=125)),
)


@given(events=st.lists(EVENTS, max_size=20), size=st.integers(1, 200))
def test_pieces_of_any_size_carry_the_same_bytes(events: list[Event], size: int) -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.heard()
        said = b"".join(peer.client.send(event) for event in events)
        peer.say(*(said[at : at + size] for at in range(0, len(said), size)))
        sent = b"".join(bytes(event.data) for event in events if isinstance(event, BytesMessage))
        assert peer.inner.got == sent
        assert not peer.wire.is_closing()

    play(scenario)


def frame(first: int, length: int, rest: bytes) -> bytes:
    return bytes((first, length)) + rest


FRAMES = st.builds(frame, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=40))


@given(parts=st.lists(st.one_of(FRAMES, st.binary(max_size=30)), max_size=20), size=st.integers(1, 100))
def test_no_bytes_crash_it(parts: list[bytes], size: int) -> None:
    async def scenario() -> None:
        peer = Peer()
        said = b"".join(parts)
        peer.say(*(said[at : at + size] for at in range(0, len(said), size)))
        assert len(peer.inner.got) <= len(said)
        peer.transport.close()
        assert peer.wire.is_closing()

    play(scenario)
