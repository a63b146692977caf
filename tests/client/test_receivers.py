"""K1: a receiver of a factory that has a ledger is the SDK's own, metered."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import azure.servicebus as sync_sdk
import azure.servicebus.aio as aio_sdk
import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageAlreadySettled, ServiceBusError
from tests.client.conftest import Play
from tests.client.stage import Stage, State, texts
from tests.support.threaded import Threaded

from pairbus.client import receivers
from pairbus.core.charging import transferred_bytes
from pairbus.core.ledger import Kind, Outcome, Record
from pairbus.core.ledger import Stage as At
from pairbus.core.naming import namespace_label
from pairbus.instrument.hooks import Instrument
from pairbus.testing import QueueSettings

ALONE = {"pair": False}


def told(stage: Stage) -> list[tuple[Kind, Outcome, int]]:
    """Return what was done, and with how many messages; the sends of a factory that is not paired are the SDK's."""
    return [(each.kind, each.outcome, each.messages) for each in stage.records]


async def send(stage: Stage, *bodies: str, queue: str = "orders", **options: Any) -> None:  # noqa: ANN401 (the SDK's)
    async with stage.factory.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(body, **options) for body in bodies])


def bare(receiver: object) -> Any:  # noqa: ANN401 (of either client)
    return receiver.inner if isinstance(receiver, Threaded) else receiver


def test_k1_p3_every_operation_of_a_receiver_is_recorded_and_the_receiver_is_the_sdks(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await send(stage, *"abcdefg", application_properties={"region": "north"})
        receiver = stage.factory.get_queue_receiver("orders")
        assert isinstance(bare(receiver), sync_sdk.ServiceBusReceiver | aio_sdk.ServiceBusReceiver)
        async with receiver:
            assert len(await receiver.peek_messages(3)) == 3
            got = await receive_all(receiver, 7)
            await receiver.renew_message_lock(got[0])
            await receiver.complete_message(got[0])
            await receiver.abandon_message(got[1])
            await receiver.dead_letter_message(got[2], reason="bad", error_description="very")
            await receiver.defer_message(got[3])
            deferred = await receiver.receive_deferred_messages(got[3].sequence_number or 0)
            assert texts(deferred) == ["d"]
            await receiver.complete_message(deferred[0])
            before = len(stage.records)
            assert await receiver.receive_deferred_messages([]) == []
            assert len(stage.records) == before  # since that asks no broker
        dead = stage.factory.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5)
        async with dead:
            (letter,) = await dead.receive_messages()
            assert letter.dead_letter_reason == "bad"
        sums: Counter[tuple[Kind, Outcome]] = Counter()
        for kind, outcome, messages in told(stage):
            assert messages or kind is Kind.EMPTY_RECEIVE
            sums[kind, outcome] += messages
        sums.pop((Kind.EMPTY_RECEIVE, Outcome.DONE), None)
        assert sums == {
            (Kind.PEEK, Outcome.DONE): 3,
            (Kind.RECEIVE, Outcome.DONE): 7 + 1 + 1,
            (Kind.RENEW, Outcome.DONE): 1,
            (Kind.COMPLETE, Outcome.DONE): 2,
            (Kind.ABANDON, Outcome.DONE): 1,
            (Kind.DEAD_LETTER, Outcome.DONE): 1,
            (Kind.DEFER, Outcome.DONE): 1,
        }
        label = namespace_label(stage.factory.fully_qualified_namespace)
        assert {(each.namespace, each.client, each.stage) for each in stage.records} == {(label, "test", At.DIRECT)}
        entities = [each.entity for each in stage.records]
        assert set(entities) == {"orders", "orders/$DeadLetterQueue"}
        brought = [each for each in stage.records if transferred_bytes(each.kind, 1)]
        for each in brought:
            assert each.oldest_at is not None
            assert 50 * each.messages < each.bytes < 400 * each.messages
        settled = [each for each in stage.records if each.kind in {Kind.COMPLETE, Kind.RENEW}]
        assert [each.bytes for each in settled] == [0] * len(settled)

    play(scenario, pairing=ALONE)


async def receive_all(receiver: Any, count: int) -> list[Any]:  # noqa: ANN401 (of either client)
    got: list[Any] = []
    while len(got) < count:
        got += await receiver.receive_messages(count - len(got), max_wait_time=2)
    return got


