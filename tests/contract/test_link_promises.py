"""What the broker promises a link: credit goes on, and what is refused is answered as refused."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.lab import Clock
from tests.support.caller import Caller, RefusedByBrokerError
from tests.support.client import Login

from pairbus.amqp import ReceiverLink, SenderLink, build_message
from pairbus.amqp.events import Delivery, DispositionReceived, FlowChanged
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    SENDER,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
)
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Symbol
from pairbus.broker.nodes.sending import CREDIT
from pairbus.broker.store.base import Journal
from pairbus.broker.store.writing import JournalWriter
from pairbus.testing import EmbeddedBroker, QueueSettings

LOCK_LOST = "com.microsoft:message-lock-lost"
SESSION_LOST = "com.microsoft:session-lock-lost"
OUTCOMES: dict[str, DeliveryState] = {
    "complete": ACCEPTED,
    "abandon": Modified(delivery_failed=True),
    "defer": Modified(undeliverable_here=True),
    "dead-letter": Rejected(Error(Symbol("com.microsoft:dead-letter"), None, {})),
    "release": RELEASED,
}


def message(text: str, **sections: Any) -> bytes:  # noqa: ANN401
    return build_message(encode_data_section(text.encode()), **sections)


class Bench:
    """A broker whose clock can be moved and whose store can be made to refuse, and one client."""

    def __init__(self, broker: EmbeddedBroker, caller: Caller, clock: Clock) -> None:
        self.broker = broker
        self.caller = caller
        self.clock = clock

    async def settle(
        self, link: ReceiverLink, *deliveries: Delivery, state: DeliveryState
    ) -> dict[int, DeliveryState | None]:
        """Tell an outcome of deliveries, in one frame, and return what the broker answers, by the delivery's id."""
        for delivery in deliveries:
            link.settle(delivery, state, settled=False)
        answers: dict[int, DeliveryState | None] = {}
        while len(answers) < len(deliveries):
            answer = await self.caller._next(link, DispositionReceived)  # pyright: ignore[reportPrivateUsage]
            if answer.role is SENDER:  # else it is about what was sent
                answers.update(dict.fromkeys(range(answer.first, answer.last + 1), answer.state))
        return answers


def play(scenario: Callable[[Bench], Awaitable[None]], data: Path | None = None, **queue: Any) -> None:  # noqa: ANN401
    async def play(broker: EmbeddedBroker) -> None:
        caller = await Caller.connect(broker.endpoints["localhost"].port, Login.of(broker.connection_string))
        await scenario(Bench(broker, caller, clock))
        await caller.close()

    clock = Clock()
    with EmbeddedBroker(queues={"orders": QueueSettings(**queue)}, clock=clock, data=data) as broker:
        asyncio.run(asyncio.wait_for(play(broker), 60))


def token_of(delivery: Delivery) -> uuid.UUID:
    return uuid.UUID(bytes_le=bytes(delivery.delivery_tag))


def conditions(answers: Mapping[int, DeliveryState | None]) -> set[str]:
    """Return why all answers are refusals."""
    found: set[str] = set()
    for state in answers.values():
        assert isinstance(state, Rejected), state
        assert state.error is not None
        found.add(str(state.error.condition))
    return found


# --- credit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 100])
def test_the_credit_of_a_sender_is_renewed(together: int) -> None:
    """A client that keeps to its credit sends more than it was granted at first, one by one and many at once."""

    async def scenario(bench: Bench) -> None:
        caller = bench.caller
        link = await caller.sender("orders")
        sent = 0
        while sent < 2 * CREDIT:
            while link.credit < together:
                await caller._next(link, FlowChanged)  # pyright: ignore[reportPrivateUsage]
            for _ in range(together):
                sent += 1
                link.send(message(str(sent)), sent.to_bytes(4))
            await _answers(caller, link, together)

    play(scenario)


async def _answers(caller: Caller, link: SenderLink, count: int) -> None:
    while count > 0:
        answer = await caller._next(link, DispositionReceived)  # pyright: ignore[reportPrivateUsage]
        assert isinstance(answer.state, Accepted)
        count -= len(answer.deliveries)


