"""A mover between two namespaces in memory, in virtual time: what the tests of the mover share."""

# ruff: noqa: ANN401 (arguments are handed on)

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from random import Random
from typing import Any

from tests.support.namespaces import Line, Namespace
from tests.support.virtual import monotonic, run, utc

from pairbus.core.backoff import Backoff
from pairbus.core.ledger import Kind, Outcome, Record
from pairbus.core.moving import Limits, Pace
from pairbus.core.routing import Destinations
from pairbus.instrument.hooks import Instrument
from pairbus.syphon.mover import Mover

QUEUE = "contoso/x-servicebus-transfer/0"


class ServiceBusServerBusyError(Exception):
    retry_after = timedelta(seconds=25)


class ServiceBusConnectionError(Exception):
    pass


class MessagingEntityNotFoundError(Exception):
    pass


class MessagingEntityDisabledError(Exception):
    pass


class MessageSizeExceededError(Exception):
    pass


class Sink:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.on_record: Callable[[Record], None] = lambda _record: None

    def record(self, record: Record) -> None:
        self.records.append(record)
        self.on_record(record)

    def count(self, kind: Kind, outcome: Outcome = Outcome.DONE) -> int:
        return sum(record.messages for record in self.records if record.kind is kind and record.outcome is outcome)


class Bench:
    """Two namespaces, a line to each, and a mover between them."""

    def __init__(self, **pace: Any) -> None:
        self.primary = Namespace("contoso")
        self.secondary = Namespace("fabrikam")
        self.source = Line(self.secondary)
        self.target = Line(self.primary)
        self.sink = Sink()
        self.stop = asyncio.Event()
        self.failures: list[tuple[str, str]] = []
        self.mover = self.another(self.source, self.target, **pace)

    def another(self, source: Line, target: Line, **pace: Any) -> Mover:
        return Mover(
            QUEUE,
            source,
            target,
            destinations=Destinations(Backoff(1.0, 30.0, jitter=0.0), Random(1)),
            instrument=Instrument([self.sink], client="test", now=utc, elapsed=monotonic),
            pace=Pace(**pace),
            on_failure=lambda queue, error: self.failures.append((queue, str(error))),
            monotonic=monotonic,
            utc=utc,
        )

    def park(self, *names: str, destination: str = "orders", **label: Any) -> None:
        for name in names:
            self.secondary.park(QUEUE, name, destination, **label)

    async def drain(self) -> int:
        return await self.mover.move(Limits(wait=0.5, until_empty=True), self.stop)

    @property
    def left(self) -> int:
        return len(self.secondary.queues[QUEUE])


def scene(play: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        run(play())

    test.__name__ = play.__name__
    test.__doc__ = play.__doc__
    return test
