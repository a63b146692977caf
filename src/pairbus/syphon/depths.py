"""A look at the backlog queues of a pairing: which there are, how deep they are, and what would go where."""

# pyright: reportUnknownMemberType=false

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.aio import ServiceBusClient

from pairbus.core.burst import Parked
from pairbus.core.naming import backlog_index, backlog_paths
from pairbus.core.reconciliation import Reconciliation
from pairbus.core.routing import DeadLetter, route
from pairbus.errors import PairbusError
from pairbus.links.deadlines import within
from pairbus.links.sdk.administration import MANAGEMENT_SECONDS, NamespaceManager
from pairbus.links.sdk.browsing import browse, sequence_number_of
from pairbus.messages.encoded_labels import read

PEEK_SECONDS: Final = 30.0
_DENIED: Final = (401, 403)


class Depths:
    """Tells how deep the backlog queues are.

    Whoever may not manage the secondary is not told: then the queues are those that the pairing asked for.

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
        found: dict[str, int | None] = {}
        async with NamespaceManager.from_connection_string(self._connection_string) as manager:
            async for queue in manager.list_queues_runtime_properties():
                if backlog_index(queue.name or "", self._primary) is not None:
                    found[queue.name] = queue.active_message_count or 0
        return dict(sorted(found.items(), key=lambda each: backlog_index(each[0], self._primary) or 0))


async def foresee(client: ServiceBusClient, queues: Sequence[str]) -> dict[str, Reconciliation]:
    """Look at every message, without touching any, and tell by queue and destination what a syphon would try."""
    return {queue: await _foresee(client, queue) for queue in queues}


async def _foresee(client: ServiceBusClient, queue: str) -> Reconciliation:
    report = Reconciliation()
    async with aclosing(browse(client, queue, seconds=PEEK_SECONDS)) as messages:
        async for message in messages:
            reading = read(message)
            parked = Parked(sequence_number_of(message), reading.label)
            counts = report.of(parked.destination)
            routed = route(parked.label)
            if isinstance(routed, DeadLetter):
                counts.dead_lettered[routed.reason] += 1
            else:
                counts.delivered += 1
            counts.note_age(reading.enqueued_at)
    return report
