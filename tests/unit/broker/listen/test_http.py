"""HTTP/1.1 as hostile and as good clients speak it, byte by byte."""

import asyncio
import gc
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.listen.wire import Wire, no_clients, turns

from pairbus.broker.listen.http import MAX_HEAD, HttpConnection, Upgrade
from pairbus.broker.listen.pending import PendingClient, PendingClients
from pairbus.broker.listen.web import Admit, Request, Response, Routes, no_bodies

LIMIT = 1000


async def echo(request: Request) -> Response:
    await asyncio.sleep(0)
    text = f"{request.method} {request.path} {sorted(request.query.items())} {len(request.body)}"
    return Response(HTTPStatus.OK, text.encode())


class Peer:
    """A connection, with the wire's end in hand."""

    def __init__(
        self,
        handler: Callable[[Request], Awaitable[Response]] = echo,
        pending: PendingClients | None = None,
        admits: Admit = lambda _request: True,
    ) -> None:
        self.pending = pending or no_clients()
        self.wire = Wire()
        self.ended = 0
        pending_client = self.pending.enter(self.wire.abort)
        self.http = HttpConnection(
            handler, self.pending, pending_client, admits=admits, upgrade=self.no, ended=self.end, max_body=LIMIT
        )
        self.http.connection_made(self.wire)

    @staticmethod
    def no(transport: asyncio.Transport, upgrade: Upgrade) -> str:
        del transport, upgrade
        return "not here"

    def end(self, connection: HttpConnection) -> None:
        assert connection is self.http
        self.ended += 1

    async def say(self, *pieces: bytes) -> None:
        """Send pieces, as long as the connection is read from."""
        for piece in pieces:
            while self.wire.paused and not self.wire.is_closing():
                await turns(1)
            if self.wire.is_closing():
                return
            self.http.data_received(piece)
            await turns(1)
        await turns()

    def answers(self, *methods: str) -> list[tuple[int, str]]:
        """Read what was answered to requests of these methods."""
        client = h11.Connection(h11.CLIENT)
        client.receive_data(bytes(self.wire.written))
        found: list[tuple[int, str]] = []
        for method in methods:
            client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
            client.send(h11.EndOfMessage())
            status, body = 0, b""
            while not isinstance(event := client.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    assert isinstance(event, h11.InformationalResponse)
            found.append((status, body.decode()))
            if client.our_state is h11.DONE and client.their_state is h11.DONE:
                client.start_next_cycle()
        return found


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_keep_alive_pipelining_and_head_in_pieces_of_any_size() -> None:
    said = (
        b"GET /a%20b?Top=1&top=2&x HTTP/1.1\r\nHost: x\r\n\r\n"
        b"HEAD /b HTTP/1.1\r\nHost: x\r\n\r\n"
        b"PUT //$metrics/q HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        b"POST http://h:1/d?q=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n1;e=1\r\nc\r\n0\r\n\r\n"
    )

    async def scenario() -> None:
        for size in (1, 7, len(said)):
            peer = Peer()
            await peer.say(*(said[at : at + size] for at in range(0, len(said), size)))
            await turns(30)
            assert peer.answers("GET", "HEAD", "PUT", "POST") == [
                (200, "GET /a b [('top', '1'), ('x', '')] 0"),
                (200, ""),
                (200, "PUT //$metrics/q [] 3"),
                (200, "POST /d [('q', '1')] 3"),
            ]
            assert not peer.wire.is_closing()
            assert len(peer.pending) == 1

    play(scenario)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", 400),
        (b"GET /" + b"a" * MAX_HEAD, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20_000, 431),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 413),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"a" * 1001, 413),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    ],
)
def test_what_is_no_good_request_is_answered_so_and_is_the_last(said: bytes, status: int) -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.say(said, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        ((answered, text),) = peer.answers("GET")
        assert answered == status, text
        assert text.endswith(".\n")
        assert peer.wire.half_closed, "it is read on until the client has seen the answer"
        assert len(peer.pending) == 1, "but not for ever"
        assert not peer.http.eof_received(), "and no more once the client is done"

    play(scenario)


def test_a_refused_head_request_has_no_body() -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.say(b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n")
        assert peer.answers("HEAD") == [(413, "")]

    play(scenario)


def test_a_client_that_asks_first_is_told_to_send_its_body() -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.say(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert peer.wire.written.startswith(b"HTTP/1.1 100 ")
        await peer.say(b"ab")
        assert peer.answers("PUT") == [(200, "PUT / [] 2")]

    play(scenario)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"])
def test_the_last_request_ends_the_connection(said: bytes) -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.say(said)
        assert peer.answers("GET") == [(200, "GET / [] 0")]
        assert peer.wire.closed

    play(scenario)


def test_a_client_that_says_no_more_still_gets_its_answer() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.http.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.http.eof_received()
        await turns()
        assert peer.answers("GET") == [(200, "GET / [] 0")]
        assert peer.wire.closed

    play(scenario)


def test_a_client_that_reads_no_answers_is_kept_at_one() -> None:
    calls: list[Request] = []

    async def count(request: Request) -> Response:
        calls.append(request)
        return Response(HTTPStatus.OK, b"x" * 100_000)

    async def scenario() -> None:
        peer = Peer(count)
        peer.http.pause_writing()  # as the transport does when its buffer has filled
        peer.http.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        await turns(20)
        assert not calls
        assert peer.wire.paused
        peer.http.resume_writing()
        assert peer.wire.paused, "one is being answered"
        await turns(500)
        assert len(calls) == 50
        assert not peer.wire.paused

    play(scenario)


def test_a_handler_that_fails_is_a_500_and_the_next_request_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: Request) -> Response:
        if request.path == "/raises":
            raise KeyError("secret")
        return Response(HTTPStatus.OK, headers={"bad\n": "header"} if request.path == "/bad" else {})

    async def scenario() -> None:
        peer = Peer(fail)
        for path in (b"/raises", b"/bad", b"/good"):
            await peer.say(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        statuses = [status for status, _ in peer.answers("GET", "GET", "GET")]
        assert statuses == [500, 500, 200]
        assert b"secret" not in peer.wire.written

    with caplog.at_level(logging.ERROR, logger="pairbus"):
        play(scenario)
    assert [record.getMessage().split(" for ")[0] for record in caplog.records] == [
        "GET /raises failed",
        "GET /bad failed",
    ]


def test_statuses_without_a_body_have_none() -> None:
    async def nothing(_request: Request) -> Response:
        await asyncio.sleep(0)
        return Response(HTTPStatus.NO_CONTENT, b"ignored")

    async def scenario() -> None:
        peer = Peer(nothing)
        await peer.say(b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.answers("DELETE") == [(204, "")]
        assert b"content-length" not in peer.wire.written

    play(scenario)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (b"GET / HT", b"HTTP/1.1 408 "),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", b"HTTP/1.1 408 "),
    ],
)
def test_a_slow_client_is_cut(said: bytes, answer: bytes) -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.say(*([said] if said else []))
        assert peer.pending.cut_longest()
        assert peer.wire.is_closing()
        assert peer.wire.written.startswith(answer)
        assert bool(peer.wire.written) == bool(answer)

    play(scenario)


def test_a_client_that_does_not_take_its_answer_is_cut() -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.say(b"GET / HTTP/1.0\r\n\r\n")
        peer.wire.untaken = 10
        assert peer.wire.closed
        peer.pending.cut_longest()
        assert peer.wire.aborted

    play(scenario)


def test_an_answer_that_is_being_made_is_given_before_the_end() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.http.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        peer.http.close()
        assert not peer.wire.closed
        await turns()
        assert peer.answers("GET") == [(200, "GET / [] 0")]
        assert peer.wire.closed
        idle = Peer()
        idle.http.close()
        assert idle.wire.closed

    play(scenario)


def test_a_client_that_goes_while_it_is_answered_harms_nobody() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.http.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        peer.http.connection_lost(None)
        assert peer.ended == 0, "its handler is still at work"
        await turns()
        assert peer.ended == 1
        assert not peer.wire.written
        assert len(peer.pending) == 0

    play(scenario)


def test_a_client_that_resets_as_soon_as_it_is_answered_harms_nobody() -> None:
    """The answer is written, and the client is gone, before the last word can be said."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            accepted, _ = listener.accept()

        class Room(PendingClients):
            def enter(self, cut: Callable[[], object]) -> PendingClient:
                assert client.recv(12) == b"HTTP/1.1 401"
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                return super().enter(cut)

        loop = asyncio.get_running_loop()
        problems: list[object] = []
        loop.set_exception_handler(lambda _loop, context: problems.append(context))
        gone = asyncio.Event()
        http = HttpConnection(
            refuse,
            Room(loop),
            no_clients().enter(lambda: None),
            admits=no_bodies,
            upgrade=Peer.no,
            ended=lambda _connection: gone.set(),
        )
        await loop.connect_accepted_socket(lambda: http, accepted)
        client.sendall(b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        await gone.wait()
        gc.collect()
        assert problems == []

    play(scenario)


def test_routes_go_by_the_first_segment() -> None:
    async def named(name: str, request: Request) -> Response:
        await asyncio.sleep(0)
        return Response(HTTPStatus.OK, f"{name} {request.path}".encode())

    async def scenario() -> None:
        routes = Routes()
        routes.add("$metrics", lambda request: named("metrics", request))
        assert (await routes(Request("GET", "/$METRICS/x"))).body == b"metrics /$METRICS/x"
        nobody = await routes(Request("GET", "/orders"))
        assert (nobody.status, nobody.body) == (HTTPStatus.NOT_FOUND, b"Nothing is served at /orders.\n")
        routes.administration = lambda request: named("atom", request)
        assert (await routes(Request("GET", "/orders"))).body == b"atom /orders"

    play(scenario)


PARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"PUT /x?y=%ff HTTP/1.1\r\n",
        b"HEAD * HTTP/1.1\r\n",
        b"HTTP/1.1",
        b"Host: x\r\n",
        b"\r\n",
        b"\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"Connection: close\r\n",
        b"5\r\nabcde\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffffffff\r\n",
        b"a" * 3000,
        b"\x00",
    ]
)


@given(parts=st.lists(st.one_of(PARTS, st.binary(max_size=20)), max_size=30), size=st.integers(1, 500))
def test_no_bytes_crash_it_hang_it_or_make_it_grow(parts: list[bytes], size: int) -> None:
    said = b"".join(parts)

    async def scenario() -> None:
        peer = Peer()
        await peer.say(*(said[at : at + size] for at in range(0, len(said), size)))
        kept = peer.http._h11.trailing_data[0]  # pyright: ignore[reportPrivateUsage]
        assert len(kept) <= MAX_HEAD + size
        peer.http.eof_received()
        await turns(100)
        peer.pending.close()
        await turns()
        assert peer.wire.is_closing()
        peer.http.connection_lost(None)
        assert (peer.ended, len(peer.pending)) == (1, 0)

    play(scenario)


async def refuse(request: Request) -> Response:
    await asyncio.sleep(0)
    return Response(HTTPStatus.UNAUTHORIZED, f"no {request.method}, {len(request.body)} bytes".encode())


@pytest.mark.parametrize(
    "head",
    [
        b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n",
    ],
)
def test_a_body_that_is_not_admitted_is_not_kept_and_its_sender_is_answered_by_its_head(head: bytes) -> None:
    async def scenario() -> None:
        peer = Peer(refuse, admits=no_bodies)
        await peer.say(head)
        assert peer.answers("PUT") == [(401, "no PUT, 0 bytes")]
        assert b"connection: close" in peer.wire.written.lower()
        assert peer.wire.half_closed
        assert not peer.wire.is_closing()  # a reset could overtake the answer
        written = len(peer.wire.written)
        for _ in range(100):
            await peer.say(b"x" * 1000)
        assert len(peer.wire.written) == written
        assert kept_by(peer.http) < 10_000
        assert len(peer.pending) == 1  # it has its time to go
        peer.pending.close()
        assert peer.wire.aborted

    play(scenario)


def test_without_a_body_all_are_answered_alike_and_stay() -> None:
    async def scenario() -> None:
        peer = Peer(refuse, admits=no_bodies)
        await peer.say(*2 * [b"GET /q HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"])
        assert peer.answers("GET", "GET") == 2 * [(401, "no GET, 0 bytes")]
        assert not peer.wire.half_closed

    play(scenario)


def test_what_came_with_the_head_of_a_refused_request_is_not_kept() -> None:
    async def scenario() -> None:
        for said in (
            b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500_000,
            b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + b"x" * 500_000,
            b"GET /q HTTP/1.1\r\n\r\n" + b"x" * 500_000,
        ):
            peer = Peer(refuse, admits=no_bodies)
            await peer.say(said)
            assert kept_by(peer.http) < 10_000

    play(scenario)


def kept_by(connection: HttpConnection) -> int:
    """Return about how many bytes a connection keeps of what it has received."""
    seen: set[int] = set()

    def size(thing: object) -> int:
        if id(thing) in seen:
            return 0
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray):
            return len(thing)
        parts = [*getattr(thing, "__dict__", {}).values()]
        parts += [getattr(thing, name) for name in getattr(thing, "__slots__", ()) if hasattr(thing, name)]
        return sum(size(part) for part in parts if type(part).__module__.startswith(("h11", "pairbus", "builtins")))

    return size(connection)


def test_only_the_administration_takes_bodies_and_only_of_those_that_may_administer() -> None:
    routes = Routes()
    routes.add("$health", echo)
    request = Request("PUT", "/orders")
    assert not routes.admits(request)
    routes.may_administer = lambda asked: asked.path == "/orders"
    assert routes.admits(request)
    assert not routes.admits(Request("PUT", "/other"))
    routes.may_administer = lambda _request: True
    assert not routes.admits(Request("POST", "/$Health/x"))
