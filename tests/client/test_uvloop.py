"""The client on the event loop that many applications run on."""

import asyncio
from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusMessage
from tests.client.conftest import run
from tests.client.stage import Stage, State, texts
from tests.client.twins import Twin


@pytest.mark.parametrize("kind", ["aio", "aio-native"])
@pytest.mark.parametrize("fault", ["down", "stall"])
def test_g1_g2_an_outage_costs_no_message_on_uvloop(kind: str, fault: str) -> None:
    loops: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop").new_event_loop

    async def scenario(stage: Stage) -> None:
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            stage.fault(fault)
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"during {n}")) for n in range(20)))
            stage.fault("clear")
            await stage.until_state(State.HEALTHY)
            await sender.send_messages(ServiceBusMessage("after"))
            wanted = {"before", "after", *(f"during {n}" for n in range(20))}
            arrived: set[str] = set()
            async with stage.receiver("orders") as receiver:
                while arrived != wanted:  # what was under way in a stall may come twice
                    got = await receiver.receive_messages(20, max_wait_time=5)
                    arrived |= set(texts(got))
                    await asyncio.gather(*map(receiver.complete_message, got))
                    assert arrived <= wanted

    run(scenario, Twin(kind), loops, pairing={"attempt_timeout": 2, "enable_syphon": True})
