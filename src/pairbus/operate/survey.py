"""A look at the backlog queues of a pairing: which there are, what is in them, and where it belongs (B4)."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.core.envelope import PATH
from pairbus.core.naming import backlog_index, backlog_path
from pairbus.links.deadlines import within
from pairbus.links.sdk.administration import MANAGEMENT_SECONDS
from pairbus.links.sdk.browsing import browse
from pairbus.messages.encoded_labels import read

LOOK_AT: Final = 1000


@dataclass(frozen=True, slots=True)
class BacklogSurvey:
    """One backlog queue.

    :ivar is_extra: it is beyond those that the pairing uses: it stays, unused and undeleted (B4).
    :ivar looked_at: how many messages were looked at to tell the destinations: the oldest ones.
    :ivar destinations: where those belong; messages that name no destination are under the empty path.
    :ivar oldest_at: when the oldest message was parked.
    :ivar problem: why its messages could not be looked at.
    """

    path: str
    is_extra: bool
    active: int
    dead_lettered: int
    size_in_bytes: int
    looked_at: int = 0
    destinations: Mapping[str, int] = field(default_factory=dict[str, int])
    oldest_at: datetime | None = None
    problem: Exception | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """All backlog queues of a pairing.

    :ivar missing: paths of queues that the pairing wants and that are not there.
    """

    queues: Sequence[BacklogSurvey]
    missing: Sequence[str]

    @property
    def depth(self) -> int:
        """How many messages wait to be carried home."""
        return sum(queue.active for queue in self.queues)

    @property
    def dead_lettered(self) -> int:
        """How many messages could not be delivered."""
        return sum(queue.dead_lettered for queue in self.queues)

    @property
    def oldest_at(self) -> datetime | None:
        """When the oldest message was parked."""
        return min((queue.oldest_at for queue in self.queues if queue.oldest_at is not None), default=None)

    @property
    def destinations(self) -> Counter[str]:
        """Where the messages belong that were looked at."""
        total = Counter[str]()
        for queue in self.queues:
            total.update(queue.destinations)
        return total


async def survey(
    manager: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    primary: str,
    count: int,
    *,
    look_at: int = LOOK_AT,
) -> Survey:
    """Look at the backlog queues that a secondary has for a primary.

    :param manager: administration of the secondary.
    :param client: of the secondary, to look at messages; nothing is locked.
    :param primary: the primary's host name.
    :param count: how many backlog queues the pairing uses.
    :param look_at: at how many messages of each queue to look for their destinations.
    """
    found: dict[str, BacklogSurvey] = {}

    async def find() -> None:
        async for each in manager.list_queues_runtime_properties():
            path = each.name or ""
            index = backlog_index(path, primary)
            if index is not None:
                found[path] = BacklogSurvey(
                    path,
                    is_extra=index >= count,
                    active=each.active_message_count or 0,
                    dead_lettered=each.dead_letter_message_count or 0,
                    size_in_bytes=each.size_in_bytes or 0,
                )

    await within(MANAGEMENT_SECONDS, find())
    looked = await asyncio.gather(*(_looked_at(client, queue, look_at) for queue in found.values()))
    there = {backlog_index(path, primary) for path in found}
    prefix = backlog_path(primary, 0).removesuffix("0")
    return Survey(
        sorted(looked, key=lambda queue: backlog_index(queue.path, primary) or 0),
        [f"{prefix}{index}" for index in range(count) if index not in there],
    )


async def _looked_at(client: ServiceBusClient, queue: BacklogSurvey, most: int) -> BacklogSurvey:
    if not queue.active or not most:
        return queue
    destinations = Counter[str]()
    oldest: datetime | None = None
    problem: Exception | None = None
    try:
        async with aclosing(browse(client, queue.path, most=most)) as messages:
            async for message in messages:
                reading = read(message)
                named = reading.label.application_properties.get(PATH)
                destinations[named if isinstance(named, str) else ""] += 1
                if reading.enqueued_at is not None and (oldest is None or reading.enqueued_at < oldest):
                    oldest = reading.enqueued_at
    except Exception as error:  # noqa: BLE001 (told with the queue: the others can be looked at)
        problem = error
    return BacklogSurvey(
        queue.path,
        queue.is_extra,
        queue.active,
        queue.dead_lettered,
        queue.size_in_bytes,
        looked_at=destinations.total(),
        destinations=dict(destinations.most_common()),
        oldest_at=oldest,
        problem=problem,
    )
