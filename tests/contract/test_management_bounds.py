"""What a client can ask of ``$management``: as much as fits into an answer, and nothing of other entities."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusQuotaExceededError
from tests.contract.lab import Clock
from tests.support.caller import Caller, RefusedByBrokerError
from tests.support.client import Login

from pairbus.amqp import Message, build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.types import Array, Int, Timestamp, ULong
from pairbus.broker.nodes.management import ANSWER_BYTES, LONG, MOST_LISTED, MOST_PEEKED, MOST_RECEIVED
from pairbus.testing import EmbeddedBroker, QueueSettings

BAD = "com.microsoft:argument-error"
Scenario = Callable[[Caller], Awaitable[None]]


def play(broker: EmbeddedBroker, scenario: Scenario) -> None:
    async def run() -> None:
        caller = await Caller.connect(broker.endpoints["localhost"].port, Login.of(broker.connection_string))
        await scenario(caller)
        await caller.close()

    asyncio.run(run())


def fill(broker: EmbeddedBroker, path: str, *bodies: bytes) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(path) as sender,
    ):
        batch = sender.create_message_batch()
        for body in bodies:
            try:
                batch.add_message(ServiceBusMessage(body))
            except ValueError:
                sender.send_messages(batch)
                batch = sender.create_message_batch()
                batch.add_message(ServiceBusMessage(body))
        sender.send_messages(batch)


async def peek(caller: Caller, first: int, count: int, path: str = "orders") -> list[bytes]:
    answer = await caller.manage(path, "peek-message", {"from-sequence-number": first, "message-count": Int(count)})
    return [entry["message"] for entry in answer.get("messages", [])]


def number_of(message: bytes) -> int:
    return int(Message(message).message_annotations()["x-opt-sequence-number"])


async def refusal(caller: Caller, operation: str, path: str = "orders", **body: Any) -> RefusedByBrokerError:  # noqa: ANN401
    named = {name.replace("_", "-"): value for name, value in body.items()}
    with pytest.raises(RefusedByBrokerError) as caught:
        await caller.manage(path, operation, named)
    return caught.value


def test_an_answer_to_a_peek_is_bounded_by_count_and_the_next_goes_on_after_it() -> None:
    async def scenario(caller: Caller) -> None:
        assert len(await peek(caller, 1, (1 << 31) - 1)) == MOST_PEEKED
        seen: list[int] = []
        while page := await peek(caller, (seen or [0])[-1] + 1, 100_000):
            seen += map(number_of, page)
        assert seen == list(range(1, 601))
        assert len(await peek(caller, 500, 7)) == 7

    with EmbeddedBroker(queues=["orders"]) as broker:
        fill(broker, "orders", *[b"x"] * 600)
        play(broker, scenario)
        with (
            ServiceBusClient.from_connection_string(broker.connection_string) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            pages = [len(receiver.peek_messages(10_000)) for _ in range(4)]
    assert pages == [250, 250, 100, 0]


def test_an_answer_to_a_peek_is_bounded_by_size() -> None:
    async def scenario(caller: Caller) -> None:
        seen: list[int] = []
        while page := await peek(caller, (seen or [0])[-1] + 1, 250):
            assert sum(len(message) for message in page) <= ANSWER_BYTES + 20_000  # what is added to each
            seen += map(number_of, page)
        assert seen == list(range(1, 41))

    with EmbeddedBroker(queues=["orders"]) as broker:
        fill(broker, "orders", *[bytes(200_000)] * 40)
        play(broker, scenario)


@pytest.mark.parametrize("count", [1 << 31, (1 << 63) - 1, ULong((1 << 64) - 1), 0, -1, "5", True])
def test_a_count_that_is_none_is_refused(count: object) -> None:
    async def scenario(caller: Caller) -> None:
        error = await refusal(caller, "peek-message", from_sequence_number=1, message_count=count)
        assert error.condition == BAD
        assert "'message-count' must be a number from 1 to 2147483647, not" in error.description
        assert len(await peek(caller, 1, 5)) == 1

    with EmbeddedBroker(queues=["orders"]) as broker:
        fill(broker, "orders", b"x")
        play(broker, scenario)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_no_sequence_number_leads_to_another_entity(store: str, tmp_path: Path) -> None:
    """Below an entity's id lie 40 bits of sequence number: one with more bits, or a sign, would name another's."""
    clock = Clock()

    async def scenario(caller: Caller) -> None:
        due = {"x-opt-scheduled-enqueue-time": Timestamp(clock() + 1_000_000)}
        scheduled = build_message(encode_data_section(b"later"), message_annotations=due)
        (number,) = (await caller.manage("high", "schedule-message", {"messages": [{"message": scheduled}]}))[
            "sequence-numbers"
        ]
        assert [number_of(message) for message in await peek(caller, 0, 9, "high")] == [number]
        for first in (-1, -(1 << 40), -(1 << 62), 1 << 40, 1 << 41, (1 << 63) - 1):
            assert all(b"own" in message for message in await peek(caller, first, 250, "thief")), first
        for entity in range(64):
            error = await refusal(
                caller, "cancel-scheduled-message", "thief", sequence_numbers=Array(LONG, [entity << 40 | number])
            )
            assert error.condition == "com.microsoft:message-not-found"
        error = await refusal(caller, "cancel-scheduled-message", "thief", sequence_numbers=Array(LONG, [-1]))
        assert error.condition == BAD
        assert len(await peek(caller, 0, 9, "high")) == 1

    data = tmp_path if store == "sqlite" else None
    # A queue takes two ids, with its dead-letter queue's: 1, 3, 5 and 7, which has the bits of 3 and more.
    with EmbeddedBroker(queues=["low", "thief", "between", "high"], data=data, clock=clock) as broker:
        fill(broker, "low", b"secret")
        fill(broker, "thief", b"own")
        play(broker, scenario)


def test_lists_are_bounded() -> None:
    async def scenario(caller: Caller) -> None:
        many = Array(LONG, range(MOST_RECEIVED + 1))
        settle: Any = {"receiver_settle_mode": Int(1)}
        error = await refusal(caller, "receive-by-sequence-number", sequence_numbers=many, **settle)
        assert (error.condition, "0 to 250 elements, not 251" in error.description) == (BAD, True)
        for operation in ("cancel-scheduled-message", "renew-lock", "update-disposition", "schedule-message"):
            longer = Array(LONG, [1] * (MOST_LISTED + 1))
            body = dict.fromkeys(("sequence_numbers", "lock_tokens", "messages"), longer)
            error = await refusal(caller, operation, **body)
            assert (error.condition, "elements, not 4097" in error.description) == (BAD, True)
            error = await refusal(caller, operation, **dict.fromkeys(body, "12"))
            assert (error.condition, "must be a list, not '12'" in error.description) == (BAD, True)
        error = await refusal(caller, "update-disposition", lock_tokens=[], disposition_status="completed")
        assert (error.condition, "1 to 4096 elements, not 0" in error.description) == (BAD, True)
        for name in ("skip", "top"):
            error = await refusal(caller, "get-message-sessions", "sessions", **{name: 1 << 31})
            assert (error.condition, f"'{name}' must be a number from 0 to 2147483647" in error.description) == (
                BAD,
                True,
            )

    with EmbeddedBroker(queues={"orders": QueueSettings(), "sessions": QueueSettings(requires_session=True)}) as broker:
        play(broker, scenario)


def test_a_store_that_cannot_be_read_is_an_error_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pairbus.broker.store.opening.CHECKED_UP_TO", 0)  # as large a file would be opened
    orders = {"orders": QueueSettings(default_message_time_to_live=3_600_000)}
    with EmbeddedBroker(queues=orders, data=tmp_path) as broker:
        fill(broker, "orders", *[bytes(5_000)] * 100)
    file = tmp_path / "localhost.db"
    size = file.stat().st_size
    with file.open("r+b") as pages:
        pages.seek(size // 2 // 8192 * 8192)
        pages.write(os.urandom(size - pages.tell()))

    async def scenario(caller: Caller) -> None:
        error = await refusal(caller, "peek-message", from_sequence_number=90, message_count=5)
        assert error.condition == "amqp:internal-error"
        assert error.description == "The broker could not read its store for 'orders'. Its log says why."

    clock = Clock()
    with EmbeddedBroker(queues=orders, data=tmp_path, clock=clock) as broker:
        play(broker, scenario)
        with (
            ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client,
            client.get_queue_receiver("orders", max_wait_time=5) as receiver,
            pytest.raises(ServiceBusError) as caught,
        ):
            receiver.receive_messages(100)
        clock.advance(4_000)
        broker.wake()
        assert "localhost: what is due cannot be done" in caplog.text
    assert not isinstance(caught.value, ServiceBusQuotaExceededError)
    assert str(tmp_path) not in str(caught.value)
    assert f"{file}: damaged" in caplog.text
    assert "bug of the broker" not in caplog.text
