"""The survey of the backlog: which queues there are, how deep they are, what is in them, and where it belongs (B4).

There is one way to list the backlog queues and one to look at their messages. What needs depths only asks
:class:`Depths` and looks at no message; nothing is locked or changed by any of it.
"""

# pyright: reportUnknownMemberType=false

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueRuntimeProperties

from pairbus.core.burst import Parked
from pairbus.core.naming import backlog_index, backlog_path, backlog_paths
from pairbus.core.reconciliation import Reconciliation
from pairbus.core.routing import DeadLetter
from pairbus.errors import PairbusError
from pairbus.links.deadlines import within
from pairbus.links.sdk.administration import MANAGEMENT_SECONDS, NamespaceManager
from pairbus.links.sdk.browsing import SECONDS, browse, sequence_number_of
from pairbus.messages.encoded_labels import read

LOOK_AT: Final = 1000
PEEK_SECONDS: Final = 30.0
_DENIED: Final = (401, 403)


@dataclass(slots=True)
class Seen:
    """Messages of a backlog queue that were looked at, the oldest first.

    :ivar sizes: the encoded size of each.
    :ivar foreseen: what a syphon would try to do with them, by destination.
    """

    sizes: list[int] = field(default_factory=list[int])
    foreseen: Reconciliation = field(default_factory=Reconciliation)

    @property
    def destinations(self) -> Counter[str]:
        """Where they belong; those that name no destination are under the empty path."""
        return Counter({path: counts.found for path, counts in self.foreseen.destinations.items()})

    @property
    def oldest_at(self) -> datetime | None:
        """When the oldest was parked."""
        return self.foreseen.total().oldest_at


async def look_into(
    client: ServiceBusClient, path: str, seen: Seen, *, most: int | None = None, seconds: float = PEEK_SECONDS
) -> None:
    """Look at the messages of a backlog queue, without touching any; those before an error are seen.

    :param most: at how many; None: at all.
    """
    async with aclosing(browse(client, path, most=most, seconds=seconds)) as messages:
        async for message in messages:
            reading = read(message)
            parked = Parked(sequence_number_of(message), reading.label)
            counts = seen.foreseen.of(parked.destination)
            if isinstance(parked.routed, DeadLetter):
                counts.dead_lettered[parked.routed.reason] += 1
            else:
                counts.delivered += 1
            counts.note_age(reading.enqueued_at)
            seen.sizes.append(len(message.data))


async def _backlog_queues(
    manager: ServiceBusAdministrationClient, primary: str
) -> AsyncGenerator[tuple[int, QueueRuntimeProperties]]:
    async for queue in manager.list_queues_runtime_properties():
        index = backlog_index(queue.name or "", primary)
        if index is not None:
            yield index, queue


class Depths:
    """Tells how deep the backlog queues are.

    Without the right to manage the secondary they are not known: then the queues are those that the pairing asked for.

    :param connection_string: of the secondary.
    :param primary: the primary's host name.
    :param count: how many backlog queues the pairing has, if they cannot be listed.
    """

    def __init__(self, connection_string: str, primary: str, count: int) -> None:
        self._connection_string = connection_string
        self._primary = primary
        self._count = count

    async def look(self) -> Mapping[str, int | None]:
        """Return all backlog queues, with how many messages are in each, those under lock too; None: not known.

        :raises PairbusError: the secondary cannot be asked.
        """
        try:
            return await within(MANAGEMENT_SECONDS, self._list())
        except ClientAuthenticationError:
            pass
        except (AzureError, TimeoutError) as error:
            if getattr(error, "status_code", None) not in _DENIED:
                raise PairbusError(f"the queues of the secondary cannot be listed: {error}") from error
        return dict.fromkeys(backlog_paths(self._primary, self._count))

    async def _list(self) -> dict[str, int | None]:
        async with NamespaceManager.from_connection_string(self._connection_string) as manager:
            found = [pair async for pair in _backlog_queues(manager, self._primary)]
        return {queue.name: queue.active_message_count or 0 for _, queue in sorted(found, key=lambda pair: pair[0])}


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
    found: dict[int, BacklogSurvey] = {}

    async def find() -> None:
        async for index, queue in _backlog_queues(manager, primary):
            found[index] = BacklogSurvey(
                queue.name,
                is_extra=index >= count,
                active=queue.active_message_count or 0,
                dead_lettered=queue.dead_letter_message_count or 0,
                size_in_bytes=queue.size_in_bytes or 0,
            )

    await within(MANAGEMENT_SECONDS, find())
    looked = await asyncio.gather(*(_looked_at(client, found[index], look_at) for index in sorted(found)))
    prefix = backlog_path(primary, 0).removesuffix("0")
    return Survey(looked, [f"{prefix}{index}" for index in range(count) if index not in found])


async def _looked_at(client: ServiceBusClient, queue: BacklogSurvey, most: int) -> BacklogSurvey:
    if not queue.active or not most:
        return queue
    seen, problem = Seen(), None
    try:
        await look_into(client, queue.path, seen, most=most, seconds=SECONDS)
    except Exception as error:  # noqa: BLE001 (told with the queue: the others can be looked at)
        problem = error
    return replace(
        queue,
        looked_at=len(seen.sizes),
        destinations=dict(seen.destinations.most_common()),
        oldest_at=seen.oldest_at,
        problem=problem,
    )
