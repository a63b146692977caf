"""One link and who waits for it, over a link that does what it is told to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from tests.support import moved

from pairbus.core.ledger import Kind, Stage
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import AbandonedError, Chores
from pairbus.links.sdk import lane as module
from pairbus.links.sdk.lane import Lane
from pairbus.links.submission import Submission

FOREVER = 1000.0
UNHEARD: list[ErrorFacts | None] = []
"""What was told of attempts that no caller waited for."""


class FakeLink:
    """Stands for a link of the SDK; its sender is itself."""

    made: "list[FakeLink]"
    problem: Exception | None
    opening: asyncio.Event | None
    """What opening waits for."""
    asked: asyncio.Event
    """Set when a link is to be opened."""

    def __init__(self, _sender: object) -> None:
        self.sender = self
        self.max_batch_bytes = 1000
        self.closed: bool | None = None
        FakeLink.made.append(self)

    async def open(self, _seconds: float, *, retries: bool = True) -> None:
        del retries
        FakeLink.asked.set()
        await asyncio.sleep(0)
        if FakeLink.opening is not None:
            await FakeLink.opening.wait()
        if FakeLink.problem is not None:
            raise FakeLink.problem

    async def close(self, *, in_doubt: bool = False) -> None:
        self.closed = in_doubt


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    UNHEARD.clear()
    FakeLink.made, FakeLink.problem, FakeLink.opening = [], None, None
    FakeLink.asked = asyncio.Event()
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
        unheard=lambda known, _began: UNHEARD.append(known),
    )


def submission(work: Callable[[Any], Awaitable[Any]], seconds: float = FOREVER) -> Submission[Any]:
    deadline = asyncio.get_running_loop().time() + seconds
    return Submission(Kind.SEND, (ServiceBusMessage("one"),), deadline, work)


async def say_yes(_sender: object) -> str:
    return "yes"


class Hanging:
    """Something to be done that never ends; ``begun`` is set when it has been begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, _sender: object) -> None:
        self.begun.set()
        await asyncio.Event().wait()


