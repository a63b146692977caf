"""What senders promise, one promise a test: each fails when the promise is broken in the code by hand."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from tests.client.conftest import Play
from tests.client.stage import Stage, State, texts

from pairbus.aio import MessageSender
from pairbus.core.backoff import Backoff
from pairbus.core.ledger import Kind
from pairbus.core.ledger import Stage as At
from pairbus.core.verdict import Cause, ErrorFacts, Verdict, verdict_of
from pairbus.errors import (
    FactoryClosedError,
    FactoryEndedError,
    OptionError,
    ReservedPropertyError,
    SendTimeoutError,
)

LATER = datetime(2044, 1, 2, 3, 4, 5, tzinfo=UTC)
NEVER = Backoff(first=600, cap=600)
"""A pause that no test waits for."""
STALLED = 10.0
"""Seconds after which what should be done at once is taken not to happen."""


def too_large_is_an_outage(facts: ErrorFacts) -> Verdict:
    """Classify so that one send alone meets an outage, that of :func:`fails`: the others are not disturbed."""
    return Verdict.OUTAGE if facts.cause is Cause.TOO_LARGE else verdict_of(facts)


async def fails(sender: MessageSender) -> None:
    """Have one send of a sender fail before anything is sent, as an outage if it is classified so."""
    with pytest.raises(ValueError, match=r"large|size"):
        await sender.send_messages([ServiceBusMessage("x" * 300_000)])


@pytest.mark.parametrize("paired", [True, False])
def test_a_timeout_that_is_not_valid_is_refused_before_anything_is_sent(play: Play, *, paired: bool) -> None:
    wrong: list[Any] = [math.nan, "5", True, -1, 0, math.inf, 10**400, 1j]

    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        for timeout in wrong:
            for call in (
                lambda timeout=timeout: sender.send_messages(ServiceBusMessage("one"), timeout=timeout),
                lambda timeout=timeout: sender.schedule_messages(ServiceBusMessage("one"), LATER, timeout=timeout),
                lambda timeout=timeout: sender.cancel_scheduled_messages(1, timeout=timeout),
            ):
                with pytest.raises(OptionError, match="greater than 0") as refused:
                    await call()
                assert str(refused.value).startswith(f"timeout={timeout!r} is not valid")
        assert [each for each in stage.records if each.entity == "orders"] == []

    play(scenario, pairing={"pair": paired})


@pytest.mark.parametrize("paired", [True, False])
def test_closing_a_sender_closes_its_link(play: Play, *, paired: bool) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
            assert await stage.links() == 1
        await stage.until_links(0)

    play(scenario, pairing={"pair": paired})


def test_a_sender_that_is_closed_lets_its_sends_end(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            with stage.frozen():
                under_way = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("under way")))
                await stage.until_begun(2)
                closing = asyncio.ensure_future(sender.close())
                await refused(sender)
                assert (closing.done(), under_way.done()) == (False, False)
            await asyncio.gather(closing, under_way)
        assert texts(await stage.take(count=2)) == ["before", "under way"]
        assert stage.factory.availability.entity("orders").state is State.HEALTHY

    async def refused(sender: MessageSender) -> None:
        """Wait until the sender takes no more messages."""
        async with asyncio.timeout(STALLED):
            while True:
                try:
                    await sender.create_message_batch()
                except ValueError:
                    return
                await asyncio.sleep(0)  # a batch of known size is made without giving way to the closing

    play(scenario, pairing={"failover_interval": 60, "attempt_timeout": 2 * STALLED})


def test_s2_entering_a_sender_raises_the_callers_own_error(play: Play) -> None:
    """rule 3.1: no such entity is the caller's error; S3: and starts no timer."""

    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("nowhere")
        with pytest.raises(MessagingEntityNotFoundError):
            await sender.__aenter__()
        assert stage.factory.availability.entity("nowhere").state is State.HEALTHY

    play(scenario)


def test_s3_a_success_beside_the_running_timer_cancels_it(play: Play) -> None:
    """A send that was under way when another one's failure started the timer."""

    async def scenario(stage: Stage) -> None:
        one, other = (stage.factory.get_queue_sender("orders") for _ in range(2))
        async with one, other:
            await one.send_messages(ServiceBusMessage("one"))
            with stage.frozen():
                under_way = asyncio.ensure_future(one.send_messages(ServiceBusMessage("two")))
                await stage.until_begun(2)
                await fails(other)
                assert stage.factory.availability.entity("orders").state is State.SUSPECT
            await under_way
            assert stage.factory.availability.entity("orders").state is State.HEALTHY
        assert texts(await stage.take(count=2)) == ["one", "two"]

    play(
        scenario,
        pairing={
            "failover_interval": 3600,
            "on_outage": "raise",
            "attempt_timeout": 2 * STALLED,
            "classify": too_large_is_an_outage,
        },
    )


def test_s1_health_is_shared_whatever_the_spelling_of_the_entity(play: Play) -> None:
    """S1, S4: no send goes to the primary once failover has engaged, though the primary would take it."""

    async def scenario(stage: Stage) -> None:
        one, other = stage.factory.get_queue_sender("orders"), stage.factory.get_queue_sender("ORDERS")
        stage.fault("down")
        await one.send_messages(ServiceBusMessage("one"))
        stage.fault("clear")
        await other.send_messages(ServiceBusMessage("other"))
        assert sorted(texts(await stage.parked(2))) == ["one", "other"]
        assert [each.state for each in stage.factory.availability.entities.values()] == [State.ENGAGED]

    play(scenario, pairing={"ping_primary_interval": 1800})


