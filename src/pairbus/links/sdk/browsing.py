"""Looking at the messages of a queue, a subscription or a sub-queue, as the bytes that they are.

The SDK's ``peek_messages`` loses what a message was, as its receivers do (ADR 0013), and opens a link that receives,
which an entity that demands sessions refuses. Looking needs neither: the request goes over the entity's management
link alone, takes no lock, and sees the messages of all sessions. So here the SDK's inside is used.
"""

# ruff: noqa: SLF001 (what this module is for; a test pins each use to the SDK that is installed)

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, cast

from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp import Message
from pairbus.core.ledger import Kind, Stage
from pairbus.core.naming import namespace_label
from pairbus.core.verdict import Cause, Verdict, verdict_of
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import within
from pairbus.links.errors import facts
from pairbus.links.sdk.links import Link
from pairbus.links.sdk.private import (
    AMQPException,
    AMQPLinkError,
    connect_without_link,
    peek_request,
    peeked_payloads,
)
from pairbus.messages.annotations import SEQUENCE_NUMBER

PAGE: Final = 250
"""How many messages one look shows."""
SECONDS: Final = 15.0
"""The deadline of each step."""

DEAD_LETTERS: Final = "$DeadLetterQueue"

_LOGGER = logging.getLogger(__name__)

_PAUSES: Final = (0.5, 1.0, 2.0)
"""Seconds before a look that failed is tried again, unless the caller is at fault."""
_FRAMES_TO_A_REFUSAL: Final = 5


def path_of(entity: str, *, subscription: str | None = None, sub_queue: str | None = None) -> str:
    """Return the path that can be received from: ``orders``, ``orders/Subscriptions/all/$DeadLetterQueue``."""
    path = entity.strip("/")
    if subscription is not None:
        path += f"/Subscriptions/{subscription}"
    return path if sub_queue is None else f"{path}/{sub_queue}"


def sequence_number_of(message: Message) -> int:
    """Return a received or peeked message's number in its queue; 0 if it has none."""
    number = message.message_annotations().get(SEQUENCE_NUMBER)
    return int(number) if isinstance(number, int) else 0


class Browser(Link):
    """Looks at the messages of one entity; any number of tasks may share it, and they wait for each other.

    It opens its connection when it is first used, and again after a failure.

    :param entity: a queue, or a topic if there is a subscription.
    :param attempt_timeout: how long one attempt may take, in seconds.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        entity: str,
        *,
        subscription: str | None = None,
        sub_queue: ServiceBusSubQueue | None = None,
        attempt_timeout: float = SECONDS,
        instrument: Instrument | None = None,
    ) -> None:
        receiver = (
            client.get_queue_receiver(entity, sub_queue=sub_queue)
            if subscription is None
            else client.get_subscription_receiver(entity, subscription, sub_queue=sub_queue)
        )
        inside = cast("Any", receiver)
        inside._create_handler = partial(connect_without_link, inside)
        super().__init__(receiver)
        self.path: Final[str] = inside._entity_name if subscription is None else inside.entity_path
        self._namespace = namespace_label(client.fully_qualified_namespace)
        self._seconds = attempt_timeout
        self._instrument = Instrument() if instrument is None else instrument
        self._lock = asyncio.Lock()
        self._has_answered = False
        """Whether the present connection has shown messages, or that there are none."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def peek(self, first: int, most: int) -> Sequence[bytes]:
        """Return encoded messages in the order of their sequence numbers; the broker may give fewer than there are.

        :param first: the sequence number from which to look.
        :param most: how many messages at most.
        """
        operation_name, request = peek_request(self._inside._amqp_transport, first, most)
        async with self._lock:
            for pause in (*_PAUSES, None):
                operation = self._instrument.begin(self._namespace, self.path, Kind.PEEK, Stage.DIRECT)
                try:
                    found = await within(self._seconds, self._look(operation_name, request), overrun=self.cut)
                except Exception as error:
                    operation.failed(error)
                    told = facts(error)
                    # The entity that this connection knows was deleted; another one may have its name by now.
                    is_stale = self._has_answered and told.cause is Cause.NOT_FOUND
                    self._begin_anew()
                    if pause is None or (verdict_of(told) is Verdict.CALLERS and not is_stale):
                        raise
                    _LOGGER.debug("%s is looked at again in %g s: %r", self.path, pause, error)
                    await asyncio.sleep(pause)
                else:
                    operation.done([len(payload) for payload in found])
                    self._has_answered = True
                    return found
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _look(self, operation: bytes, request: Mapping[Any, Any]) -> list[bytes]:
        try:
            return await self._inside._mgmt_request_response(operation, request, peeked_payloads, timeout=self._seconds)
        except ServiceBusError:
            raise
        except Exception as error:  # noqa: BLE001 (the SDK's own, of the layers below its errors)
            told = await self._refusal() if isinstance(error, AMQPLinkError) else None
            raise self._inside._amqp_transport.create_servicebus_exception(_LOGGER, told or error) from None

    async def _refusal(self) -> AMQPException | None:
        """Return why the entity refused the management link, which it says after the SDK has given up listening."""
        handler: Any = self._inside._handler
        if handler is None:
            return None
        for _ in range(_FRAMES_TO_A_REFUSAL):
            for link in [each._mgmt_link for each in handler._mgmt_links.values()]:
                for end in (link._request_link, link._response_link):
                    if end._error is not None:
                        return end._error
            try:
                await handler._connection.listen(wait=True)
            except AMQPException:
                return None
        return None

    def _begin_anew(self) -> None:
        """Forget the connection, so that the next look opens another."""
        self.cut()
        self._inside._handler, self._inside._running = None, False
        self._has_answered = False


async def browse(
    client: ServiceBusClient,
    path: str,
    *,
    first: int = 1,
    most: int | None = None,
    session_id: str | None = None,
    seconds: float = SECONDS,
) -> AsyncGenerator[Message]:
    """Look at messages one after the other, those under lock, deferred and scheduled too, from a sequence number on.

    Close the generator (``contextlib.aclosing``) if it is left before its end: it holds a connection.

    :param most: ends it after so many.
    :param session_id: shows only the messages of this session.
    :param seconds: the deadline of each step.
    """
    shown = 0
    async with Browser(client, path, attempt_timeout=seconds) as browser:
        while most is None or shown < most:
            page = await browser.peek(first, PAGE)
            if not page:
                return
            for payload in page:
                message = Message(payload)
                first = sequence_number_of(message) + 1
                if session_id is None or _session_of(message) == session_id:
                    yield message
                    shown += 1
                    if shown == most:
                        return


def _session_of(message: Message) -> str | None:
    properties = message.properties()
    return None if properties is None else properties.group_id