def test_k1_a_receive_without_a_message_is_recorded_as_a_poll(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_receiver("orders") as receiver:
            assert await receiver.receive_messages(5, max_wait_time=0.2) == []
            assert await receiver.peek_messages() == []
        assert told(stage) == [(Kind.EMPTY_RECEIVE, Outcome.DONE, 0), (Kind.PEEK, Outcome.DONE, 0)]
        assert [each.operations for each in stage.records] == [1, 1]
        assert stage.records[0].duration_us >= 200_000

    play(scenario, pairing=ALONE)


def test_k1_each_message_of_an_iteration_is_recorded_and_its_end_is_a_poll(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await send(stage, "a", "b", "c")
        receiver = stage.factory.get_queue_receiver("orders", max_wait_time=1)
        seen: list[str] = []
        async with receiver:
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
        assert seen == ["a", "b", "c"]
        each = [(Kind.RECEIVE, Outcome.DONE, 1), (Kind.COMPLETE, Outcome.DONE, 1)]
        assert told(stage) == [*each, *each, *each, (Kind.EMPTY_RECEIVE, Outcome.DONE, 0)]

    play(scenario, pairing=ALONE)


def test_k1_an_iteration_may_be_left_and_begun_again(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await send(stage, "a", "b", "c")
        receiver = stage.factory.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        seen: list[str] = []
        async with receiver:
            async for message in receiver:
                seen.append(str(message))
                break
            async for message in receiver:
                seen.append(str(message))
                break
            inner = bare(receiver)
            third = await asyncio.to_thread(inner.next) if stage.twin.is_sync else await anext(inner)
            seen.append(str(third))
        assert seen == ["a", "b", "c"]
        assert told(stage) == [(Kind.RECEIVE, Outcome.DONE, 1)] * 3

    play(scenario, pairing=ALONE)


def test_k1_sessions_and_subscriptions_are_metered(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await send(stage, "hello", queue="chats", session_id="s")
        async with stage.factory.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=5)
            session = receiver.session
            assert isinstance(bare(session), sync_sdk.ServiceBusSession | aio_sdk.ServiceBusSession)
            await session.set_state("on")
            assert await session.get_state() == b"on"
            await session.renew_lock()
            await receiver.complete_message(message)
        assert told(stage) == [
            (Kind.RECEIVE, Outcome.DONE, 1),
            (Kind.SESSION_STATE, Outcome.DONE, 0),
            (Kind.SESSION_STATE, Outcome.DONE, 0),
            (Kind.RENEW, Outcome.DONE, 0),
            (Kind.COMPLETE, Outcome.DONE, 1),
        ]
        stage.records.clear()
        async with stage.factory.get_topic_sender("events") as sender:
            await sender.send_messages(ServiceBusMessage("news"))
        async with stage.factory.get_subscription_receiver("events", "all") as receiver:
            assert texts(await receiver.receive_messages(max_wait_time=5)) == ["news"]
        assert [(each.kind, each.entity) for each in stage.records] == [(Kind.RECEIVE, "events/Subscriptions/all")]

    queues = {"chats": QueueSettings(requires_session=True)}
    play(scenario, pairing=ALONE, queues=queues, topics={"events": ["all"]})


def test_k1_the_sdks_own_renewals_are_metered(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await send(stage, "slow")
        kind = sync_sdk.AutoLockRenewer if stage.twin.is_sync else aio_sdk.AutoLockRenewer
        renewer = kind()
        receiver = stage.factory.get_queue_receiver("orders", auto_lock_renewer=renewer)
        async with receiver:
            (message,) = await receiver.receive_messages(max_wait_time=5)
            await stage.until(lambda: (Kind.RENEW, Outcome.DONE, 1) in told(stage))
            await receiver.complete_message(message)
        closing = renewer.close()
        if closing is not None:
            await closing

    play(scenario, pairing=ALONE, queues={"orders": QueueSettings(lock_duration=5_000)})


def test_k1_how_an_operation_ended_is_recorded_and_its_error_is_the_sdks(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await send(stage, "a")
        async with stage.factory.get_queue_receiver("orders") as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=5)
            await receiver.complete_message(message)
            with pytest.raises(MessageAlreadySettled):
                await receiver.complete_message(message)
        async with stage.factory.get_queue_receiver("orders") as receiver:
            stage.fault("down")
            with pytest.raises(ServiceBusError):
                await receiver.peek_messages(timeout=5)
        kinds = [(each.kind, each.outcome is Outcome.DONE, each.detail) for each in stage.records]
        assert kinds[:3] == [
            (Kind.RECEIVE, True, None),
            (Kind.COMPLETE, True, None),
            (Kind.COMPLETE, False, "MessageAlreadySettled"),
        ]
        (peek,) = [each for each in stage.records if each.kind is Kind.PEEK]
        assert peek.outcome in {Outcome.FAILED, Outcome.UNKNOWN}
        assert peek.detail is not None

    play(scenario, pairing=ALONE)


def test_k1_s7_a_receive_that_is_cancelled_has_an_unknown_outcome(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_receiver("orders") as receiver:
            waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=60))
            await stage.until_begun(kind=Kind.RECEIVE)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        (record,) = stage.records
        assert (record.kind, record.outcome, record.detail) == (Kind.RECEIVE, Outcome.UNKNOWN, "CancelledError")

    play_aio(scenario, pairing=ALONE)


def test_p3_without_a_ledger_the_receiver_is_left_as_it_is(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        for receiver in (
            stage.factory.get_queue_receiver("orders"),
            stage.factory.get_queue_receiver("orders", session_id="s"),
            stage.factory.get_subscription_receiver("events", "all"),
        ):
            inner = bare(receiver)
            assert type(inner) in {sync_sdk.ServiceBusReceiver, aio_sdk.ServiceBusReceiver}
            assert type(inner.session) in {type(None), sync_sdk.ServiceBusSession, aio_sdk.ServiceBusSession}
            assert not hasattr(inner, "_pairbus_meter")

    play(scenario, pairing=ALONE, factory={"instrument": None})


def test_k1_errors_of_the_meter_never_reach_the_caller(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Instrument):
        """One whose every part fails, but only for receivers: senders have theirs before."""

        is_broken = False

        def ended(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 (handed on)
            if self.is_broken:
                raise RuntimeError("no")
            super().ended(*args, **options)

        def begin(self, namespace: str, entity: str, kind: Kind, *args: Any, **options: Any) -> Any:  # noqa: ANN401 (as above)
            if self.is_broken and kind is Kind.PEEK:
                raise RuntimeError("not even that")
            return super().begin(namespace, entity, kind, *args, **options)

    instrument = Broken([cast("Any", NoSink())])

    async def scenario(stage: Stage) -> None:
        await send(stage, "a")
        instrument.is_broken = True
        async with stage.factory.get_queue_receiver("orders") as receiver:
            assert texts(await receiver.peek_messages()) == ["a"]
            (message,) = await receiver.receive_messages(max_wait_time=5)
            await receiver.complete_message(message)
            with pytest.raises(MessageAlreadySettled):
                await receiver.complete_message(message)
        (said,) = [each.message for each in caplog.records if each.name == receivers.__name__]
        assert said.startswith("operations of a receiver of orders are not recorded: RuntimeError('not even that');")
        instrument.is_broken = False

    with caplog.at_level(logging.WARNING):
        play(scenario, pairing=ALONE, factory={"instrument": instrument})


class NoSink:
    """A sink that forgets."""

    def record(self, record: Record) -> None:
        """Take it."""


@pytest.mark.parametrize(
    ("owner", "calls", "others"),
    [
        (sync_sdk.ServiceBusReceiver, receivers.RECEIVER_CALLS, {"close", "next", "client_identifier", "session"}),
        (aio_sdk.ServiceBusReceiver, receivers.RECEIVER_CALLS, {"close", "client_identifier", "session"}),
        (sync_sdk.ServiceBusSession, receivers.SESSION_CALLS, {"locked_until_utc", "session_id"}),
        (aio_sdk.ServiceBusSession, receivers.SESSION_CALLS, {"locked_until_utc", "session_id"}),
    ],
)
def test_k1_every_public_method_of_the_installed_sdk_is_metered_or_no_operation(
    owner: type, calls: dict[str, Kind], others: set[str]
) -> None:
    """A release of the SDK that has another one is noticed here."""
    public = {name for name, _ in inspect.getmembers(owner) if not name.startswith("_")}
    assert public == {*calls, *others}
    made = {
        sync_sdk.ServiceBusReceiver: receivers.MeteredSyncReceiver,
        aio_sdk.ServiceBusReceiver: receivers.MeteredReceiver,
        sync_sdk.ServiceBusSession: receivers.MeteredSyncSession,
        aio_sdk.ServiceBusSession: receivers.MeteredSession,
    }[cast("Any", owner)]
    for name in calls:
        own: Callable[..., Any] = getattr(made, name)
        assert own is not getattr(owner, name)
        assert inspect.signature(own) == inspect.signature(getattr(owner, name))
        assert inspect.iscoroutinefunction(own) is inspect.iscoroutinefunction(getattr(owner, name))


def test_k2_the_four_operations_of_a_parked_message_are_in_the_clients_ledgers(play: Play) -> None:
    """Send to the backlog, receive from it, send to the primary, receive from the primary: no broker's ledger is asked.

    Each has the message's bytes, which is what bandwidth is charged by.
    """

    async def scenario(stage: Stage) -> None:
        stage.fault("down")
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("x" * 1000))
            stage.fault("clear")
            await stage.until_state(State.HEALTHY)
            async with stage.factory.get_queue_receiver("orders") as receiver:
                (message,) = await receive_all(receiver, 1)
                await receiver.complete_message(message)
        assert str(message) == "x" * 1000
        home, away = (namespace_label(each.fully_qualified_namespace) for each in (stage.factory, stage.other))
        moved = [
            (each.stage, each.kind, each.namespace)
            for each in stage.records
            if each.outcome is Outcome.DONE and each.messages and each.kind in {Kind.SEND, Kind.RECEIVE}
        ]
        assert moved == [
            (At.PARK, Kind.SEND, away),
            (At.SYPHON, Kind.RECEIVE, away),
            (At.SYPHON, Kind.SEND, home),
            (At.DIRECT, Kind.RECEIVE, home),
        ]
        sizes = [each.bytes for each in stage.records if each.outcome is Outcome.DONE and each.bytes > 500]
        assert len(sizes) == 4
        assert all(1_000 < size < 1_600 for size in sizes)
        pings = [each for each in stage.records if each.kind is Kind.PING]
        assert pings
        assert all(100 < each.bytes < 200 and each.operations == 1 for each in pings)

    play(scenario, pairing={"enable_syphon": True, "backlog_queue_count": 1})
