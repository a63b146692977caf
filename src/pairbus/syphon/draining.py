"""One drain of a pairing's backlog from its beginning to its end, whatever does the carrying, and what came of it (Y6).

:func:`drain_backlog` is asynchronous. :func:`run_in_thread` runs it for a caller that is not: a command, a job, or a
notebook, whose thread has a running event loop already.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from pairbus.instrument.ledger import LedgerFile
from pairbus.syphon.accounts import Accounts, Row
from pairbus.syphon.rounds import Drain, Engine
from pairbus.syphon.survey import Depths
from pairbus.syphon.worker import pause

T = TypeVar("T")

PROGRESS_INTERVAL: Final = 0.25
"""How often progress is told, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """What became of the messages of one queue for one destination.

    :ivar destination: None: they name none, or nobody here has received them.
    :ivar found: the sum of those that were delivered, dead-lettered and wait.
    :ivar dead_lettered: by reason.
    :ivar waiting: how many are still there, by reason.
    :ivar duplicates_suspected: delivered, and their removal from the backlog is in doubt: they may arrive twice.
    :ivar oldest_at: when the oldest of them was parked, where that is known.
    """

    queue: str
    destination: str | None
    found: int
    delivered: int
    dead_lettered: Mapping[str, int]
    waiting: Mapping[str, int]
    duplicates_suspected: int
    oldest_at: datetime | None

    @classmethod
    def of(cls, row: Row) -> Self:
        """Read them from the accounts."""
        counts = row.counts
        return cls(
            queue=row.queue,
            destination=row.destination or None,
            found=row.found,
            delivered=counts.delivered,
            dead_lettered={reason.value: count for reason, count in counts.dead_lettered.items() if count},
            waiting=row.waiting,
            duplicates_suspected=counts.duplicates_suspected,
            oldest_at=counts.oldest_at,
        )

    def to_document(self, at: datetime, seconds: float) -> dict[str, Any]:
        """Return the counts as JSON can carry them."""
        return {
            "found": self.found,
            "delivered": self.delivered,
            "dead_lettered": sum(self.dead_lettered.values()),
            "waiting": sum(self.waiting.values()),
            "duplicates_suspected": self.duplicates_suspected,
            "dead_lettered_by_reason": dict(self.dead_lettered),
            "waiting_by_reason": dict(self.waiting),
            "oldest_age_seconds": age(self.oldest_at, at),
            "rate": round(self.delivered / seconds, 1) if seconds else 0.0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """What a drain did: every message that it found was delivered, dead-lettered, or is still there (Y6).

    :ivar at: when the drain ended.
    :ivar seconds: how long it took.
    :ivar total: the sum over all queues.
    :ivar queues: by queue and destination.
    :ivar problems: queues that could not be received from, and why.
    """

    at: datetime
    seconds: float
    total: MessageCounts
    queues: Sequence[MessageCounts]
    problems: Mapping[str, str]

    @classmethod
    def of(cls, accounts: Accounts, seconds: float) -> Self:
        """Read it from the accounts of a drain that has ended."""
        return cls(
            at=datetime.now(UTC),
            seconds=seconds,
            total=MessageCounts.of(accounts.total()),
            queues=[MessageCounts.of(row) for row in accounts.rows()],
            problems=dict(accounts.problems),
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing that could be delivered later is left, and every queue could be received from."""
        return not self.total.waiting and not self.problems

    def to_document(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {
            **self.total.to_document(self.at, self.seconds),
            "seconds": round(self.seconds, 3),
            "queues": [
                {"queue": each.queue, "destination": each.destination, **each.to_document(self.at, self.seconds)}
                for each in self.queues
            ],
            "problems": dict(self.problems),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return it as rows of a table, one for each queue and destination."""
        return [
            {
                "at": self.at,
                "queue": each.queue,
                "destination": each.destination,
                "found": each.found,
                "delivered": each.delivered,
                "dead_lettered": dict(each.dead_lettered),
                "waiting": dict(each.waiting),
                "duplicates_suspected": each.duplicates_suspected,
                "oldest_at": each.oldest_at,
                "seconds": self.seconds,
            }
            for each in self.queues
        ]


def age(oldest_at: datetime | None, now: datetime) -> float | None:
    """Return how many seconds ago the oldest message was parked."""
    return None if oldest_at is None else max(0.0, (now - oldest_at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """How far a drain has come.

    :ivar depths: messages in each queue when they were last counted; None: not known.
    :ivar moved: messages of each queue that were delivered or dead-lettered.
    :ivar waiting: messages that cannot go now.
    """

    depths: Mapping[str, int | None]
    moved: Mapping[str, int]
    waiting: int

    @property
    def total(self) -> int:
        """Messages that were moved, of all queues."""
        return sum(self.moved.values())


async def drain_backlog(
    engine_for: Callable[[Accounts], AbstractAsyncContextManager[Engine]],
    depths: Depths,
    *,
    stop: asyncio.Event,
    once: bool = True,
    ledger: Path | None = None,
    progress: Callable[[DrainProgress], None] | None = None,
) -> DrainResult:
    """Carry the backlog home.

    :param engine_for: opens what does the carrying, and tells the accounts what it did.
    :param stop: ends it in order: bursts that are under way are finished.
    :param once: end when all is delivered that can be; else only when stopped.
    :param ledger: the directory of the ledger, if every operation is to be recorded.
    :param progress: told four times a second how far it is.
    """
    file = None if ledger is None else LedgerFile(ledger)
    accounts = Accounts(file)
    try:
        async with engine_for(accounts) as engine:
            began = time.monotonic()
            drain = Drain(depths, engine, accounts, stop=stop, metered=file is not None)
            async with _telling(drain, accounts, progress):
                await (drain.once() if once else drain.keep())
            return DrainResult.of(accounts, time.monotonic() - began)
    finally:
        if file is not None:
            await asyncio.to_thread(file.close)


@contextlib.asynccontextmanager
async def _telling(
    drain: Drain, accounts: Accounts, progress: Callable[[DrainProgress], None] | None
) -> AsyncGenerator[None]:
    if progress is None:
        yield
        return
    done = asyncio.Event()

    async def tell() -> None:
        ended = False
        while not ended:
            ended = await pause(PROGRESS_INTERVAL, done)
            progress(_progress(drain, accounts))

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        done.set()
        await telling


def _progress(drain: Drain, accounts: Accounts) -> DrainProgress:
    moved = Counter[str]()
    waiting = 0
    for row in accounts.rows():
        moved[row.queue] += row.counts.delivered + row.counts.dead_lettered.total()
        waiting += row.counts.waiting.total()
    return DrainProgress(depths=dict(drain.depths), moved=moved, waiting=waiting)


def run_in_thread(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run asynchronous work to its end in a thread of its own, and wait for it.

    So it has a loop of its own, also where the caller's thread is running one.

    :param work: is given an event. KeyboardInterrupt sets it, so that the work ends in order, and what it returns is
        returned. A second KeyboardInterrupt is raised at once, while the work still ends.
    """
    outcome: Future[T] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                result = runner.run(work(stop))
        except BaseException as error:  # noqa: BLE001 (the caller's thread raises it)
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    thread = threading.Thread(target=run, name="pairbus drain", daemon=True)
    with _plain_interrupts():
        try:
            thread.start()
            return outcome.result()
        except KeyboardInterrupt:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has just ended
                loop.call_soon_threadsafe(stop.set)
            return outcome.result()


@contextlib.contextmanager
def _plain_interrupts() -> Generator[None]:
    """Have Ctrl-C raise KeyboardInterrupt: PySpark's handler would also cancel the job that is under way."""
    before = signal.getsignal(signal.SIGINT)
    is_of_spark = (getattr(before, "__module__", None) or "").startswith("pyspark.")
    if not is_of_spark or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
