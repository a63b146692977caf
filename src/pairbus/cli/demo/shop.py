"""The shop of the demo: tills that send, and clerks that receive."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender, ServiceBusSession
from azure.servicebus.exceptions import ServiceBusError

from pairbus.cli.demo.order_counts import OrderCounts
from pairbus.client.sender import MessageSender
from pairbus.errors import PairbusError

PATIENCE: Final = 8.0
"""Seconds that a customer waits for an order to be taken."""
_RENEW_BEFORE: Final = timedelta(seconds=30)
_TRY_AGAIN: Final = 0.5

_LOGGER: Final = logging.getLogger(__name__)

Send: TypeAlias = Callable[[ServiceBusMessage], Awaitable[object]]
"""Sends a message within the customer's patience, or raises."""


def paired(sender: MessageSender) -> Send:
    """A paired sender may be shared by any number of tasks."""
    return lambda message: sender.send_messages(message, timeout=PATIENCE)


def bare(sender: ServiceBusSender) -> Send:
    """A sender of the SDK is used by one task at a time; a customer's patience may end before it is free."""
    one_at_a_time = asyncio.Lock()

    async def send(message: ServiceBusMessage) -> None:
        async with asyncio.timeout(PATIENCE):
            await one_at_a_time.acquire()
        try:
            await sender.send_messages(message, timeout=PATIENCE)
        finally:
            one_at_a_time.release()

    return send


class Till:
    """Takes orders at a steady pace, as customers come, whether those before them were served or not.

    :param name: the first part of its orders' ids, and their session.
    """

    def __init__(self, name: str, entity: str, send: Send, counts: OrderCounts, *, sessions: bool) -> None:
        self._name = name
        self._entity = entity
        self._send = send
        self._counts = counts
        self._sessions = sessions

    async def open_until(self, closing: asyncio.Event, pace: float) -> None:
        """Sell until closing time, so many orders a second; those who have come by then are served."""
        began, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as customers:
            while not closing.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, began + number / pace - time.monotonic())):
                        await closing.wait()
                        break
                customers.create_task(self._sell(f"{self._name}-{number}"))
                number += 1

    async def _sell(self, order: str) -> None:
        session = self._name if self._sessions else None
        try:
            await self._send(ServiceBusMessage(f"order {order}", message_id=order, session_id=session))
        except (ServiceBusError, PairbusError, TimeoutError) as error:
            _LOGGER.warning("order %s was not taken: %r", order, error)
            self._counts.refused(self._entity, order)
        else:
            self._counts.accepted(self._entity, order)


async def clerk(
    open_receiver: Callable[[], contextlib.AbstractAsyncContextManager[ServiceBusReceiver]],
    place: str,
    counts: OrderCounts,
) -> None:
    """Receive and complete what comes, with the SDK's own receiver, until cancelled; open it again when it breaks."""
    while True:
        try:
            async with open_receiver() as receiver:
                async for message_id, number in _received(receiver):
                    counts.came(place, message_id, number)
        except ServiceBusError:
            await asyncio.sleep(_TRY_AGAIN)


async def _received(receiver: ServiceBusReceiver) -> AsyncIterator[tuple[str, int]]:
    while True:
        messages = await receiver.receive_messages(100, max_wait_time=1)
        for message in messages:
            yield message.message_id or "", message.sequence_number or 0
        await asyncio.gather(*map(receiver.complete_message, messages))
        session = cast("ServiceBusSession | None", receiver.session)  # None without sessions, whatever its type says
        until = None if session is None else session.locked_until_utc
        if session is not None and until is not None and until - datetime.now(UTC) < _RENEW_BEFORE:
            await session.renew_lock()
