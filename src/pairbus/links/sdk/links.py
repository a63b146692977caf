"""The SDK's links: a sender or a receiver each, with a connection of its own, opened once and closed for certain.

The SDK's public face leaves sockets open when something fails, and loses what a message was: text, binary and symbols
all come as ``bytes``, timestamps as numbers, and a message that is sent again is encoded anew. So here its inside is
used (ADR 0013, ADR 0020), object by object: nothing is patched in its modules.
"""

# pyright: reportPrivateUsage=false
# ruff: noqa: ANN401, SLF001 (what this module is for; a test pins each use to the SDK that is installed)

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Literal, Self, TypeVar, cast

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from pairbus.links.deadlines import cancel, within
from pairbus.links.sdk.private import ShortWay, read_every_answer, shorten
from pairbus.links.transport import Outgoing
from pairbus.messages.sdk_batches import STANDARD_BATCH_BYTES

T = TypeVar("T")

OPEN_SECONDS: Final = 15.0
CLOSE_SECONDS: Final = 3.0
"""How long the SDK may take to close a link in order; then its socket is closed without it."""

FRESH_SECONDS: Final = 10.0
"""A message that was there for longer before it was asked for is put back: its lock may end too soon."""
_LEAST_WAIT: Final = 0.01

_DELIVERY_ID, _TAG, _MORE, _PAYLOAD = 1, 2, 5, 11
"""Fields of a transfer frame."""

_OUTCOMES: dict[Literal["complete", "abandon"], dict[str, Any]] = {
    "complete": {"outcome": "accepted"},
    "abandon": {"outcome": "modified", "delivery_failed": True, "undeliverable_here": False},
}


