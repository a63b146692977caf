"""What a Python process of Spark keeps open between its tasks: factories with the health they have seen, and browsers.

Spark uses a worker for one task after the other. A link takes half a second to open, and a factory that is made anew
would have to find out about an outage anew, with every task. So they are kept, as long as they are used.
"""

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.aio import MessageSender, MessagingFactory, NamespaceManager, SendAvailabilityPairedNamespaceOptions
from pairbus.client.sync.portal import Portal
from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.core.lifecycle import FactoryState
from pairbus.core.verdict import Verdict, verdict_of
from pairbus.errors import ColumnError, PairingError
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile
from pairbus.links.errors import facts
from pairbus.links.sdk.browsing import Browser
from pairbus.links.sdk.private import add_to
from pairbus.messages.sdk_messages import group_key, raw
from pairbus.spark.connector.options import Connection, Entity, ReadOptions, WriteOptions
from pairbus.spark.connector.outgoing import Message

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

IDLE_SECONDS: Final = 600.0
"""What was not used for so long is closed when the next task begins."""
PAIR_AGAIN_SECONDS: Final = 60.0
"""After so long a pairing that failed because the secondary was away is tried again."""
AT_ONCE: Final = 64
"""How many sessions, or entities, are sent to at the same time."""


@dataclass(slots=True)
class Counts:
    """A sink that counts the messages that were accepted."""

    sent: int = 0
    parked: int = 0

    def record(self, record: Record) -> None:
        """Take a record."""
        if record.kind is Kind.SEND and record.outcome is Outcome.DONE:
            if record.stage is Stage.PARK:
                self.parked += record.messages
            elif record.stage is Stage.DIRECT:
                self.sent += record.messages


