"""S2 to S7, S10, G1, G2: sends go on while the primary does not, whatever its outage looks like."""

import asyncio
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusAuthorizationError, ServiceBusError
from tests.client.conftest import Play
from tests.client.stage import Stage, State, texts
from tests.client.twins import KINDS, RETRYING, Twin

from pairbus.core.ledger import Kind, Outcome
from pairbus.core.ledger import Stage as At
from pairbus.errors import BacklogUnavailableError, SendTimeoutError

OUTAGES = ("down", "silent", "stall", "lose-answers", "full", "disabled")
"""The faults of the broker that are outages (3.1)."""

DELIVERED = ("stall", "lose-answers")
"""After these the broker may have the message that was under way: parked all the same, since nobody could know (S7)."""

PASSING: dict[str, dict[str, str]] = {
    "cut": {},
    "expire-tokens": {},
    "slow": {"latency": "50ms"},
    "busy": {"duration": "1s"},
}
"""The faults that a send which is held outlives."""


@pytest.fixture(params=(*KINDS, *RETRYING))
def twin(request: pytest.FixtureRequest) -> Twin:
    """Each of the clients, those of the SDK with its own retries, too."""
    return Twin(str(request.param))


def test_s2_healthy_messages_go_to_the_primary_untouched(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("Orders")
        async with sender:
            await sender.send_messages(ServiceBusMessage("one", message_id="1"))
            await sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("four"))
            await sender.send_messages(batch)
        got = await stage.take(count=4)
        assert texts(got) == ["one", "two", "three", "four"]
        assert got[0].message_id == "1"
        assert all(message.message_id for message in got)
        assert not any(message.application_properties for message in got)
        assert stage.factory.availability.entity("ORDERS").state is State.HEALTHY

    play(scenario)


@pytest.mark.parametrize("outage", OUTAGES)
def test_s4_s10_an_outage_of_any_kind_parks_messages_until_a_ping_is_accepted(play: Play, outage: str) -> None:
    """S3, S4, S10, G1, G2: failover engages, ends by a ping, and no send fails or hangs."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            stage.fault(outage)
            began = time.monotonic()
            await sender.send_messages(ServiceBusMessage("during", message_id="d"))
            assert time.monotonic() - began < 8  # an attempt's two seconds, and room
            await sender.send_messages(ServiceBusMessage("during too"))
            stage.fault("clear")
            await stage.until_state(State.HEALTHY)
            await sender.send_messages(ServiceBusMessage("after"))
        parked = await stage.parked(2)
        assert sorted(texts(parked)) == ["during", "during too"]
        arrived: list[str] = []
        while "after" not in arrived:
            arrived += texts(await stage.take())
        assert [text for text in arrived if text != "during"] == ["before", "after"]
        assert "during" not in arrived or outage in DELIVERED

    play(scenario, pairing={"attempt_timeout": 2})


@pytest.mark.parametrize("fault", PASSING)
def test_s6_what_passes_is_waited_for_and_nothing_is_parked(play: Play, fault: str) -> None:
    """rule 3.1: busy is no outage; and S3: a success ends what a lost connection has begun."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            stage.fault(fault, **PASSING[fault])
            await sender.send_messages(ServiceBusMessage("during"))
            await sender.send_messages(ServiceBusMessage("after"))
            assert stage.factory.availability.entity("orders").state is State.HEALTHY
            stage.fault("clear")
        arrived: list[str] = []
        while "after" not in arrived:
            arrived += texts(await stage.take())
        assert sorted(set(arrived), key=arrived.index) == ["before", "during", "after"]
        assert not any(each.stage is At.PARK for each in stage.records)

    play(scenario, pairing={"failover_interval": 60})


def test_access_that_is_denied_is_the_callers_error(play: Play) -> None:
    """rule 3.1: raised as it is, and no timer starts."""

    async def scenario(stage: Stage) -> None:
        stage.fault("deny")
        with pytest.raises(ServiceBusAuthorizationError):
            await stage.factory.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
        assert stage.factory.availability.entity("orders").state is State.HEALTHY

    play(scenario)


def test_s6_a_send_is_held_until_the_primary_takes_it(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
            stage.fault("down")
            held = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("two")))
            await stage.until_state(State.SUSPECT)
            assert not held.done()
            stage.fault("clear")
            await held
            assert stage.factory.availability.entity("orders").state is State.HEALTHY
        assert texts(await stage.take(count=2)) == ["one", "two"]

    play(scenario, pairing={"failover_interval": 60})