class Link:
    """A sender or receiver of the SDK, with its connection."""

    def __init__(self, owner: ServiceBusSender | ServiceBusReceiver) -> None:
        self._inside: Any = owner
        self._handlers: list[Any] = []
        self._transports: list[Any] = []
        self._ended = False
        create_handler: Callable[[Any], None] = self._inside._create_handler

        def remembering(auth: object) -> None:
            self.cut()  # whatever the SDK has left of an earlier connection
            create_handler(auth)
            self._remember(self._inside._handler)

        self._inside._create_handler = remembering

    def _remember(self, handler: Any) -> None:
        """Keep hold of the sockets: the SDK forgets those of a connection that failed, and leaves them open."""
        self._handlers.append(handler)
        open_handler: Callable[..., Coroutine[Any, Any, None]] = handler.open_async

        async def remembering(*args: Any, **options: Any) -> None:
            try:
                await open_handler(*args, **options)
            finally:
                if handler._connection is not None:
                    self._transports.append(handler._connection._transport)
                if self._ended:  # it was given up in the meantime, and the SDK has not noticed at once
                    self.cut()
            handler.open_async = open_handler
            self._opened(handler)

        handler.open_async = remembering

    def _opened(self, handler: Any) -> None:
        """Do what is to be done with each connection that the SDK has opened."""

    async def open(self, seconds: float = OPEN_SECONDS, *, retries: bool = True) -> Self:
        """Open it, or raise what hinders it within so many seconds. One that could not be opened is to be closed.

        :param retries: let the SDK try again by itself, as its client was told.
        """
        configuration = self._inside._config
        total = configuration.retry_total
        try:
            if not retries:
                configuration.retry_total = 0
            await self.do(seconds, self._inside.__aenter__())
        finally:
            configuration.retry_total = total
        return self

    async def do(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Do something with it, or raise ``TimeoutError`` after so many seconds, and have its sockets closed."""
        return await within(seconds, work, overrun=self.cut)

    def cut(self) -> None:
        """Close the sockets at once, without a word to the peer."""
        for transport in self._transports:
            writer, session = getattr(transport, "writer", None), getattr(transport, "session", None)
            if writer is not None:
                writer.transport.abort()
            elif session is not None and session.connector is not None:  # a WebSocket
                session.connector.close()
        self._transports.clear()
        for handler in self._handlers:
            keep_alive, handler._keep_alive_thread = handler._keep_alive_thread, None
            if keep_alive is not None:
                cancel(keep_alive)

    async def close(self, *, in_doubt: bool = False) -> Exception | None:
        """Close it, in order if that can be done in a few seconds; never hangs, and returns what was in the way.

        Messages that a receiver has not handed out go back to their queue.

        :param in_doubt: something was under way on it: do not try to be in order.
        """
        self._ended = True
        if in_doubt:
            self.cut()
        try:
            await self.do(CLOSE_SECONDS, self._inside.close())
        except Exception as error:  # noqa: BLE001 (the SDK raises whatever the peer's end has left behind)
            return error
        else:
            return None
        finally:
            self.cut()


class EntityLink(Link):
    """A sender to one queue or topic: to AMQP both are an address. Use it for one thing at a time."""

    def __init__(self, sender: ServiceBusSender) -> None:
        super().__init__(sender)
        self.sender: Final = sender
        self.last_used = 0.0
        self.express: Final = ShortWay(sender)

    def _opened(self, handler: Any) -> None:
        shorten(handler)
        read_every_answer(handler)

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that the broker takes on this link."""
        return self._inside._max_batch_size_on_link or STANDARD_BATCH_BYTES

    async def send(self, outgoing: Outgoing) -> None:
        """Send encoded messages as one batch."""
        batch = await self.sender.create_message_batch()
        inside = cast("Any", batch)
        inside._message[5].extend(outgoing.payloads)
        inside._count = len(outgoing.payloads)
        inside._amqp_transport.set_batch_envelope_properties(
            inside._message, None, outgoing.session_id, outgoing.partition_key
        )
        await self.sender.send_messages(batch)
        self.last_used = asyncio.get_running_loop().time()


class _Always(asyncio.Event):
    """Lets the SDK keep messages that come between two receives.

    It would give them back, and the broker, which still has credit, would send them again, over and over.
    """

    def is_set(self) -> bool:
        return True


class QueueLink(Link):
    """A receiver of one queue, under peek-lock. Use it for one thing at a time.

    It must not be used any more once a call has failed or was cancelled: the SDK would open a link of its own.
    """

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        super().__init__(receiver)
        self.receiver = receiver
        self._payloads: dict[bytes, tuple[bytes, float]] = {}
        self._parts: list[bytes] = []
        self._tag = b""
        self._link: Any = None
        self._take_transfer: Callable[[Sequence[Any]], Coroutine[Any, Any, None]]

    async def open(self, seconds: float = OPEN_SECONDS, *, retries: bool = True) -> Self:
        """Open it, or raise what hinders it within so many seconds. One that could not be opened is to be closed."""
        await super().open(seconds, retries=retries)
        self._inside._receive_context = _Always()
        self._link = self._inside._handler._link
        self._take_transfer = self._link._incoming_transfer
        self._link._incoming_transfer = self._incoming_transfer
        return self

    @property
    def is_intact(self) -> bool:
        """Whether the SDK has not put another link in its place, after an error that it kept to itself."""
        handler = self._inside._handler
        return handler is not None and handler._link is self._link

    async def _incoming_transfer(self, frame: Sequence[Any]) -> None:
        if frame[_DELIVERY_ID] is not None:
            self._tag = bytes(frame[_TAG])
            self._parts.clear()
        self._parts.append(bytes(frame[_PAYLOAD]))
        if not frame[_MORE]:
            self._payloads[self._tag] = b"".join(self._parts), asyncio.get_running_loop().time()
        await self._take_transfer(frame)

    async def receive(self, most: int, wait: float) -> list[tuple[ServiceBusReceivedMessage, bytes]]:
        """Receive messages with their payloads; those that are there already come first, and at once."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        while True:
            there = self._inside._handler._received_messages.qsize()
            messages = await self.receiver.receive_messages(
                min(most, there) if there else most, max_wait_time=max(_LEAST_WAIT, ends - loop.time())
            )
            fresh: list[tuple[ServiceBusReceivedMessage, bytes]] = []
            stale: list[ServiceBusReceivedMessage] = []
            for message in messages:
                payload, came = self._payloads.pop(_tag_of(message))
                if came < loop.time() - FRESH_SECONDS:
                    stale.append(message)
                else:
                    fresh.append((message, payload))
            if stale:
                await self.settle_run(stale, "abandon")
            if fresh or not messages:
                return fresh

    async def take(self, most: int, wait: float) -> list[tuple[ServiceBusReceivedMessage, bytes]]:
        """Receive messages with their payloads, however long ago they came: for a receiver that does not lock them."""
        messages = await self.receiver.receive_messages(most, max_wait_time=wait)
        return [(message, self._payloads.pop(_tag_of(message))[0]) for message in messages]

    async def take_rest(self, wait: float) -> list[tuple[ServiceBusReceivedMessage, bytes]]:
        """Ask for no more messages, and return those that were on their way: the broker has forgotten them."""
        loop, handler = asyncio.get_running_loop(), self._inside._handler
        await self._link.flow(link_credit=0)
        ends = loop.time() + wait
        while loop.time() < ends:
            await handler.do_work_async()
        there = handler._received_messages.qsize()
        return await self.take(there, _LEAST_WAIT) if there else []

    async def settle_run(
        self, messages: Sequence[ServiceBusReceivedMessage], settlement: Literal["complete", "abandon"]
    ) -> None:
        """Settle messages whose deliveries follow each other by one frame, and wait for the broker's answer."""
        first, last = delivery_id(messages[0]), delivery_id(messages[-1])
        try:
            await self._inside._handler.settle_messages_async(
                (first, last), _tag_of(messages[0]), await_outcome=True, **_OUTCOMES[settlement]
            )
        finally:
            self._link._received_delivery_tags.difference_update(map(_tag_of, messages))


def receiver_of(client: ServiceBusClient, queue: str) -> QueueLink:
    """Make a link to receive from a queue."""
    return QueueLink(client.get_queue_receiver(queue))


def sender_to(client: ServiceBusClient, entity: str) -> EntityLink:
    """Make a link to send to a queue or topic."""
    return EntityLink(client.get_queue_sender(entity))


def delivery_id(message: ServiceBusReceivedMessage) -> int:
    """Return the number of a message's delivery on its link."""
    return cast("Any", message)._delivery_id


def _tag_of(message: ServiceBusReceivedMessage) -> bytes:
    return bytes(cast("Any", message)._delivery_tag)
