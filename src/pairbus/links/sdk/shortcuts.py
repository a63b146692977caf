"""Short cuts through the SDK's sender, for what a send costs most (ADR 0020).

The SDK encodes the frame of each transfer twice, field by field, makes a task of its own to wait for each answer, and
looks at its token, its tracing and its retries each time. Here that is done once, or once a second, for one connection,
with the SDK's own objects: its messages, its windows and credits, its decoder of answers, its errors. What is sent says
the same as what the SDK sends.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: ANN401, SLF001 (the SDK's inner objects have no types, and no public way to them)

import asyncio
import struct
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus._common.tracing import is_tracing_enabled
from azure.servicebus._pyamqp._decode import decode_empty_frame, decode_frame
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.constants import (
    MESSAGE_DELIVERY_DONE_STATES,
    ConnectionState,
    LinkState,
    MessageDeliveryState,
    SessionState,
    SessionTransferState,
)
from azure.servicebus._pyamqp.error import AMQPConnectionError, ErrorCondition, MessageException
from azure.servicebus._pyamqp.message import Message, _MessageDelivery
from azure.servicebus.aio import ServiceBusSender

READY_SECONDS: Final = 1.0
"""How long what was found in order is taken to be so: the token above all, which the SDK renews long before it ends."""

_UNSET: Final = ("rcv_settle_mode", "state", "resume", "aborted", "batchable")
"""The fields of a transfer that the SDK's senders leave out."""

_TAG_BYTES: Final = 4
_HEAD: Final = struct.Struct(">IBBH 3sBBB BI BI BB4s BI BB")
"""Size, offset, type and channel; transfer, a list of 24 bytes and 6 fields: handle, id, tag, format, settled, more."""
_TRANSFER: Final = b"\x00\x53\x14"
_LIST8, _UINT, _VBIN8, _TRUE, _FALSE = 0xC0, 0x70, 0xA0, 0x41, 0x42
_FRAME_HEADER: Final = struct.Struct(">IBBH")

_PROPERTIES, _DATA = b"\x00\x53\x73\xd0", b"\x00\x53\x75"
_LIST32: Final = struct.Struct(">II")
_STRING, _BINARY = (0xA1, 0xB1), (0xA0, 0xB0)
"""The codes of a short one and of a long one."""
_LONG: Final = 256
_TEXTS: Final = frozenset(
    ("message_id", "to", "subject", "reply_to", "correlation_id", "group_id", "reply_to_group_id")
)
"""The properties that are strings, which are most that anybody sets; the others are symbols, times and numbers."""


class Express:
    """The short way through one sender."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self._sender: Any = sender
        self._ready_until = 0.0

    async def send(self, message: ServiceBusMessage) -> None:
        """Send one message as ``send_messages`` does.

        The first attempt goes the short way; whatever comes after a failure is the SDK's to do. So is everything when
        its tracing is on, or a time-out of its own.
        """
        sender: Any = self._sender
        if time.monotonic() > self._ready_until and not await self._is_ready():
            await sender.send_messages(message)
            return
        inside: Any = message
        inside._message = sender._amqp_transport.to_outgoing_amqp_message(message.raw_amqp_message)
        failure: Exception | None
        try:
            await self._transfer(Encoded(encode_message(inside._message)))
        except Exception as error:  # noqa: BLE001 (judged by the SDK)
            failure = error
            self._ready_until = 0.0
        else:
            return

        async def again(**options: Any) -> None:
            nonlocal failure
            if failure is not None:
                first, failure = failure, None
                raise first
            await sender._send(**options)

        await sender._do_retryable_operation(
            again,
            message=message,
            timeout=None,
            operation_requires_timeout=True,
            apply_try_timeout=True,
            require_last_exception=True,
        )

    async def _is_ready(self) -> bool:
        sender = self._sender
        if not sender._running or sender._config.try_timeout is not None or is_tracing_enabled():
            return False
        sender._check_live()
        if not await sender._handler.client_ready_async():
            return False
        self._ready_until = time.monotonic() + READY_SECONDS
        return True

    async def _transfer(self, message: Any) -> None:
        """Send a message and wait for the answer, for good: whoever waits is ended from outside."""
        handler = self._sender._handler
        link, connection = handler._link, handler._connection
        if link.state is not LinkState.ATTACHED:
            await handler.client_ready_async()  # which raises why
        delivery = _MessageDelivery(message, MessageDeliveryState.WaitingToBeSent, None)
        await handler._transfer_message_async(delivery)
        while delivery.state not in MESSAGE_DELIVERY_DONE_STATES:
            if handler._shutdown:
                raise MessageException(ErrorCondition.ClientError, description="Send failed - connection not running.")
            await link.update_pending_deliveries()
            await connection.listen(wait=True)
        if delivery.state is not MessageDeliveryState.Ok:
            raise delivery.error or MessageException(ErrorCondition.UnknownError, description="Send failed.")


class Encoded:
    """A message that is encoded already, for the SDK's link to carry: to its encoder it has no sections."""

    __slots__ = ("payload",)
    _code: Final = 0

    def __init__(self, payload: bytearray) -> None:
        self.payload = payload

    def __getitem__(self, _section: int) -> None:
        return None


