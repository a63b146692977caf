"""Y2: brokers that detach idle links, and whose clock says that ten minutes have passed; the client's does not."""

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from tests.client.stage import DEADLINE, Stage, texts
from tests.client.twins import KINDS, Twin
from tests.contract.lab import Clock

from pairbus.core.health import State
from pairbus.testing import EmbeddedBroker, QueueSettings


class AgeingStage(Stage):
    """A stage on which time can pass for the brokers."""

    def __init__(self, twin: Twin, **options: Any) -> None:  # noqa: ANN401
        super().__init__(twin, **options)
        self.clock = Clock()
        self.primary = EmbeddedBroker(queues={"orders": QueueSettings()}, clock=self.clock)
        self.secondary = EmbeddedBroker(clock=self.clock)

    async def be_idle(self) -> None:
        """Let ten minutes pass, after which the brokers detach all links."""
        self.clock.advance(600)
        for broker in (self.primary, self.secondary):
            await asyncio.to_thread(broker.wake)


@pytest.mark.parametrize("kind", KINDS)
def test_y2_sends_go_on_after_their_links_were_detached(kind: str) -> None:
    async def play() -> None:
        async with asyncio.timeout(DEADLINE), AgeingStage(Twin(kind), pairing={"failover_interval": 10}) as stage:
            async with stage.factory.get_queue_sender("orders") as sender:
                for text in ("one", "two", "three"):
                    await sender.send_messages(ServiceBusMessage(text))
                    await stage.be_idle()
            assert stage.factory.availability.entity("orders").state is State.HEALTHY
            assert texts(await stage.take(count=3)) == ["one", "two", "three"]

    asyncio.run(play())


@pytest.mark.parametrize("kind", KINDS)
def test_y2_the_syphon_goes_on_after_its_links_were_detached(kind: str) -> None:
    async def play() -> None:
        pairing = {"enable_syphon": True, "syphon_retry_interval": 1}
        async with (
            asyncio.timeout(DEADLINE),
            AgeingStage(Twin(kind), pairing=pairing) as stage,
            stage.factory.get_queue_sender("orders") as sender,
        ):
            for text in ("one", "two"):
                await stage.be_idle()
                stage.fault("disabled")
                await sender.send_messages(ServiceBusMessage(text))
                await stage.be_idle()
                stage.fault("clear")
                assert texts(await stage.take()) == [text]

    asyncio.run(play())
