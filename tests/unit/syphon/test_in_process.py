"""The syphon inside an application, in virtual time."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from tests.support.namespaces import Line, Namespace
from tests.support.virtual import monotonic, run, utc

from pairbus.core.ledger import Kind, Record, Stage
from pairbus.core.moving import Pace
from pairbus.core.naming import backlog_paths
from pairbus.core.verdict import facts_of
from pairbus.instrument.hooks import Instrument
from pairbus.syphon.in_process import LAST_BURSTS, Syphon

QUEUES = backlog_paths("contoso.servicebus.windows.net", 10)
DAY = 24 * 3600.0


class ServiceBusConnectionError(Exception):
    pass


class Pair:
    """Two namespaces, and a syphon between them."""

    def __init__(self, retry_interval: float = 1.0) -> None:
        self.primary = Namespace("contoso")
        self.secondary = Namespace("fabrikam")
        self.target = Line(self.primary)
        self.source = Line(self.secondary)
        self.records: list[Record] = []
        self.syphon = Syphon(
            self.target,
            self.source,
            QUEUES,
            retry_interval=retry_interval,
            instrument=Instrument([self], client="test", now=utc, elapsed=monotonic),
            pace=Pace(burst=10, room=20),
            random=Random(1),
            monotonic=monotonic,
            utc=utc,
        )

    def record(self, record: Record) -> None:
        self.records.append(record)

    @property
    def left(self) -> int:
        return sum(map(len, self.secondary.queues.values()))


def scene(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[pytest.LogCaptureFixture], None]:
    def test(caplog: pytest.LogCaptureFixture) -> None:
        run(play(caplog) if inspect.signature(play).parameters else play())

    test.__name__ = play.__name__
    test.__doc__ = play.__doc__
    return test


@scene
async def test_an_idle_syphon_receives_four_times_an_hour_per_queue() -> None:
    """Y2: ten queues, 40 receives an hour, 960 a day."""
    pair = Pair()
    pair.syphon.start()
    await asyncio.sleep(3600 - 1)
    assert pair.source.steps.count("receive " + QUEUES[0]) == 4
    await asyncio.sleep(DAY - 3600)
    receives = [step for step in pair.source.steps if step.startswith("receive ")]
    assert len(receives) == 960
    assert len(pair.source.steps) == 2 * 960 - 10, "nothing but receives, of which ten are under way"
    assert Counter((record.kind, record.stage) for record in pair.records) == {(Kind.EMPTY_RECEIVE, Stage.IDLE): 950}
    await pair.syphon.stop()
    assert len(pair.records) == 960
    assert pair.source.is_closed
    assert pair.target.is_closed


@scene
async def test_a_message_is_carried_as_soon_as_it_is_parked() -> None:
    pair = Pair()
    pair.syphon.start()
    pair.syphon.start()
    await asyncio.sleep(100)
    for queue in QUEUES:
        pair.secondary.park(queue, queue)
    await asyncio.sleep(0.01)
    assert sorted(pair.primary.ids("orders")) == sorted(QUEUES)
    assert pair.syphon.report().of("orders").delivered == 10
    await pair.syphon.stop()


@scene
async def test_a_queue_that_fails_is_tried_again_after_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(retry_interval=7.0)
    pair.secondary.park(QUEUES[0], "a")
    pair.source.script = {"receive " + QUEUES[0]: [ServiceBusConnectionError("gone")] * 3}
    with caplog.at_level(logging.WARNING, "pairbus"):
        pair.syphon.start()
        await asyncio.sleep(20.9)
        assert pair.primary.ids("orders") == []
        await asyncio.sleep(0.2)
        assert pair.primary.ids("orders") == ["a"]
        await pair.syphon.stop()
    assert [record.message for record in caplog.records] == [
        f"{QUEUES[0]} fails and is tried again: ServiceBusConnectionError('gone')"
    ]


@scene
async def test_queues_share_what_they_know_about_a_destination() -> None:
    """Y3: ten movers do not try a destination that fails ten times; the others are tried."""
    pair = Pair()
    pair.target.script = {"send orders": [ServiceBusConnectionError() for _ in range(40)]}
    pair.syphon.start()
    pair.secondary.park(QUEUES[0], "a0")
    await asyncio.sleep(0.1)
    assert pair.target.steps.count("send orders") == 1
    for index, queue in enumerate(QUEUES[1:]):
        pair.secondary.park(queue, f"a{index + 1}")
        pair.secondary.park(queue, f"b{index + 1}", "bills")
    await asyncio.sleep(0.5)
    assert pair.target.steps.count("send orders") == 1
    assert len(pair.primary.ids("bills")) == 9
    await asyncio.sleep(1200)
    assert len(pair.primary.ids("orders")) == 10
    assert pair.left == 0
    await pair.syphon.stop()


@scene
async def test_stopping_finishes_bursts_and_puts_back_what_waits() -> None:
    pair = Pair()
    pair.secondary.park(QUEUES[0], "slow")
    pair.secondary.park(QUEUES[1], "waits", "bills")
    pair.target.script = {"send orders": [20.0], "send bills": [ServiceBusConnectionError()]}
    pair.syphon.start()
    await asyncio.sleep(0.5)
    await pair.syphon.stop()
    assert pair.primary.ids("orders") == ["slow"]
    assert [stored.locked_until for stored in pair.secondary.queues[QUEUES[1]].values()] == [0.0]
    assert len(asyncio.all_tasks()) == 1


@scene
async def test_a_burst_that_does_not_end_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """C2: nothing is lost by it."""
    pair = Pair()
    pair.secondary.park(QUEUES[0], "stuck")
    pair.target.script = {"send orders": [10 * LAST_BURSTS]}
    pair.syphon.start()
    await asyncio.sleep(1)
    await pair.syphon.stop()
    assert monotonic() == pytest.approx(1 + LAST_BURSTS, abs=1)
    assert pair.left == 1
    assert "is cancelled" in caplog.text
    assert len(asyncio.all_tasks()) == 1


@scene
async def test_a_bug_does_not_end_a_mover(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    pair.secondary.park(QUEUES[0], "a")
    pair.target.script = {"send orders": [ServiceBusConnectionError()]}
    bugs = [KeyError("a bug")]

    def broken(error: Exception) -> Any:  # noqa: ANN401 (raises, or hands on)
        if bugs:
            raise bugs.pop()
        return facts_of(error)

    pair.target.facts = broken
    pair.syphon.start()
    await asyncio.sleep(200)
    assert pair.primary.ids("orders") == ["a"]
    assert "a bug" in caplog.text
    await pair.syphon.stop()


@scene
async def test_y3_a_destination_that_failed_for_one_queue_is_left_alone_by_the_others() -> None:
    pair = Pair(retry_interval=10.0)
    pair.target.script = {"send orders": [ServiceBusConnectionError()]}
    pair.syphon.start()
    pair.secondary.park(QUEUES[0], "a")
    await asyncio.sleep(1)
    pair.secondary.park(QUEUES[1], "b")
    await asyncio.sleep(1)
    assert pair.target.steps.count("send orders") == 1
    await asyncio.sleep(100)
    assert sorted(pair.primary.ids("orders")) == ["a", "b"]
    await pair.syphon.stop()
