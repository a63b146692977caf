"""The mover, step by step, against namespaces in memory and in virtual time."""

# ruff: noqa: ANN401 (arguments are handed on)
# pyright: reportPrivateUsage=false

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from tests.support.namespaces import LOCK_SECONDS, Line, MessageLockLostError
from tests.support.virtual import BEGINNING, monotonic, run
from tests.unit.syphon.moving import (
    QUEUE,
    Bench,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
    scene,
)

from pairbus.core.envelope import PATH, TIME_TO_LIVE, Label
from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.core.moving import Limits
from pairbus.core.routing import DeadLetterReason, WaitReason
from pairbus.instrument.hooks import Instrument, Span, Started


@scene
async def test_a_message_is_sent_then_accounted_for_then_completed() -> None:
    """Y1, ADR 0004."""
    bench = Bench()
    bench.park("a", "b")
    steps_at_record: list[str] = []
    bench.sink.on_record = lambda record: (
        steps_at_record.extend(bench.source.steps) if record.kind is Kind.SEND else None
    )

    assert await bench.drain() == 2

    assert bench.primary.arrived["orders"] == [["a", "b"]]
    assert bench.left == 0
    assert bench.target.steps == ["send orders", "sent orders"]
    assert "complete a" not in steps_at_record
    assert bench.source.steps[-4:-2] == ["complete a", "complete b"]
    total = bench.mover.moving.reconciliation().total()
    assert (total.found, total.delivered, total.duplicates_suspected, total.oldest_at) == (2, 2, 0, BEGINNING)
    kinds = [(record.kind, record.stage, record.messages) for record in bench.sink.records]
    assert kinds == [
        (Kind.RECEIVE, Stage.SYPHON, 2),
        (Kind.SEND, Stage.SYPHON, 2),
        (Kind.COMPLETE, Stage.SYPHON, 2),
        (Kind.EMPTY_RECEIVE, Stage.IDLE, 0),
    ]
    assert {record.entity for record in bench.sink.records if record.kind is not Kind.SEND} == {QUEUE}
    assert {record.namespace for record in bench.sink.records} == {"contoso", "fabrikam"}


@scene
async def test_batches_go_per_destination_and_session_and_within_their_size() -> None:
    """Y4."""
    bench = Bench(batch_bytes=400)
    bench.park("a1", "a2", "a3", application_properties={"padding": "x" * 100})
    bench.park("b1", destination="bills")
    bench.park("s1", "s2", session_id="x")
    bench.park("t1", session_id="y")
    await bench.drain()
    assert sorted(bench.primary.arrived["orders"]) == [["a1", "a2"], ["a3"], ["s1", "s2"], ["t1"]]
    assert bench.primary.arrived["bills"] == [["b1"]]
    assert "browse " + QUEUE in bench.source.steps


@scene
async def test_without_sessions_nothing_is_browsed() -> None:
    bench = Bench()
    bench.park("a")
    await bench.drain()
    assert "browse " + QUEUE not in bench.source.steps


@scene
async def test_what_can_never_be_delivered_is_dead_lettered() -> None:
    """Y3: with a reason and a description."""
    bench = Bench(batch_bytes=10_000)
    bench.secondary.put(QUEUE, "nowhere", Label())
    bench.secondary.put(QUEUE, "odd", Label(application_properties={PATH: "orders", TIME_TO_LIVE: "soon"}))
    bench.park("gone", destination="old")
    bench.park("good", "large", "good too")
    bench.target.script = {
        "send old": [MessagingEntityNotFoundError("old is not there")],
        "send orders": [MessageSizeExceededError(), None, MessageSizeExceededError("it is too large")],
    }
    await bench.drain()
    dead = dict(bench.secondary.dead)
    assert {name: ruling.reason for name, ruling in dead.items()} == {
        "nowhere": DeadLetterReason.NO_DESTINATION,
        "odd": DeadLetterReason.BAD_PROPERTY,
        "gone": DeadLetterReason.DESTINATION_GONE,
        "large": DeadLetterReason.TOO_LARGE,
    }
    assert "x-ms-path" in dead["nowhere"].description
    assert "x-ms-timetolive" in dead["odd"].description
    assert "old is not there" in dead["gone"].description
    assert bench.primary.arrived["orders"] == [["good"], ["good too"]]
    assert bench.left == 0
    report = bench.mover.moving.reconciliation()
    assert report.of("").dead_lettered == {DeadLetterReason.NO_DESTINATION: 1}
    assert report.of("old").dead_lettered == {DeadLetterReason.DESTINATION_GONE: 1}
    assert report.of("orders").found == 4
    assert report.total().found == 6


