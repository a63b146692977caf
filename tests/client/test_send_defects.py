"""Sends that could be parked and were not, and errors that said what was not so."""

import asyncio
from contextlib import suppress

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError
from tests.client.conftest import Play
from tests.client.stage import Stage, State, texts
from tests.client.twins import KINDS, RETRYING, Twin

from pairbus.core.ledger import Kind, Outcome
from pairbus.errors import BacklogUnavailableError, SendTimeoutError
from pairbus.testing import QueueSettings

KB = 1024


@pytest.fixture(params=(*KINDS, *RETRYING))
def twin(request: pytest.FixtureRequest) -> Twin:
    """Each of the clients, those of the SDK with its own retries, too."""
    return Twin(str(request.param))


def test_s4_opening_a_sender_while_failover_engages_is_no_cancellation(play: Play) -> None:
    """A peer that accepts connections and is silent: links are being opened when failover engages."""

    async def scenario(stage: Stage) -> None:
        stage.fault("stall")

        async def request(number: int) -> None:
            async with stage.factory.get_queue_sender("orders") as sender:
                batch = await sender.create_message_batch()
                batch.add_message(ServiceBusMessage(f"{number}"))
                await sender.send_messages(batch)

        first = asyncio.ensure_future(request(0))
        await stage.until_state(State.SUSPECT)
        await asyncio.gather(first, *(request(number) for number in range(1, 6)))
        assert sorted(texts(await stage.parked(6))) == [f"{number}" for number in range(6)]

    play(scenario, pairing={"failover_interval": 2, "attempt_timeout": 3, "ping_primary_interval": 60})


def test_s5_an_impatient_caller_pulls_no_backlog_queue(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("parked"))
            stage.secondary.fault("localhost", "slow", latency=0.4)
            for _ in range(3):
                with pytest.raises(SendTimeoutError) as unknown:
                    await sender.send_messages(ServiceBusMessage("hurried"), timeout=0.2)
                assert unknown.value.maybe_sent in (True, False)
            assert all(queue.in_play for queue in stage.factory.availability.backlog_queues)
            await sender.send_messages(ServiceBusMessage("patient"), timeout=30)

    play(scenario, pairing={"ping_primary_interval": 60, "attempt_timeout": 15})


def test_s3_an_impatient_caller_does_not_fail_others_over(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("first"))
            stage.fault("slow", latency=0.4)
            with pytest.raises(SendTimeoutError):
                await sender.send_messages(ServiceBusMessage("hurried"), timeout=0.1)
            await sender.send_messages(ServiceBusMessage("patient"), timeout=30)
            assert stage.factory.availability.entity("orders").state is State.HEALTHY
            stage.fault("clear")

    play(scenario, pairing={"failover_interval": 0, "attempt_timeout": 15})


def test_s3_callers_that_are_all_impatient_still_find_out_that_the_entity_is_away(play: Play) -> None:
    """One sender for each request, whose caller waits for less than an attempt may take."""

    async def scenario(stage: Stage) -> None:
        stage.fault("stall")
        for _ in range(2):
            with suppress(SendTimeoutError):
                async with stage.factory.get_queue_sender("orders") as sender:
                    await sender.send_messages(ServiceBusMessage("hurried"), timeout=0.1)
        await stage.until_state(State.ENGAGED)

    play(scenario, pairing={"failover_interval": 0, "attempt_timeout": 2, "ping_primary_interval": 60})


def test_s13_a_secondary_that_is_back_is_used_at_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("before"))
            stage.secondary.fault("localhost", "down")
            waiting = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("waits"), timeout=60))
            with pytest.raises(SendTimeoutError) as nowhere:
                await sender.send_messages(ServiceBusMessage("nowhere"), timeout=1)
            assert nowhere.value.primary_cause is not None
            assert nowhere.value.backlog_cause is not None
            stage.secondary.fault("localhost", "clear")
            await waiting
            await sender.send_messages(ServiceBusMessage("after"), timeout=60)
        assert set(texts(await stage.parked(3, queues=1))) >= {"before", "waits", "after"}

    play(scenario, pairing={"backlog_queue_count": 1, "ping_primary_interval": 60})


