"""A link that sends: any number of messages may be under way on it, each with an outcome of its own."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import SETTLE_UNSETTLED, Accepted, DeliveryState, Target
from pairbus.links.native import errors
from pairbus.links.native.connection import NativeConnection

LARGEST_BATCH: Final = 262_144
"""What is taken for the largest message when the broker does not say."""


Answered: TypeAlias = Callable[[ServiceBusError | None], None]
"""Told how a delivery ended: None is well."""


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
    """A sender to one queue or topic. It respects the broker's credit and windows, and the socket's."""

    def __init__(self, connection: NativeConnection, entity: str) -> None:
        self.entity: Final = entity
        self.error: ServiceBusError | None = None
        self.used_at = connection.loop.time()
        self.connection: Final = connection
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
    def largest(self) -> int:
        """The largest message, or batch, that the broker takes."""
        return self._link.max_message_size or LARGEST_BATCH

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self._pending

    def send(self, payload: bytes, message_format: int, answered: Answered) -> Sending:
        """Send a message, now or when the broker takes it. The caller flushes the connection."""
        if self.error is not None:
            raise errors.unsent(self.error)
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

        def answered(error: ServiceBusError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        began = self.used_at = self._loop.time()
        sending = self.send(payload, message_format, answered)
        self.connection.flush_soon()
        timer = self._loop.call_later(
            seconds, lambda: answered(errors.timed_out(f"sending to {self.entity!r}", seconds))
        )
        try:
            await future
        except OperationTimeoutError as error:
            if sending not in self._pending:
                raise  # the broker's own
            self.forget(sending)
            self.connection.suspect(began)
            self.close()
            raise error if sending.begun else errors.unsent(error) from None
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
            self._attached.set_exception(errors.unsent(error))
            self._attached.exception()  # whoever has given up waiting does not look at it
        pending, self._pending = self._pending, {}
        self._waiting.clear()
        for sending in pending:
            failed = errors.again(error)
            sending.answered(failed if sending.begun else errors.unsent(failed))
        self._link.session.end()
        self.connection.flush_soon()

    def close(self) -> None:
        """Detach it."""
        self._link.detach()
        self.on_ended(errors.of_link(None, f"the link to {self.entity!r}"))
