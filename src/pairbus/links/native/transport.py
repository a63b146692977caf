"""The transport of the native client: messages as bytes, in batches, settled by ranges."""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, cast

from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from pairbus.amqp import AmqpError, Message, build_batch, build_message
from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import ACCEPTED, BATCH_FORMAT, DeliveryState, Error, Map, Rejected
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Array, Int, Symbol, Timestamp, Value
from pairbus.core.burst import Parked
from pairbus.core.envelope import Label
from pairbus.core.naming import entity_key, namespace_label
from pairbus.core.routing import DeadLetter
from pairbus.core.verdict import IN_DOUBT, ErrorFacts
from pairbus.links.channel import STALE_SECONDS
from pairbus.links.errors import facts
from pairbus.links.native.client import NativeClient
from pairbus.links.native.endpoint import Endpoint
from pairbus.links.native.fast.plain_messages import NativeReceived, read_plain
from pairbus.links.native.receiving import PUT_BACK, ReceivingLink
from pairbus.links.native.sending import SendingLink
from pairbus.links.transport import LONG_WAIT, PAGE, Answers, Outgoing, Received, Settlement
from pairbus.messages.annotations import LOCKED_UNTIL, PARTITION_KEY, SEQUENCE_NUMBER
from pairbus.messages.encoded_labels import read

_LOGGER = logging.getLogger(__name__)

DEAD_LETTER: Final = Symbol("com.microsoft:dead-letter")
_UUID: Final = 0x98


class _Slot:
    """The link of one entity, opened by whoever needs it first."""

    __slots__ = ("lock", "receiver", "sender")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.sender: SendingLink | None = None
        self.receiver: ReceivingLink | None = None


class NativeTransport:
    """Carries messages by the native client, all on one connection.

    :param attempt_timeout: the deadline of each call, in seconds; of a receive beyond the time it waits.
    """

    def __init__(self, endpoint: Endpoint, *, attempt_timeout: float = 15.0) -> None:
        self._client = NativeClient(endpoint)
        self._namespace = namespace_label(endpoint.hostname)
        self._seconds = attempt_timeout
        self._destinations: dict[str, _Slot] = {}
        self._queues: dict[str, _Slot] = {}

    @property
    def namespace(self) -> str:
        """The first label of the namespace's host name."""
        return self._namespace

    def facts(self, error: Exception) -> ErrorFacts:
        """Tell what the rules need to know about an error."""
        return facts(error)

    # --- sending -------------------------------------------------------------------------------------------------

    async def send(self, destination: str, batch: Outgoing) -> None:
        """Send messages as one batch."""
        link = await self._sender(destination)
        if len(batch.payloads) == 1:
            await link.deliver(batch.payloads[0], 0, self._seconds)
        else:
            await link.deliver(build_batch(batch.payloads, _envelope(batch)), BATCH_FORMAT, self._seconds)

    async def _sender(self, destination: str) -> SendingLink:
        slot = self._destinations.get(key := entity_key(destination))
        if slot is None:
            self._close_rested()
            slot = self._destinations[key] = _Slot()
        elif slot.sender is not None and _has_rested(slot.sender):
            slot.sender.close()  # the cloud may have detached it, and that be on its way
        if slot.sender is not None and slot.sender.error is None:
            return slot.sender
        async with slot.lock:
            if slot.sender is None or slot.sender.error is not None:
                slot.sender = await self._client.sender(destination, self._seconds)
            return slot.sender

    def _close_rested(self) -> None:
        for key, slot in list(self._destinations.items()):
            if slot.sender is not None and _has_rested(slot.sender) and not slot.lock.locked():
                slot.sender.close()
                del self._destinations[key]

    # --- receiving -----------------------------------------------------------------------------------------------

    async def receive(self, queue: str, most: int, wait: float) -> Sequence[Received]:
        """Receive messages; a link that was let go because nothing came is replaced, and the same wait goes on."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        while True:
            began = loop.time()
            try:
                link = await self._receiver(queue)
                arrived = await link.receive(most, max(0.0, ends - loop.time()))
            except ServiceBusError as error:
                if loop.time() - began < LONG_WAIT or self.facts(error).cause not in IN_DOUBT:
                    raise
            else:
                return read_plain(link, arrived, _received)

    async def _receiver(self, queue: str) -> ReceivingLink:
        slot = self._queues.setdefault(entity_key(queue), _Slot())
        if slot.receiver is not None and slot.receiver.error is None:
            return slot.receiver
        async with slot.lock:
            if slot.receiver is None or slot.receiver.error is not None:
                slot.receiver = await self._client.receiver(queue, self._seconds)
            return slot.receiver

    async def browse(self, queue: str, up_to: int) -> Sequence[Parked]:
        """Look at a queue, page by page."""
        seen: list[Parked] = []
        first = 1
        while first <= up_to:
            body = {"from-sequence-number": first, "message-count": Int(PAGE)}
            answer: Map = await self._client.manage(queue, "peek-message", body, self._seconds) or {}
            page = [_browsed(entry["message"]) for entry in answer.get("messages", ())]
            if not page:
                break
            seen += [message for message in page if message.sequence_number <= up_to]
            first = page[-1].sequence_number + 1
        return seen

    # --- settling ------------------------------------------------------------------------------------------------

    async def settle(self, queue: str, messages: Sequence[Received], settlement: Settlement) -> Answers:
        """Settle messages, those whose deliveries follow each other by one frame."""
        received = cast("Sequence[NativeReceived]", messages)  # what receive has given
        links: set[ReceivingLink] = set(map(_link, received))
        if len(links) == 1:
            return await self._settle_on(links.pop(), queue, received, settlement)
        answers: dict[int, Exception | None] = {}
        for link in links:
            its = [each for each in received if each.link is link]
            judged = await self._settle_on(link, queue, its, settlement)
            answers.update(zip(map(id, its), judged, strict=True))
        return [answers[id(each)] for each in received]

    async def _settle_on(
        self, link: ReceivingLink, queue: str, messages: Sequence[NativeReceived], settlement: Settlement
    ) -> Answers:
        if link.error is not None:  # their locks are good all the same: by their tokens they can be settled
            return await asyncio.gather(*(self._settle_by_token(queue, each, settlement) for each in messages))
        began = asyncio.get_running_loop().time()
        judged = await link.settle(messages, _state(settlement), self._seconds)
        if link.error is None and any(_is_timeout(each) for each in judged if each is not None):
            link.connection.suspect(began)
            link.close()  # it does not answer: the next one who needs it gets a new one
        return judged

    async def _settle_by_token(self, queue: str, message: NativeReceived, settlement: Settlement) -> Exception | None:
        body: dict[str, Value] = {
            "disposition-status": "suspended" if isinstance(settlement, DeadLetter) else _STATUS[settlement],
            "lock-tokens": Array(_UUID, [uuid.UUID(bytes_le=message.delivery_tag)]),
        }
        if isinstance(settlement, DeadLetter):
            body["deadletter-reason"] = settlement.reason.value
            body["deadletter-description"] = settlement.description
        try:
            await self._client.manage(queue, "update-disposition", body, self._seconds)
        except ServiceBusError as error:
            return error
        return None

    async def renew(self, queue: str, messages: Sequence[Received]) -> Answers:
        """Renew locks, all by one request, or each on its own if one of them is lost."""
        if not messages:
            return []
        try:
            await self._renew(queue, messages)
        except MessageLockLostError as error:
            if len(messages) == 1:
                return [error]
            return await asyncio.gather(*(self._renewed(queue, message) for message in messages))
        except ServiceBusError as error:
            return [error] * len(messages)
        return [None] * len(messages)

    async def _renewed(self, queue: str, message: Received) -> Exception | None:
        try:
            await self._renew(queue, [message])
        except ServiceBusError as error:
            return error
        return None

    async def _renew(self, queue: str, messages: Sequence[Received]) -> None:
        received = cast("Sequence[NativeReceived]", messages)  # what receive has given
        tokens = Array(_UUID, [uuid.UUID(bytes_le=each.delivery_tag) for each in received])
        await self._client.manage(queue, "renew-lock", {"lock-tokens": tokens}, self._seconds)

    # --- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all links, after putting back what was not handed out, and the connection."""
        for slot in (*self._queues.values(), *self._destinations.values()):
            for link in (slot.receiver, slot.sender):
                if link is not None:
                    link.close()
        self._queues.clear()
        self._destinations.clear()
        await self._client.close()