def test_s3_s6_a_held_send_is_parked_when_the_interval_has_passed(play: Play) -> None:
    """S3: the first failure starts the timer, later ones do not start it again."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("down")
            began = time.monotonic()
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"{n}")) for n in range(5)))
            assert time.monotonic() - began >= 1
        assert sorted(texts(await stage.parked(5))) == ["0", "1", "2", "3", "4"]

    play(scenario, pairing={"failover_interval": 1})


def test_s6_raise_gives_the_caller_the_sdks_error(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        stage.fault("down")
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("one"))
        await stage.until_state(State.ENGAGED)
        await sender.send_messages(ServiceBusMessage("two"))
        assert texts(await stage.parked(1)) == ["two"]

    play(scenario, pairing={"failover_interval": 1, "on_outage": "raise"})


def test_s6_s7_the_callers_timeout_bounds_the_whole_and_says_what_is_known(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            stage.fault("stall")
            began = time.monotonic()
            with pytest.raises(SendTimeoutError) as unknown:
                await sender.send_messages(ServiceBusMessage("one"), timeout=1)
            assert time.monotonic() - began < 2
            assert unknown.value.maybe_sent
            assert isinstance(unknown.value, OperationTimeoutError)
            stage.fault("down")
            with pytest.raises(SendTimeoutError) as known:  # by a link of its own, which is never open
                await stage.factory.get_queue_sender("orders").send_messages(ServiceBusMessage("two"), timeout=0.5)
            assert not known.value.maybe_sent

    play(scenario, pairing={"failover_interval": 60})


def test_the_callers_own_errors_are_raised_as_they_are_and_start_no_timer(play: Play) -> None:
    """rule 3.1: not found, too large, and what is no message."""

    async def scenario(stage: Stage) -> None:
        with pytest.raises(ServiceBusError, match=r"not.*found"):
            await stage.factory.get_queue_sender("nowhere").send_messages(ServiceBusMessage("one"))
        async with stage.factory.get_queue_sender("orders") as sender:
            with pytest.raises(ValueError, match=r"size|large"):
                await sender.send_messages(ServiceBusMessage("x" * 300_000))
            with pytest.raises(TypeError, match="Received instead: int"):
                await sender.send_messages(7)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="greater than 0"):
                await sender.send_messages(ServiceBusMessage("one"), timeout=0)
        with pytest.raises(ValueError, match="already been shutdown"):
            await sender.send_messages(ServiceBusMessage("one"))
        states = {each.state for each in stage.factory.availability.entities.values()}
        assert states == {State.HEALTHY}

    play(scenario)


def test_s5_without_any_backlog_queue_both_causes_are_told(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        stage.fault("down")
        await sender.send_messages(ServiceBusMessage("parked"))
        await asyncio.to_thread(stage.secondary.stop)
        with pytest.raises(BacklogUnavailableError) as none_left:
            await sender.send_messages(ServiceBusMessage("not parked"))
        assert isinstance(none_left.value.primary_cause, ServiceBusError)
        assert isinstance(none_left.value.backlog_cause, ServiceBusError)
        for cause in (none_left.value.primary_cause, none_left.value.backlog_cause):
            assert str(cause) in str(none_left.value)
        assert not any(queue.in_play for queue in stage.factory.availability.backlog_queues)

    play(scenario)


def test_a_killed_primary_and_its_return(play: Play, tmp_path: Path) -> None:
    """S3, S4, G1, G2, K1: kill -9; every message is accepted somewhere, and the ledger tells of each operation."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            await asyncio.to_thread(stage.primary.kill)
            await sender.send_messages(ServiceBusMessage("during"))
            await asyncio.to_thread(stage.primary.start)
            await stage.until_state(State.HEALTHY)
            await sender.send_messages(ServiceBusMessage("after"))
        assert texts(await stage.take(count=2)) == ["before", "after"]
        assert texts(await stage.parked(1)) == ["during"]
        told = [(each.kind, each.stage, each.outcome, each.messages) for each in stage.records]
        assert told.count((Kind.SEND, At.DIRECT, Outcome.DONE, 1)) == 2
        assert told.count((Kind.SEND, At.PARK, Outcome.DONE, 1)) == 1
        assert (Kind.PING, At.PING, Outcome.DONE, 0) in told
        assert [each.detail for each in stage.records if each.kind is Kind.TURN] == ["suspect", "engaged", "healthy"]
        assert sum(each.stage is At.SETUP for each in stage.records) == 4  # two queues: looked for, and made

    play(scenario, process=True, data=tmp_path)
