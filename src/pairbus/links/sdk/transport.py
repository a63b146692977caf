"""The transport over ``azure.servicebus.aio``."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp import AmqpError, Message
from pairbus.core.burst import Parked
from pairbus.core.envelope import Label, Properties
from pairbus.core.naming import entity_key, namespace_label
from pairbus.core.routing import DeadLetter
from pairbus.core.verdict import IN_DOUBT, Cause, ErrorFacts
from pairbus.links.channel import STALE_SECONDS
from pairbus.links.errors import facts, timed_out, unsent
from pairbus.links.sdk.links import EntityLink, Link, QueueLink, delivery_id, receiver_of, sender_to
from pairbus.links.transport import LONG_WAIT, PAGE, Answers, Outgoing, Received, Settlement
from pairbus.messages.encoded_labels import read
from pairbus.messages.sdk_messages import size_of

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

LINKS_PER_ENTITY: Final = 4
"""How many batches may be under way to one entity."""


@dataclass(slots=True, eq=False, kw_only=True)
class _SdkReceived(Received):
    """A message under lock, and the SDK's own, which came by this link."""

    link: QueueLink
    message: ServiceBusReceivedMessage


@dataclass(slots=True)
class _Queue:
    """The receiver of one queue: one call at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    link: QueueLink | None = None


@dataclass(slots=True)
class _Entity:
    """The links to one destination; the one that was used last is used first, so that others rest."""

    permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LINKS_PER_ENTITY))
    resting: list[EntityLink] = field(default_factory=list[EntityLink])


class SdkTransport:
    """Carries messages by the SDK. Closing it leaves its client open.

    :param client: of one namespace, made with ``retry_total=0``: whoever drives the transport retries.
    :param attempt_timeout: the deadline of each call, in seconds; of a receive beyond the time it waits.
    """

    def __init__(self, client: ServiceBusClient, *, attempt_timeout: float = 15.0) -> None:
        self._client = client
        self._namespace = namespace_label(client.fully_qualified_namespace)
        self._seconds = attempt_timeout
        self._queues: dict[str, _Queue] = {}
        self._entities: dict[str, _Entity] = {}
        self._closings: set[asyncio.Task[None]] = set()

    @property
    def namespace(self) -> str:
        """The first label of the namespace's host name."""
        return self._namespace

    def facts(self, error: Exception) -> ErrorFacts:
        """Tell what the rules need to know about an error of the SDK."""
        return facts(error)

    # --- sending -------------------------------------------------------------------------------------------------

    async def send(self, destination: str, batch: Outgoing) -> None:
        """Send messages as one batch."""
        self._close_rested()
        entity = self._entities.setdefault(entity_key(destination), _Entity())
        async with entity.permits:
            link = entity.resting.pop() if entity.resting else None
            opened = link is not None
            link = link or sender_to(self._client, destination)
            try:
                if not opened:
                    await link.open(self._seconds)
                    opened = True
                await link.do(self._seconds, link.send(batch))
            except BaseException as error:
                if isinstance(error, Exception) and opened and facts(error).cause not in IN_DOUBT:
                    entity.resting.append(link)  # the broker has answered; the link is good
                else:
                    self._discard(link)
                if isinstance(error, TimeoutError):
                    late = timed_out(f"sending to {destination!r}", self._seconds)
                    raise late if opened else unsent(late) from error
                if not opened:
                    unsent(error)
                raise
            entity.resting.append(link)

    def _close_rested(self) -> None:
        since = asyncio.get_running_loop().time() - STALE_SECONDS
        for entity in self._entities.values():
            while entity.resting and entity.resting[0].last_used < since:
                self._discard(entity.resting.pop(0))

    # --- receiving -----------------------------------------------------------------------------------------------

    async def receive(self, queue: str, most: int, wait: float) -> Sequence[Received]:
        """Receive messages; a link that was let go because nothing came is replaced, and the same wait goes on."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait

        async def receive(link: QueueLink) -> list[Received]:
            got = await link.receive(most, ends - loop.time())
            return [_received(link, message, payload) for message, payload in got]

        while True:
            began = loop.time()
            try:
                return await self._on_queue(queue, receive, max(0.0, ends - began) + self._seconds)
            except ServiceBusError as error:
                if loop.time() - began < LONG_WAIT or facts(error).cause not in IN_DOUBT:
                    raise

    async def browse(self, queue: str, up_to: int) -> Sequence[Parked]:
        """Look at a queue, page by page."""
        seen: list[Parked] = []
        first = 1
        while first <= up_to:
            start = first

            async def peek(link: QueueLink, start: int = start) -> list[ServiceBusReceivedMessage]:
                return await link.receiver.peek_messages(PAGE, sequence_number=start, timeout=self._seconds)

            page = [_browsed(message) for message in await self._on_queue(queue, peek, self._seconds)]
            if not page:
                break
            seen += [message for message in page if message.sequence_number <= up_to]
            first = page[-1].sequence_number + 1
        return seen

    # --- settling ------------------------------------------------------------------------------------------------

    async def settle(self, queue: str, messages: Sequence[Received], settlement: Settlement) -> Answers:
        """Settle messages, those whose deliveries follow each other together."""
        answers: dict[int, Exception | None] = {}
        for run in [[each] for each in messages] if isinstance(settlement, DeadLetter) else _runs(messages):

            async def settle(link: QueueLink, run: Sequence[Received] = run) -> None:
                await self._settle_run(link, run, settlement, answers)

            try:
                await self._on_queue(queue, settle, self._seconds)
            except Exception as error:  # noqa: BLE001 (handed back as the answer for each)
                return [answers.get(message.sequence_number, error) for message in messages]
        return [answers[message.sequence_number] for message in messages]

    async def _settle_run(
        self,
        link: QueueLink,
        run: Sequence[Received],
        settlement: Settlement,
        answers: dict[int, Exception | None],
    ) -> None:
        if not isinstance(settlement, DeadLetter) and _ours(run[0]).link is link:
            try:
                await link.settle_run([_ours(each).message for each in run], settlement)
            except Exception as error:  # noqa: BLE001 (the answer of each is asked for below)
                _LOGGER.debug("%d messages could not be settled together: %r", len(run), error)
            else:
                answers.update((each.sequence_number, None) for each in run)
                return
        for each in run:
            try:
                await _settle_one(link, _ours(each).message, settlement)
            except Exception as error:
                answers[each.sequence_number] = error
                if facts(error).cause is not Cause.SETTLEMENT:
                    raise
            else:
                answers[each.sequence_number] = None

    async def renew(self, queue: str, messages: Sequence[Received]) -> Answers:
        """Renew locks, one by one, so that others who wait for the queue are not held up."""
        answers: list[Exception | None] = []
        for message in messages:
            sdk_message = _ours(message).message

            async def renew(link: QueueLink, sdk_message: ServiceBusReceivedMessage = sdk_message) -> None:
                await link.receiver.renew_message_lock(sdk_message, timeout=self._seconds)

            try:
                await self._on_queue(queue, renew, self._seconds)
            except Exception as error:  # noqa: BLE001 (handed back as its answer)
                answers.append(error)
            else:
                answers.append(None)
        return answers

    # --- links ---------------------------------------------------------------------------------------------------

    async def _on_queue(self, path: str, work: Callable[[QueueLink], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Do something with the receiver of a queue; one that failed is replaced the next time."""
        queue = self._queues.setdefault(entity_key(path), _Queue())
        async with queue.lock:
            if queue.link is not None and not queue.link.is_intact:
                self._discard(queue.link)
                queue.link = None
            link = queue.link or receiver_of(self._client, path)
            try:
                if queue.link is None:
                    await link.open(self._seconds)
                    queue.link = link
                return await link.do(seconds, work(link))
            except BaseException as error:
                if not isinstance(error, Exception) or facts(error).cause is not Cause.SETTLEMENT:
                    queue.link = None
                    self._discard(link)
                if isinstance(error, TimeoutError):
                    raise timed_out(f"using {path!r}", seconds) from error
                raise

    def _discard(self, link: Link) -> None:
        """Close a link beside what goes on."""
        task = asyncio.get_running_loop().create_task(_close(link))
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        """Close all links, and wait until they are."""
        for queue in self._queues.values():
            if queue.link is not None:
                self._discard(queue.link)
        for entity in self._entities.values():
            for link in entity.resting:
                self._discard(link)
        self._queues.clear()
        self._entities.clear()
        if self._closings:
            await asyncio.wait(self._closings)