_link = attrgetter("link")
_STATUS: Final = {"complete": "completed", "abandon": "abandoned"}


def _state(settlement: Settlement) -> DeliveryState:
    if isinstance(settlement, DeadLetter):
        info = {
            Symbol("DeadLetterReason"): settlement.reason.value,
            Symbol("DeadLetterErrorDescription"): settlement.description,
        }
        return Rejected(Error(DEAD_LETTER, settlement.description, info))
    return ACCEPTED if settlement == "complete" else PUT_BACK


def _has_rested(link: SendingLink) -> bool:
    return link.is_idle and link.used_at < asyncio.get_running_loop().time() - STALE_SECONDS


def _is_timeout(error: Exception) -> bool:
    return facts(error).cause in IN_DOUBT


def _envelope(batch: Outgoing) -> bytes:
    """Return what a broker wants to know of a whole batch, if there is anything."""
    if batch.session_id is None and batch.partition_key is None:
        return b""
    return build_message(
        message_annotations={Symbol(PARTITION_KEY): batch.partition_key} if batch.partition_key else None,
        properties=Properties(group_id=batch.session_id) if batch.session_id is not None else None,
    )


def _received(link: ReceivingLink, delivery: Delivery) -> NativeReceived:
    """Read a message that is not plain."""
    label, partition_key, enqueued_at = Label(), None, None
    number, locked_until, payload = 0, 0, delivery.payload
    try:
        encoded = Message(payload)
        annotations = encoded.message_annotations()
        number = annotations.get(SEQUENCE_NUMBER, 0)
        locked_until = annotations.get(LOCKED_UNTIL, 0)
        reading = read(encoded)
        label, partition_key, enqueued_at = reading.label, reading.partition_key, reading.enqueued_at
    except AmqpError as error:  # then it has no destination that anybody can read (Y3)
        _LOGGER.warning("message %s of %s cannot be read: %s", number, link.entity, error)
        payload = b""
    return NativeReceived(
        number, label, len(delivery.payload), partition_key,
        payload=payload, locked_until=Timestamp(locked_until).to_datetime(), enqueued_at=enqueued_at,
        link=link, delivery_id=delivery.delivery_id, delivery_tag=delivery.delivery_tag,
    )  # fmt: skip


def _browsed(payload: bytes) -> Parked:
    message = Message(bytes(payload))
    number = message.message_annotations().get(SEQUENCE_NUMBER, 0)
    return Parked(number, Label(application_properties=message.application_properties()), len(payload))
