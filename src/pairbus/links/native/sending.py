"""A link that sends: any number of messages may be under way on it, each with an outcome of its own.

It is the native adapter of :class:`~pairbus.links.channel.Channel`.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import SETTLE_UNSETTLED, Accepted, DeliveryState, Target
from pairbus.amqp.types import Array, Value
from pairbus.links.channel import Answered
from pairbus.links.errors import again, timed_out, unsent
from pairbus.links.native import errors
from pairbus.links.native.connection import NativeConnection
from pairbus.messages.encoding import encoded
from pairbus.messages.sdk_batches import STANDARD_BATCH_BYTES, Message

_LONG: Final = 0x81


class Manage(Protocol):
    """Has an entity do something, by its management node."""

    async def __call__(self, entity: str, operation: str, body: dict[str, Value], seconds: float) -> Value:
        """Return what the entity answers."""
        ...


class Sending:
    """One delivery, whose ``answered`` is called when the broker has answered, or when nobody will ever know.

    :ivar begun: whether anything of it may have reached the broker.
    """

    __slots__ = ("_link", "answered", "begun", "message_format", "payload")

    def __init__(self, link: "SendingLink", payload: bytes, message_format: int, answered: Answered) -> None:
        self._link = link
        self.payload = payload
        self.message_format = message_format
        self.begun = False
        self.answered = answered

    def on_outcome(self, state: DeliveryState | None) -> None:
        """Take the broker's answer."""
        self._link.on_outcome(self, state)


