"""The syphon inside an application: a worker that serves all backlog queues until the application ends (Y1 to Y6)."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Final

from pairbus.core.moving import Pace
from pairbus.core.reconciliation import Reconciliation
from pairbus.core.slots import Share
from pairbus.core.verdict import Cause
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import cancel
from pairbus.links.transport import Transport
from pairbus.syphon.worker import Orders, Worker, pause

_LOGGER = logging.getLogger(__name__)

LAST_BURSTS: Final = 60.0
"""How long bursts that are under way may take when the syphon stops, in seconds."""
SAME_FAILURE: Final = 300.0
"""A failure that follows another one of its queue within so many seconds is not worth another warning."""


class Syphon:
    """Carries parked messages home as long as it runs.

    :param primary: carries messages to where they belong; closed with the syphon.
    :param secondary: carries messages of the backlog queues; closed with the syphon.
    :param queues: the paths of the backlog queues.
    :param retry_interval: how long a queue that failed, and at first a destination, is left alone, in seconds (the
        option ``syphon_retry_interval``).
    """

    def __init__(
        self,
        primary: Transport,
        secondary: Transport,
        queues: Sequence[str],
        *,
        retry_interval: float = 1.0,
        instrument: Instrument | None = None,
        pace: Pace | None = None,
        random: Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._retry_interval = retry_interval
        self._monotonic = monotonic
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failed_at: dict[str, float] = {}
        self._worker = Worker(
            "syphon",
            [Share(queue, 0, math.inf) for queue in queues],
            source=secondary,
            target=primary,
            orders=Orders(once=False, retry_interval=retry_interval),
            instrument=instrument,
            pace=pace,
            on_failure=self._warn,
            random=random,
            monotonic=monotonic,
            utc=utc,
        )

    def start(self) -> None:
        """Start to work, on the running event loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="syphon")

    async def stop(self) -> None:
        """Stop in order: bursts that are under way are finished, what waits is put back, and all links are closed."""
        self._stop.set()
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=LAST_BURSTS)
            if late:  # nothing is lost: what it holds comes back when its locks end
                _LOGGER.warning("the syphon has not finished within %g s and is cancelled", LAST_BURSTS)
                cancel(self._task)
                await asyncio.wait(late)
        await asyncio.gather(self._primary.close(), self._secondary.close())

    def report(self) -> Reconciliation:
        """Tell what was done so far, and what waits."""
        return self._worker.reconciliation()

    async def _run(self) -> None:
        while not self._stop.is_set():
            try:
                await self._worker.run(self._stop)
            except Exception:  # a bug; the syphon goes on as long as the application
                _LOGGER.exception("the syphon fails and starts again")
                await pause(self._retry_interval, self._stop)

    def _warn(self, queue: str, error: Exception) -> None:
        now, failed_at = self._monotonic(), self._failed_at.get(queue, -math.inf)
        self._failed_at[queue] = now
        level = logging.DEBUG if now - failed_at < SAME_FAILURE else logging.WARNING
        is_bug = self._secondary.facts(error).cause is Cause.UNEXPECTED
        _LOGGER.log(level, "%s fails and is tried again: %r", queue, error, exc_info=error if is_bug else None)
