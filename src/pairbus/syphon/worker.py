"""The worker of a syphon: moves the messages of some backlog queues, with a mover for each (Y1 to Y5).

It is the same in an application, in a local command and in a Spark task. What differs is handed in: the transports, the
orders, and where the worker accounts for what it does. In an application records go straight to its ledger. Elsewhere
the worker sends entries to an :class:`~pairbus.syphon.accounts.Account`: before messages are completed, and twice a
second if there is anything new, so that what it was doing is known if it dies.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random
from typing import Final

from pairbus.core.backoff import Backoff
from pairbus.core.forecast import LONG_POLL
from pairbus.core.ledger import Record
from pairbus.core.moving import Limits, Pace
from pairbus.core.options import TransportName
from pairbus.core.reconciliation import Reconciliation
from pairbus.core.routing import Destinations
from pairbus.core.slots import Share
from pairbus.instrument.hooks import Instrument
from pairbus.links.transport import Transport
from pairbus.syphon.accounts import Account, Entry
from pairbus.syphon.mover import Mover
from pairbus.syphon.transports import open_transport

_LOGGER = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 30.0
"""How long a destination in trouble is left alone at most, in seconds."""
TELL_INTERVAL: Final = 0.5
"""How often a worker sends an entry beside those of completions, in seconds, if there is anything new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How a worker is to work.

    :ivar once: until its queues are empty; else until it is stopped.
    :ivar wait: how long one receive waits, in seconds (Y2).
    :ivar patience: for how many seconds it tries a queue that fails, if it is to work once.
    :ivar retry_interval: how long a queue that failed, and at first a destination, is left alone, in seconds.
    :ivar metered: whether the records of its operations are wanted in its entries.
    """

    once: bool
    wait: float = LONG_POLL
    patience: float = 30.0
    retry_interval: float = 1.0
    metered: bool = False
    client: str | None = None


class Worker:
    """Works on some shares.

    :param name: tells it from other workers in the accounts; each attempt at a Spark task is another one.
    :param account: where its entries go; None: it sends none.
    :param instrument: gets the records of its operations, if it sends no entries.
    :param on_failure: told why a queue failed, which is tried again.
    """

    def __init__(
        self,
        name: str,
        shares: Sequence[Share],
        *,
        source: Transport,
        target: Transport,
        orders: Orders,
        account: Account | None = None,
        instrument: Instrument | None = None,
        pace: Pace | None = None,
        on_failure: Callable[[str, Exception], None] | None = None,
        random: Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._name = name
        self._account = account
        self._orders = orders
        self._records: list[Record] = []
        if account is not None:
            instrument = Instrument([self] if orders.metered else (), client=orders.client)
        destinations = Destinations(
            Backoff(orders.retry_interval, max(orders.retry_interval, LONGEST_PAUSE)),
            random or Random(),  # noqa: S311 (spreads clients out)
        )
        self._jobs: list[_Job] = []
        for share in shares:
            job = _Job(share)
            job.mover = Mover(
                share.queue,
                source,
                target,
                destinations=destinations,
                instrument=instrument,
                pace=replace(pace or Pace(), retry_interval=orders.retry_interval),
                account=None if account is None else (lambda job=job: self._tell(job)),
                on_failure=on_failure,
                monotonic=monotonic,
                utc=utc,
            )
            self._jobs.append(job)

    def record(self, record: Record) -> None:
        """Keep the record of an operation for the next entry."""
        self._records.append(record)

    def reconciliation(self) -> Reconciliation:
        """Tell what was done so far, and what waits."""
        total = Reconciliation()
        for job in self._jobs:
            total.add(job.reconciliation())
        return total

    async def run(self, stop: asyncio.Event) -> None:
        """Work until all is done, or until ``stop`` is set and the bursts that are under way are finished."""
        done = asyncio.Event()
        telling = asyncio.create_task(self._tell_often(done))
        moves = [asyncio.create_task(self._move(job, stop), name=f"move {job.share.queue}") for job in self._jobs]
        try:
            await asyncio.gather(*moves)
        finally:
            for move in moves:
                move.cancel()
            await asyncio.gather(*moves, return_exceptions=True)
            done.set()
            await telling
        for job in self._jobs:
            await self._tell(job)

    async def _move(self, job: "_Job", stop: asyncio.Event) -> None:
        orders, quota = self._orders, job.share.quota
        limits = Limits(quota=quota, wait=orders.wait, until_empty=orders.once, patience=orders.patience)
        job.last = None
        received = await job.mover.move(limits, stop)
        job.last = job.mover.moving.reconciliation()  # with what waits, before it is put back
        await job.mover.release()
        if received >= quota and not orders.once and self._account is not None:
            await self._account.ask_for_new_shares()

    async def _tell_often(self, done: asyncio.Event) -> None:
        while self._account is not None and not await pause(TELL_INTERVAL, done):
            for job in self._jobs:
                try:
                    await self._tell(job)
                except Exception as error:  # noqa: BLE001 (a mover that completes messages meets it too)
                    _LOGGER.debug("%s cannot be accounted for: %r", job.share.queue, error)

    async def _tell(self, job: "_Job") -> None:
        """Send an entry, if anything has changed since the last one."""
        if self._account is None:
            return
        records, self._records = self._records, []
        entry = job.entry(self._name, records)
        news = replace(entry, records=()).to_document()
        if records or news != job.told:
            job.told = news
            await self._account.enter(entry)


class _Job:
    """A share, the mover that works on it, and what was last told of it."""

    mover: Mover

    def __init__(self, share: Share) -> None:
        self.share = share
        self.last: Reconciliation | None = None
        self.told: object = None

    def reconciliation(self) -> Reconciliation:
        return self.last or self.mover.moving.reconciliation()

    def entry(self, worker: str, records: Sequence[Record]) -> Entry:
        problem = self.mover.moving.problem
        return Entry(
            worker=worker,
            queue=self.share.queue,
            slot=self.share.slot,
            reconciliation=self.reconciliation(),
            completing=Counter(message.destination for message in self.mover.moving.completing),
            records=records,
            problem=None if problem is None else f"{type(problem).__name__}: {problem}",
        )


async def work(
    name: str,
    shares: Sequence[Share],
    orders: Orders,
    account: Account,
    end: asyncio.Event,
    *,
    primary: str,
    secondary: str,
    transport: TransportName,
) -> None:
    """Open transports by connection strings, and run a worker over them until it is done or ``end`` is set."""
    async with open_transport(primary, transport) as target, open_transport(secondary, transport) as source:
        await Worker(name, shares, source=source, target=target, account=account, orders=orders).run(end)


async def pause(seconds: float, event: asyncio.Event) -> bool:
    """Wait so long, or until something has happened, and tell whether it has."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