@scene
async def test_a_dead_letter_that_is_not_taken_is_tried_again() -> None:
    bench = Bench()
    bench.secondary.put(QUEUE, "nowhere", Label())
    bench.source.script = {"dead-letter nowhere": [ServiceBusConnectionError()]}
    await bench.drain()
    assert bench.mover.moving.reconciliation().of("").waiting == {WaitReason.UNEXPECTED: 1}
    await asyncio.sleep(2)
    await bench.drain()
    assert len(bench.secondary.dead) == 1
    assert bench.sink.count(Kind.DEAD_LETTER, Outcome.UNKNOWN) == 1


@scene
async def test_one_destination_in_trouble_does_not_hold_up_the_others() -> None:
    """Y3: it is left alone for a while, longer each time, and its messages wait."""
    bench = Bench(burst=2)
    bench.park("a1", "a2", "a3")
    bench.park("b1", "b2", destination="bills")
    bench.target.script = {"send orders": [ServiceBusConnectionError()] * 3}
    await bench.drain()
    assert bench.primary.ids("bills") == ["b1", "b2"]
    assert bench.mover.moving.reconciliation().of("orders").waiting == {WaitReason.OUTAGE: 2, WaitReason.SET_ASIDE: 1}
    assert bench.mover.moving.reconciliation().of("orders").found == 3

    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(60)
    assert sorted(bench.primary.ids("orders")) == ["a1", "a2", "a3"]
    assert bench.left == 0
    bench.stop.set()
    await moving
    tried = [record.at for record in bench.sink.records if record.kind is Kind.SEND and record.entity == "orders"]
    pauses = [round((later - sooner).total_seconds()) for sooner, later in itertools.pairwise(tried)]
    assert pauses[:3] == [1, 2, 4]
    assert (
        bench.mover.moving.reconciliation().of("orders").duplicates_suspected == 2
    )  # the answers of the first two never came


@scene
async def test_a_busy_destination_is_left_alone_as_long_as_it_says() -> None:
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [ServiceBusServerBusyError()]}
    await bench.drain()
    assert bench.mover.moving.reconciliation().of("orders").waiting == {WaitReason.BUSY: 1}
    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(24)
    assert bench.primary.ids("orders") == []
    await asyncio.sleep(2)
    assert bench.primary.ids("orders") == ["a"]
    bench.stop.set()
    await moving


@scene
async def test_a_destination_that_stays_disabled_is_disabled_for_good() -> None:
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [MessagingEntityDisabledError() for _ in range(10_000)]}
    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(23 * 3600)
    assert bench.mover.moving.reconciliation().of("orders").found == 1
    await asyncio.sleep(2 * 3600)
    bench.stop.set()
    await moving
    assert bench.mover.moving.reconciliation().of("orders").dead_lettered == {DeadLetterReason.DESTINATION_DISABLED: 1}


@scene
async def test_what_was_sent_and_not_completed_is_completed_and_not_sent_again() -> None:
    bench = Bench()
    bench.park("a", "b")
    bench.source.script = {"complete a": [MessageLockLostError()]}
    await bench.drain()
    assert bench.mover.moving.reconciliation().of("orders").duplicates_suspected == 1
    await asyncio.sleep(LOCK_SECONDS)
    await bench.drain()
    assert bench.primary.arrived["orders"] == [["a", "b"]]
    assert bench.left == 0
    assert bench.sink.count(Kind.COMPLETE, Outcome.FAILED) == 1
    assert bench.sink.count(Kind.COMPLETE) == 2


@scene
async def test_locks_are_kept_while_a_send_takes_long() -> None:
    """Y4."""
    bench = Bench()
    bench.park("a", "b")
    bench.target.script = {"send orders": [199.0]}
    bench.source.script = {"renew b": [None, MessageLockLostError()]}
    await bench.drain()
    assert bench.primary.arrived["orders"] == [["a", "b"]]
    assert bench.left == 0
    assert bench.source.steps.count("renew a") == 9
    assert bench.sink.count(Kind.RENEW) == 17
    assert bench.sink.count(Kind.RENEW, Outcome.FAILED) == 1
    assert bench.mover.moving.reconciliation().total().duplicates_suspected == 0


@scene
async def test_a_queue_that_cannot_be_browsed_lets_the_messages_of_sessions_wait() -> None:
    """Y5: better late than out of order."""
    bench = Bench()
    bench.park("a", "b", session_id="x")
    bench.source.script = {"browse " + QUEUE: [ServiceBusConnectionError()]}
    await bench.drain()
    assert bench.primary.ids("orders") == []
    assert bench.sink.count(Kind.PEEK, Outcome.FAILED) == 0
    await asyncio.sleep(2)
    await bench.drain()
    assert bench.primary.ids("orders") == ["a", "b"]


