"""S1, S5, S8, S9, G4, E1, E2, Y1: what is sent, how it is parked, and that it arrives as if nothing had happened."""

# ruff: noqa: ANN401 (bodies are of any kind)

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError
from tests.client.conftest import Play, run
from tests.client.stage import Stage, State, texts
from tests.client.twins import Twin

from pairbus.aio import ParkedSchedule
from pairbus.client.send_link import AT_ONCE
from pairbus.core.ledger import Kind
from pairbus.errors import CancelUnavailableError, ParkedMessageTooLargeError
from pairbus.testing import QueueSettings

STALLED = 10.0
"""Seconds after which what should be done at once is taken not to happen."""
LATER = datetime(2044, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_sends_of_many_tasks_travel_together_and_each_has_its_own_outcome(play: Play) -> None:
    """While one transfer is under way those that wait are put in one batch; one that is at fault harms no other."""

    async def scenario(stage: Stage) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(50))  # threads, for the synchronous client
        async with stage.factory.get_queue_sender("orders") as sender:
            good = [sender.send_messages(ServiceBusMessage(f"{n}", message_id=f"{n}")) for n in range(200)]
            bad = ServiceBusMessage("bad", application_properties={"own": object()})  # type: ignore[dict-item]
            large = ServiceBusMessage("x" * 300_000)
            results = await asyncio.gather(
                *good[:100],
                sender.send_messages(bad),
                sender.send_messages(large),
                *good[100:],
                return_exceptions=True,
            )
        failures = [result for result in results if isinstance(result, BaseException)]
        assert len(failures) == 2
        assert results[100] in failures
        assert results[101] in failures
        arrived = await stage.take(count=200)
        assert sorted(int(str(message)) for message in arrived) == list(range(200))
        if not (stage.twin.is_sync and stage.twin.is_native):  # a few threads, none of which waits for another
            assert sum(each.kind is Kind.SEND for each in stage.records) < 100

    play(scenario)


def unencodable() -> list[ServiceBusMessage | AmqpAnnotatedMessage]:
    numbered: Any = {1: "a name that is no string"}
    odd: Any = [5]
    return [ServiceBusMessage("x", application_properties=numbered), AmqpAnnotatedMessage(data_body=odd)]


def test_a_message_that_cannot_be_encoded_is_its_senders_alone(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender, asyncio.timeout(STALLED):
            for message in unencodable():
                with pytest.raises((ServiceBusError, TypeError)):
                    await sender.send_messages(message)
            mixed = [ServiceBusMessage("one"), *unencodable(), ServiceBusMessage("other", partition_key="p")]
            outcomes = await asyncio.gather(*map(sender.send_messages, mixed), return_exceptions=True)
            assert [outcome is None for outcome in outcomes] == [True, False, False, True]
            await sender.send_messages(ServiceBusMessage("after"))
        assert stage.factory.availability.entity("orders").state is State.HEALTHY
        assert set(texts(await stage.take(count=3))) == {"one", "other", "after"}

    play(scenario, pairing={"attempt_timeout": 2 * STALLED})


def test_natively_the_broker_works_on_some_while_others_come() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"{n}")) for n in range(3 * AT_ONCE)))
        sizes = [each.messages for each in stage.records if each.kind is Kind.SEND]
        assert sum(sizes) == 3 * AT_ONCE
        assert max(sizes) == AT_ONCE

    run(scenario, Twin("aio-native"))