class SendingLink:
    """A sender to one queue or topic. It respects the broker's credit and windows, and the socket's.

    :param seconds: how long a request to the management node may take.
    """

    @property
    def carries_many(self) -> bool:
        """It does."""
        return True

    def __init__(self, connection: NativeConnection, entity: str, manage: Manage, seconds: float) -> None:
        self.entity: Final = entity
        self.error: ServiceBusError | None = None
        self.used_at = connection.loop.time()
        self.connection: Final = connection
        self._manage = manage
        self._seconds = seconds
        self._loop = connection.loop
        self._waiting: deque[Sending] = deque()
        self._pending: dict[Sending, None] = {}
        self._tag = 0
        self._attached: asyncio.Future[None] = connection.loop.create_future()
        session = connection.begin()
        session.context = self
        self._link = session.attach_sender(
            f"pairbus-sender-{id(self)}-{entity}",
            Target(connection.endpoint.address(entity)),
            snd_settle_mode=SETTLE_UNSETTLED,
        )
        self._link.context = self
        connection.flush_soon()

    async def attached(self) -> None:
        """Wait until the broker has attached it."""
        await asyncio.shield(self._attached)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.error is None

    @property
    def batch_bytes(self) -> int:
        """The largest message, or batch, that the broker takes."""
        return self._link.max_message_size or STANDARD_BATCH_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self._pending

    def send(self, messages: Sequence[Message], payload: bytes, message_format: int, answered: Answered) -> None:
        """Send an encoded message or batch, now or when the broker takes it."""
        del messages
        try:
            self._start(payload, message_format, answered)
        except Exception as error:  # noqa: BLE001 (handed to the callers)
            answered(unsent(error))

    def flush(self) -> None:
        """Write what was sent."""
        self.connection.flush()

    async def schedule(self, messages: Sequence[Message], at: datetime) -> list[int]:
        """Send messages to be enqueued at a time, and return their sequence numbers."""
        entries: list[Value] = []
        for message in messages:
            if not isinstance(message, ServiceBusMessage):
                raise ValueError(  # noqa: TRY004 (the SDK's own error)
                    "Scheduling batch messages only supports iterables containing ServiceBusMessage Objects. "
                    f"Received instead: {type(message).__name__}"
                )
            message.scheduled_enqueue_time_utc = at
            entry: dict[str, Value] = {"message-id": message.message_id, "message": encoded(message)}
            if message.session_id:
                entry["session-id"] = message.session_id
            if message.partition_key:
                entry["partition-key"] = message.partition_key
            entries.append(entry)
        answer: Any = await self._manage(self.entity, "schedule-message", {"messages": entries}, self._seconds)
        return [int(number) for number in answer["sequence-numbers"]]

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        """Cancel messages that were scheduled."""
        if numbers:
            body: dict[str, Value] = {"sequence-numbers": Array(_LONG, numbers)}
            await self._manage(self.entity, "cancel-scheduled-message", body, self._seconds)

    def suspect(self, since: float) -> None:
        """Give the connection up if nothing was heard on it since then."""
        self.connection.suspect(since)

    def _start(self, payload: bytes, message_format: int, answered: Answered) -> Sending:
        if self.error is not None:
            raise unsent(self.error)
        limit = self._link.max_message_size
        if limit is not None and len(payload) > limit:
            raise MessageSizeExceededError(
                message=f"The message is too large: {len(payload)} bytes; {self.entity!r} takes {limit} at most.",
                condition="amqp:link:message-size-exceeded",
            )
        sending = Sending(self, payload, message_format, answered)
        self._pending[sending] = None
        if self._waiting or not self._may_transfer():
            self._waiting.append(sending)
        else:
            self._transfer(sending)
        return sending

    async def deliver(self, payload: bytes, message_format: int, seconds: float) -> None:
        """Send a message, and return when the broker has accepted it.

        When the time is over the link is let go of: nobody knows whether it would ever answer.
        """
        future: asyncio.Future[None] = self._loop.create_future()

        def answered(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        began = self.used_at = self._loop.time()
        sending = self._start(payload, message_format, answered)
        self.connection.flush_soon()
        timer = self._loop.call_later(seconds, lambda: answered(timed_out(f"sending to {self.entity!r}", seconds)))
        try:
            await future
        except OperationTimeoutError as error:
            if sending not in self._pending:
                raise  # the broker's own
            self.forget(sending)
            self.connection.suspect(began)
            self.close()
            raise error if sending.begun else unsent(error) from None
        finally:
            timer.cancel()
            self.forget(sending)

    def forget(self, sending: Sending) -> None:
        """Wait no more for an answer; what has not been sent yet is not."""
        self._pending.pop(sending, None)
        if not sending.begun and sending in self._waiting:
            self._waiting.remove(sending)

    def on_flow(self) -> None:
        """Send what waits, as far as the broker takes it."""
        while self._waiting and self._may_transfer():
            self._transfer(self._waiting.popleft())

    def _may_transfer(self) -> bool:
        link = self._link
        return link.credit > 0 and link.session.remote_incoming_window > 0 and not self.connection.paused

    def _transfer(self, sending: Sending) -> None:
        sending.begun = True
        self._tag = tag = (self._tag + 1) & 0xFFFFFFFF
        self._link.send(sending.payload, tag.to_bytes(4), message_format=sending.message_format, context=sending)
        sending.payload = b""

    def on_outcome(self, sending: Sending, state: DeliveryState | None) -> None:
        """Take the broker's answer."""
        if self._pending.pop(sending, self) is self:
            return  # nobody wants to know any more
        accepted = isinstance(state, Accepted)
        sending.answered(None if accepted else errors.of_outcome(state, f"sending to {self.entity!r}"))

    def on_attached(self) -> None:
        """Take note that it is attached."""
        if not self._attached.done():
            self._attached.set_result(None)

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Nothing is received on it."""

    def on_settled(self, first: int, last: int, state: DeliveryState | None) -> None:
        """Nothing is received on it."""

    def on_ended(self, error: ServiceBusError) -> None:
        """End: what was sent and not answered is in doubt, what was not sent is not."""
        if self.error is not None:
            return
        self.error = error
        if not self._attached.done():
            self._attached.set_exception(unsent(error))
            self._attached.exception()  # whoever has given up waiting does not look at it
        pending, self._pending = self._pending, {}
        self._waiting.clear()
        for sending in pending:
            failed = again(error)
            sending.answered(failed if sending.begun else unsent(failed))
        self._link.session.end()
        self.connection.flush_soon()

    def close(self, *, in_doubt: bool = False) -> None:
        """Detach it."""
        del in_doubt  # it is closed in order in any case: the connection serves other links, too
        self._link.detach()
        self.on_ended(errors.of_link(None, f"the link to {self.entity!r}"))