def encode_message(message: Any) -> bytearray:
    """Encode a message as the SDK does, which takes most of the time for properties that are text or not set."""
    encoded = bytearray()
    properties, parts = message.properties, message.data or ()
    is_plain = properties and _is_plain(properties) and all(type(part) is bytes for part in parts)
    if message.sequence or message.value or message.footer or not is_plain:
        encode_payload(encoded, message)
        return encoded
    if message.header or message.message_annotations:
        encode_payload(encoded, Message(header=message.header, message_annotations=message.message_annotations))
    fields = b"".join([b"\x40" if value is None else _variable(_STRING, value.encode()) for value in properties])
    encoded += _PROPERTIES + _LIST32.pack(len(fields) + 4, len(properties)) + fields
    if message.application_properties:
        encode_payload(encoded, Message(application_properties=message.application_properties))
    for part in parts:
        encoded += _DATA + _variable(_BINARY, part)
    return encoded


def _is_plain(properties: Any) -> bool:
    return all(
        value is None or (type(value) is str and field in _TEXTS)
        for field, value in zip(properties._fields, properties, strict=True)
    )


def _variable(codes: tuple[int, int], value: bytes) -> bytes:
    size = len(value)
    return (bytes((codes[0], size)) if size < _LONG else bytes((codes[1],)) + size.to_bytes(4)) + value


def shorten(handler: Any) -> None:
    """Shorten the ways of a sender's handler, which has just been opened: its frames out, and those in it waits for."""
    session, connection = handler._session, handler._connection
    transport = connection._transport
    receive_frame: Callable[..., Coroutine[Any, Any, tuple[Any, Any]]] = transport.receive_frame
    send_parts: Callable[..., Coroutine[Any, Any, None]] = session._outgoing_transfer

    async def send_whole(delivery: Any, trace: Any) -> None:
        if type(delivery.message) is Encoded:
            delivery.frame["payload"] = delivery.message.payload
        head = None
        if (
            not trace
            and connection.state is ConnectionState.OPENED
            and session.state is SessionState.MAPPED
            and session.remote_incoming_window > 0
        ):
            frame = delivery.frame
            frame["delivery_id"] = session.next_outgoing_id
            head = transfer_head(session.channel, frame, connection._remote_max_frame_size)
        if head is None:
            await send_parts(delivery, trace)
            return
        if connection._error:
            raise connection._error
        connection._last_frame_sent_time = time.time()
        try:
            await transport.write(head + delivery.frame["payload"])
        except OSError as error:
            connection._error = AMQPConnectionError(
                ErrorCondition.SocketError, description=f"Can not send frame out due to exception: {error}", error=error
            )
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        session.outgoing_window -= 1
        delivery.transfer_state = SessionTransferState.OKAY

    async def receive_quickly(timeout: float | None = None, **options: Any) -> tuple[Any, Any]:  # noqa: ASYNC109
        if timeout is not None or options or transport._read_buffer.tell() < transport._read_buffer.getbuffer().nbytes:
            return await receive_frame(timeout=timeout, **options)
        async with transport.socket_lock:
            return await read_frame(transport.reader)

    session._outgoing_transfer = send_whole
    if getattr(transport, "reader", None) is not None:  # not a WebSocket
        transport.receive_frame = receive_quickly


def transfer_head(channel: int, frame: Mapping[str, Any], longest: int) -> bytes | None:
    """Encode a transfer's frame but for its payload; None: it is too long, or has a field that senders do not set."""
    size = _HEAD.size + len(frame["payload"])
    if size > longest or len(frame["delivery_tag"]) != _TAG_BYTES or any(frame[name] is not None for name in _UNSET):
        return None
    return _HEAD.pack(
        size,
        2,
        0,
        channel,
        _TRANSFER,
        _LIST8,
        24,
        6,
        _UINT,
        frame["handle"],
        _UINT,
        frame["delivery_id"],
        _VBIN8,
        _TAG_BYTES,
        frame["delivery_tag"],
        _UINT,
        frame["message_format"],
        _TRUE if frame["settled"] else _FALSE,
        _TRUE if frame["more"] else _FALSE,
    )


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """Read a frame and return its channel and what it says. If it is cancelled the connection is of no more use."""
    try:
        header = await reader.readexactly(_FRAME_HEADER.size)
        size, offset, kind, channel = _FRAME_HEADER.unpack(header)
        if kind:
            raise ValueError(f"Received invalid frame type: {kind}, expected: 0")
        payload = memoryview(await reader.readexactly(size - _FRAME_HEADER.size))
    except asyncio.IncompleteReadError:
        raise OSError("Server unexpectedly closed connection") from None
    return channel, decode_frame(payload[offset - 2 :]) if payload else decode_empty_frame(memoryview(header))
