"""The one port of a namespace: AMQP, TLS, HTTP and WebSocket, told apart by what a client says first."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from pairbus.broker.listen.pending import MAX_PENDING, PATIENCE, PendingClient, PendingClients
from pairbus.broker.listen.web import Admit, Handler, no_bodies

if TYPE_CHECKING:
    from pairbus.broker.listen.http import HttpConnection

BACKLOG: Final = 1024
"""Connections that the system keeps for us until we come to accept them."""
TLS_HANDSHAKE: Final = 0x16
"""The first byte of TLS."""
_AT_ONCE: Final = 64
"""How many connections are accepted before those who are served have their turn."""
_TOO_MANY_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Why a host may have an address that is not listened on: ::1 of localhost, on a machine without IPv6."""
_PAUSE: Final = 1.0

AmqpFactory: TypeAlias = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes the AMQP side of a connection; it is handed what to call when the client has opened it."""

_LOGGER = logging.getLogger(__name__)


class PortListener:
    """Accepts connections, and gives each to what it speaks. Whoever does not say so in time is cut.

    A first look at the socket, which takes nothing from it, tells TLS from the rest: so AMQP without TLS, where speed
    matters most, has a plain transport of the event loop's. The rest is told apart by the first bytes that are read,
    which inside TLS are those inside.

    :param admits: tells by the head of an HTTP request whether its body is read.
    :param tls: how to speak TLS; None: not at all.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        amqp: AmqpFactory,
        handler: Handler,
        *,
        admits: Admit = no_bodies,
        tls: ssl.SSLContext | None = None,
        patience: float = PATIENCE,
        limit: int = MAX_PENDING,
    ) -> None:
        self.pending = PendingClients(loop, patience=patience, limit=limit)
        self._loop = loop
        self._amqp = amqp
        self._handler = handler
        self._admits = admits
        self._tls = tls
        self._has_told_of_tls = False
        self._listeners: list[socket.socket] = []
        self._is_shut = False
        self._welcoming: set[asyncio.Task[None]] = set()
        self._https: set[HttpConnection] = set()
        self._deserted = asyncio.Event()

    async def open(self, host: str, port: int) -> int:
        """Listen on all addresses of a host, and return the port; 0: any that is free."""
        found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        not_here: OSError | None = None
        for family, address in dict.fromkeys((each[0], each[4][0]) for each in found):
            try:
                listener = _bound(family, str(address), port)
                self._listeners.append(listener)
                listener.listen(BACKLOG)
            except OSError as error:
                named = OSError(error.errno, f"{error.strerror} (while attempting to listen on {address} port {port})")
                if error.errno in _NOT_HERE:
                    not_here = named
                    continue
                self._close_listeners()
                raise named from None
            port = listener.getsockname()[1]
        if not_here is not None and not self._listeners:
            raise not_here
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)
        return port

    def shut(self) -> None:
        """Refuse connections until :meth:`unshut`, and end those that have not come to anything yet, or speak HTTP.

        The port stays this listener's: its sockets are bound and do not listen, so the system refuses connections as if
        nobody were there, and gives the port to no other socket.
        """
        if not self._is_shut:
            self._is_shut = True
            for listener in self._listeners:
                self._loop.remove_reader(listener)
                listener.shutdown(socket.SHUT_RD)  # it is bound as before, and those it has not accepted are reset
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # else another could listen there
        while self.pending.cut_longest():
            pass
        self._abort()

    def unshut(self) -> None:
        """Take connections again, where they were taken before."""
        if not self._is_shut:
            return
        try:
            for listener in self._listeners:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.listen(BACKLOG)
        except OSError as error:  # another socket was faster between the two calls
            _LOGGER.error("connections cannot be taken again yet, which is tried each second: %s", error)  # noqa: TRY400
            self._loop.call_later(_PAUSE, self.unshut)
            return
        self._is_shut = False
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    async def close(self, grace: float) -> None:
        """Take no more connections, cut those that have not shown what they want, and end those that speak HTTP.

        :param grace: the seconds in which requests that are being answered may still be.
        """
        self._close_listeners()
        self.pending.close()
        for connection in list(self._https):
            connection.close()
        if self._https:
            self._deserted.clear()
            late = self._loop.call_later(grace, self._abort)
            await self._deserted.wait()
            late.cancel()
        if self._welcoming:
            await asyncio.wait(self._welcoming)

    def _abort(self) -> None:
        for connection in list(self._https):
            connection.abort()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()

    # --- accepting -----------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _TOO_MANY_FILES:
                    raise
                self._on_too_many_files(listener, error)
                return
            client.settimeout(0)
            # asyncio does so by itself only for sockets that were made with a protocol, which accept() does not do.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pending_client = self.pending.enter(partial(self._turn_away, client))
            self._loop.add_reader(client, self._look, client, pending_client)

    def _on_too_many_files(self, listener: socket.socket, error: OSError) -> None:
        """Free a place at the cost of who has waited longest, or try again later."""
        if self.pending.cut_longest():
            return
        _LOGGER.error("no connection can be accepted for a while: %s; raise the limit with ulimit -n", error)
        self._loop.remove_reader(listener)
        self._loop.call_later(_PAUSE, self._listen_again, listener)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener in self._listeners and not self._is_shut:
            self._loop.add_reader(listener, self._accept, listener)

    def _turn_away(self, client: socket.socket) -> None:
        self._loop.remove_reader(client)
        client.close()

    def _look(self, client: socket.socket, pending_client: PendingClient) -> None:
        """See what a client says first, and leave it there to be read."""
        try:
            first = client.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._loop.remove_reader(client)
        is_tls = first == bytes((TLS_HANDSHAKE,))
        if is_tls and self._tls is None and not self._has_told_of_tls:
            self._has_told_of_tls = True
            _LOGGER.warning("a client speaks TLS, which this broker was not told to do; start it with --tls")
        if not first or (is_tls and self._tls is None):
            self.pending.leave(pending_client)
            client.close()
            return
        task = self._loop.create_task(self._welcome(client, pending_client, self._tls if is_tls else None))
        self._welcoming.add(task)
        task.add_done_callback(self._welcoming.discard)

    async def _welcome(self, client: socket.socket, pending_client: PendingClient, tls: ssl.SSLContext | None) -> None:
        task = asyncio.current_task()
        if client.fileno() < 0 or task is None:  # it was cut meanwhile
            return
        pending_client.cut = task.cancel
        patience = self.pending.patience
        times = {} if tls is None else {"ssl_handshake_timeout": patience, "ssl_shutdown_timeout": patience}
        try:
            await self._loop.connect_accepted_socket(
                lambda: _FirstBytes(self, pending_client), client, ssl=tls, **times
            )
        except OSError as error:  # a handshake that failed, or a client that has gone
            self.pending.leave(pending_client)
            _LOGGER.debug("a client has not come in: %s", error)

    # --- inside --------------------------------------------------------------------------------------------------

    def protocol(self, first: int, pending_client: PendingClient) -> asyncio.Protocol | None:
        """Return what a client speaks whose first byte this is."""
        if first == ord("A"):  # of "AMQP", for there is no method of HTTP with this letter
            return self._amqp(partial(self.pending.leave, pending_client))
        if chr(first).isascii() and chr(first).isalpha():
            return self._http(pending_client)
        return None

    def _http(self, pending_client: PendingClient) -> asyncio.Protocol:
        from pairbus.broker.listen.http import HttpConnection  # noqa: PLC0415 (a broker starts sooner without; so the next)
        from pairbus.broker.listen.websocket import accept_websocket  # noqa: PLC0415

        upgrade = partial(accept_websocket, self._amqp, self.pending)
        made = HttpConnection(
            self._handler, self.pending, pending_client, admits=self._admits, upgrade=upgrade, ended=self._ended
        )
        self._https.add(made)
        return made

    def _ended(self, connection: "HttpConnection") -> None:
        self._https.discard(connection)
        if not self._https:
            self._deserted.set()


def _bound(family: int, address: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port by its number: only such a one keeps it while it does not listen."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        made.bind((address, port))
        made.settimeout(0)
    except OSError:
        made.close()
        raise
    if port:
        return made
    with made:  # the system has found a port, and keeps it until it is bound by its number
        return _bound(family, address, made.getsockname()[1])


class _FirstBytes(asyncio.Protocol):
    """Stands in for a connection's protocol until the client has said something."""

    def __init__(self, listener: PortListener, pending_client: PendingClient) -> None:
        self._listener = listener
        self._pending_client = pending_client
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._pending_client.cut = self._transport.abort

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101 (what came, came by it)
        protocol = self._listener.protocol(data[0], self._pending_client)
        if protocol is None:
            self._transport.abort()
            return
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._listener.pending.leave(self._pending_client)
