"""What is really there: both namespaces, read by the official SDK and nothing of ours."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from tests.chaos.nemesis.journal import body_of

PAGE = 250
FILLER = "filler"
"""How the ids of messages begin that the nemesis itself put there."""


@dataclass(frozen=True)
class Found:
    """A message in a queue.

    :ivar enqueued_at: when the queue took it, in seconds since the epoch.
    :ivar sound: whether its body is the one that was sent.
    """

    message_id: str
    side: str
    queue: str
    enqueued_at: float
    sound: bool


def found(message: ServiceBusReceivedMessage, side: str, queue: str) -> Found:
    body = b"".join(bytes(part) for part in message.body)
    enqueued = message.enqueued_time_utc
    assert enqueued is not None
    sound = body == body_of(str(message.message_id), len(body))
    return Found(str(message.message_id), side, queue, enqueued.timestamp(), sound)


async def peek(connection_string: str, queue: str, side: str = "") -> list[Found]:
    """Look at all messages of a queue, locked ones too."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        return [found(each, side, queue) for each in await _peek_all(receiver)]


async def _peek_all(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    seen: list[ServiceBusReceivedMessage] = []
    first = 1
    while page := await receiver.peek_messages(PAGE, sequence_number=first):
        seen += page
        first = (page[-1].sequence_number or 0) + 1
    return seen


async def read_all(connection_string: str, queues: Iterable[str], side: str) -> list[Found]:
    """Look at all messages of queues and of their dead-letter queues."""
    there: list[Found] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        for queue in queues:
            for sub, name in ((None, queue), (ServiceBusSubQueue.DEAD_LETTER, f"{queue}/dead letters")):
                async with client.get_queue_receiver(queue, sub_queue=sub) as receiver:
                    there += [found(each, side, name) for each in await _peek_all(receiver)]
    return [each for each in there if not each.message_id.startswith(FILLER)]


async def wait_until_empty(connection_string: str, queues: Sequence[str], seconds: float) -> int:
    """Wait until queues are empty, at most so long, and return how many messages are still there."""
    ends = time.monotonic() + seconds
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        while True:
            left = 0
            for queue in queues:
                async with client.get_queue_receiver(queue) as receiver:
                    left += len(await receiver.peek_messages(PAGE, sequence_number=1))
            if not left or time.monotonic() > ends:
                return left
            await asyncio.sleep(1)


async def remove(connection_string: str, queue: str, count: int) -> None:
    """Receive messages of a queue and delete them."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
            while count > 0 and (got := await receiver.receive_messages(count, max_wait_time=5)):
                count -= len(got)