def test_s5_clients_that_do_not_know_each_other_pick_backlog_queues_at_random(play: Play) -> None:
    """S5: and a sender keeps the one that it has picked."""
    factories, queues, each_sends = 8, 10, 3

    async def scenario(stage: Stage) -> None:
        stage.fault("down")
        for _ in range(factories):
            other = stage.twin.factory(stage.secondary.connection_string)
            factory = stage.twin.factory(stage.address, instrument=stage.instrument)
            options = stage.twin.options(stage.manager, other, backlog_queue_count=queues, failover_interval=0)
            await factory.pair_namespace(options)
            sender = factory.get_queue_sender("orders")
            for _ in range(each_sends):
                await sender.send_messages(ServiceBusMessage("one"))
            await factory.close()
            await other.close()
        used = [each.entity for each in stage.records if each.stage is At.PARK]
        assert len(used) == factories * each_sends
        picked = [set(used[first : first + each_sends]) for first in range(0, len(used), each_sends)]
        assert {len(kept) for kept in picked} == {1}
        assert len({queue for kept in picked for queue in kept}) > 1  # all the same: once in ten million runs

    play(scenario, pairing={"pair": False})


def test_s5_an_ended_secondary_counts_as_a_failing_backlog(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        stage.fault("down")
        await sender.send_messages(ServiceBusMessage("parked"))
        await stage.other.close()
        with pytest.raises(SendTimeoutError) as none_left:
            await sender.send_messages(ServiceBusMessage("not parked"), timeout=1)
        assert isinstance(none_left.value.backlog_cause, FactoryEndedError)

    play(scenario)


def test_a_batch_over_the_limit_is_refused(play: Play) -> None:
    """As the SDK refuses it, in its words; also during an outage."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            limit = (await sender.create_message_batch()).max_size_in_bytes
            assert (await sender.create_message_batch(limit)).max_size_in_bytes == limit
            assert (await sender.create_message_batch(1000)).max_size_in_bytes == 1000
            with pytest.raises(ValueError, match=f"{limit + 1} is too large.*{limit} bytes"):
                await sender.create_message_batch(limit + 1)
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("parked"))
            with pytest.raises(ValueError, match="is too large"):
                await sender.create_message_batch(limit + 1)

    play(scenario)


def test_c2_a_held_send_ends_when_the_factory_is_closed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.core.sending.HELD", NEVER)

    async def scenario(stage: Stage) -> None:
        stage.fault("down")
        held = asyncio.ensure_future(stage.factory.get_queue_sender("orders").send_messages(ServiceBusMessage("held")))
        await stage.until_state(State.SUSPECT)
        async with asyncio.timeout(STALLED):
            await stage.factory.close()
            with pytest.raises(FactoryClosedError):
                await held

    play(scenario, pairing={"failover_interval": 3600, "attempt_timeout": 2 * STALLED})


def test_c2_closing_a_factory_waits_for_the_sends_under_way(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("before"))
        with stage.frozen():
            under_way = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("under way")))
            await stage.until_begun(2)
            closing = asyncio.ensure_future(stage.factory.close())
            await stage.until(lambda: stage.factory.availability.state == "closed")
            assert (closing.done(), under_way.done()) == (False, False)
        await asyncio.gather(closing, under_way)
        assert texts(await stage.take(count=2)) == ["before", "under way"]

    play(scenario, pairing={"failover_interval": 60, "attempt_timeout": 2 * STALLED})


def test_e3_a_scheduled_message_with_a_property_of_ours_is_refused(play: Play) -> None:
    """Before anything is sent, also of the others in its list."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            wrong = ServiceBusMessage("wrong", application_properties={"x-ms-path": "elsewhere"})
            with pytest.raises(ReservedPropertyError):
                await sender.schedule_messages([ServiceBusMessage("good"), wrong], LATER)
        assert stage.instrument.begun.count((Kind.SCHEDULE, "orders")) == 0

    play(scenario)


@pytest.mark.parametrize("paired", [True, False])
def test_cancelling_keeps_the_callers_timeout(play: Play, *, paired: bool) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            numbers = await sender.schedule_messages(ServiceBusMessage("one"), LATER)
            with stage.frozen():
                async with asyncio.timeout(STALLED):
                    with pytest.raises((TimeoutError, ServiceBusError)):
                        await sender.cancel_scheduled_messages(numbers, timeout=0.2)

    play(scenario, pairing={"pair": paired, "attempt_timeout": 2 * STALLED})


def test_unpaired_sends_of_many_tasks_are_serialised(play: Play) -> None:
    """The SDK's senders are not made to be shared by tasks: ours are."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"{n}")) for n in range(30)))
        assert sorted(map(int, texts(await stage.take(count=30)))) == list(range(30))

    play(scenario, pairing={"pair": False})


Ship = Callable[[MessageSender], Awaitable[None]]


def without_an_id() -> AmqpAnnotatedMessage:
    """Return a message that its application gives no id; a :class:`ServiceBusMessage` has one from the beginning."""
    return AmqpAnnotatedMessage(data_body=[b"one"])


async def one_message(sender: MessageSender) -> None:
    await sender.send_messages(without_an_id())


async def a_list(sender: MessageSender) -> None:
    await sender.send_messages([without_an_id()])


async def a_batch(sender: MessageSender) -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(without_an_id())
    await sender.send_messages(batch)


@pytest.mark.parametrize("send", [one_message, a_list, a_batch])
def test_s7_an_id_is_set_before_the_first_attempt(play: Play, send: Ship) -> None:
    """A message that the primary took without an answer is parked with the same id: it is known for the same."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            stage.fault("lose-answers")
            await send(sender)
            stage.fault("clear")
        (parked,) = await stage.parked(1)
        arrived = await stage.take(count=2)
        assert texts(arrived) == ["before", "one"]
        assert parked.message_id
        assert arrived[1].message_id == parked.message_id

    play(scenario, pairing={"attempt_timeout": 1})