@scene
async def test_messages_of_a_session_wait_for_earlier_ones_that_another_syphon_has() -> None:
    """Y5, ADR 0005."""
    bench = Bench(burst=1)
    bench.park("first", "second", session_id="x")
    other = Line(bench.secondary)
    (taken,) = await other.receive(QUEUE, 1, 0)
    await bench.drain()
    assert bench.mover.moving.reconciliation().of("orders").waiting == {WaitReason.EARLIER: 1}
    await other.settle(QUEUE, [taken], "complete")
    await asyncio.sleep(2)
    await bench.drain()
    assert bench.primary.ids("orders") == ["second"]


@scene
async def test_two_syphons_on_one_queue_deliver_all_once_and_sessions_in_order() -> None:
    """Y4, Y5."""
    bench = Bench(burst=7)
    for index in range(60):
        bench.park(f"{index % 3}-{index:02}", session_id=str(index % 3))
    others = [bench.another(Line(bench.secondary), Line(bench.primary), burst=5) for _ in range(2)]
    moving = [asyncio.create_task(each.move(Limits(), bench.stop)) for each in (bench.mover, *others)]
    await asyncio.sleep(120)
    bench.stop.set()
    await asyncio.gather(*moving)
    arrived = bench.primary.ids("orders")
    assert len(arrived) == 60
    for session in "012":
        own = [name for name in arrived if name.startswith(session)]
        assert own == sorted(own)


@pytest.mark.parametrize("on_source", [True, False], ids=["at the secondary", "at the primary"])
@pytest.mark.parametrize("step", range(30))
def test_a_crash_at_any_step_loses_nothing(step: int, on_source: bool) -> None:  # noqa: FBT001
    """Y1: each message arrives, in order within its session, twice only if it was sent and not completed."""

    async def play() -> None:
        bench = Bench(burst=4)
        names = [f"m{index}" for index in range(10)]
        bench.park(*names[:5], session_id="x")
        bench.park(*names[5:])
        line = bench.source if on_source else bench.target
        line.crash_at = step
        crashing = asyncio.create_task(bench.drain())
        crashed = asyncio.create_task(line.crashed.wait())
        await asyncio.wait({crashing, crashed}, return_when=asyncio.FIRST_COMPLETED)
        bench.source.crashed.set()
        bench.target.crashed.set()
        sent, left = bench.primary.ids("orders"), bench.left
        crashing.cancel()
        crashed.cancel()
        await asyncio.wait({crashing, crashed})

        await asyncio.sleep(LOCK_SECONDS)
        heir = bench.another(Line(bench.secondary), Line(bench.primary), burst=4)
        await heir.move(Limits(wait=5, until_empty=True), bench.stop)
        arrived = bench.primary.ids("orders")
        assert set(arrived) == set(names)
        assert bench.left == 0
        assert len(arrived) - len(names) <= len(sent) - (len(names) - left)
        firsts = [name for index, name in enumerate(arrived) if name not in arrived[:index]]
        assert [name for name in firsts if name in names[:5]] == names[:5]

    run(play())


@scene
async def test_stop_ends_a_long_poll_at_once() -> None:
    bench = Bench()
    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(100)
    bench.stop.set()
    assert await moving == 0
    assert monotonic() == pytest.approx(100)
    assert [record.kind for record in bench.sink.records] == [Kind.EMPTY_RECEIVE]


@scene
async def test_stop_lets_a_burst_that_is_under_way_be_finished() -> None:
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [10.0]}
    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(5)
    bench.stop.set()
    assert await moving == 1
    assert bench.primary.ids("orders") == ["a"]
    assert bench.left == 0


@scene
async def test_a_quota_and_a_budget_end_it() -> None:
    bench = Bench(burst=4)
    bench.park(*(str(index) for index in range(10)))
    assert await bench.mover.move(Limits(quota=6), bench.stop) == 6
    assert bench.left == 4
    assert await bench.mover.move(Limits(seconds=30), bench.stop) == 4
    assert monotonic() == pytest.approx(30)


