"""The one port, on real sockets: who is let in where, and who is cut."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from tests.unit.broker.listen.wire import turns

from pairbus.broker.listen.certificates import own_certificate, server_context
from pairbus.broker.listen.port import PortListener
from pairbus.broker.listen.web import Request, Response

SOON = 5.0
TLS_RECORD = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""How a client's first words in TLS begin."""


class Amqp(asyncio.Protocol):
    """What AMQP would be: says back what it gets; "open" is its open."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"amqp:" + data)
        if b"open" in data:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._arrived()


async def hello(request: Request) -> Response:
    await asyncio.sleep(0)
    return Response(HTTPStatus.OK, request.path.encode())


@asynccontextmanager
async def a_listener(
    *, patience: float = 60.0, limit: int = 100, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncGenerator[tuple[PortListener, int]]:
    loop = asyncio.get_running_loop()
    listener = PortListener(loop, Amqp, hello, patience=patience, limit=limit, tls=tls)
    async with asyncio.timeout(30):
        port = await listener.open(host, 0)
        try:
            yield listener, port
        finally:
            await listener.close(1)


class Caller:
    """A client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def until_cut(self) -> bytes:
        """Return what comes before the end."""
        try:
            return await asyncio.wait_for(self.reader.read(), SOON)
        except ConnectionError:
            return b""
        finally:
            self.writer.close()


async def call(port: int, said: bytes = b"", tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Caller:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    if said:
        writer.write(said)
        await writer.drain()
    return Caller(reader, writer)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context and a client's."""
    files = own_certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1")
    return server_context(files), ssl.create_default_context(cafile=str(files.ca))


@pytest.mark.parametrize("secure", [False, True])
def test_the_first_byte_tells_what_is_spoken(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext], *, secure: bool
) -> None:
    async def scenario() -> None:
        server, client = certificate
        async with a_listener(tls=server) as (listener, port):
            tls = client if secure else None
            amqp = await call(port, b"AMQP", tls)
            assert await amqp.reader.readexactly(9) == b"amqp:AMQP"
            assert len(listener.pending) == 1, "it has not opened its connection"
            amqp.writer.write(b"open")
            assert await amqp.reader.readexactly(9) == b"amqp:open"
            assert len(listener.pending) == 0
            http = await call(port, b"GET /here HTTP/1.0\r\n\r\n", tls)
            assert (await http.until_cut()).endswith(b"\r\n\r\n/here")
            for said in (b"\x00\x00", b"\xff", b" GET / HTTP/1.1"):
                assert await (await call(port, said, tls)).until_cut() == b""
            amqp.writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (b"A", b"amqp:A"),
        (b"GET / HTTP/1.1\r\n", b"HTTP/1.1 408 "),
        (TLS_RECORD, b""),
    ],
)
def test_who_does_not_go_on_is_cut(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext], said: bytes, answer: bytes
) -> None:
    async def scenario() -> None:
        async with a_listener(patience=0.1, tls=certificate[0]) as (listener, port):
            caller = await call(port, said)
            assert (await caller.until_cut()).startswith(answer)
            assert len(listener.pending) == 0

    asyncio.run(scenario())


