"""AMQP over WebSocket: what the SDK calls ``TransportType.AmqpOverWebsocket``."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from pairbus.broker.listen.http import Upgrade
from pairbus.broker.listen.pending import PendingClients

PATH: Final = "/$servicebus/websocket"
SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")
"""What the cloud calls it, and what OASIS does."""
MAX_MESSAGE: Final = 1024 * 1024
"""The largest WebSocket message; the SDK sends a frame of AMQP in each, which has 64 KB at most."""


def accept_websocket(
    amqp: Callable[[Callable[[], None]], asyncio.Protocol],
    pending: PendingClients,
    transport: asyncio.Transport,
    upgrade: Upgrade,
) -> str | None:
    """Go on with AMQP over WebSocket on an HTTP connection, or return why not."""
    if upgrade.path.lower() != PATH:
        return f"WebSocket is spoken at {PATH}, not at {upgrade.path}"
    connection = WSConnection(ConnectionType.SERVER)
    try:
        connection.initiate_upgrade_connection(list(upgrade.request.headers), upgrade.request.target.decode("ascii"))
        (request,) = connection.events()
    except RemoteProtocolError as error:
        return str(error)
    offered = request.subprotocols if isinstance(request, Request) else []
    chosen = next((each for each in offered if each in SUBPROTOCOLS), None)
    if chosen is None:
        return f"the subprotocol must be {SUBPROTOCOLS[0]}, and {', '.join(offered) or 'none'} was offered"
    upgrade.pending_client.cut = transport.abort
    protocol = WebSocketConnection(connection, amqp(partial(pending.leave, upgrade.pending_client)))
    transport.set_protocol(protocol)
    transport.write(connection.send(AcceptConnection(subprotocol=chosen)))
    protocol.connection_made(transport)
    if upgrade.trailing:
        protocol.data_received(upgrade.trailing)
    return None


class WebSocketConnection(asyncio.Protocol):
    """Carries the bytes of another protocol in binary messages, whose borders mean nothing."""

    def __init__(self, connection: WSConnection, inner: asyncio.Protocol) -> None:
        self._connection = connection
        self._inner = inner
        self._transport: WebSocketTransport | None = None
        self._size = 0
        """Of the message of which a part has come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        outer = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._transport = WebSocketTransport(self._connection, outer)
        self._inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Take what the client says."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._connection.receive_data(data)
        for event in self._connection.events():
            self._on_event(event, transport)
            if transport.is_closing():
                return

    def _on_event(self, event: Event, transport: "WebSocketTransport") -> None:
        match event:
            case BytesMessage(data=data, message_finished=finished):
                self._size += len(data)
                if self._size > MAX_MESSAGE:
                    transport.end(CloseReason.MESSAGE_TOO_BIG, f"a message has at most {MAX_MESSAGE} bytes")
                    return
                if finished:
                    self._size = 0
                if data:
                    self._inner.data_received(bytes(data))
            case TextMessage():
                transport.end(CloseReason.UNSUPPORTED_DATA, "AMQP is binary")
            case Ping():
                transport.send(event.response())
            case CloseConnection(code=code):
                transport.end(code, "")
            case _:
                pass

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        self._inner.resume_writing()


class WebSocketTransport(asyncio.Transport):
    """What the protocol inside writes to."""

    def __init__(self, connection: WSConnection, outer: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._outer = outer
        self._is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a binary message."""
        self.send(BytesMessage(data=bytes(data)))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send a binary message."""
        self.write(b"".join(list_of_data))

    def send(self, event: Event) -> None:
        """Send what WebSocket has besides messages."""
        if not self._is_over:
            self._outer.write(self._connection.send(event))

    def end(self, code: int, why: str) -> None:
        """Send the last words, and end."""
        if not self._is_over:
            self.send(CloseConnection(code=code, reason=why))
            self._is_over = True
            self._outer.close()

    def close(self) -> None:
        """End in order."""
        self.end(CloseReason.NORMAL_CLOSURE, "")

    def abort(self) -> None:
        """End now."""
        self._is_over = True
        self._outer.abort()

    def is_closing(self) -> bool:
        """Tell whether nothing more can be written."""
        return self._is_over or self._outer.is_closing()

    def pause_reading(self) -> None:
        """Read no more."""
        self._outer.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._outer.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Tell how many bytes wait to be written."""
        return self._outer.get_write_buffer_size()
