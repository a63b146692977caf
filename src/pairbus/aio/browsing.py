"""Looking at the messages of a queue, a subscription or a sub-queue, without locking them."""

from collections.abc import AsyncGenerator
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from pairbus.aio.sdk_links import QueueLink
from pairbus.amqp import Message

PAGE: Final = 250
"""How many messages one look shows."""
SECONDS: Final = 15.0
"""The deadline of each step."""

DEAD_LETTERS: Final = "$DeadLetterQueue"


def path_of(entity: str, *, subscription: str | None = None, sub_queue: str | None = None) -> str:
    """Return the path that can be received from: ``orders``, ``orders/Subscriptions/all/$DeadLetterQueue``."""
    path = entity.strip("/")
    if subscription is not None:
        path += f"/Subscriptions/{subscription}"
    return path if sub_queue is None else f"{path}/{sub_queue}"


def sequence_number_of(message: Message) -> int:
    """Return a received or peeked message's number in its queue; 0 if it has none."""
    number = message.message_annotations().get("x-opt-sequence-number")
    return int(number) if isinstance(number, int) else 0


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

    Close the generator (``contextlib.aclosing``) if it is left before its end: it holds a link.

    :param most: ends it after so many.
    :param session_id: of an entity that demands sessions.
    :param seconds: the deadline of each step.
    """
    link = QueueLink(client.get_queue_receiver(path, session_id=session_id))
    left = most
    try:
        await link.do(seconds, link.open())
        while left is None or left > 0:
            page = await link.do(seconds, link.peek(PAGE if left is None else min(PAGE, left), first, seconds))
            if not page:
                return
            for payload in page:
                message = Message(payload)
                first = sequence_number_of(message) + 1
                yield message
            left = None if left is None else left - len(page)
    finally:
        await link.close()