def test_s13_a_restart_of_an_idle_secondary_is_not_noticed(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("0"))
            for number in range(1, 3):
                stage.secondary.fault("localhost", "down")
                stage.secondary.fault("localhost", "clear")
                await sender.send_messages(ServiceBusMessage(f"{number}"))

    play(scenario, pairing={"backlog_queue_count": 1, "ping_primary_interval": 60})


def test_s5_a_backlog_queue_that_was_made_again_is_parked_in_at_once(play: Play) -> None:
    """The links to the one that was deleted are of no use for the new one, whatever its name."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("0"))
            for number in range(1, 3):
                (queue,) = (each.path for each in stage.factory.availability.backlog_queues)
                await asyncio.to_thread(stage.secondary.delete_queue, queue)
                await asyncio.to_thread(stage.secondary.create_queue, queue, QueueSettings())
                await sender.send_messages(ServiceBusMessage(f"{number}"))

    play(scenario, pairing={"backlog_queue_count": 1, "ping_primary_interval": 60})


def test_s5_s7_an_error_with_both_causes_knows_whether_the_message_may_have_arrived(play: Play) -> None:
    """The primary takes the message, its answer is lost, and there is no secondary."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("first"))
            stage.secondary.fault("localhost", "down")
            stage.fault("lose-answers")
            with pytest.raises(BacklogUnavailableError) as failed:
                await sender.send_messages(ServiceBusMessage("taken"))
            assert failed.value.maybe_sent
            assert "may have arrived" in str(failed.value)
            assert failed.value.primary_cause is not None
            assert failed.value.backlog_cause is not None
            stage.fault("clear")
        assert "taken" in texts(await stage.take(count=2))

    play(scenario, pairing={"attempt_timeout": 2, "ping_primary_interval": 60})


def test_s7_the_sdks_own_error_knows_it_too(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("first"))
            stage.fault("lose-answers")
            with pytest.raises(OperationTimeoutError) as unknown:
                await sender.send_messages(ServiceBusMessage("taken"))
            assert vars(unknown.value)["maybe_sent"] is True
        with pytest.raises(ServiceBusError) as known:
            await stage.factory.get_queue_sender("nowhere").send_messages(ServiceBusMessage("one"))
        assert vars(known.value)["maybe_sent"] is False

    play(scenario, pairing={"on_outage": "raise", "failover_interval": 60, "attempt_timeout": 2})


def test_g1_a_nearly_full_queue_is_left_once(play: Play) -> None:
    """A small ping fits where the message does not: a ping is as large as what did not fit."""

    async def scenario(stage: Stage) -> None:
        turns: list[State] = []
        stage.factory.availability.subscribe(lambda turn: turns.append(turn.state))
        async with stage.factory.get_queue_sender("orders") as sender:
            for _ in range(4):
                await sender.send_messages(ServiceBusMessage(b"x" * 200 * KB))
            for _ in range(4):
                await sender.send_messages(ServiceBusMessage(b"y" * 200 * KB))
            pings = 0

            def pinged() -> bool:
                nonlocal pings
                pings = sum(each.stage.value == "ping" for each in stage.records)
                return pings >= 2

            await stage.until(pinged)
            assert turns.count(State.HEALTHY) == 0
            await stage.take(count=4)
            await stage.until_state(State.HEALTHY)
        assert turns.count(State.HEALTHY) == 1

    play(scenario, queues={"orders": QueueSettings(max_size_in_megabytes=1)})


def test_s4_s7_a_full_queue_puts_nothing_in_doubt_that_is_under_way(play: Play) -> None:
    """A broker that says that one message does not fit will answer the others, too: they are not sent twice."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            for _ in range(4):
                await sender.send_messages(ServiceBusMessage(b"x" * 200 * KB))
            await asyncio.gather(
                sender.send_messages(ServiceBusMessage("small")),
                sender.send_messages(ServiceBusMessage(b"y" * 250 * KB)),
                *(sender.send_messages(ServiceBusMessage("small")) for _ in range(200)),
            )
        sends = [each for each in stage.records if each.kind is Kind.SEND]
        assert not any(each.outcome is Outcome.UNKNOWN for each in sends)
        assert sum(each.messages for each in sends if each.outcome is Outcome.DONE) == 4 + 202

    play(scenario, queues={"orders": QueueSettings(max_size_in_megabytes=1)}, pairing={"ping_primary_interval": 60})