def test_the_credit_for_requests_is_renewed() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(250):  # a hundred are granted at first
            await bench.caller.manage("orders", "peek-message", {"from-sequence-number": 1, "message-count": 1})

    play(scenario)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_disposition_without_a_lock_is_answered_as_refused(outcome: str) -> None:
    async def scenario(bench: Bench) -> None:
        caller = bench.caller
        await caller.send(await caller.sender("orders"), message("a"))
        receiver = await caller.receiver("orders")
        delivery = await caller.take(receiver)
        bench.clock.advance(61)
        assert conditions(await bench.settle(receiver, delivery, state=OUTCOMES[outcome])) == {LOCK_LOST}
        again = await caller.take(await caller.receiver("orders"))
        assert again.payload[-1:] == b"a"  # it was not settled

    play(scenario)


def test_of_many_in_one_disposition_those_without_a_lock_are_answered_as_refused() -> None:
    async def scenario(bench: Bench) -> None:
        caller = bench.caller
        sender = await caller.sender("orders")
        receiver = await caller.receiver("orders")
        for text in ("a", "b"):
            await caller.send(sender, message(text))
        first, second = await caller.take(receiver), await caller.take(receiver)
        bench.clock.advance(50)
        await caller.manage("orders", "renew-lock", {"lock-tokens": [token_of(second)]})
        bench.clock.advance(50)
        answers = await bench.settle(receiver, first, second, state=ACCEPTED)
        assert isinstance(answers.pop(second.delivery_id), Accepted)
        assert conditions(answers) == {LOCK_LOST}

    play(scenario)


@contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Have the store refuse all commits, as a disk does that fails."""

    def fail(self: JournalWriter, journal: Journal) -> None:
        del self, journal
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(JournalWriter, "commit", fail)
        yield


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("outcome", ["complete", "dead-letter"])
def test_a_disposition_that_the_store_refuses_is_answered_as_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str, count: int
) -> None:
    async def scenario(bench: Bench) -> None:
        caller = bench.caller
        sender, receiver = await caller.sender("orders"), await caller.receiver("orders")
        for number in range(count):
            await caller.send(sender, message(str(number)))
        taken = [await caller.take(receiver) for _ in range(count)]
        with refusing(monkeypatch):
            answer = await bench.settle(receiver, *taken, state=OUTCOMES[outcome])
        assert conditions(answer) == {"amqp:internal-error"}
        for number in range(count):  # it was not settled, and comes again
            again = await caller.take(receiver)
            assert again.payload[-1:] == str(number).encode()
            answers = await bench.settle(receiver, again, state=ACCEPTED)
            assert isinstance(answers[again.delivery_id], Accepted)

    play(scenario, tmp_path)


# --- the lock of a session -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("by", ["link", "management"])
def test_what_is_settled_in_a_session_needs_the_lock_of_the_session(by: str, count: int) -> None:
    """The locks of the messages hold on, for they were renewed: those of the session do not."""

    async def scenario(bench: Bench) -> None:
        caller = bench.caller
        sender = await caller.sender("orders")
        receiver = await caller.receiver("orders", session="red")
        for _ in range(count):
            await caller.send(sender, message("a", properties=Properties(group_id="red")))
        taken = [await caller.take(receiver) for _ in range(count)]
        tokens = [token_of(delivery) for delivery in taken]
        bench.clock.advance(40)
        await caller.manage("orders", "renew-lock", {"lock-tokens": tokens})
        bench.clock.advance(30)
        assert await _refusal(bench, receiver, taken, by) == SESSION_LOST
        await asyncio.to_thread(bench.broker.wake)  # the session is free again
        again = await caller.receiver("orders", session="red")
        for _ in range(count):
            await caller.take(again)

    play(scenario, requires_session=True)


async def _refusal(bench: Bench, receiver: ReceiverLink, taken: list[Delivery], by: str) -> str:
    """Complete messages and return why that is refused; the broker may have detached the link before, for the same."""
    try:
        if by == "link":
            (found,) = conditions(await bench.settle(receiver, *taken, state=ACCEPTED))
            return found
        tokens = [token_of(delivery) for delivery in taken]
        body = {"lock-tokens": tokens, "disposition-status": "completed", "session-id": "red"}
        await bench.caller.manage("orders", "update-disposition", body)
    except RefusedByBrokerError as refused:
        return refused.condition
    return "nothing"