async def _close(link: Link) -> None:
    problem = await link.close()
    if problem is not None:
        _LOGGER.debug("a link could not be closed in order: %r", problem)


async def _settle_one(link: QueueLink, message: ServiceBusReceivedMessage, settlement: Settlement) -> None:
    """Settle one message, by its lock token if it came by another link."""
    if isinstance(settlement, DeadLetter):
        await link.receiver.dead_letter_message(
            message, reason=settlement.reason.value, error_description=settlement.description
        )
    elif settlement == "complete":
        await link.receiver.complete_message(message)
    else:
        await link.receiver.abandon_message(message)


def _runs(messages: Sequence[Received]) -> list[list[Received]]:
    """Cut messages into runs of deliveries that follow each other on one link."""
    runs: list[list[Received]] = []
    expected: tuple[int, int] | None = None
    for where, message in sorted(((_delivery(message), message) for message in messages), key=lambda pair: pair[0]):
        if where == expected:
            runs[-1].append(message)
        else:
            runs.append([message])
        expected = where[0], where[1] + 1
    return runs


def _delivery(message: Received) -> tuple[int, int]:
    ours = _ours(message)
    return id(ours.link), delivery_id(ours.message)


def _ours(message: Received) -> _SdkReceived:
    assert isinstance(message, _SdkReceived)  # noqa: S101 (what receive has given)
    return message


def _received(link: QueueLink, message: ServiceBusReceivedMessage, payload: bytes) -> _SdkReceived:
    label, partition_key, enqueued_at = Label(), None, None
    try:
        reading = read(Message(payload))
        label, partition_key, enqueued_at = reading.label, reading.partition_key, reading.enqueued_at
    except AmqpError as error:  # then it has no destination that anybody can read (Y3)
        _LOGGER.warning("message %s of a backlog queue cannot be read: %s", message.sequence_number, error)
        payload = b""
    locked_until = message.locked_until_utc
    assert locked_until is not None  # noqa: S101 (peek-lock, and no session)
    return _SdkReceived(
        message.sequence_number or 0, label, len(payload), partition_key,
        payload=payload, locked_until=locked_until, enqueued_at=enqueued_at, link=link, message=message,
    )  # fmt: skip


def _browsed(message: ServiceBusReceivedMessage) -> Parked:
    properties = cast("Properties | None", cast("Any", message).application_properties)
    return Parked(message.sequence_number or 0, Label(application_properties=properties or {}), size_of(message))
