"""A link that is not used for ten minutes is detached, as in the cloud; the SDK opens another one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError
from tests.contract.conftest import Run
from tests.contract.lab import Clock, Lab, bodies, one, receive, send
from tests.support.caller import Caller
from tests.support.client import Login

from pairbus.amqp import build_message
from pairbus.amqp.events import DeliveriesReceived
from pairbus.amqp.link import LinkState
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import Accepted
from pairbus.testing import EmbeddedBroker, QueueSettings

MINUTE = 60
ALMOST = 10 * MINUTE - 5
"""The clock goes on by itself, too."""
PEEK = {"from-sequence-number": 1, "message-count": 1}
MESSAGE = build_message(encode_value_section("x"))


class Bench:
    """A broker whose clock can be moved, and one client that has logged in with a key, which does not expire."""

    def __init__(self, broker: EmbeddedBroker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock

    async def pass_time(self, seconds: float) -> None:
        """Move the clock on, and have the broker look at it."""
        self.clock.advance(seconds)
        await asyncio.to_thread(self.broker.wake)


def play(scenario: Callable[[Bench, Caller], Awaitable[None]]) -> None:
    async def play(bench: Bench) -> None:
        caller = await Caller.connect(
            bench.broker.endpoints["localhost"].port, Login.of(bench.broker.connection_string)
        )
        await scenario(bench, caller)
        await caller.close()

    clock = Clock()
    queues = {"orders": QueueSettings(), "bills": QueueSettings(), "sessions": QueueSettings(requires_session=True)}
    with EmbeddedBroker(queues=queues, clock=clock) as broker:
        asyncio.run(asyncio.wait_for(play(Bench(broker, clock)), 60))


def test_a_link_is_detached_after_ten_minutes_without_use_and_not_before() -> None:
    async def scenario(bench: Bench, caller: Caller) -> None:
        await bench.pass_time(MINUTE)  # the broker looks, and there is no link yet
        sender, receiver = await caller.sender("orders"), await caller.receiver("bills")
        await bench.pass_time(ALMOST)
        assert isinstance(await caller.send(sender, MESSAGE), Accepted)
        assert receiver.state is LinkState.ATTACHED
        await bench.pass_time(5)
        ended = await caller.ended(receiver)
        assert ended.condition == "amqp:link:detach-forced"
        assert "AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00" in ended.description
        assert sender.state is LinkState.ATTACHED  # it was used five seconds ago
        await bench.pass_time(ALMOST)
        ended = await caller.ended(sender)
        assert ended.condition == "amqp:link:detach-forced"
        assert "AmqpMessagePublisher.IdleTimerExpired" in ended.description
        assert isinstance(await caller.send(await caller.sender("orders"), MESSAGE), Accepted)

    play(scenario)


def test_a_receiver_that_waits_with_credit_is_idle_too() -> None:
    async def scenario(bench: Bench, caller: Caller) -> None:
        receiver = await caller.receiver("orders")
        receiver.grant(10)
        caller.client.flush()
        await caller.manage("orders", "peek-message", PEEK)  # it has come
        await bench.pass_time(10 * MINUTE)
        assert (await caller.ended(receiver)).condition == "amqp:link:detach-forced"

    play(scenario)


def test_a_session_that_is_renewed_is_idle_too_and_free_at_once() -> None:
    async def scenario(bench: Bench, caller: Caller) -> None:
        receiver = await caller.receiver("sessions", session="red")
        for _ in range(19):
            await bench.pass_time(30)
            await caller.manage("sessions", "renew-session-lock", {"session-id": "red"})
        assert receiver.state is LinkState.ATTACHED
        await bench.pass_time(30)
        ended = await caller.ended(receiver)
        assert "IdleTimerExpired" in ended.description
        await caller.receiver("sessions", session="red")

    play(scenario)


def test_whatever_a_receiver_does_counts_as_use() -> None:
    async def scenario(bench: Bench, caller: Caller) -> None:
        receiver = await caller.receiver("orders")
        await bench.pass_time(9 * MINUTE)
        receiver.grant(1)  # it asks
        await caller.manage("orders", "peek-message", PEEK)  # which has come when this is answered
        await bench.pass_time(9 * MINUTE)
        await caller.send(await caller.sender("orders"), MESSAGE)
        (delivery,) = (await caller._next(receiver, DeliveriesReceived)).deliveries  # pyright: ignore[reportPrivateUsage]
        await bench.pass_time(9 * MINUTE)  # it has got a message
        await caller.complete(receiver, delivery)  # too late, and all the same
        await bench.pass_time(9 * MINUTE)
        await caller.manage("orders", "peek-message", PEEK)
        assert receiver.state is LinkState.ATTACHED

    play(scenario)


def test_requests_and_tokens_can_be_sent_however_long_none_was() -> None:
    async def scenario(bench: Bench, caller: Caller) -> None:
        await caller.manage("orders", "peek-message", PEEK)
        await bench.pass_time(3600)
        await caller.manage("orders", "peek-message", PEEK)

    play(scenario)


def test_the_sdk_sends_and_receives_after_an_idle_hour_by_its_own_retries(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        client = lab.client(retry_total=3, retry_backoff_factor=0.01)
        sender = await lab.open(client.get_queue_sender("orders"))
        receiver = await lab.open(client.get_queue_receiver("orders"))
        await send(sender, "a")
        message = await one(receiver)
        await receiver.complete_message(message)
        for body in ("b", "c"):
            await lab.pass_time(3600)
            await send(sender, body)
            message = await one(receiver)
            assert str(message) == body
            await receiver.complete_message(message)

    run(scenario)


def test_the_sdk_waits_on_when_its_long_poll_is_detached(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        client = lab.client(retry_total=3, retry_backoff_factor=0.01)
        receiver = await lab.open(client.get_queue_receiver("orders"))
        waiting = asyncio.ensure_future(receiver.receive_messages(1, max_wait_time=30))
        manager = lab.manager()
        await manager.get_queue("orders")
        await lab.pass_time(10 * MINUTE)
        await send(await lab.sender(), "a")
        assert bodies(await waiting) == ["a"]

    run(scenario)


def test_an_sdk_that_does_not_retry_hears_of_it_once(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.sender()
        await send(sender, "a")
        await lab.pass_time(10 * MINUTE)
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("b"))
        await send(sender, "c")
        assert bodies(await receive(await lab.receiver(), 2)) == ["a", "c"]

    run(scenario)
