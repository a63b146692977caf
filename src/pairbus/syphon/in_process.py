"""The syphon inside an application: one pump per backlog queue (Y1 to Y6)."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Final

from pairbus.core.backoff import Backoff
from pairbus.core.routing import Destinations
from pairbus.core.verdict import Cause
from pairbus.instrument.hooks import Instrument
from pairbus.links.transport import Transport
from pairbus.syphon.mover import Mover, Pace, pause
from pairbus.syphon.reconciliation import Report

_LOGGER = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 30.0
"""How long a destination in trouble is left alone at most, in seconds."""
LAST_BURSTS: Final = 60.0
"""How long bursts that are under way may take when the syphon stops, in seconds."""
SAME_FAILURE: Final = 300.0
"""A failure that follows another one within so many seconds is not worth another warning."""


class Syphon:
    """Carries parked messages home as long as it runs.

    :param primary: carries messages to where they belong; closed with the syphon.
    :param secondary: carries messages of the backlog queues; closed with the syphon.
    :param queues: the paths of the backlog queues.
    :param retry_interval: how long a pump pauses after a failure, and a destination in trouble is left alone at first,
        in seconds: the option ``syphon_retry_interval``.
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
        self._tasks: list[asyncio.Task[None]] = []
        destinations = Destinations(
            Backoff(retry_interval, max(retry_interval, LONGEST_PAUSE)),
            random or Random(),  # noqa: S311 (spreads clients out)
        )
        self._movers = [
            Mover(
                queue,
                secondary,
                primary,
                destinations=destinations,
                instrument=instrument,
                pace=replace(pace or Pace(), retry_interval=retry_interval),
                monotonic=monotonic,
                utc=utc,
            )
            for queue in queues
        ]

    def start(self) -> None:
        """Start the pumps, on the running event loop."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._pump(mover), name=f"pump {mover.queue}") for mover in self._movers]

    async def stop(self) -> None:
        """Stop in order: bursts that are under way are finished, what waits is put back, and all links are closed."""
        self._stop.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LAST_BURSTS)
            for task in late:  # nothing is lost: what it holds comes back when its locks end
                _LOGGER.warning("%s has not finished within %g s and is cancelled", task.get_name(), LAST_BURSTS)
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await asyncio.gather(self._primary.close(), self._secondary.close())

    def report(self) -> Report:
        """Tell what was done so far, and what waits."""
        report = Report()
        for mover in self._movers:
            report.add(mover.report())
        return report

    async def _pump(self, mover: Mover) -> None:
        failed_at = -math.inf
        while not self._stop.is_set():
            try:
                await mover.move(stop=self._stop)
            except Exception as error:  # a pump goes on as long as the syphon runs
                level = logging.DEBUG if self._monotonic() - failed_at < SAME_FAILURE else logging.WARNING
                is_bug = self._secondary.facts(error).cause is Cause.UNEXPECTED
                _LOGGER.log(level, "%s fails and is tried again: %r", mover.queue, error, exc_info=is_bug)
                failed_at = self._monotonic()
                await pause(self._retry_interval, self._stop)
        await mover.release()
