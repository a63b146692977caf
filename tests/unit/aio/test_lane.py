"""One link and who waits for it, over a link that does what it is told to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.aio import lane as module
from pairbus.aio.attempt import Chores
from pairbus.aio.lane import AbandonedError, Lane, Submission
from pairbus.core.ledger import Kind, Stage
from pairbus.instrument.hooks import Instrument

FOREVER = 1000.0


class FakeLink:
    """Stands for a link of the SDK; its sender is itself."""

    made: "list[FakeLink]"
    problem: Exception | None

    def __init__(self, _sender: object) -> None:
        self.sender = self
        self.max_batch_bytes = 1000
        self.closed: bool | None = None
        FakeLink.made.append(self)

    async def open(self, _seconds: float, *, retries: bool = True) -> None:
        del retries
        await asyncio.sleep(0)
        if FakeLink.problem is not None:
            raise FakeLink.problem

    async def close(self, *, in_doubt: bool = False) -> None:
        self.closed = in_doubt


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeLink.made, FakeLink.problem = [], None
    monkeypatch.setattr(module, "EntityLink", FakeLink)


def lane_of(chores: Chores) -> Lane:
    return Lane(
        lambda: None,  # type: ignore[arg-type, return-value]
        namespace="contoso",
        entity="orders",
        stage=Stage.DIRECT,
        open_timeout=5,
        chores=chores,
        instrument=Instrument(),
    )


def submission(work: Callable[[Any], Awaitable[Any]], seconds: float = FOREVER) -> Submission[Any]:
    deadline = asyncio.get_running_loop().time() + seconds
    return Submission(Kind.SEND, (ServiceBusMessage("one"),), deadline, work)


async def say_yes(_sender: object) -> str:
    return "yes"


async def hang(_sender: object) -> None:
    await asyncio.Event().wait()


def play(scenario: Callable[[Lane], Awaitable[None]]) -> None:
    async def run() -> None:
        chores = Chores()
        lane = lane_of(chores)
        async with asyncio.timeout(20):
            await scenario(lane)
            await lane.close()
            await chores.end(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # C2

    asyncio.run(run())


def test_s10_a_transfer_that_is_never_answered_ends_at_its_deadline_and_its_link_is_replaced() -> None:
    async def scenario(lane: Lane) -> None:
        for _ in range(2):  # first by way of a carrier, since no link is open; then straight
            late = submission(hang, 0.01)
            with pytest.raises(TimeoutError):
                await lane.submit(late)
            assert late.begun
            assert await lane.submit(submission(say_yes)) == "yes"
        await asyncio.sleep(0)
        assert [link.closed for link in FakeLink.made] == [True, True, None]

    play(scenario)


def test_s10_a_cancellation_that_the_sdk_misses_is_repeated() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()

        async def deaf(_sender: object) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await lane.submit(submission(deaf, 0.01))
        assert (task := asyncio.current_task()) is not None
        assert task.cancelling() == 0

    play(scenario)


def test_an_answer_that_comes_together_with_the_deadline_counts() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()

        async def just(_sender: object) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "yes"
            return "no"

        assert await lane.submit(submission(just, 0.01)) == "yes"
        assert (task := asyncio.current_task()) is not None
        assert task.cancelling() == 0

    play(scenario)


def test_a_cancelled_caller_leaves_no_link_in_doubt() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()
        task = asyncio.ensure_future(lane.submit(submission(hang)))
        waiting = asyncio.ensure_future(lane.submit(submission(say_yes)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await waiting == "yes"
        assert len(FakeLink.made) == 2

    play(scenario)


def test_s4_what_is_abandoned_ends_at_once_and_what_was_not_begun_is_not_in_doubt() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()
        begun, waits = submission(hang), submission(say_yes)
        tasks = [asyncio.ensure_future(lane.submit(each)) for each in (begun, waits)]
        await asyncio.sleep(0.01)
        lane.abandon("failover has engaged")
        for task in tasks:
            with pytest.raises(AbandonedError):
                await task
        assert (begun.begun, waits.begun) == (True, False)
        assert await lane.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_a_link_that_cannot_be_opened_fails_all_who_wait_for_it_and_nothing_is_in_doubt() -> None:
    async def scenario(lane: Lane) -> None:
        FakeLink.problem = ConnectionRefusedError()
        both = [submission(say_yes), submission(say_yes)]
        results = await asyncio.gather(*map(lane.submit, both), return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionRefusedError] * 2
        assert not any(each.begun for each in both)
        assert len(FakeLink.made) == 1
        FakeLink.problem = None
        assert await lane.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_c2_closing_waits_for_what_is_under_way() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()
        go = asyncio.Event()

        async def slow(_sender: object) -> str:
            await go.wait()
            return "done"

        sending = asyncio.ensure_future(lane.submit(submission(slow)))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(lane.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        go.set()
        assert await sending == "done"
        await closing
        with pytest.raises(AbandonedError):
            await lane.submit(submission(say_yes))

    play(scenario)