def test_sessions_do_not_share_a_batch_and_keep_their_order(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await asyncio.gather(
                *(sender.send_messages(ServiceBusMessage(f"{n}", session_id=f"s{n % 2}")) for n in range(40))
            )
        for session in ("s0", "s1"):
            got = [int(str(message)) for message in await stage.take(count=20, session_id=session)]
            assert got == sorted(got)

    play_aio(scenario, queues={"orders": QueueSettings(requires_session=True)})


def test_a_cancelled_send_harms_no_other(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            tasks = [asyncio.ensure_future(sender.send_messages(ServiceBusMessage(f"{n}"))) for n in range(60)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            kept = {f"{n}" for n in range(60) if n % 3}
            assert [result for result in results if isinstance(result, Exception)] == []
            await sender.send_messages(ServiceBusMessage("last"))
        async with stage.receiver("orders") as receiver:
            got: set[str] = set()
            while "last" not in got:
                got |= set(texts(await receiver.receive_messages(100, max_wait_time=5)))
        assert kept <= got

    play_aio(scenario)


def every_kind() -> list[ServiceBusMessage | AmqpAnnotatedMessage]:
    """A message of every body type, with every property set."""
    full: dict[str, Any] = {
        "application_properties": {
            "text": "å",
            "number": 7,
            "large": 2**31 - 1,
            "real": 1.5,
            "yes": True,
            "id": uuid.UUID(int=5),
            "when": datetime(2030, 1, 1, tzinfo=UTC),
        },
        "session_id": "s",
        "message_id": "m",
        "time_to_live": timedelta(hours=1),
        "content_type": "text/plain",
        "correlation_id": "c",
        "subject": "about",
        "partition_key": "s",
        "to": "you",
        "reply_to": "me",
        "reply_to_session_id": "r",
    }

    def amqp(**body: Any) -> AmqpAnnotatedMessage:
        return AmqpAnnotatedMessage(
            **body,
            header=AmqpMessageHeader(durable=True, priority=3, time_to_live=3_600_000),
            properties=AmqpMessageProperties(
                message_id="m",
                user_id=b"u",
                group_id="s",
                group_sequence=9,
                content_encoding="utf-8",
                reply_to_group_id="r",
            ),
            application_properties={"bytes": b"value", "text": "t"},
            annotations={"x-own": "annotation"},
        )

    return [
        ServiceBusMessage("text", **full),
        ServiceBusMessage(b"\x00\xff", **full),
        ServiceBusMessage(None, session_id="s", message_id="m"),
        amqp(data_body=[b"one", b"two"]),
        amqp(value_body={"map": [1, "two", None]}),
        amqp(sequence_body=[[1, 2], ["three"]]),
    ]


def looks(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """All that a receiver can see of a message, but for what each delivery has of its own."""
    amqp = message.raw_amqp_message
    own = ("x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-locked-until", "x-opt-enqueue-sequence-number")
    annotations = {k: v for k, v in (amqp.annotations or {}).items() if str(k, "utf-8") not in own}  # type: ignore[arg-type]
    properties = {
        name: value
        for name, value in vars(amqp.properties or object()).items()
        if name not in ("creation_time", "absolute_expiry_time")  # set by the SDK when it sends
    }
    return {
        "body": amqp.body if amqp.body_type.value == "value" else list(amqp.body),
        "kind": amqp.body_type,
        "properties": properties,
        "header": vars(amqp.header or object()),
        "application": amqp.application_properties,
        "annotations": annotations,
        "ttl": message.time_to_live,
    }


def test_e2_y1_every_kind_of_message_arrives_by_way_of_the_backlog_as_if_sent_directly(play: Play) -> None:
    """E1, E2, Y1, S8, P2 ``enable_syphon``: the syphon carries them home when the primary is back."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            for message in every_kind():
                await sender.send_messages(message)
            direct = await stage.take(count=6, session_id="s")
            stage.fault("down")
            for message in every_kind():
                await sender.send_messages(message)
            assert stage.factory.availability.entity("orders").state is State.ENGAGED
            stage.fault("clear")
            carried = await stage.take(count=6, session_id="s")
        for sent, came in zip(direct, carried, strict=True):
            assert looks(came) == looks(sent)

    play(
        scenario,
        queues={"orders": QueueSettings(requires_session=True)},
        pairing={"enable_syphon": True, "backlog_queue_count": 1},
    )


@pytest.mark.parametrize("lives", [timedelta(seconds=1), timedelta(days=30)])
def test_e1_a_parked_message_is_neither_expired_delayed_nor_grouped(play_aio: Play, lives: timedelta) -> None:
    async def scenario(stage: Stage) -> None:
        stage.fault("down")
        message = ServiceBusMessage("one", session_id="s", time_to_live=lives, scheduled_enqueue_time_utc=LATER)
        await stage.factory.get_queue_sender("orders").send_messages(message)
        (parked,) = await stage.parked(1)
        assert (parked.session_id, parked.time_to_live, parked.scheduled_enqueue_time_utc) == (None, None, None)
        assert parked.expires_at_utc is None or parked.expires_at_utc > datetime.now(UTC) + timedelta(days=1000)
        assert parked.application_properties == {
            b"x-ms-path": b"orders",
            b"x-ms-sessionid": b"s",
            b"x-ms-timetolive": lives // timedelta(milliseconds=1),
            b"x-ms-scheduledenqueuetimeutc": int(LATER.timestamp() * 1000),
        }
        assert (message.session_id, message.time_to_live) == ("s", lives)  # the caller's is untouched

    play_aio(scenario)


def test_s8_batches_work_before_during_and_after_failover_and_are_split_when_they_have_grown(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            full = await sender.create_message_batch()
            try:
                while True:
                    full.add_message(ServiceBusMessage("x" * 1000, session_id=str(len(full))))
            except ValueError:
                pass
            count = len(full)
            stage.fault("down")
            await sender.send_messages(full)
            during = await sender.create_message_batch()
            during.add_message(ServiceBusMessage("during"))
            await sender.send_messages(during)
            with pytest.raises(ParkedMessageTooLargeError) as too_large:
                await sender.send_messages(ServiceBusMessage("x" * 262_070))
            assert too_large.value.size < too_large.value.parked_size
            stage.fault("clear")
            await stage.until_state(State.HEALTHY)
            await sender.send_messages(during)
        parked = await stage.parked(count + 1)
        assert sum(str(message) == "during" for message in parked) == 1
        assert texts(await stage.take()) == ["during"]
        parking = [each for each in stage.records if each.stage.value == "park" and each.outcome.value == "done"]
        assert len(parking) == 3

    play(scenario)


def test_s9_scheduling_works_healthy_and_engaged_says_that_there_is_no_number(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            numbers = await sender.schedule_messages([ServiceBusMessage("one"), ServiceBusMessage("two")], LATER)
            assert len(numbers) == 2
            await sender.cancel_scheduled_messages(numbers)
            stage.fault("down")
            parked = await sender.schedule_messages(ServiceBusMessage("three"), LATER)
            assert isinstance(parked, ParkedSchedule)
            assert (parked, parked.messages) == ([], 1)
            with pytest.raises(CancelUnavailableError):
                await sender.cancel_scheduled_messages(numbers)
        (message,) = await stage.parked(1)
        properties = message.application_properties or {}
        assert properties[b"x-ms-scheduledenqueuetimeutc"] == int(LATER.timestamp() * 1000)

    play(scenario)


def test_g4_a_session_queue_is_pinged_with_a_session(play: Play) -> None:
    """G1 to G4: the ping ends failover for all senders, and nobody ever receives it."""

    async def scenario(stage: Stage) -> None:
        one, two = (stage.factory.get_queue_sender(name) for name in ("orders", "ORDERS"))
        stage.fault("down")
        await one.send_messages(ServiceBusMessage("one", session_id="s"))
        await two.send_messages(ServiceBusMessage("two", session_id="s"))  # S1: its health is shared
        stage.fault("clear")
        await stage.until_state(State.HEALTHY)
        await two.send_messages(ServiceBusMessage("three", session_id="s"))
        assert texts(await stage.take(count=1, session_id="s")) == ["three"]
        assert len(await stage.parked(2)) == 2

    play(scenario, queues={"orders": QueueSettings(requires_session=True)})


def test_s5_a_backlog_queue_that_fails_is_pulled_and_another_is_used(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.fault("down")
        sender = stage.factory.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("one"))
        used = next(each.entity for each in stage.records if each.stage.value == "park")
        stage.secondary.delete_queue(used)
        await sender.send_messages(ServiceBusMessage("two"))
        out = {queue.path: queue.in_play for queue in stage.factory.availability.backlog_queues}
        assert out == {f"{stage.backlog}/{n}": f"{stage.backlog}/{n}" != used for n in range(2)}

    play_aio(scenario)


def test_a_topic_is_kept_available_as_a_queue_is(play: Play) -> None:
    """S1 to S4, Y1 for a topic: what was parked reaches the subscription; P3: whose receiver is the SDK's own."""

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_topic_sender("events") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            stage.fault("down")
            await sender.send_messages(ServiceBusMessage("during"))
            stage.fault("clear")
            await stage.until_state(State.HEALTHY, "events")
            await sender.send_messages(ServiceBusMessage("after"))
            got: list[str] = []
            async with stage.factory.get_subscription_receiver("events", "all") as receiver:
                while len(got) < 3:
                    got += texts(await receiver.receive_messages(3, max_wait_time=5))
        assert sorted(got) == ["after", "before", "during"]

    play(scenario, topics={"events": ["all"]}, pairing={"enable_syphon": True})
