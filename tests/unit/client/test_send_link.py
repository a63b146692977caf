"""One link and who waits for it, over a channel that does what it is told to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from tests.support import moved

from pairbus.amqp.performatives import BATCH_FORMAT
from pairbus.client.send_link import SendLink
from pairbus.client.submission import Submission
from pairbus.core.ledger import Kind, Stage
from pairbus.core.verdict import Cause, ErrorFacts
from pairbus.instrument.hooks import Instrument
from pairbus.links.channel import Answered
from pairbus.links.deadlines import AbandonedError, BackgroundTasks
from pairbus.messages.sdk_batches import Message

FOREVER = 1000.0
UNHEARD: list[ErrorFacts | None] = []
"""What was told of attempts that no caller waited for."""


class FakeChannel:
    """Stands for a channel that carries one thing at a time."""

    made: "list[FakeChannel]"
    problem: Exception | None
    opening: asyncio.Event | None
    """What opening waits for."""
    asked: asyncio.Event
    """Set when a channel is to be opened."""

    def __init__(self) -> None:
        self.carries_many = False
        self.is_open = True
        self.batch_bytes = 10_000
        self.closed: bool | None = None
        self.sent: list[tuple[int, int]] = []
        """How many messages each transfer has, and its format."""
        self.answers: list[Answered] = []
        FakeChannel.made.append(self)

    @classmethod
    async def open(cls, *, retries: bool) -> "FakeChannel":
        del retries
        made = cls()
        cls.asked.set()
        await asyncio.sleep(0)
        if cls.opening is not None:
            await cls.opening.wait()
        if cls.problem is not None:
            raise cls.problem
        return made

    def send(self, messages: Sequence[Message], payload: bytes, message_format: int, answered: Answered) -> None:
        del payload
        self.sent.append((len(messages), message_format))
        self.answers.append(answered)

    def flush(self) -> None:
        pass

    async def schedule(self, messages: Sequence[Message], at: datetime) -> list[int]:
        raise NotImplementedError  # these tests only send

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        raise NotImplementedError  # these tests only send

    def suspect(self, since: float) -> None:
        pass

    def close(self, *, in_doubt: bool) -> None:
        self.closed = in_doubt


@pytest.fixture(autouse=True)
def _fake() -> None:
    UNHEARD.clear()
    FakeChannel.made, FakeChannel.problem, FakeChannel.opening = [], None, None
    FakeChannel.asked = asyncio.Event()


def link_of(chores: BackgroundTasks) -> SendLink:
    return SendLink(
        FakeChannel.open,
        namespace="contoso",
        entity="orders",
        stage=Stage.DIRECT,
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


def play(scenario: Callable[[SendLink], Awaitable[None]]) -> None:
    async def run() -> None:
        chores = BackgroundTasks()
        link = link_of(chores)
        await scenario(link)
        await link.close()
        await chores.end(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # C2

    moved.run(run())


def test_s10_a_transfer_that_is_never_answered_ends_at_its_deadline_and_its_link_is_replaced() -> None:
    async def scenario(link: SendLink) -> None:
        for _ in range(2):  # first with a link that is not open yet
            hanging = Hanging()
            late = submission(hanging)
            waiting = asyncio.ensure_future(link.submit(late))
            await hanging.begun.wait()
            moved.move(FOREVER)
            with pytest.raises(TimeoutError):
                await waiting
            assert late.begun
            assert await link.submit(submission(say_yes)) == "yes"
        await asyncio.sleep(0)
        assert [channel.closed for channel in FakeChannel.made] == [True, True, None]

    play(scenario)


def test_s10_a_cancellation_that_the_sdk_misses_is_repeated() -> None:
    async def scenario(link: SendLink) -> None:
        await link.prepare()

        begun = asyncio.Event()

        async def deaf(_sender: object) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        waiting = asyncio.ensure_future(link.submit(submission(deaf)))
        await begun.wait()
        moved.move(FOREVER)
        with pytest.raises(TimeoutError):
            await waiting
        assert (task := asyncio.current_task()) is not None
        assert task.cancelling() == 0

    play(scenario)


def test_an_attempt_goes_on_without_its_caller_and_how_it_ends_is_told() -> None:
    """S10: the link is kept, and those who wait for it get their turn."""

    async def scenario(link: SendLink) -> None:
        await link.prepare()
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

            caller = asyncio.ensure_future(link.submit(submission(slow)))
            await begun.wait()
            waiting = asyncio.ensure_future(link.submit(submission(say_yes)))
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert len(FakeChannel.made) == 1
            go.set()
            assert await waiting == "yes"
        assert [known and known.cause for known in UNHEARD] == [None, Cause.CONNECTION]

    play(scenario)


def test_s10_an_attempt_without_its_caller_ends_at_its_deadline_as_a_failure() -> None:
    async def scenario(link: SendLink) -> None:
        hanging = Hanging()
        caller = asyncio.ensure_future(link.submit(submission(hanging)))
        await hanging.begun.wait()
        caller.cancel()
        await asyncio.wait({caller})
        assert link.is_unheard
        moved.move(FOREVER)
        assert await link.submit(submission(say_yes)) == "yes"
        assert [known and known.cause for known in UNHEARD] == [Cause.TIMEOUT]
        assert len(FakeChannel.made) == 2

    play(scenario)


def test_s10_a_link_that_cannot_be_opened_is_told_when_no_caller_is_left() -> None:
    async def scenario(link: SendLink) -> None:
        FakeChannel.opening, FakeChannel.problem = asyncio.Event(), ConnectionRefusedError()
        waits = submission(say_yes)
        caller = asyncio.ensure_future(link.submit(waits))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        await link.finish()
        assert link.is_unheard
        FakeChannel.opening.set()
        await link.end()
        assert [known and (known.cause, known.begun) for known in UNHEARD] == [(Cause.CONNECTION, False)]
        assert not waits.begun

    play(scenario)


def test_a_message_that_waits_is_withdrawn_with_its_caller() -> None:
    """S7: a caller that was told that its message was not sent can rely on that."""

    async def scenario(link: SendLink) -> None:
        FakeChannel.opening = asyncio.Event()
        sent: list[str] = []

        async def send(_sender: object) -> None:
            sent.append("it")

        caller = asyncio.ensure_future(link.submit(submission(send)))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        FakeChannel.opening.set()
        assert await link.submit(submission(say_yes)) == "yes"
        assert sent == []

    play(scenario)


def test_who_waits_for_a_link_that_is_given_up_is_not_cancelled() -> None:
    """S4: failover engages while the link is being opened."""

    async def scenario(link: SendLink) -> None:
        FakeChannel.opening = asyncio.Event()
        preparing = asyncio.ensure_future(link.prepare())
        sending = asyncio.ensure_future(link.submit(submission(say_yes)))
        await FakeChannel.asked.wait()
        link.abandon("failover has engaged")
        for waiter in (preparing, sending):
            with pytest.raises(AbandonedError):
                await waiter
        FakeChannel.opening = None
        assert await link.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_a_waiter_that_is_cancelled_is_cancelled() -> None:
    async def scenario(link: SendLink) -> None:
        FakeChannel.opening = asyncio.Event()
        preparing = asyncio.ensure_future(link.prepare())
        await FakeChannel.asked.wait()
        preparing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await preparing

    play(scenario)


def test_s4_what_is_abandoned_ends_at_once_and_what_was_not_begun_is_not_in_doubt() -> None:
    async def scenario(link: SendLink) -> None:
        await link.prepare()
        hanging = Hanging()
        begun, waits = submission(hanging), submission(say_yes)
        tasks = [asyncio.ensure_future(link.submit(each)) for each in (begun, waits)]
        await hanging.begun.wait()
        link.abandon("failover has engaged")
        for task in tasks:
            with pytest.raises(AbandonedError):
                await task
        assert (begun.begun, waits.begun) == (True, False)
        assert await link.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_s4_what_is_withdrawn_has_not_begun_and_what_has_is_answered() -> None:
    async def scenario(link: SendLink) -> None:
        await link.prepare()
        begun, go = asyncio.Event(), asyncio.Event()

        async def answered(_sender: object) -> str:
            begun.set()
            await go.wait()
            return "yes"

        under_way = asyncio.ensure_future(link.submit(submission(answered)))
        waits = asyncio.ensure_future(link.submit(submission(say_yes)))
        await begun.wait()
        link.withdraw("failover has engaged")
        with pytest.raises(AbandonedError):
            await waits
        go.set()
        assert await under_way == "yes"
        assert len(FakeChannel.made) == 1, "whose link is kept"

    play(scenario)


def test_a_link_that_cannot_be_opened_fails_all_who_wait_for_it_and_nothing_is_in_doubt() -> None:
    async def scenario(link: SendLink) -> None:
        FakeChannel.problem = ConnectionRefusedError()
        both = [submission(say_yes), submission(say_yes)]
        results = await asyncio.gather(*map(link.submit, both), return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionRefusedError] * 2
        assert not any(each.begun for each in both)
        assert len(FakeChannel.made) == 1
        FakeChannel.problem = None
        assert await link.submit(submission(say_yes)) == "yes"

    play(scenario)


def test_c2_closing_waits_for_what_is_under_way() -> None:
    async def scenario(link: SendLink) -> None:
        await link.prepare()
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow(_sender: object) -> str:
            begun.set()
            await go.wait()
            return "done"

        sending = asyncio.ensure_future(link.submit(submission(slow)))
        await begun.wait()
        closing = asyncio.ensure_future(link.close())
        for _ in range(10):  # turns of the loop, in which it could have ended
            await asyncio.sleep(0)
        assert not closing.done()
        go.set()
        assert await sending == "done"
        await closing
        with pytest.raises(AbandonedError):
            await link.submit(submission(say_yes))

    play(scenario)


def message(body: str = "one") -> Submission[None]:
    return Submission(Kind.SEND, (ServiceBusMessage(body),), asyncio.get_running_loop().time() + FOREVER, joins=True)


def test_what_waits_travels_together_and_behind_a_list_in_its_order() -> None:
    async def scenario(link: SendLink) -> None:
        await link.prepare()
        (channel,) = FakeChannel.made
        several = message()
        several.joins, several.is_batch = False, True
        futures = [link.submit(each) for each in (message(), message(), message(), several, message())]
        while channel.answers:
            channel.answers.pop()(None)
        await asyncio.gather(*futures)
        assert channel.sent == [(1, 0), (2, BATCH_FORMAT), (1, BATCH_FORMAT), (1, 0)]

    play(scenario)


def test_s10_the_link_is_kept_while_a_caller_counts_on_another_transfer() -> None:
    """On a channel that carries many; the late one is answered to nobody."""

    async def scenario(link: SendLink) -> None:
        await link.prepare()
        (channel,) = FakeChannel.made
        channel.carries_many = True
        late = link.submit(message())
        moved.move(FOREVER / 2)
        await asyncio.sleep(0)
        other = link.submit(message())
        await asyncio.sleep(0)
        assert len(channel.sent) == 2
        moved.move(FOREVER / 2)
        with pytest.raises(TimeoutError):
            await late
        assert channel.closed is None
        channel.answers[0](None)
        channel.answers[1](None)
        await other

    play(scenario)
