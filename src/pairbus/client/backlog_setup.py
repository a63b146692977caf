"""Making sure of the backlog queues of a pairing (B1 to B5)."""

# pyright: reportUnknownMemberType=false

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

from pairbus.core.ledger import Kind, Stage
from pairbus.core.verdict import Cause
from pairbus.errors import PairingError
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import within
from pairbus.links.errors import facts
from pairbus.links.sdk.administration import MANAGEMENT_SECONDS

T = TypeVar("T")


MAX_DURATION: Final = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
"""The longest duration that Service Bus knows."""

SETTINGS: Final[dict[str, Any]] = {  # B2
    "max_size_in_megabytes": 5120,
    "max_delivery_count": 2147483647,
    "default_message_time_to_live": MAX_DURATION,
    "auto_delete_on_idle": MAX_DURATION,
    "lock_duration": timedelta(minutes=1),
    "dead_lettering_on_message_expiration": True,
    "enable_batched_operations": True,
}

_LOGGER = logging.getLogger(__name__)


class QueueAdministration(Protocol):
    """What is needed of the secondary's administration client."""

    async def get_queue(self, queue_name: str, /) -> Any:  # noqa: ANN401 (the SDK's)
        """Look at a queue; raises ``ResourceNotFoundError``."""
        ...

    async def create_queue(self, queue_name: str, /, **settings: Any) -> Any:  # noqa: ANN401 (the SDK's)
        """Make a queue; raises ``ResourceExistsError``."""
        ...


class Backlog:
    """Makes sure of backlog queues, and records each management operation (K1)."""

    def __init__(self, administration: QueueAdministration, namespace: str, instrument: Instrument) -> None:
        self._administration = administration
        self._namespace = namespace
        self._instrument = instrument

    async def ensure(self, paths: Sequence[str]) -> dict[str, Exception]:
        """Make the queues that are missing (B3).

        :return: the queues that cannot be made or reached, and why; pairing goes on without them.
        :raises PairingError: access is denied, or none is left (B5).
        """
        results = await asyncio.gather(*map(self._ensure, paths))
        problems = {path: problem for path, problem in zip(paths, results, strict=True) if problem is not None}
        denied = next((p for p in problems.values() if facts(p).cause is Cause.UNAUTHORIZED or _forbidden(p)), None)
        if denied is not None:
            raise PairingError(
                f"access to the backlog queues of {self._namespace!r} is denied: {denied}; "
                "pairing needs the right to manage the secondary namespace"
            ) from denied
        if len(problems) == len(paths):
            last = problems[paths[-1]]
            raise PairingError(f"no backlog queue of {self._namespace!r} can be made or reached: {last}") from last
        for path, problem in problems.items():
            _LOGGER.warning("backlog queue %r is left out: %r", path, problem)
        return problems

    async def _ensure(self, path: str) -> Exception | None:
        try:
            try:
                await self._do(path, lambda: self._administration.get_queue(path), ResourceNotFoundError)
            except ResourceNotFoundError:
                await self._do(path, lambda: self._administration.create_queue(path, **SETTINGS), ResourceExistsError)
        except ResourceExistsError:
            return None  # another client was quicker (B3)
        except Exception as error:  # noqa: BLE001 (B5: judged together with the others')
            return error
        return None

    async def _do(self, path: str, work: Callable[[], Awaitable[T]], answer: type[Exception]) -> T:
        """Do one management operation; ``answer`` is an error that answers the question all the same."""
        operation = self._instrument.begin(self._namespace, path, Kind.MANAGEMENT, Stage.SETUP)

        async def run() -> T:
            return await work()

        try:
            result = await within(MANAGEMENT_SECONDS, run())
        except answer:
            operation.done()
            raise
        except BaseException as error:
            operation.failed(error, in_doubt=not isinstance(error, Exception) or facts(error).in_doubt)
            raise
        operation.done()
        return result


def _forbidden(error: Exception) -> bool:
    return getattr(error, "status_code", None) in (401, 403)