def test_who_is_silent_after_the_handshake_is_cut(certificate: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def scenario() -> None:
        async with a_listener(patience=1, tls=certificate[0]) as (_, port):
            caller = await call(port, tls=certificate[1])
            assert await caller.until_cut() == b""

    asyncio.run(scenario())


@pytest.mark.parametrize("said", [b"\x16\x03\x01\x00\x05hello", TLS_RECORD[:5]])
def test_a_handshake_that_fails_harms_nobody(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async def scenario() -> None:
        async with a_listener(tls=certificate[0]) as (listener, port):
            caller = await call(port, said)
            if caller.writer.can_write_eof():
                caller.writer.write_eof()
            await caller.until_cut()
            while len(listener.pending):
                await turns(1)

    asyncio.run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_tls_that_is_not_spoken_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with a_listener() as (listener, port):
            for _ in range(3):
                assert await (await call(port, TLS_RECORD)).until_cut() == b""
            assert len(listener.pending) == 0

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records if "--tls" in record.getMessage()] == [
        "a client speaks TLS, which this broker was not told to do; start it with --tls"
    ]


def test_when_too_many_wait_the_longest_is_cut() -> None:
    async def scenario() -> None:
        async with a_listener(limit=3) as (listener, port):
            first, *others = [await call(port) for _ in range(4)]
            assert await first.until_cut() == b""
            others[0].writer.write(b"AMQP open")
            assert await others[0].reader.readexactly(14) == b"amqp:AMQP open"
            assert len(listener.pending) == 2
            for other in others:
                other.writer.close()

    asyncio.run(scenario())


def test_without_a_file_for_another_connection_the_longest_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with a_listener() as (listener, port):
            first = await call(port)
            while not len(listener.pending):
                await turns(1)
            refuse_once(monkeypatch)
            second = await call(port, b"AMQP")
            assert await first.until_cut() == b""
            assert await second.reader.readexactly(9) == b"amqp:AMQP"
            second.writer.close()

    asyncio.run(scenario())


def test_without_any_file_it_tries_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("pairbus.broker.listen.port._PAUSE", 0.05)

    async def scenario() -> None:
        async with a_listener() as (_, port):
            refuse_once(monkeypatch)
            caller = await call(port, b"AMQP")
            assert await caller.reader.readexactly(9) == b"amqp:AMQP"
            caller.writer.close()

    asyncio.run(scenario())
    assert "ulimit -n" in caplog.text


def refuse_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next connection not be accepted, as when there are too many open files."""
    accept = socket.socket.accept

    def refuse(listener: socket.socket) -> object:
        monkeypatch.setattr(socket.socket, "accept", accept)
        raise OSError(errno.EMFILE, "Too many open files", listener)

    monkeypatch.setattr(socket.socket, "accept", refuse)


def other_listener(host: str, port: int, *, reuse: bool) -> socket.socket:
    """Listen on a port as another program would."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        made.bind((host, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("reuse", [False, True])
def test_a_door_that_is_shut_keeps_its_port_and_refuses_connections(host: str, *, reuse: bool) -> None:
    async def scenario() -> None:
        async with a_listener(host=host) as (listener, port):
            amqp = await call(port, b"AMQP open", host=host)
            assert await amqp.reader.readexactly(14) == b"amqp:AMQP open"
            waiting = await call(port, host=host)
            for _ in range(2):  # an outage may come again
                listener.shut()
                assert await waiting.until_cut() == b""
                for _ in range(2):
                    with pytest.raises(ConnectionRefusedError):
                        await call(port, host=host)
                with pytest.raises(OSError, match="in use"):
                    other_listener(host, port, reuse=reuse).close()
                listener.shut()  # it is already
                listener.unshut()
                listener.unshut()
                waiting = await call(port, b"AMQP", host=host)
                assert await waiting.reader.readexactly(9) == b"amqp:AMQP"
            amqp.writer.write(b"more")
            assert await amqp.reader.readexactly(9) == b"amqp:more", "whoever is in stays in"
            for caller in (amqp, waiting):
                caller.writer.close()

    asyncio.run(scenario())


def test_the_system_gives_the_port_of_a_shut_door_to_no_connection() -> None:
    """With few ports to give, a client's connection would get it sooner or later."""

    async def scenario() -> None:
        async with a_listener() as (listener, port):
            listener.shut()
            with socket.socket() as client, pytest.raises(OSError, match="in use"):
                client.bind(("127.0.0.1", port))
            listener.unshut()
            (await call(port)).writer.close()

    asyncio.run(scenario())


def test_a_door_that_cannot_be_opened_again_at_once_is_opened_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pairbus.broker.listen.port._PAUSE", 0.01)
    listen = socket.socket.listen

    def refuse(_listener: socket.socket, _backlog: int) -> None:
        monkeypatch.setattr(socket.socket, "listen", listen)
        raise OSError(errno.EADDRINUSE, "Address already in use")

    async def scenario() -> None:
        async with a_listener() as (listener, port):
            listener.shut()
            monkeypatch.setattr(socket.socket, "listen", refuse)
            listener.unshut()
            caller = None
            while caller is None:
                try:
                    caller = await call(port, b"AMQP")
                except ConnectionRefusedError:
                    await turns(1)
            assert await caller.reader.readexactly(9) == b"amqp:AMQP"
            caller.writer.close()

    asyncio.run(scenario())
    assert "cannot be taken again yet" in caplog.text


@pytest.mark.parametrize("is_shut", [False, True])
def test_a_door_that_is_closed_gives_its_port_up(*, is_shut: bool) -> None:
    async def scenario() -> None:
        async with a_listener() as (listener, port):
            if is_shut:
                listener.shut()
            await listener.close(1)
            listener.unshut()
            with pytest.raises(ConnectionRefusedError):
                await call(port)
            other_listener("127.0.0.1", port, reuse=True).close()

    asyncio.run(scenario())


def test_the_end_is_orderly() -> None:
    """Who waits is cut, who is idle is sent away, and who is being answered is answered first."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        at_work.set()
        await go_on.wait()
        return Response(HTTPStatus.OK, request.path.encode())

    async def scenario() -> None:
        listener = PortListener(asyncio.get_running_loop(), Amqp, slow)
        port = await listener.open("127.0.0.1", 0)
        waiting, answered = await call(port), await call(port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        await at_work.wait()
        closing = asyncio.create_task(listener.close(SOON))
        assert await waiting.until_cut() == b""
        assert not closing.done()
        go_on.set()
        assert (await answered.until_cut()).endswith(b"/x")
        await closing
        with pytest.raises(ConnectionRefusedError):
            await call(port)

    asyncio.run(scenario())


def test_a_handler_without_end_does_not_keep_the_door_open() -> None:
    at_work = asyncio.Event()

    async def endless(_request: Request) -> Response:
        at_work.set()
        return await asyncio.get_running_loop().create_future()

    async def scenario() -> None:
        listener = PortListener(asyncio.get_running_loop(), Amqp, endless)
        port = await listener.open("127.0.0.1", 0)
        caller = await call(port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        await at_work.wait()
        await asyncio.wait_for(listener.close(0.05), SOON)
        assert await caller.until_cut() == b""

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_named() -> None:
    async def scenario() -> None:
        async with a_listener() as (_, port):
            other = PortListener(asyncio.get_running_loop(), Amqp, hello)
            with pytest.raises(OSError, match=rf"(?i)address already in use.*{port}"):
                await other.open("127.0.0.1", port)

    asyncio.run(scenario())


def test_an_address_that_is_not_here_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match=r"(?i)assign requested address.*192.0.2.7"):
            await PortListener(asyncio.get_running_loop(), Amqp, hello).open("192.0.2.7", 0)

    asyncio.run(scenario())


def test_all_addresses_of_a_host_have_the_same_port() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        listener = PortListener(loop, Amqp, hello)
        port = await listener.open("localhost", 0)
        for address in {str(each[4][0]) for each in await loop.getaddrinfo("localhost", port)}:
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(b"AMQP")
            assert await reader.readexactly(9) == b"amqp:AMQP"
            writer.close()
        await listener.close(1)

    asyncio.run(scenario())


def test_what_is_small_is_sent_at_once() -> None:
    """Without TCP_NODELAY an answer may wait 40 ms for the client's acknowledgement of the one before."""
    sockets: list[socket.socket] = []

    class Listening(Amqp):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            sockets.append(transport.get_extra_info("socket"))

    async def play() -> None:
        listener = PortListener(asyncio.get_running_loop(), Listening, hello)
        port = await listener.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"AMQP open")
        assert await reader.read(4) == b"amqp"
        assert sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await writer.wait_closed()
        await listener.close(1)

    asyncio.run(play())
