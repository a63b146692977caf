"""Dead letters of any entity, the backlog queues among them: look at them, send them again, discard them.

All functions take the SDK's client of the namespace in which the dead letters are, best made with ``retry_total=0``.
Nothing is ever lost: a dead letter is completed only once what takes its place was accepted, and what is not chosen
goes back. If one of these is interrupted in between, a message is in both places, with the same id.

.. code-block:: python

    async with ServiceBusClient.from_connection_string(secondary) as client:
        shelf = Shelf("contoso/x-servicebus-transfer/0", is_backlog=True)
        async for letter in browse_letters(client, shelf, Choice(reason="DestinationGone")):
            print(letter.message_id, letter.destination)
        outcome = await resubmit(client, shelf, Choice(destination="orders"))
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from azure.servicebus.aio import ServiceBusClient

from pairbus.amqp import Message
from pairbus.core.envelope import PATH, RESERVED, Label
from pairbus.core.naming import entity_key
from pairbus.core.routing import Deliver, route
from pairbus.core.verdict import Cause
from pairbus.errors import OptionError
from pairbus.links.sdk.browsing import DEAD_LETTERS, browse, path_of, sequence_number_of
from pairbus.links.sdk.transport import SdkTransport
from pairbus.links.transport import Outgoing, Received
from pairbus.messages.annotations import PARTITION_KEY
from pairbus.messages.documents import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, document_of
from pairbus.messages.encoded_labels import enqueued_at_of, relabelled

BURST: Final = 100
WAIT: Final = 2.0
"""How long a receive waits before it is known that there are no more, in seconds."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where dead letters lie: the dead-letter queue of a queue or subscription.

    :ivar entity: a queue, or the topic of the subscription.
    :ivar is_backlog: whether it is a backlog queue, whose messages belong elsewhere.
    """

    entity: str
    subscription: str | None = None
    is_backlog: bool = False

    @property
    def path(self) -> str:
        """The path of the dead-letter queue."""
        return path_of(self.entity, subscription=self.subscription, sub_queue=DEAD_LETTERS)

    @property
    def name(self) -> str:
        """The entity, as one would say it."""
        return self.entity if self.subscription is None else f"{self.entity}/{self.subscription}"


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter.

    :ivar sequence_number: its number in the dead-letter queue, by which it can be chosen.
    :ivar reason: why it is one, in a word; empty: nobody has said so.
    :ivar destination: where a message of a backlog queue belongs; empty: it does not say so.
    :ivar message: the message, encoded as it is there.
    """

    sequence_number: int
    message_id: str
    reason: str
    description: str
    enqueued_at: datetime | None
    destination: str
    properties: Mapping[str, Any]
    message: Message = field(repr=False)

    def document(self) -> dict[str, Any]:
        """All of it as JSON, which ``pairbus send`` accepts."""
        return document_of(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which dead letters are meant: those to which everything that is given applies; nothing given: all.

    :ivar reason: their reason, whatever its case.
    :ivar destination: where they belong, whatever its case.
    :ivar before: enqueued before.
    :ivar after: enqueued at that time, or later.
    :ivar properties: application properties, compared as text.
    """

    reason: str | None = None
    destination: str | None = None
    before: datetime | None = None
    after: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    message_ids: frozenset[str] | None = None
    sequence_numbers: frozenset[int] | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is given."""
        return self == Choice()

    def matches(self, letter: Letter) -> bool:
        """Tell whether a dead letter is meant."""
        at = letter.enqueued_at
        return (
            (self.reason is None or letter.reason.lower() == self.reason.lower())
            and (self.destination is None or entity_key(letter.destination) == entity_key(self.destination))
            and (self.before is None or (at is not None and at < self.before))
            and (self.after is None or (at is not None and at >= self.after))
            and (self.message_ids is None or letter.message_id in self.message_ids)
            and (self.sequence_numbers is None or letter.sequence_number in self.sequence_numbers)
            and all(_said(letter.properties.get(name)) == value for name, value in self.properties.items())
        )


def _said(value: object) -> str | None:
    """Return a property as one would write it on a command line."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def letter_of(message: Message) -> Letter:
    """Read a dead letter."""
    properties = {str(name): value for name, value in message.application_properties().items()}
    standard = message.properties()
    named = properties.get(PATH)
    message_id = standard.message_id if standard is not None else None
    return Letter(
        sequence_number=sequence_number_of(message),
        message_id="" if message_id is None else _said(message_id) or "",
        reason=_said(properties.get(DEAD_LETTER_REASON)) or "",
        description=_said(properties.get(DEAD_LETTER_DESCRIPTION)) or "",
        enqueued_at=enqueued_at_of(message),
        destination=named if isinstance(named, str) else "",
        properties=properties,
        message=message,
    )


async def browse_letters(
    client: ServiceBusClient, shelf: Shelf, choice: Choice | None = None, *, most: int | None = None
) -> AsyncGenerator[Letter]:
    """Look at dead letters, oldest first; nothing is locked.

    :param most: ends it after so many that were chosen.
    """
    chosen = choice or Choice()
    found = 0
    async with aclosing(browse(client, shelf.path)) as messages:
        async for message in messages:
            letter = letter_of(message)
            if chosen.matches(letter):
                yield letter
                found += 1
                if found == most:
                    return


@dataclass(slots=True)
class Outcome:
    """What became of the dead letters that were chosen.

    :ivar done: sent again and removed, or discarded.
    :ivar kept: not sent, and why: they are dead letters still.
    :ivar twice: sent again, and could not be removed: they are in both places, with the same id.
    :ivar vanished: how many could not be had: somebody else holds them, or has taken them in the meantime.
    """

    done: list[Letter] = field(default_factory=list[Letter])
    kept: list[tuple[Letter, str]] = field(default_factory=list[tuple[Letter, str]])
    twice: list[Letter] = field(default_factory=list[Letter])
    vanished: int = 0

    def add(self, other: "Outcome") -> None:
        """Add what became of others."""
        self.done += other.done
        self.kept += other.kept
        self.twice += other.twice
        self.vanished += other.vanished


Told: TypeAlias = Callable[[Letter], None]

_ITS_OWN: Final = frozenset((Cause.TOO_LARGE, Cause.BAD_ARGUMENT))
"""What is wrong with one message says nothing about the others."""


async def resubmit(
    client: ServiceBusClient,
    shelf: Shelf,
    choice: Choice | None = None,
    *,
    to: str | None = None,
    to_client: ServiceBusClient | None = None,
    most: int | None = None,
    told: Told = lambda _letter: None,
) -> Outcome:
    """Send dead letters again, each with its id, and remove those that were accepted.

    A dead letter of a queue goes back to its queue. One of a backlog queue goes back to that, as it was parked, and the
    syphon carries it home; one that the syphon would dead-letter again at once is kept. A time to live begins anew.

    :param to: send them to this queue or topic instead; those of a backlog queue unparked. Needed for a subscription,
        where the topic would give every subscription another copy.
    :param to_client: of the namespace that has ``to``, if that is another.
    :param most: how many at most.
    :param told: called for each that was sent again and removed.
    """
    if to is None and shelf.subscription is not None:
        raise OptionError(
            "to", to, f"say where dead letters of {shelf.name} go; {shelf.entity!r} gives every subscription a copy"
        )
    target = SdkTransport(client if to_client is None else to_client)
    destination = to or shelf.entity

    async def send(letter: Letter) -> str | None:
        label = _label(letter, unpark=to is not None and shelf.is_backlog)
        if to is None and shelf.is_backlog:
            routed = route(label)
            if not isinstance(routed, Deliver):
                return f"{routed.description}; name where it belongs"
        key = letter.message.message_annotations().get(PARTITION_KEY)
        encoded = relabelled(letter.message, label, datetime.now(UTC))
        try:
            await target.send(destination, Outgoing([encoded], label.session_id, key if isinstance(key, str) else None))
        except Exception as error:
            if target.facts(error).cause not in _ITS_OWN:
                raise
            return f"{destination} refuses it: {error}"
        return None

    try:
        return await _take(client, shelf, (choice, most), send, told)
    finally:
        await target.close()


async def discard(
    client: ServiceBusClient,
    shelf: Shelf,
    choice: Choice | None = None,
    *,
    most: int | None = None,
    told: Told = lambda _letter: None,
) -> Outcome:
    """Remove dead letters for good."""

    async def nothing(_letter: Letter) -> None:
        return None

    return await _take(client, shelf, (choice, most), nothing, told)


def _label(letter: Letter, *, unpark: bool) -> Label:
    """Return a dead letter's label as its sender gave it."""
    own: dict[str | bytes, Any] = {
        name: value
        for name, value in letter.properties.items()
        if name not in (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION)
    }
    if unpark:
        routed = route(Label(application_properties=own))
        if isinstance(routed, Deliver):
            return routed.label
        return Label(application_properties={name: value for name, value in own.items() if name not in RESERVED})
    standard, header = letter.message.properties(), letter.message.header()
    life = header.ttl if header is not None else None
    return Label(
        session_id=standard.group_id if standard is not None else None,
        time_to_live=None if life is None else timedelta(milliseconds=life),
        application_properties=own,
    )


Work: TypeAlias = Callable[[Letter], Awaitable[str | None]]
"""Does something with a dead letter before it is removed: returns why it is to be kept, or raises what ends it all."""


@dataclass(slots=True)
class _Taking:
    """Does something with each dead letter that is wanted, and completes it.

    A queue hands out its messages in its own order: those that are not meant are held under lock until the others are
    found, and then put back.
    """

    source: SdkTransport
    path: str
    work: Work
    told: Told
    outcome: Outcome = field(default_factory=Outcome)
    held: list[Received] = field(default_factory=list[Received])

    async def take(self, wanted: set[int]) -> None:
        seen: set[int] = set()
        try:
            while wanted:
                burst = await self.source.receive(self.path, BURST, WAIT)
                fresh = [each for each in burst if each.sequence_number not in seen]
                seen.update(each.sequence_number for each in fresh)
                self.held += burst
                if not fresh:  # all that are there were seen; others have what is missing
                    break
                for received in fresh:
                    if received.sequence_number in wanted:
                        await self._take_one(received)
                        wanted.discard(received.sequence_number)
            self.outcome.vanished = len(wanted)
        finally:
            await self._put_back()

    async def _take_one(self, received: Received) -> None:
        letter = letter_of(Message(received.payload))
        kept = await self.work(letter)
        if kept is not None:
            self.outcome.kept.append((letter, kept))
            return
        # What was sent is removed, even if this is interrupted.
        settling = asyncio.ensure_future(self.source.settle(self.path, [received], "complete"))
        try:
            await asyncio.shield(settling)
        finally:
            (problem,) = await settling
            self.held.remove(received)
            (self.outcome.twice if problem is not None else self.outcome.done).append(letter)
            if problem is None:
                self.told(letter)

    async def _put_back(self) -> None:
        now = datetime.now(UTC)
        locked = [each for each in self.held if each.locked_until > now]  # the others are back already
        if locked:
            await asyncio.shield(asyncio.ensure_future(self.source.settle(self.path, locked, "abandon")))


async def remove(client: ServiceBusClient, path: str, wanted: Iterable[int]) -> int:
    """Remove messages from any queue by their sequence numbers; return how many could not be had."""
    source = SdkTransport(client)

    async def nothing(_letter: Letter) -> None:
        return None

    try:
        taking = _Taking(source, path, nothing, lambda _letter: None)
        await taking.take(set(wanted))
    finally:
        await source.close()
    return taking.outcome.vanished + len(taking.outcome.twice)


async def _take(
    client: ServiceBusClient, shelf: Shelf, chosen: tuple[Choice | None, int | None], work: Work, told: Told
) -> Outcome:
    choice, most = chosen
    wanted = {letter.sequence_number async for letter in browse_letters(client, shelf, choice, most=most)}
    source = SdkTransport(client)
    try:
        taking = _Taking(source, shelf.path, work, told)
        await taking.take(wanted)
    finally:
        await source.close()
    return taking.outcome