@scene
async def test_no_more_is_held_than_there_is_room_for() -> None:
    """Memory and locks are bounded by the burst, not by the backlog."""
    bench = Bench(burst=3, room=6)
    bench.park(*(str(index) for index in range(30)))
    bench.target.script = {"send orders": [ServiceBusConnectionError()] * 4}
    assert await bench.drain() == 6
    assert bench.mover.moving.reconciliation().total().waiting.total() == 6
    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(0.5)
    assert bench.source.steps.count("receive " + QUEUE) == 2
    await asyncio.sleep(100)
    assert sorted(map(int, bench.primary.ids("orders"))) == list(range(30))
    bench.stop.set()
    await moving


@scene
async def test_what_waits_is_put_back_when_it_is_released() -> None:
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [ServiceBusConnectionError()]}
    await bench.drain()
    await bench.mover.release()
    assert bench.mover.moving.reconciliation().total().found == 0
    assert len(await Line(bench.secondary).receive(QUEUE, 1, 0)) == 1


@scene
async def test_what_waits_beyond_its_lock_is_not_put_back_but_comes_by_itself() -> None:
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [ServiceBusConnectionError()]}
    await bench.drain()
    await asyncio.sleep(LOCK_SECONDS + 1)
    await bench.drain()
    assert "abandon a" not in bench.source.steps
    assert bench.primary.ids("orders") == ["a"]


@scene
async def test_a_message_whose_lock_ran_out_while_it_waited_is_taken_out_when_it_comes_again() -> None:
    bench = Bench()
    bench.park("a")
    bench.target.script = {"send orders": [ServiceBusServerBusyError() for _ in range(2)]}
    bench.target.script["send orders"][0].retry_after = timedelta(seconds=90)  # type: ignore[union-attr]
    moving = asyncio.create_task(bench.mover.move(Limits(), bench.stop))
    await asyncio.sleep(80)
    assert bench.mover.moving.reconciliation().total().waiting == {WaitReason.SET_ASIDE: 1}
    await asyncio.sleep(100)
    assert bench.primary.ids("orders") == ["a"]
    bench.stop.set()
    await moving


@scene
async def test_a_queue_that_cannot_be_received_from_is_told_of_and_tried_again() -> None:
    bench = Bench(retry_interval=7.0)
    bench.park("a")
    bench.source.script = {"receive " + QUEUE: [ServiceBusConnectionError("no")]}
    await bench.drain()
    assert bench.failures == [(QUEUE, "no")]
    assert bench.sink.records[0].outcome is Outcome.FAILED
    assert bench.primary.ids("orders") == ["a"]
    assert monotonic() == pytest.approx(7.5)


@scene
async def test_a_queue_that_goes_on_failing_is_given_up() -> None:
    bench = Bench()
    bench.source.script = {"receive " + QUEUE: [ServiceBusConnectionError() for _ in range(100)]}
    assert await bench.mover.move(Limits(until_empty=True, patience=5.0), bench.stop) == 0
    assert monotonic() == pytest.approx(5.0)
    assert isinstance(bench.mover.moving.problem, ServiceBusConnectionError)


@scene
async def test_a_message_that_cannot_be_encoded_is_dead_lettered_and_the_others_go() -> None:
    bench = Bench()
    bench.park("a")
    bench.secondary.put(QUEUE, "bad", Label(application_properties={PATH: "orders", TIME_TO_LIVE: 2**62}))
    await bench.drain()
    assert bench.primary.ids("orders") == ["a"]
    assert [name for name, _ in bench.secondary.dead] == ["bad"]


@scene
async def test_a_bug_at_one_destination_is_told_of_and_the_others_go_on() -> None:
    bench = Bench()
    bench.park("a")
    bench.park("b", destination="bills")

    def broken(error: Exception) -> Any:
        raise RuntimeError("a bug") from error

    bench.target.facts = broken
    bench.target.script = {"send orders": [ServiceBusConnectionError()], "send bills": [1.0]}
    await bench.drain()
    assert bench.failures == [(QUEUE, "a bug")]
    assert bench.primary.ids("bills") == ["b"]
    assert bench.left == 1


@scene
async def test_a_tracer_may_add_its_context_to_messages() -> None:
    class Nothing:
        def end(self, record: Record, error: BaseException | None) -> None:
            pass

    class Tracer:
        def begin(self, started: Started) -> Span:
            for carrier in started.carriers:
                carrier["traceparent"] = "00-1-2-01"
            return Nothing()

    bench = Bench()
    bench.mover._instrument = Instrument(tracer=Tracer())
    bench.park("a")
    sent: list[bytes] = []
    send = bench.target.send

    async def watching(destination: str, batch: Any) -> None:
        sent.extend(batch.payloads)
        await send(destination, batch)

    bench.target.send = watching
    await bench.drain()
    assert b"traceparent" in sent[0]
