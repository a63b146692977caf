"""A look at a namespace: what its administration tells, and what lies on top of its backlog queues.

Only looks: nothing is received, locked or changed. Listing needs the Manage claim, peeking the Listen claim.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio import ServiceBusClient

from pairbus.core.ledger import Kind, Stage
from pairbus.core.naming import TRANSFER, backlog_index, namespace_label
from pairbus.core.verdict import Cause
from pairbus.dashboard.snapshot import Look, Queue, Role, Top
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import within
from pairbus.links.errors import facts
from pairbus.links.sdk.administration import NamespaceManager
from pairbus.syphon.survey import Seen, look_into

LOOK_SECONDS: Final = 10.0
"""How long one look may take before the namespace counts as unreachable."""
PEEKED: Final = 32
"""Messages on top of a backlog queue that are looked at for their age and destinations; each is an operation."""
TOPS_SECONDS: Final = 15.0
"""How often they are looked at."""
SUBSCRIPTIONS_SECONDS: Final = 30.0
"""How often subscriptions are listed, which takes a request for each topic."""
CLOSE_SECONDS: Final = 3.0

_FORBIDDEN: Final = frozenset({401, 403})
_WORDS: Final = {
    Cause.CONNECTION: "it cannot be reached",
    Cause.TIMEOUT: "it does not answer",
    Cause.BUSY: "it is too busy",
    Cause.INTERNAL: "it has failed to answer",
}
_LOGGER = logging.getLogger(__name__)


class Looker:
    """Looks at one namespace again and again; it keeps what it knew when the namespace cannot be reached.

    :param primary: the primary's host name, by which its backlog queues are told from those of others; None: not known.
    """

    def __init__(self, role: Role, connection_string: str, primary: str | None, instrument: Instrument) -> None:
        self._manager = NamespaceManager.from_connection_string(connection_string, retry_total=0)
        self.client: Final = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
        host = self.client.fully_qualified_namespace
        self._namespace = namespace_label(host)
        self.look = Look(role, self._namespace)
        self._primary = primary
        self._instrument = instrument
        self._tops: dict[str, Top] = {}
        self._tops_at = 0.0
        self._subscriptions: tuple[Queue, ...] = ()
        self._subscriptions_at: float | None = None

    async def again(self, *, afresh: bool = False) -> Look:
        """Look now; what hinders it is told in the look.

        :param afresh: look at everything, at subscriptions too.
        """
        now = datetime.now(UTC)
        if afresh:
            self._subscriptions_at = None
        try:
            queues = await within(LOOK_SECONDS, self._queues())
        except Exception as error:  # noqa: BLE001 (whatever it is, the page says so and keeps trying)
            self.look = replace(self.look, problem=why(error), since=self.look.since or now)
            return self.look
        partial = None
        try:
            waiting = [queue.path for queue in queues if queue.backlog is not None and queue.depth]
            await within(LOOK_SECONDS, self._look_into(waiting))
        except Exception as error:  # noqa: BLE001 (as above)
            partial = f"the backlog queues cannot be looked into: {why(error)}"
        queues = tuple(replace(queue, top=self._tops.get(queue.path)) for queue in queues)
        self.look = replace(self.look, at=datetime.now(UTC), problem=None, since=None, partial=partial, queues=queues)
        return self.look

    async def _queues(self) -> tuple[Queue, ...]:
        listed = self._listed(self._manager.list_queues_runtime_properties(), "$Resources/queues")
        queues = [
            Queue(
                found.name,
                found.active_message_count or 0,
                found.dead_letter_message_count or 0,
                self._backlog_index(found.name),
            )
            async for found in listed
        ]
        if self._subscriptions_at is None or time.monotonic() - self._subscriptions_at > SUBSCRIPTIONS_SECONDS:
            self._subscriptions = tuple([queue async for queue in self._list_subscriptions()])
            self._subscriptions_at = time.monotonic()
        return (*queues, *self._subscriptions)

    async def _list_subscriptions(self) -> AsyncIterator[Queue]:
        topics = [found.name async for found in self._listed(self._manager.list_topics(), "$Resources/topics")]
        for topic in topics:
            listing = self._manager.list_subscriptions_runtime_properties(topic)
            try:
                async for found in self._listed(listing, f"{topic}/Subscriptions"):
                    path = f"{topic}/Subscriptions/{found.name}"
                    yield Queue(path, found.active_message_count or 0, found.dead_letter_message_count or 0)
            except ResourceNotFoundError:
                continue  # it was deleted between the two requests

    async def _listed(self, listing: Any, path: str) -> AsyncIterator[Any]:  # noqa: ANN401 (the SDK's)
        """Give what a listing gives; each page of it is one operation (K1)."""
        pages = listing.by_page()
        while True:
            operation = self._instrument.begin(self._namespace, path, Kind.MANAGEMENT, Stage.SETUP)
            try:
                page = await anext(pages)
            except StopAsyncIteration:
                return
            except Exception as error:
                operation.failed(error)
                raise
            operation.done()
            async for found in page:
                yield found

    def _backlog_index(self, path: str) -> int | None:
        if self._primary is not None:
            return backlog_index(path, self._primary)
        label, transfer, index = ["", "", *path.split("/")][-3:]
        return int(index) if label and transfer.lower() == TRANSFER and index.isdecimal() else None

    async def _look_into(self, paths: list[str]) -> None:
        """Look at what lies on top of queues, if it is time, and forget the tops of others."""
        self._tops = {path: top for path, top in self._tops.items() if path in paths}
        if self._tops.keys() >= set(paths) and time.monotonic() - self._tops_at < TOPS_SECONDS:
            return
        self._tops_at = time.monotonic()
        found = await asyncio.gather(*map(self._top, paths))
        self._tops = {path: top for path, top in zip(paths, found, strict=True) if top is not None}

    async def _top(self, path: str) -> Top | None:
        operation = self._instrument.begin(self._namespace, path, Kind.PEEK, Stage.SETUP)
        seen = Seen()
        try:
            await look_into(self.client, path, seen, most=PEEKED, seconds=LOOK_SECONDS)
        except Exception as error:
            operation.failed(error)
            raise
        operation.done(seen.sizes)
        if seen.oldest_at is None:
            return None  # emptied between the two requests
        return Top(seen.oldest_at, seen.destinations, len(seen.sizes))

    async def close(self) -> None:
        """Close what is open."""
        await _closed(self.client.close())
        await _closed(self._manager.close())


async def _closed(closing: Coroutine[Any, Any, None]) -> None:
    """Wait until something is closed, which may not be possible in order: its namespace may be away."""
    try:
        await within(CLOSE_SECONDS, closing)
    except Exception as error:  # noqa: BLE001 (nothing depends on it any more)
        _LOGGER.debug("a link was not closed in order: %r", error)


def why(error: BaseException) -> str:
    """Say in a few words why a namespace could not be seen; without the error's text, which may be long."""
    cause = facts(error).cause
    if cause is Cause.UNAUTHORIZED or getattr(error, "status_code", None) in _FORBIDDEN:
        return "access is denied: the connection string needs the Manage and Listen claims"
    return _WORDS.get(cause, f"{cause.value} ({type(error).__name__})")
