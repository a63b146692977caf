"""The one module that imports private names of the SDK: the short way of a send, batches, and looking at messages.

*Sending.* The SDK encodes the frame of each transfer twice, field by field, makes a task of its own to wait for each
answer, and looks at its token, its tracing and its retries each time. Here that is done once, or once a second, for one
connection, with the SDK's own objects: its windows and credits, its decoder of answers, its errors. What is sent says
the same as what the SDK sends (ADR 0020).

*Batches.* ``add_message`` encodes a message twice, once to see how long it is.

*Looking.* The request goes over a connection without a link that receives, which an entity with sessions would refuse.

``tests/client/test_sdk.py`` compares what is used here with the SDK that is installed.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: ANN401, SLF001 (the SDK's inner objects have no types, and no public way to them)

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._common.constants import (
    MGMT_REQUEST_FROM_SEQUENCE_NUMBER,
    MGMT_REQUEST_MAX_MESSAGE_COUNT,
    MGMT_RESPONSE_MESSAGE_ERROR_CONDITION,
    REQUEST_RESPONSE_PEEK_OPERATION,
)
from azure.servicebus._common.tracing import is_tracing_enabled
from azure.servicebus._pyamqp._decode import decode_empty_frame, decode_frame
from azure.servicebus._pyamqp.aio import AMQPClientAsync
from azure.servicebus._pyamqp.constants import (
    MESSAGE_DELIVERY_DONE_STATES,
    ConnectionState,
    LinkState,
    MessageDeliveryState,
    SessionState,
    SessionTransferState,
)
from azure.servicebus._pyamqp.error import (
    AMQPConnectionError,
    AMQPException,
    AMQPLinkError,
    ErrorCondition,
    MessageException,
)
from azure.servicebus._pyamqp.message import _MessageDelivery
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.messages.sdk_batches import DATA
from pairbus.messages.sdk_batches import Message as AnyMessage

__all__ = [
    "AMQPException",
    "AMQPLinkError",
    "ShortWay",
    "add_to",
    "connect_without_link",
    "new_batch",
    "peek_request",
    "peeked_payloads",
    "read_every_answer",
    "read_frame",
    "shorten",
    "transfer_head",
]

_LOGGER = logging.getLogger(__name__)

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


class ShortWay:
    """The short way through one sender."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self._sender: Any = sender
        self._ready_until = 0.0

    def writes_at_once(self, payload: bytes) -> bool:
        """Whether the first step of :meth:`send` writes the payload: it is ready, and one frame is enough."""
        if time.monotonic() > self._ready_until:
            return False
        connection = self._sender._handler._connection
        transport = connection._transport
        return _HEAD.size + len(payload) <= connection._remote_max_frame_size and hasattr(transport, "reader")

    async def send(self, messages: Sequence[Any], payload: bytes, message_format: int) -> None:
        """Send an encoded message or batch as ``send_messages`` does.

        The first attempt goes the short way; whatever comes after a failure is the SDK's to do. So is everything when
        its tracing is on, or a time-out of its own.
        """
        sender: Any = self._sender
        if time.monotonic() > self._ready_until and not await self._is_ready():
            await sender.send_messages(list(messages) if message_format else messages[0])
            return
        message = Encoded(payload, message_format)
        failure: Exception | None
        try:
            await self._transfer(message)
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
    """A message or batch that is encoded already, for the SDK's link to carry: to its encoder it has no sections."""

    __slots__ = ("_code", "payload")

    def __init__(self, payload: bytes, message_format: int) -> None:
        self.payload = payload
        self._code = message_format

    @property
    def _message(self) -> "Encoded":
        return self  # as the SDK's own messages have it

    def __getitem__(self, _section: int) -> None:
        return None


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


_REJECTED, _MODIFIED = "rejected", "modified"
_NOT_ALLOWED, _BUSY = b"amqp:not-allowed", b"com.microsoft:server-busy"


