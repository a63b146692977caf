"""HTTP/1.1 on a connection: whole requests to a handler, one at a time, and a way out to WebSocket.

A body is kept in memory until it is whole, so it is read only of a client whose head shows that it may send one. The
others are answered by their heads alone, as the handler answers them, and what they go on sending is dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from pairbus.broker.listen.pending import PendingClient, PendingClients
from pairbus.broker.listen.web import Admit, Handler, Request, Response

MAX_HEAD: Final = 64 * 1024
MAX_BODY: Final = 1024 * 1024
_VERSIONS: Final = (b"1.0", b"1.1")
_WITHOUT_BODY: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A request to go on with WebSocket, and what came after it already."""

    request: h11.Request
    path: str
    pending_client: PendingClient
    trailing: bytes


@dataclass(slots=True)
class _Incoming:
    """A request of which the head is there."""

    head: Request
    body: bytearray = field(default_factory=bytearray)


class _RefusedError(Exception):
    """A request that no handler sees."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        self.status = status
        super().__init__(why)


class HttpConnection(asyncio.Protocol):
    """One client.

    A client has :data:`~pairbus.broker.listen.pending.PATIENCE` for each request, from the answer before it to its
    last byte, and as long to take the answer. Nothing is read from it while it is answered, so a client that sends
    requests and reads no answers is kept at one of them.

    :param pending_client: the client, which is pending already.
    :param admits: tells by the head whether the body is read.
    :param upgrade: takes over the transport of a client that asks for WebSocket; returns why not, if so.
    :param ended: is told when the connection is gone, and what was being done for it is done.
    """

    def __init__(
        self,
        handler: Handler,
        pending: PendingClients,
        pending_client: PendingClient,
        *,
        admits: Admit,
        upgrade: Callable[[asyncio.Transport, Upgrade], str | None],
        ended: Callable[["HttpConnection"], None],
        max_body: int = MAX_BODY,
    ) -> None:
        self._handler = handler
        self._pending = pending
        self._pending_client = pending_client
        self._admits = admits
        self._upgrade = upgrade
        self._ended = ended
        self._max_body = max_body
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._transport: asyncio.Transport | None = None
        self._incoming: _Incoming | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_head = False
        """Whether the request is one whose answer has no body."""
        self._is_full = False
        """Whether the client has not taken enough of what it was sent."""
        self._is_over = False
        """Whether the last answer was given, and what still comes is dropped."""
        self._is_stopping = False

    # --- the socket ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._pending_client.cut = self._too_late

    def data_received(self, data: bytes) -> None:
        """Take what the client says."""
        if not self._is_over:
            self._h11.receive_data(data)
            self._advance()

    def eof_received(self) -> bool:
        """Take note that the client says no more; it may still wait for an answer."""
        if self._is_over or self._transport is None:
            return False
        self._h11.receive_data(b"")
        self._advance()
        return self._task is not None and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; a handler that is at work ends its work."""
        del exc
        self._transport = None
        self._is_over = True
        self._pending.leave(self._pending_client)
        if self._task is None:
            self._ended(self)

    def pause_writing(self) -> None:
        """Do no more for a client that does not read its answers."""
        self._is_full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        if self._transport is not None and self._task is None:
            self._transport.resume_reading()
            if not self._is_over:
                self._advance()

    def close(self) -> None:
        """End when the answer that is being made is given."""
        self._is_stopping = True
        if self._task is None:
            self._hang_up()

    def abort(self) -> None:
        """End now."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _hang_up(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    # --- requests ------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Go on with what has come, up to the next whole request."""
        try:
            while self._task is None and not self._is_full and not self._is_over:
                event = self._h11.next_event()
                match event:
                    case h11.Request():
                        self._on_head(event)
                    case h11.Data():
                        self._on_body(event.data)
                    case h11.EndOfMessage():
                        self._on_end()
                    case h11.ConnectionClosed():
                        self._hang_up()
                    case _:
                        self._encourage()
                        return
        except h11.RemoteProtocolError as error:
            self._refuse(HTTPStatus(error.error_status_hint), str(error))
        except _RefusedError as refused:
            self._refuse(refused.status, str(refused))

    def _encourage(self) -> None:
        """Tell a client that asks first whether it may send its body."""
        if self._h11.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))

    def _on_head(self, event: h11.Request) -> None:
        self._is_head = event.method == b"HEAD"
        if event.http_version not in _VERSIONS:
            raise _RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        request = _read_head(event)
        if request.headers.get("upgrade", "").lower() == "websocket":
            self._on_upgrade(event, request)
            return
        if request.method == "CONNECT":
            raise _RefusedError(HTTPStatus.NOT_IMPLEMENTED, "this is no proxy")
        announced = request.headers.get("content-length")  # h11 has seen to it that it is a number, and one
        if announced is not None and int(announced) > self._max_body:
            raise self._too_large()
        has_body = "transfer-encoding" in request.headers or int(announced or 0) > 0
        if has_body and not self._admits(request):
            self._begin_answer(request, is_last=True)
        else:
            self._incoming = _Incoming(request)

    def _on_body(self, data: bytes) -> None:
        incoming = self._incoming
        assert incoming is not None  # noqa: S101 (a head comes before a body)
        if len(incoming.body) + len(data) > self._max_body:
            raise self._too_large()
        incoming.body += data

    def _too_large(self) -> _RefusedError:
        return _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {self._max_body} bytes")

    def _on_end(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            self._begin_answer(replace(incoming.head, body=bytes(incoming.body)), is_last=False)

    def _begin_answer(self, request: Request, *, is_last: bool) -> None:
        if self._transport is not None:
            self._pending.leave(self._pending_client)
            self._transport.pause_reading()
            self._task = asyncio.get_running_loop().create_task(self._answer(request, is_last=is_last))

    def _on_upgrade(self, event: h11.Request, request: Request) -> None:
        assert self._transport is not None  # noqa: S101 (what came, came by it)
        upgrade = Upgrade(event, request.path, self._pending_client, self._h11.trailing_data[0])
        why_not = self._upgrade(self._transport, upgrade)
        if why_not is not None:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, why_not)
        self._is_over = True
        self._ended(self)

    # --- answers -------------------------------------------------------------------------------------------------

    async def _answer(self, request: Request, *, is_last: bool) -> None:
        try:
            head, body = await self._ask_handler(request, is_last=is_last)
        finally:
            self._task = None
            if self._transport is None:
                self._ended(self)
        if self._transport is None:
            return
        self._respond(head, body)
        self._pending_client = self._pending.enter(self._too_late)
        if is_last:
            self._let_go()
            self._transport.resume_reading()
            return
        if self._is_stopping or self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self._hang_up()
            return
        self._h11.start_next_cycle()
        if not self._is_full:
            self._transport.resume_reading()
            self._advance()

    async def _ask_handler(self, request: Request, *, is_last: bool) -> tuple[h11.Response, bytes]:
        try:
            response = await self._handler(request)
            if is_last:
                response = replace(response, headers={**response.headers, "connection": "close"})
            return _write_head(response), response.body
        except Exception:  # a bug of ours, of which the other requests know nothing
            _LOGGER.exception("%s %s failed for a bug of the broker", request.method, request.path)
            response = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"An unexpected error; the broker's log has more.\n")
            return _write_head(response), response.body

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer what is no request."""
        if self._h11.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = f"{status.phrase}: {why}.\n".encode()
            self._respond(_write_head(Response(status, body, headers={"connection": "close"})), body)
        self._let_go()

    def _let_go(self) -> None:
        """Keep nothing of what came, and read on until the client has seen its answer: a reset could overtake it."""
        self._is_over = True
        self._incoming = None
        self._h11 = h11.Connection(h11.SERVER)
        if self._transport is not None and self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # it has seen its answer, and reset the connection at once
                self._transport.abort()

    def _respond(self, head: h11.Response, body: bytes) -> None:
        self._write(head)
        if body and not self._is_head and head.status_code not in _WITHOUT_BODY:
            self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())

    def _write(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data and self._transport is not None:
            self._transport.write(data)

    def _too_late(self) -> None:
        """End with a client that has had its time."""
        transport = self._transport
        if transport is None:
            return
        has_begun = self._incoming is not None or bool(self._h11.trailing_data[0])
        if self._is_over or transport.get_write_buffer_size() or not has_begun:
            transport.abort()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"a request is sent within {self._pending.patience:g} s")
            self._hang_up()


def _read_head(event: h11.Request) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    try:
        path, query = _read_target(event.target.decode("ascii"))
    except ValueError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the target cannot be read ({error})") from None
    return Request(event.method.decode("ascii"), path, query, headers)


def _read_target(target: str) -> tuple[str, dict[str, str]]:
    """Return the path and the query of ``/path?query``, or of ``http://host/path?query``, which proxies are asked."""
    if not target.startswith("/"):
        split = urlsplit(target)
        target = f"{split.path}?{split.query}"
    path, _, query = target.partition("?")
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        values.setdefault(name.lower(), value)
    return unquote(path), values


def _write_head(response: Response) -> h11.Response:
    headers = [("date", formatdate(usegmt=True)), *response.headers.items()]
    if response.status not in _WITHOUT_BODY:
        headers += [("content-type", response.content_type), ("content-length", str(len(response.body)))]
    return h11.Response(status_code=response.status, headers=headers, reason=response.status.phrase.encode())