def play(scenario: Callable[[Lane], Awaitable[None]]) -> None:
    async def run() -> None:
        chores = Chores()
        lane = lane_of(chores)
        await scenario(lane)
        await lane.close()
        await chores.end(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # C2

    moved.run(run())


def test_s10_a_transfer_that_is_never_answered_ends_at_its_deadline_and_its_link_is_replaced() -> None:
    async def scenario(lane: Lane) -> None:
        for _ in range(2):  # first with a link that is not open yet
            hanging = Hanging()
            late = submission(hanging)
            waiting = asyncio.ensure_future(lane.submit(late))
            await hanging.begun.wait()
            moved.move(FOREVER)
            with pytest.raises(TimeoutError):
                await waiting
            assert late.begun
            assert await lane.submit(submission(say_yes)) == "yes"
        await asyncio.sleep(0)
        assert [link.closed for link in FakeLink.made] == [True, True, None]

    play(scenario)


def test_s10_a_cancellation_that_the_sdk_misses_is_repeated() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()

        begun = asyncio.Event()

        async def deaf(_sender: object) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        waiting = asyncio.ensure_future(lane.submit(submission(deaf)))
        await begun.wait()
        moved.move(FOREVER)
        with pytest.raises(TimeoutError):
            await waiting
        assert (task := asyncio.current_task()) is not None
        assert task.cancelling() == 0

    play(scenario)


def test_an_attempt_goes_on_without_its_caller_and_how_it_ends_is_told() -> None:
    """S10: the link is kept, and those who wait for it get their turn."""

    async def scenario(lane: Lane) -> None:
        await lane.prepare()
        for outcome in (None, ConnectionResetError()):
            go = asyncio.Event()
            begun = asyncio.Event()

            async def slow(
                _sender: object,
                begun: asyncio.Event = begun,
                go: asyncio.Event = go,
                outcome: Exception | None = outcome,
            ) -> None:
                begun.set()
                await go.wait()
                if outcome is not None:
                    raise outcome

            caller = asyncio.ensure_future(lane.submit(submission(slow)))
            await begun.wait()
            waiting = asyncio.ensure_future(lane.submit(submission(say_yes)))
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert len(FakeLink.made) == 1
            go.set()
            assert await waiting == "yes"
        assert [known and known.cause for known in UNHEARD] == [None, Cause.CONNECTION]

    play(scenario)


def test_s10_an_attempt_without_its_caller_ends_at_its_deadline_as_a_failure() -> None:
    async def scenario(lane: Lane) -> None:
        hanging = Hanging()
        caller = asyncio.ensure_future(lane.submit(submission(hanging)))
        await hanging.begun.wait()
        caller.cancel()
        await asyncio.wait({caller})
        assert lane.is_unheard
        moved.move(FOREVER)
        assert await lane.submit(submission(say_yes)) == "yes"
        assert [known and known.cause for known in UNHEARD] == [Cause.TIMEOUT]
        assert len(FakeLink.made) == 2

    play(scenario)


def test_s10_a_link_that_cannot_be_opened_is_told_when_no_caller_is_left() -> None:
    async def scenario(lane: Lane) -> None:
        FakeLink.opening, FakeLink.problem = asyncio.Event(), ConnectionRefusedError()
        waits = submission(say_yes)
        caller = asyncio.ensure_future(lane.submit(waits))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        await lane.finish()
        assert lane.is_unheard
        FakeLink.opening.set()
        await lane.end()
        assert [known and (known.cause, known.begun) for known in UNHEARD] == [(Cause.CONNECTION, False)]
        assert not waits.begun

    play(scenario)


def test_a_message_that_waits_is_withdrawn_with_its_caller() -> None:
    """S7: a caller that was told that its message was not sent can rely on that."""

    async def scenario(lane: Lane) -> None:
        FakeLink.opening = asyncio.Event()
        sent: list[str] = []

        async def send(_sender: object) -> None:
            sent.append("it")

        caller = asyncio.ensure_future(lane.submit(submission(send)))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        FakeLink.opening.set()
        assert await lane.submit(submission(say_yes)) == "yes"
        assert sent == []

    play(scenario)


def test_who_waits_for_a_link_that_is_given_up_is_not_cancelled() -> None:
    """S4: failover engages while the link is being opened."""

    async def scenario(lane: Lane) -> None:
        FakeLink.opening = asyncio.Event()
        preparing = asyncio.ensure_future(lane.prepare())
        sending = asyncio.ensure_future(lane.submit(submission(say_yes)))
        await FakeLink.asked.wait()
        lane.abandon("failover has engaged")
        for waiter in (preparing, sending):
            with pytest.raises(AbandonedError):
                await waiter
        FakeLink.opening = None
        assert await lane.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_a_waiter_that_is_cancelled_is_cancelled() -> None:
    async def scenario(lane: Lane) -> None:
        FakeLink.opening = asyncio.Event()
        preparing = asyncio.ensure_future(lane.prepare())
        await FakeLink.asked.wait()
        preparing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await preparing

    play(scenario)


def test_s4_what_is_abandoned_ends_at_once_and_what_was_not_begun_is_not_in_doubt() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()
        hanging = Hanging()
        begun, waits = submission(hanging), submission(say_yes)
        tasks = [asyncio.ensure_future(lane.submit(each)) for each in (begun, waits)]
        await hanging.begun.wait()
        lane.abandon("failover has engaged")
        for task in tasks:
            with pytest.raises(AbandonedError):
                await task
        assert (begun.begun, waits.begun) == (True, False)
        assert await lane.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_s4_what_is_withdrawn_has_not_begun_and_what_has_is_answered() -> None:
    async def scenario(lane: Lane) -> None:
        await lane.prepare()
        begun, go = asyncio.Event(), asyncio.Event()

        async def answered(_sender: object) -> str:
            begun.set()
            await go.wait()
            return "yes"

        under_way = asyncio.ensure_future(lane.submit(submission(answered)))
        waits = asyncio.ensure_future(lane.submit(submission(say_yes)))
        await begun.wait()
        lane.withdraw("failover has engaged")
        with pytest.raises(AbandonedError):
            await waits
        go.set()
        assert await under_way == "yes"
        assert len(FakeLink.made) == 1, "whose link is kept"

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
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow(_sender: object) -> str:
            begun.set()
            await go.wait()
            return "done"

        sending = asyncio.ensure_future(lane.submit(submission(slow)))
        await begun.wait()
        closing = asyncio.ensure_future(lane.close())
        for _ in range(10):  # turns of the loop, in which it could have ended
            await asyncio.sleep(0)
        assert not closing.done()
        go.set()
        assert await sending == "done"
        await closing
        with pytest.raises(AbandonedError):
            await lane.submit(submission(say_yes))

    play(scenario)
