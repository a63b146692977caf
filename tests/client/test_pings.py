"""G1, G2: pings as they are on the wire, by each transport; that they go on, that they stop, and what they leave."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from tests.client.linking import paired
from tests.support import moved
from tests.support.peer import Peer, Transfer, rejected

from pairbus.aio import MessagingFactory
from pairbus.amqp.performatives import ACCEPTED, DeliveryState
from pairbus.core.health import State
from pairbus.core.options import TransportName

CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
INTERVAL = 60.0
DISABLED = rejected("com.microsoft:entity-disabled")
FULL = rejected("amqp:resource-limit-exceeded")
"""After this one the SDK keeps its link."""

pytestmark = pytest.mark.usefixtures("no_idle_timeout")


@pytest.fixture(params=["sdk", "native"])
def carrier(request: pytest.FixtureRequest) -> TransportName:
    return request.param


class Outage:
    """A paired factory whose entity ``orders`` has failed over; its peer takes no message."""

    def __init__(self, peer: Peer, secondary: Peer, factory: MessagingFactory) -> None:
        self.peer = peer
        self.secondary = secondary
        self.factory = factory

    @property
    def state(self) -> State:
        return self.factory.availability.entity("orders").state

    @property
    def pings(self) -> list[Transfer]:
        return [each for each in self.peer.transfers if content_type_of(each) == CONTENT_TYPE]

    async def ping(self) -> None:
        """Let the time for a ping come, and wait until the peer has heard and answered it."""
        count = len(self.pings)
        moved.move(INTERVAL)
        await self.peer.heard(lambda: len(self.pings) > count)


def content_type_of(transfer: Transfer) -> str | None:
    properties = transfer.envelope.properties()
    return properties.content_type if properties is not None else None


@asynccontextmanager
async def outage(
    carrier: TransportName,
    why: DeliveryState = DISABLED,
    **options: Any,  # noqa: ANN401
) -> AsyncGenerator[Outage]:
    """Have failover engaged. The sender is closed: pings have a link of their own."""
    async with Peer() as peer, Peer() as secondary:
        peer.judge = lambda _transfer: why
        defaults = {"ping_primary_interval": INTERVAL}
        async with paired(peer, secondary, carrier, **{**defaults, **options}) as factory:
            async with factory.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("parked"))
            yield Outage(peer, secondary, factory)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    moved.run(scenario())


def test_g1_a_ping_is_empty_and_has_one_second_to_live(carrier: TransportName) -> None:
    async def scenario() -> None:
        async with outage(carrier) as at:
            assert at.pings == []  # the first one after one interval
            await at.ping()
            (ping,) = at.pings
            (message,) = ping.messages
            assert not ping.is_batch
            assert b"".join(message.data_sections()) == b""
            header = message.header()
            assert header is not None
            assert header.ttl == timedelta(seconds=1) / timedelta(milliseconds=1)
            assert not message.application_properties()

    play(scenario)


def test_g1_g2_pings_go_on_after_one_that_failed_until_one_is_accepted(carrier: TransportName) -> None:
    async def scenario() -> None:
        async with outage(carrier) as at:
            for count in range(1, 4):
                await at.ping()
                assert (at.state, len(at.pings)) == (State.ENGAGED, count)
            at.peer.judge = lambda _transfer: ACCEPTED
            await at.ping()
            await turned(at)
            for _ in range(3):  # G2: the pings stop
                moved.move(INTERVAL)
                await asyncio.sleep(0)
            async with at.factory.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("after"))
            assert len(at.pings) == 4
            assert at.peer.texts[-1] == "after"

    async def turned(at: Outage) -> None:
        """Wait until the factory has heard that its ping was accepted."""
        healthy = asyncio.Event()
        end = at.factory.availability.subscribe(lambda turn: healthy.set() if turn.state is State.HEALTHY else None)
        if at.state is not State.HEALTHY:
            await healthy.wait()
        end()

    play(scenario)


@pytest.mark.parametrize("accepted", [True, False])
def test_the_links_of_pings_are_closed(carrier: TransportName, *, accepted: bool) -> None:
    """When one was accepted, or else with the factory: no sender is there to whom they would belong."""

    async def scenario() -> None:
        async with outage(carrier, FULL) as at:
            await at.peer.heard(lambda: not at.peer.open_links("orders"))  # the sender's
            await at.ping()
            assert len(at.peer.open_links("orders")) == 1
            if accepted:
                at.peer.judge = lambda _transfer: ACCEPTED
                await at.ping()
            else:
                await at.factory.close()
            await at.peer.heard(lambda: not at.peer.open_links("orders"))

    play(scenario)


@pytest.mark.parametrize("ends", ["closed", "faulted"])
def test_c2_pings_stop_when_the_factory_ends(carrier: TransportName, ends: str) -> None:
    """At once, though closing waits for a send that is under way to the backlog."""

    async def scenario() -> None:
        async with outage(carrier, attempt_timeout=600) as at:
            await at.ping()
            ending: list[asyncio.Task[None]] = []
            if ends == "faulted":
                at.factory.fault("on cue")
            else:
                at.secondary.judge = lambda _transfer: None
                sender = at.factory.get_queue_sender("orders")
                ending.append(asyncio.create_task(sender.send_messages(ServiceBusMessage("under way"))))
                await at.secondary.heard(lambda: "under way" in at.secondary.texts)
                ending.append(asyncio.create_task(at.factory.close()))
                await asyncio.sleep(0)
                assert at.factory.availability.state == "closed"
            for _ in range(3):
                moved.move(INTERVAL)
                await through(at.peer)
                assert [task.get_name() for task in asyncio.all_tasks() if "ping of" in task.get_name()] == []
            assert len(at.pings) == 1
            assert not any(task.done() for task in ending)
            for transfer in at.secondary.transfers[1:]:
                transfer.answer(ACCEPTED)
            await asyncio.gather(*ending)

    async def through(peer: Peer) -> None:
        """Have the peer hear what was said by now: a connection of our own that comes later is heard later."""
        before = peer.connected
        _, writer = await asyncio.open_connection("127.0.0.1", peer.port)
        await peer.heard(lambda: peer.connected > before)
        writer.close()
        await writer.wait_closed()

    play(scenario)
