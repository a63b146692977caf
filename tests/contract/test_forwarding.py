"""What cannot be forwarded: it waits, or is in the transfer dead-letter queue, where the SDK reads it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from tests.contract.conftest import Run, Scenario, play
from tests.contract.lab import Lab, bodies, eventually, nothing, one, peek, receive, send
from tests.contract.sdk import Sdk

from pairbus.testing import (
    EntityStatus,
    QueueSettings,
    SubscriptionConfig,
    SubscriptionSettings,
    TopicConfig,
)

TRANSFER_DEAD = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
HOPS_EXCEEDED = "MaxTransferHopCountExceeded"


async def letters(lab: Lab, queue: str) -> ServiceBusReceiver:
    return await lab.receiver(queue, sub_queue=TRANSFER_DEAD)


async def letter_counts(lab: Lab, queue: str, *, letters: int) -> Any:  # noqa: ANN401 (the SDK's properties)
    """Return the counts of a queue once it has so many transfer dead letters."""
    manager = lab.manager()
    return await eventually(
        lambda: manager.get_queue_runtime_properties(queue),
        lambda now: now.transfer_dead_letter_message_count == letters,
    )


def why(message: ServiceBusReceivedMessage) -> tuple[str, str | None]:
    return str(message), message.dead_letter_reason


def test_what_goes_to_an_entity_that_is_gone_is_read_peeked_counted_and_settled(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, found = await asyncio.gather(lab.sender("first"), letters(lab, "first"))
        assert await nothing(found)
        await asyncio.to_thread(lab.broker.delete_queue, "second")
        await send(sender, "a", "b", message_id="id", application_properties={"n": 1})
        seen = await eventually(lambda: peek(found), lambda seen: len(seen) == 2)
        assert [why(each) for each in seen] == [("a", "amqp:not-found"), ("b", "amqp:not-found")]
        first, second = await receive(found, 2)
        assert (first.dead_letter_source, first.message_id) == ("first", "id")
        assert first.dead_letter_error_description == "The messaging entity 'second' could not be found."
        assert (first.application_properties or {})[b"n"] == 1
        now = await letter_counts(lab, "first", letters=2)
        assert (now.active_message_count, now.transfer_message_count, now.dead_letter_message_count) == (0, 0, 0)
        assert now.total_message_count == 2
        assert now.size_in_bytes > 0
        await found.complete_message(first)
        await found.abandon_message(second)
        again = await one(found)
        assert (str(again), again.delivery_count) == ("b", 1)
        await found.complete_message(again)
        now = await letter_counts(lab, "first", letters=0)
        assert (now.total_message_count, now.size_in_bytes) == (0, 0)

    run(scenario, first=QueueSettings(forward_to="second"), second=QueueSettings())


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_what_goes_to_a_disabled_entity(run: Run, status: EntityStatus) -> None:
    async def scenario(lab: Lab) -> None:
        sender, found = await asyncio.gather(lab.sender("first"), letters(lab, "first"))
        await send(sender, "a")
        assert why(await one(found)) == ("a", "com.microsoft:entity-disabled")

    run(scenario, first=QueueSettings(forward_to="second"), second=QueueSettings(status=status))


def test_what_is_too_many_hops_away_and_what_goes_round(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, near, end, stopped, circle, round_ = await asyncio.gather(
            lab.sender("q0"),
            lab.sender("q1"),
            lab.receiver("q5"),
            letters(lab, "q4"),
            lab.sender("there"),
            letters(lab, "there"),
        )
        await send(sender, "a")
        await send(near, "b")
        await send(circle, "c")
        assert why(await one(stopped)) == ("a", HOPS_EXCEEDED)
        arrived = await one(end)
        assert str(arrived) == "b"
        assert "hops" not in str(arrived.raw_amqp_message.annotations)
        assert why(await one(round_)) == ("c", HOPS_EXCEEDED)

    chain = {f"q{number}": QueueSettings(forward_to=f"q{number + 1}") for number in range(5)}
    circle = {"there": QueueSettings(forward_to="back"), "back": QueueSettings(forward_to="there")}
    run(scenario, **chain, **circle, q5=QueueSettings())


def test_dead_letters_that_cannot_be_forwarded(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        (sender, receiver), found = await asyncio.gather(lab.both(), letters(lab, "orders"))
        await send(sender, "a")
        await receiver.dead_letter_message(await one(receiver), reason="mine")
        assert why(await one(found)) == ("a", "amqp:not-found")
        now = await letter_counts(lab, "orders", letters=1)
        assert now.dead_letter_message_count == 0

    run(scenario, orders=QueueSettings(forward_dead_lettered_messages_to="nowhere"))


def test_it_is_there_after_a_restart_and_gone_with_its_queue(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        await send(await lab.sender("first"), "a", "b")
        await letter_counts(lab, "first", letters=2)
        await lab.restart()
        found = await letters(lab, "first")
        messages = await receive(found, 2)
        assert bodies(messages) == ["a", "b"]
        await found.complete_message(messages[0])
        await lab.restart()
        found = await letters(lab, "first")
        assert str(await one(found)) == "b"
        await asyncio.to_thread(lab.broker.delete_queue, "first")
        with pytest.raises(MessagingEntityNotFoundError):
            await letters(lab, "first")

    run_durable(scenario, first=QueueSettings(forward_to="second"))


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_subscription_has_one_too(kind: str) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        sender, fine, found = await asyncio.gather(
            lab.topic_sender(), lab.subscriber("fine"), lab.subscriber("lost", sub_queue=TRANSFER_DEAD)
        )
        await send(sender, "a")
        assert str(await one(fine)) == "a"
        letter = await one(found)
        assert (*why(letter), letter.dead_letter_source) == ("a", "amqp:not-found", "orders/Subscriptions/lost")
        now = await manager.get_subscription_runtime_properties("orders", "lost")
        assert (now.transfer_dead_letter_message_count, now.total_message_count) == (1, 1)
        await found.complete_message(letter)
        now = await manager.get_subscription_runtime_properties("orders", "lost")
        assert now.total_message_count == 0

    lost = SubscriptionConfig(settings=SubscriptionSettings(forward_to="nowhere"))
    play_topic(scenario, kind, TopicConfig(subscriptions={"fine": SubscriptionConfig(), "lost": lost}))


def play_topic(scenario: Scenario, kind: str, topic: TopicConfig) -> None:
    play(scenario, Sdk(kind), {}, None, topics={"orders": topic})


def test_a_full_entity_is_only_waited_for(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver, found = await asyncio.gather(lab.sender("first"), lab.receiver("full"), letters(lab, "first"))
        block = "x" * 200_000
        await send(sender, block, block, block, block, block)  # 1 MB is full
        await send(sender, "y" * 200_000, time_to_live=timedelta(hours=1))
        await lab.pass_time(60)
        assert await peek(found) == []
        await receiver.complete_message(await one(receiver))
        await lab.pass_time(2)
        assert [body[:1] for body in bodies(await receive(receiver, 5))] == ["x"] * 4 + ["y"]
        assert await nothing(found)

    run(scenario, first=QueueSettings(forward_to="full"), full=QueueSettings(max_size_in_megabytes=1))


def test_only_listeners_read_it_and_it_cannot_be_sent_to(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.sender("first/$Transfer/$DeadLetterQueue")
        with pytest.raises(MessagingEntityNotFoundError):
            await letters(lab, "nothing")
        with pytest.raises(ServiceBusError, match="forwarded to 'second'"):
            await lab.receiver("first")

    run(scenario, first=QueueSettings(forward_to="second"))
