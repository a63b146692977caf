"""Carries one task's shares of the backlog home: a mover for each, on one event loop (Y1 to Y5).

The same in a Spark task and in this process: where the entries go is handed in.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from pairbus.core.backoff import Backoff
from pairbus.core.forecast import LONG_POLL
from pairbus.core.ledger import Record
from pairbus.core.routing import Destinations
from pairbus.core.slots import Share
from pairbus.instrument.hooks import Instrument
from pairbus.links.transport import Received, Transport
from pairbus.syphon.accounts import Account, Entry
from pairbus.syphon.in_process import LONGEST_PAUSE
from pairbus.syphon.mover import Mover, Pace, destination_of, pause
from pairbus.syphon.reconciliation import Report

_LOGGER = logging.getLogger(__name__)

TELL_INTERVAL: Final = 0.5
"""How often a carrier tells of what it has not told with a burst, in seconds, if there is anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How a carrier is to work.

    :ivar once: until its queues are empty; else until it is stopped.
    :ivar wait: how long one receive waits, in seconds (Y2).
    :ivar patience: for how many seconds it tries a queue that fails, if it is to work once.
    :ivar metered: whether the records of its operations are wanted.
    """

    once: bool
    wait: float = LONG_POLL
    patience: float = 30.0
    retry_interval: float = 1.0
    metered: bool = False
    client: str | None = None


class Carrier:
    """Works on some shares.

    :param name: who it is in the books; each attempt at a task is another one.
    """

    def __init__(
        self,
        name: str,
        shares: Sequence[Share],
        *,
        source: Transport,
        target: Transport,
        account: Account,
        orders: Orders,
        pace: Pace | None = None,
    ) -> None:
        self._source = source
        self._account = account
        self._orders = orders
        collector = _Collector()
        instrument = Instrument([collector] if orders.metered else (), client=orders.client)
        destinations = Destinations(
            Backoff(orders.retry_interval, max(orders.retry_interval, LONGEST_PAUSE)),
            Random(),  # noqa: S311 (spreads clients out)
        )
        self._collector = collector
        self._books = [_Book(name, share, account, collector) for share in shares]
        self._movers = [
            Mover(
                book.share.queue,
                source,
                target,
                destinations=destinations,
                instrument=instrument,
                pace=pace,
                completing=book.completing,
            )
            for book in self._books
        ]
        for book, mover in zip(self._books, self._movers, strict=True):
            book.mover = mover

    async def run(self, stop: asyncio.Event) -> None:
        """Work until all is done, or until ``stop`` is set and the bursts that are under way are finished."""
        done = asyncio.Event()
        telling = asyncio.create_task(self._tell(done))
        pumps = [
            asyncio.create_task(self._pump(book, mover, stop), name=f"pump {mover.queue}")
            for book, mover in zip(self._books, self._movers, strict=True)
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            done.set()
            await telling
        for book in self._books:
            await book.tell()

    async def _tell(self, done: asyncio.Event) -> None:
        while not await pause(TELL_INTERVAL, done):
            for book in self._books:
                try:
                    await book.tell()
                except Exception as error:  # noqa: BLE001 (whoever completes messages meets it too, and raises it)
                    _LOGGER.debug("%s cannot be told of: %r", book.share.queue, error)

    async def _pump(self, book: "_Book", mover: Mover, stop: asyncio.Event) -> None:
        orders, loop = self._orders, asyncio.get_running_loop()
        gives_up_at = loop.time() + orders.patience
        left = book.share.quota
        while not stop.is_set() and left > 0:
            try:
                left -= await mover.move(stop=stop, quota=left, wait=orders.wait, until_empty=orders.once)
            except Exception as error:  # noqa: BLE001 (it comes with the queue, is told, and tried again)
                book.problem = f"{type(error).__name__}: {error}"
                _LOGGER.debug("%s fails: %r", mover.queue, error)
                if orders.once and loop.time() >= gives_up_at:
                    break
                await pause(orders.retry_interval, stop)
            else:
                book.problem = None
                gives_up_at = loop.time() + orders.patience
                if orders.once:
                    break
        book.last = mover.report()  # with what waits, before it is put back
        await mover.release()
        if left <= 0 and not orders.once:
            await self._account.ask_for_new_shares()


class _Collector:
    """Gathers the records of a carrier until they are told."""

    def __init__(self) -> None:
        self._records: list[Record] = []

    def record(self, record: Record) -> None:
        self._records.append(record)

    def take(self) -> list[Record]:
        taken, self._records = self._records, []
        return taken


class _Book:
    """Where the entries of one share are written."""

    def __init__(self, carrier: str, share: Share, account: Account, collector: _Collector) -> None:
        self.share = share
        self.mover: Mover | None = None
        self.problem: str | None = None
        self.last: Report | None = None
        self._carrier = carrier
        self._account = account
        self._collector = collector
        self._completing = Counter[str]()
        self._told: object = None

    @contextlib.asynccontextmanager
    async def completing(self, messages: Sequence[Received]) -> AsyncGenerator[None]:
        """Enter messages that were delivered, before they are completed."""
        self._completing = Counter(map(destination_of, messages))
        try:
            await self.tell()
            yield
        finally:
            self._completing = Counter[str]()

    async def tell(self) -> None:
        """Enter what there is to tell, if anything has changed since the last time."""
        assert self.mover is not None  # noqa: S101 (set when both are made)
        entry = Entry(
            carrier=self._carrier,
            queue=self.share.queue,
            slot=self.share.slot,
            report=self.last or self.mover.report(),
            completing=dict(self._completing),
            records=self._collector.take(),
            problem=self.problem,
        )
        news = replace(entry, records=()).to_document()
        if entry.records or news != self._told:
            self._told = news
            await self._account.enter(entry)
