"""The SDK's adapter of :class:`~pairbus.links.channel.Channel`: one transfer at a time, on a sender of the SDK.

The SDK has one reader for each connection: who sends also reads, until the answer has come. That cannot be the caller,
who may give up while others count on the link; so a channel has a task of its own, the *carrier*, which lives as long
as the channel does. To wake it before anything is written would cost each send a turn of the event loop: the first step
of a transfer, up to where it waits for the answer, is done at once, by whoever sends, and the carrier goes on from
there while the broker works. ``bench/client.py``, in one quarter of an hour on one machine: with a
new task and a timer for each send, and the SDK's encoder, 0.94 of the bare SDK's rate (synchronous) and 1.18
(asynchronous); with the carrier, one timer for each link and our encoder 1.04 and 1.33. What each of the three brings
was not measured apart.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.links.channel import Answered
from pairbus.links.deadlines import BackgroundTasks, cancel
from pairbus.links.errors import unsent
from pairbus.links.sdk.links import EntityLink
from pairbus.messages.sdk_batches import Message


class _Job(NamedTuple):
    """A transfer that the carrier is to end.

    :ivar waits_for: what its first step waits for, if that was done at once.
    """

    transfer: Coroutine[Any, Any, None]
    answered: Answered
    is_begun: bool = False
    waits_for: object = None


class SdkChannel:
    """A sender of the SDK that is open."""

    def __init__(self, link: EntityLink, chores: BackgroundTasks) -> None:
        self.carries_many: Final = False
        self.is_open: Final = True
        self.batch_bytes: Final = link.max_batch_bytes
        self._link = link
        self._express = link.express
        self._chores = chores
        self._loop = asyncio.get_running_loop()
        self._jobs: asyncio.Future[_Job] = self._loop.create_future()
        self._carrier = chores.start(self._carry(), f"carrier of {link.sender.entity_name}")

    def send(self, messages: Sequence[Message], payload: bytes, message_format: int, answered: Answered) -> None:
        """Send messages."""
        if message_format and len(payload) > self.batch_bytes:
            limit = f"ServiceBusMessageBatch has reached its size limit: {self.batch_bytes}"
            self._loop.call_soon(answered, unsent(MessageSizeExceededError(message=limit)))
            return
        transfer = self._express.send(messages, payload, message_format)
        job = _Job(transfer, answered)
        if self._express.writes_at_once(payload):
            try:
                job = _Job(transfer, answered, is_begun=True, waits_for=transfer.send(None))
            except Exception as error:  # noqa: BLE001 (handed to the caller)
                self._loop.call_soon(answered, None if isinstance(error, StopIteration) else error)
                return
        self._jobs.set_result(job)

    async def _carry(self) -> None:
        try:
            while True:
                job = await self._jobs
                failure = None
                try:
                    await (_resumed(job.transfer, job.waits_for) if job.is_begun else job.transfer)
                except Exception as error:  # noqa: BLE001 (handed to the caller)
                    failure = error
                self._jobs = self._loop.create_future()
                job.answered(failure)
        finally:
            if self._jobs.done() and not self._jobs.cancelled():
                self._jobs.result().transfer.close()

    def flush(self) -> None:
        """Nothing is kept back."""

    async def schedule(self, messages: Sequence[Message], at: datetime) -> list[int]:
        """Send messages to be enqueued at a time, and return their sequence numbers."""
        return await self._link.sender.schedule_messages(cast("list[ServiceBusMessage]", list(messages)), at)

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        """Cancel messages that were scheduled."""
        await self._link.sender.cancel_scheduled_messages(list(numbers))

    def suspect(self, since: float) -> None:
        """The connection is this link's alone, which is replaced."""

    def close(self, *, in_doubt: bool) -> None:
        """Close it, in the background."""
        cancel(self._carrier)
        self._chores.start(self._link.close(in_doubt=in_doubt), f"closing of {self._link.sender.entity_name}")


async def open_channel(
    make: Callable[[], ServiceBusSender], seconds: float, chores: BackgroundTasks, *, retries: bool
) -> SdkChannel:
    """Open a sender of the SDK, or raise what hinders it.

    :param make: makes the sender, not yet open.
    """
    link = EntityLink(make())
    try:
        await link.open(seconds, retries=retries)
    except BaseException:
        chores.start(link.close(in_doubt=True), f"closing of {link.sender.entity_name}")
        raise
    return SdkChannel(link, chores)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, None], waits_for: object) -> Generator[Any, Any, None]:
    """Go on with a coroutine whose first step was done elsewhere."""
    try:
        while True:
            try:
                got = yield waits_for
            except BaseException as error:  # noqa: BLE001 (it is the coroutine's to handle)
                waits_for = work.throw(error)
            else:
                waits_for = work.send(got)
    except StopIteration:
        return
