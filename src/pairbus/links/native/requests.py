"""A pair of links to a node that answers requests: ``$cbs``, or the ``$management`` of an entity."""

import asyncio
from collections.abc import Mapping
from typing import Final

from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp import AmqpError
from pairbus.amqp.client.requests import Answer, read_answer, request
from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import ACCEPTED, SETTLE_SETTLED, Accepted, DeliveryState, Source, Target
from pairbus.amqp.types import Value
from pairbus.links.errors import again, timed_out
from pairbus.links.native import errors
from pairbus.links.native.connection import NativeConnection

CREDIT: Final = 200


class _Asked:
    __slots__ = ("future", "number", "payload")

    def __init__(self, number: int, payload: bytes, future: "asyncio.Future[Answer]") -> None:
        self.number = number
        self.payload = payload
        self.future = future

    def on_outcome(self, state: DeliveryState | None) -> None:
        if not isinstance(state, Accepted) and not self.future.done():
            self.future.set_exception(errors.of_outcome(state, "a request"))


class RequestLink:
    """Asks a node; any number of requests may be under way."""

    def __init__(self, connection: NativeConnection, node: str) -> None:
        self.error: ServiceBusError | None = None
        self.node: Final = node
        self.connection: Final = connection
        self._reply_to = f"{node}-{id(self)}"
        self._asked: dict[int, _Asked] = {}
        self._waiting: list[_Asked] = []
        self._number = 0
        self._attached: asyncio.Future[None] = connection.loop.create_future()
        self._session = session = connection.begin()
        session.context = self
        self._requests = session.attach_sender(f"{self._reply_to}-out", Target(node), Source(self._reply_to))
        self._answers = session.attach_receiver(
            f"{self._reply_to}-in", Source(node), Target(self._reply_to), snd_settle_mode=SETTLE_SETTLED
        )
        self._requests.context = self._answers.context = self
        connection.flush_soon()

    async def attached(self) -> None:
        """Wait until the node has attached both links."""
        await asyncio.shield(self._attached)

    async def ask(self, properties: Mapping[str, Value], body: Value, seconds: float) -> Answer:
        """Ask, and return the answer, good or not."""
        if self.error is not None:
            raise again(self.error)
        self._number += 1
        number = self._number
        asked = _Asked(number, request(number, self._reply_to, properties, body), self.connection.loop.create_future())
        self._asked[number] = asked
        self._waiting.append(asked)
        self.on_flow()
        self.connection.flush_soon()
        try:
            async with asyncio.timeout(seconds):
                return await asked.future
        except TimeoutError:
            raise timed_out(f"a request to {self.node!r}", seconds) from None
        finally:
            self._asked.pop(number, None)

    def on_attached(self) -> None:
        """Take note of it, and let answers come."""
        if self._requests.is_attached and self._answers.is_attached and not self._attached.done():
            self._answers.grant(CREDIT)
            self._attached.set_result(None)

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Take answers."""
        for delivery in deliveries:
            if not delivery.settled:
                self._answers.settle(delivery, ACCEPTED)
            try:
                number, answer = read_answer(delivery.payload)
            except AmqpError as error:
                self.on_ended(errors.of_condition(str(error.condition), error.description))
                return
            asked = self._asked.get(number or 0)
            if asked is not None and not asked.future.done():
                asked.future.set_result(answer)
        if self._answers.credit < CREDIT // 2:
            self._answers.grant(CREDIT)

    def on_flow(self) -> None:
        """Send the requests that wait."""
        while self._waiting and self._requests.sendable > 0:
            asked = self._waiting.pop(0)
            if not asked.future.done():
                self._requests.send(asked.payload, asked.number.to_bytes(8), context=asked)

    def on_settled(self, first: int, last: int, state: DeliveryState | None) -> None:
        """Answers come settled."""

    def on_ended(self, error: ServiceBusError) -> None:
        """End: whether requests under way were carried out is not known."""
        if self.error is not None:
            return
        self.error = error
        if not self._attached.done():
            self._attached.set_exception(error)
            self._attached.exception()  # whoever has given up waiting does not look at it
        asked, self._asked = self._asked, {}
        for each in asked.values():
            if not each.future.done():
                each.future.set_exception(again(error))
        self._session.end()
        self.connection.flush_soon()

    def close(self) -> None:
        """Detach it."""
        self._requests.detach()
        self._answers.detach()
        self.on_ended(errors.of_link(None, f"the links to {self.node!r}"))