def read_every_answer(handler: Any) -> None:
    """Have a sender's handler read the answers that the SDK cannot read: else the send would wait for one for good.

    It knows *accepted*, and *rejected* with an error of three fields. What a broker released or modified it has not
    taken, and it may be sent again: as if the broker had said that it is busy.
    """
    read: Callable[[Any, Any, Any], Coroutine[Any, Any, None]] = handler._on_send_complete_async

    async def read_any(delivery: Any, reason: Any, state: Any) -> None:
        try:
            await read(delivery, reason, state)
        except LookupError:
            outcome, fields = next(iter(state.items()))
            refused = outcome == _REJECTED or (outcome == _MODIFIED and fields[1:2] == [True])
            told: list[Any] = (fields[0] if outcome == _REJECTED and fields else None) or []
            condition = told[0] if told else _NOT_ALLOWED if refused else _BUSY
            why = "the broker cannot take it here" if refused else "the broker gave it back untaken"
            handler._process_send_error(delivery, condition, told[1] if told[1:] else why)

    handler._on_send_complete_async = read_any


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


def add_to(batch: ServiceBusMessageBatch, message: AnyMessage) -> None:
    """Add a message to a batch as ``add_message`` does, which encodes it twice: once to see how long it is."""
    transport = batch._amqp_transport
    if type(message) is not ServiceBusMessage or transport.KIND != "pyamqp" or is_tracing_enabled():
        batch.add_message(message)
        return
    message._message = transport.to_outgoing_amqp_message(message.raw_amqp_message)
    encoded = transport.encode_message(message)
    size = batch._size + len(encoded) + _IN_BATCH[len(encoded) >= _LONG]
    if size > batch.max_size_in_bytes:
        raise MessageSizeExceededError(
            message=f"ServiceBusMessageBatch has reached its size limit: {batch.max_size_in_bytes}"
        )
    if not batch._count:
        transport.set_batch_envelope_properties(
            batch._message, message.message_id, message.session_id, message.partition_key
        )
    batch._message[DATA].append(encoded)
    batch._size = size
    batch._count += 1
    batch._messages.append(message)


_LONG: Final = 256
_IN_BATCH: Final = (5, 8)
"""What a batch adds to a message shorter than that, and to others."""


def new_batch(sender: ServiceBusSender, max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """Make an empty batch that the sender need not encode anew, whether it is open or not."""
    return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes, amqp_transport=sender._amqp_transport)


def connect_without_link(receiver: Any, auth: object) -> None:
    """Make a connection as the SDK does for a receiver, but without the link that receives."""
    config = receiver._config
    make: Callable[..., Any] = AMQPClientAsync
    receiver._handler = make(
        config.hostname,
        auth=auth,
        network_trace=config.logging_enable,
        properties=receiver._properties,
        retry_policy=receiver._error_policy,
        client_name=receiver._name,
        keep_alive_interval=None,
        http_proxy=config.http_proxy,
        transport_type=config.transport_type,
        custom_endpoint_address=config.custom_endpoint_address,
        connection_verify=config.connection_verify,
        ssl_context=config.ssl_context,
        socket_timeout=config.socket_timeout,
        use_tls=config.use_tls,
    )


def peeked_payloads(status: int, response: Any, description: str, amqp_transport: Any) -> list[bytes]:
    """Return the messages of an answer to :func:`peek_request`, or raise what the SDK does."""
    if status == _OK:
        return [bytes(each[b"message"]) for each in response.value[b"messages"]] if response.value else []
    if status in _NOTHING:
        return []
    condition = response.application_properties.get(MGMT_RESPONSE_MESSAGE_ERROR_CONDITION)
    amqp_transport.handle_amqp_mgmt_error(_LOGGER, "Message peek failed.", condition, description, status)
    raise AssertionError("unreachable: the SDK has raised")


def peek_request(amqp_transport: Any, first: int, most: int) -> tuple[bytes, dict[str, Any]]:
    """Return the operation, and its body, that asks for messages from this sequence number on."""
    body = {
        MGMT_REQUEST_FROM_SEQUENCE_NUMBER: amqp_transport.AMQP_LONG_VALUE(max(1, first)),
        MGMT_REQUEST_MAX_MESSAGE_COUNT: most,
    }
    return REQUEST_RESPONSE_PEEK_OPERATION, body


_OK: Final = 200
_NOTHING: Final = (202, 204)
