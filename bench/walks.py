"""How far one has to walk through the source to follow one message: changes from one file of ours to another.

When a function is called, or a coroutine goes on, in another file than the one before, that is one change. The SDK,
Python itself and the broker, which runs in a process of its own, do not count. Each kind is done twice and the second
one is counted, so that links are open and nothing is done for the first time.

Run by ``make bench``. The bars are what a reader can follow.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

import pairbus
from pairbus import aio
from pairbus.core.health import State
from pairbus.core.naming import backlog_paths
from pairbus.core.options import TransportName
from pairbus.testing import EmbeddedBroker

OURS = str(Path(pairbus.__file__).parent)
BARS = {
    ("healthy send", "sdk"): 12,
    ("healthy send", "native"): 20,
    ("engaged send", "sdk"): 20,
    ("engaged send", "native"): 30,
    ("in-process syphon", "sdk"): 60,
    ("in-process syphon", "native"): 60,
}


@dataclass
class Walk:
    """The files of ours in the order in which their functions ran."""

    files: list[str] = field(default_factory=list[str])

    def notice(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(OURS) and self.files[-1:] != [name]:
            self.files.append(name)

    @property
    def changes(self) -> int:
        return max(0, len(self.files) - 1)

    @contextmanager
    def watching(self) -> Generator[None]:
        sys.setprofile(self.notice)
        try:
            yield
        finally:
            sys.setprofile(None)


async def walked(work: Callable[[], Awaitable[object]]) -> Walk:
    """Do something once to have all links open, and walk with it the second time."""
    await work()
    await asyncio.sleep(1)  # what the first one has begun in the background is over
    walk = Walk()
    with walk.watching():
        await work()
    return walk


async def walks(transport: TransportName) -> dict[str, Walk]:
    """Walk with a healthy send, an engaged one, and a parked message that is carried home."""
    options: dict[str, Any] = {"failover_interval": 0, "ping_primary_interval": timedelta(minutes=30)}
    found: dict[str, Walk] = {}
    with EmbeddedBroker(queues=["orders"]) as one, EmbeddedBroker() as other:
        async with (
            aio.MessagingFactory.from_connection_string(one.connection_string, transport=transport) as primary,
            aio.MessagingFactory.from_connection_string(other.connection_string, transport=transport) as secondary,
            aio.NamespaceManager.from_connection_string(other.connection_string) as manager,
        ):
            pair = aio.SendAvailabilityPairedNamespaceOptions(manager, secondary, backlog_queue_count=1, **options)
            await primary.pair_namespace(pair)
            async with primary.get_queue_sender("orders") as sender:
                found["healthy send"] = await walked(lambda: sender.send_messages(ServiceBusMessage("one")))
                one.fault("localhost/orders", "disabled")
                found["engaged send"] = await walked(lambda: sender.send_messages(ServiceBusMessage("two")))
                assert primary.availability.entity("orders").state is State.ENGAGED
                one.fault("localhost", "clear")
        found["in-process syphon"] = await syphoned(one, other, transport, options)
    return found


async def syphoned(
    one: EmbeddedBroker, other: EmbeddedBroker, transport: TransportName, options: dict[str, Any]
) -> Walk:
    """Walk with one message that a syphon, which waits for it, carries home."""
    async with (
        aio.MessagingFactory.from_connection_string(one.connection_string, transport=transport) as primary,
        aio.MessagingFactory.from_connection_string(other.connection_string, transport=transport) as secondary,
        aio.NamespaceManager.from_connection_string(other.connection_string) as manager,
        ServiceBusClient.from_connection_string(one.connection_string) as reading,
        ServiceBusClient.from_connection_string(other.connection_string) as parking,
        reading.get_queue_receiver("orders") as receiver,
    ):
        pair = aio.SendAvailabilityPairedNamespaceOptions(
            manager, secondary, backlog_queue_count=1, enable_syphon=True, syphon_transport=transport, **options
        )
        await primary.pair_namespace(pair)
        async with parking.get_queue_sender(backlog_paths(primary.fully_qualified_namespace, 1)[0]) as sender:

            async def carried() -> None:
                parked = ServiceBusMessage("three", application_properties={"x-ms-path": "orders"})
                await sender.send_messages(parked)
                while not (got := await receiver.receive_messages(10, max_wait_time=5)):
                    pass
                for message in got:
                    await receiver.complete_message(message)

            return await walked(carried)


def main() -> None:
    for transport in ("sdk", "native"):
        for name, walk in asyncio.run(walks(transport)).items():
            bar = BARS[name, transport]
            print(f"{name}, {transport}: {walk.changes} changes between {len(set(walk.files))} files (bar {bar})")
            if "--tell" in sys.argv:
                print("   " + " > ".join(str(Path(each).relative_to(OURS)) for each in walk.files))


if __name__ == "__main__":
    main()
