"""Bytes to and from a broker: TCP, TLS, and WebSocket over either."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from pairbus.links.native.endpoint import Endpoint

if TYPE_CHECKING:
    from wsproto import WSConnection
    from wsproto.events import Event

WEBSOCKET_PATH: Final = "/$servicebus/websocket"
SUBPROTOCOL: Final = "AMQPWSB10"


async def connect(endpoint: Endpoint, protocol: asyncio.Protocol) -> None:
    """Connect a protocol to a broker: its ``connection_made`` has been called when this returns.

    :raises OSError: there is no way to it; of TLS, the certificate is not to be trusted.
    """
    outer = WebSocket(endpoint, protocol) if endpoint.websocket else protocol
    await asyncio.get_running_loop().create_connection(
        lambda: outer,
        endpoint.host,
        endpoint.port,
        ssl=endpoint.tls,
        server_hostname=endpoint.host if endpoint.tls is not None else None,
    )
    if isinstance(outer, WebSocket):
        await outer.ready


class WebSocket(asyncio.Protocol):
    """Carries the bytes of another protocol in binary messages, whose borders mean nothing."""

    def __init__(self, endpoint: Endpoint, inner: asyncio.Protocol) -> None:
        try:
            from wsproto import ConnectionType, WSConnection  # noqa: PLC0415 (only this way of connecting needs it)
        except ImportError:
            raise ImportError("AMQP over WebSocket needs wsproto: pip install 'pairbus[websocket]'") from None
        self._connection: WSConnection = WSConnection(ConnectionType.CLIENT)
        self._host = endpoint.host
        self._inner = inner
        self._inside: _Inside | None = None
        self._outer: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for WebSocket."""
        from wsproto.events import Request  # noqa: PLC0415 (see above)

        self._outer = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        request = Request(host=self._host, target=WEBSOCKET_PATH, subprotocols=[SUBPROTOCOL])
        self._outer.write(self._connection.send(request))

    def data_received(self, data: bytes) -> None:
        """Take what the broker says."""
        from wsproto.utilities import RemoteProtocolError  # noqa: PLC0415 (see above)

        try:
            self._connection.receive_data(data)
            events = list(self._connection.events())
        except RemoteProtocolError as error:
            self._refused(f"is not WebSocket: {error}")
            return
        for event in events:
            self._on_event(event)

    def _on_event(self, event: "Event") -> None:
        from wsproto import events  # noqa: PLC0415 (see above)

        assert self._outer is not None  # noqa: S101 (it was made)
        match event:
            case events.AcceptConnection():
                self._inside = _Inside(self._connection, self._outer)
                self._inner.connection_made(self._inside)
                if not self.ready.done():
                    self.ready.set_result(None)
            case events.RejectConnection(status_code=status):
                self._refused(f"refuses WebSocket with status {status}")
            case events.BytesMessage(data=data):
                if data:
                    self._inner.data_received(bytes(data))
            case events.Ping():
                self._outer.write(self._connection.send(event.response()))
            case events.CloseConnection():
                self._outer.close()
            case _:
                pass

    def _refused(self, why: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(f"{self._host} {why}"))
        if self._outer is not None:
            self._outer.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionResetError(f"{self._host} has ended the connection"))
            self.ready.exception()  # whoever has given up waiting does not look at it
        if self._inside is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand it on."""
        if self._inside is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        if self._inside is not None:
            self._inner.resume_writing()


class _Inside(asyncio.Transport):
    """What the protocol inside a WebSocket writes to."""

    def __init__(self, connection: "WSConnection", outer: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._outer = outer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        from wsproto.events import BytesMessage  # noqa: PLC0415 (see above)

        if not self._outer.is_closing():
            self._outer.write(self._connection.send(BytesMessage(data=bytes(data))))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        from wsproto.events import CloseConnection  # noqa: PLC0415 (see above)

        if not self._outer.is_closing():
            self._outer.write(self._connection.send(CloseConnection(code=1000)))
            self._outer.close()

    def abort(self) -> None:
        self._outer.abort()

    def is_closing(self) -> bool:
        return self._outer.is_closing()