@dataclass(slots=True, eq=False)
class Outbox:
    """A factory, paired if it was asked for, and its senders."""

    options: WriteOptions
    factory: MessagingFactory
    counts: Counts
    secondary: MessagingFactory | None = None
    manager: NamespaceManager | None = None
    pair_at: float = 0.0
    """When to try again to pair."""
    senders: dict[str, MessageSender] = field(default_factory=dict[str, MessageSender])
    used_at: float = 0.0

    async def pair(self) -> None:
        """Pair the factory, if that was asked for and is not done yet.

        A secondary that is away is no reason not to send to a primary that is not: that is logged, and tried again.

        :raises PairingError: the pairing cannot work, or access to the secondary is denied.
        """
        if self.secondary is None or self.manager is None or self.factory.is_paired or time.monotonic() < self.pair_at:
            return
        self.pair_at = time.monotonic() + PAIR_AGAIN_SECONDS
        pairing = dict(self.options.pairing)
        try:
            await self.factory.pair_namespace(
                SendAvailabilityPairedNamespaceOptions(self.manager, self.secondary, **pairing)
            )
        except PairingError as error:
            cause = error.__cause__
            if cause is None or verdict_of(facts(cause)) is Verdict.CALLERS:
                raise
            _LOGGER.warning("messages are sent without pairing for now, since the secondary is away: %s", error)

    async def send(self, messages: Iterable[tuple[str, Message]]) -> int:
        """Send messages, and return how many when all are accepted.

        Those of one session or partition key go one batch after the other, in their order.
        """
        groups: dict[object, list[Message]] = {}
        for entity, message in messages:
            groups.setdefault((entity, group_key(message)), []).append(message)
        permits = asyncio.Semaphore(AT_ONCE)

        async def send(entity: str, group: list[Message]) -> None:
            async with permits:
                await self._send_group(entity, group)

        # All of them end before an error is raised: one that is given up half way would be in doubt.
        sends = [send(cast("tuple[str, object]", key)[0], group) for key, group in groups.items()]
        ended = await asyncio.gather(*sends, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error
        count = sum(map(len, groups.values()))
        if not self.factory.is_paired:
            self.counts.sent += count  # the SDK's own senders keep no account
        return count

    async def _send_group(self, entity: str, group: list[Message]) -> None:
        if entity not in self.senders:
            self.senders[entity] = self.factory.get_queue_sender(entity)  # which sends to topics just as well
        sender = self.senders[entity]
        batch, added = await sender.create_message_batch(), 0
        for message in group:
            try:
                add_to(batch, message)
            except MessageSizeExceededError:
                if not added:
                    raise _too_large(entity, message, batch.max_size_in_bytes) from None
                await sender.send_messages(batch, timeout=self.options.send_timeout)
                batch, added = await sender.create_message_batch(), 0
                try:
                    add_to(batch, message)
                except MessageSizeExceededError:
                    raise _too_large(entity, message, batch.max_size_in_bytes) from None
            added += 1
        await sender.send_messages(batch, timeout=self.options.send_timeout)

    async def close(self) -> None:
        """Close the factory and all that belongs to it."""
        await self.factory.close()
        if self.secondary is not None and self.manager is not None:
            await self.secondary.close()
            await self.manager.close()


def _too_large(entity: str, message: Message, limit: int) -> ColumnError:
    properties = raw(message).properties
    which = None if properties is None else properties.message_id
    return ColumnError("body", None, f"message {which!r} is larger than the {limit} bytes that {entity!r} takes")


@dataclass(slots=True, eq=False)
class Window:
    """A browser, with its connection."""

    browser: Browser
    client: ServiceBusClient
    used_at: float = 0.0

    async def close(self) -> None:
        """Close both."""
        await self.browser.close()
        await self.client.close()


class Kept:
    """All that this process keeps."""

    def __init__(self) -> None:
        self.pid: Final = os.getpid()
        self._portal = Portal("pairbus spark", self.close)
        self._outboxes: dict[WriteOptions, Outbox] = {}
        self._windows: dict[tuple[Connection, Entity], Window] = {}
        self._ledgers: dict[str, LedgerFile] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the process's event loop, and return or raise what it does."""
        return self._portal.run(work)

    async def outbox(self, options: WriteOptions) -> Outbox:
        """Return the factory for these options, paired."""
        await self._close_idle()
        outbox = self._outboxes.get(options)
        if outbox is None or outbox.factory.lifecycle.state is not FactoryState.OPEN:
            outbox = self._outboxes[options] = self._open(options)
        try:
            await outbox.pair()
        except BaseException:
            await self._outboxes.pop(options).close()
            raise
        outbox.used_at = time.monotonic()
        return outbox

    async def browser(self, options: ReadOptions, entity: Entity) -> Browser:
        """Return what looks at an entity."""
        await self._close_idle()
        key = options.connection, entity
        if key not in self._windows:
            client = ServiceBusClient.from_connection_string(
                options.connection.connection_string, **_sdk_options(options.connection)
            )
            browser = Browser(
                client,
                entity.name,
                subscription=entity.subscription,
                sub_queue=entity.sub_queue,
                attempt_timeout=options.attempt_timeout,
                instrument=Instrument(self._ledger(options.ledger)),
            )
            self._windows[key] = Window(browser, client)
        window = self._windows[key]
        window.used_at = time.monotonic()
        return window.browser

    def _open(self, options: WriteOptions) -> Outbox:
        counts = Counts()
        instrument = Instrument([counts, *self._ledger(options.ledger)])
        factory = MessagingFactory.from_connection_string(
            options.connection.connection_string,
            transport=options.transport,
            instrument=instrument,
            **_sdk_options(options.connection),
        )
        secondary = options.secondary
        if secondary is None:
            return Outbox(options, factory, counts)
        other = MessagingFactory.from_connection_string(secondary.connection_string, **_sdk_options(secondary))
        return Outbox(
            options, factory, counts, other, NamespaceManager.from_connection_string(secondary.connection_string)
        )

    def _ledger(self, directory: str | None) -> list[LedgerFile]:
        if directory is None:
            return []
        if directory not in self._ledgers:
            self._ledgers[directory] = LedgerFile(directory)
        return [self._ledgers[directory]]

    def flush(self, ledger: str | None) -> None:
        """Write what was recorded in a ledger."""
        for each in self._ledger(ledger):
            each.flush()

    async def _close_idle(self) -> None:
        await _close_unused(self._outboxes)
        await _close_unused(self._windows)

    def close(self) -> None:
        """Close everything."""
        self._portal.run(self._close_all())
        self._portal.stop()
        for ledger in self._ledgers.values():
            ledger.close()

    async def _close_all(self) -> None:
        for each in (*self._outboxes.values(), *self._windows.values()):
            await each.close()
        self._outboxes.clear()
        self._windows.clear()


async def _close_unused(kept: "dict[Any, Outbox] | dict[Any, Window]") -> None:
    since = time.monotonic() - IDLE_SECONDS
    for key in [key for key, each in kept.items() if each.used_at < since]:
        await kept.pop(key).close()


def _sdk_options(connection: Connection) -> dict[str, Any]:
    kind = connection.transport_type
    return {} if kind is None else {"transport_type": TransportType[kind]}


_kept: Kept | None = None


def kept() -> Kept:
    """Return what this process keeps; the child of a fork begins with nothing."""
    global _kept  # noqa: PLW0603 (Spark gives a task nothing that outlives it but the process)
    if _kept is None or _kept.pid != os.getpid():
        _kept = Kept()
    return _kept
