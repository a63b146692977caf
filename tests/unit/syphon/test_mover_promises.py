"""What the mover promises of queues that were created again, of locks, and of its books."""


# pyright: reportPrivateUsage=false

import asyncio

import pytest
from tests.support.namespaces import LOCK_SECONDS, MessageLockLostError
from tests.support.virtual import run
from tests.unit.syphon.moving import QUEUE, Bench, ServiceBusConnectionError, scene

from pairbus.core.ledger import Kind, Outcome, Record
from pairbus.instrument.hooks import Instrument
from pairbus.links.transport import Outgoing


@pytest.mark.parametrize("seconds", [0.0, 1.0], ids=["in the same instant", "a second later"])
def test_y1_messages_of_a_queue_that_was_created_again_are_not_taken_for_those_of_the_old_one(seconds: float) -> None:
    """Same sequence numbers, other messages: none is completed unsent, and none counts as a duplicate."""

    async def play() -> None:
        bench = Bench()
        bench.park("a", "b", "c")
        bench.source.script = {f"complete {name}": [MessageLockLostError()] for name in "abc"}
        await bench.drain()
        bench.secondary.recreate(QUEUE)
        await asyncio.sleep(seconds)
        if not seconds:  # the broker's clock was set back, say: only the ids differ
            bench.secondary.put_at = 0.0
        bench.park("d", "e", "f")
        await bench.drain()
        assert bench.primary.ids("orders") == ["a", "b", "c", "d", "e", "f"]
        assert bench.left == 0
        assert bench.mover.moving.reconciliation().of("orders").duplicates_suspected == 3

    run(play())


@scene
async def test_y1_what_waits_of_a_queue_that_was_created_again_hides_no_new_message() -> None:
    """A message waits of the old queue that has the number of a new one."""
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [ServiceBusConnectionError()]}
    await bench.drain()
    bench.secondary.recreate(QUEUE)
    bench.park("b", "c")
    await asyncio.sleep(2)
    await bench.drain()
    assert bench.primary.ids("orders") == ["b", "c"]
    assert bench.mover.moving.reconciliation().of("orders").duplicates_suspected == 0
    assert bench.left == 0


@scene
async def test_a_burst_that_is_cancelled_between_send_and_complete_is_not_sent_again() -> None:
    """The same mover goes on: it remembers what it has sent, also what only waited for its turn to be completed."""
    bench = Bench()
    bench.park("a")
    bench.park("b", destination="bills")
    bench.source.script = {"complete a": [1000.0], "complete b": [1000.0]}
    moving = asyncio.create_task(bench.drain())
    await asyncio.sleep(10)
    moving.cancel()
    await asyncio.wait({moving})
    bench.source.script.clear()
    await asyncio.sleep(LOCK_SECONDS)
    await bench.drain()
    assert bench.left == 0
    assert (bench.primary.ids("orders"), bench.primary.ids("bills")) == (["a"], ["b"])


def test_y4_locks_are_renewed_at_a_third_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.namespaces.LOCK_SECONDS", 30.0)

    async def play() -> None:
        bench = Bench()
        bench.park("a")
        bench.target.script = {"send orders": [25.0]}
        await bench.drain()
        assert bench.source.steps.count("renew a") == 2

    run(play())


@scene
async def test_k1_failed_peeks_and_abandons_are_recorded() -> None:
    bench = Bench()
    bench.park("a", session_id="x")
    bench.source.script = {"browse " + QUEUE: [ServiceBusConnectionError()], "abandon a": [MessageLockLostError()]}
    await bench.drain()
    await bench.mover.release()
    failed = [record.kind for record in bench.sink.records if record.outcome is not Outcome.DONE]
    assert failed == [Kind.PEEK, Kind.ABANDON]


@scene
async def test_an_error_of_the_books_stops_completion() -> None:
    """Y8: what cannot be accounted for stays in the backlog; once it can be, it is completed and not sent again."""
    bench = Bench()
    bench.park("a")
    problems = [OSError("no books")]

    async def account() -> None:
        if problems:
            raise problems.pop()

    bench.mover._account_for = account
    await bench.drain()
    assert bench.failures == [(QUEUE, "no books")]
    assert bench.left == 1
    await asyncio.sleep(LOCK_SECONDS)
    await bench.drain()
    assert bench.left == 0
    assert bench.primary.ids("orders") == ["a"]


@scene
async def test_k1_sends_are_recorded_with_the_bytes_really_sent() -> None:
    """The message as it was before it was parked, without the properties that said where it belongs."""
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [ServiceBusConnectionError()]}
    sent: list[int] = []
    send = bench.target.send

    async def watching(destination: str, batch: Outgoing) -> None:
        sent.append(sum(map(len, batch.payloads)))
        await send(destination, batch)

    bench.target.send = watching
    await bench.drain()
    await asyncio.sleep(2)
    await bench.drain()
    records = [record for record in bench.sink.records if record.kind is Kind.SEND]
    assert [record.outcome for record in records] == [Outcome.UNKNOWN, Outcome.DONE]
    assert [record.bytes for record in records] == sent
    received = [record.bytes for record in bench.sink.records if record.kind is Kind.RECEIVE]
    assert 0 < sent[0] < received[0]


@scene
async def test_k1_peeks_are_recorded_with_the_bytes_that_came() -> None:
    bench = Bench()
    bench.park("a", "b", session_id="x")
    stored = sum(len(each.payload) for each in bench.secondary.queues[QUEUE].values())
    await bench.drain()
    assert [(each.messages, each.bytes) for each in bench.sink.records if each.kind is Kind.PEEK] == [(2, stored)]


def test_k1_the_ledger_is_flushed_after_a_send_and_before_its_completion() -> None:
    """ADR 0004: what leaves the backlog has a record that outlives a kill. In real time: a thread flushes."""

    async def play() -> None:
        bench = Bench()
        bench.park("a")
        flushed: list[list[str]] = []

        class Keeper:
            def record(self, record: Record) -> None:
                pass

            def flush(self, timeout: float) -> bool:  # noqa: ARG002 (the sink's)
                flushed.append([*bench.target.steps, *bench.source.steps])
                return True

        bench.mover._instrument = Instrument([Keeper()])
        await bench.drain()
        assert len(flushed) == 1
        assert "sent orders" in flushed[0]
        assert "complete a" not in flushed[0]

    asyncio.run(play())
