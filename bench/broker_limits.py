"""What the embedded broker costs at rest, with many clients, and with deep queues.

Prints: the time from start to the first accepted message; idle memory; memory with 1,000 idle connections; what a
send and a delivery cost as the queue gets deeper, as ratios to a shallow one, and beside many messages that cannot be
received now (scheduled, deferred, locked); how long a deep store takes to open; and the official SDK's rate against the
durable broker as a ratio to that against the one in memory.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import repeat
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from bench.broker import CLIENT_CORE, PAYLOAD, Server, pairbus, receive, resident_kilobytes, send
from bench.load import Client, produce

from pairbus.amqp.events import DeliveriesReceived, Event, LinkAttached
from pairbus.amqp.message import Message
from pairbus.amqp.performatives import DeliveryState, Modified, Source
from pairbus.amqp.types import Symbol, Timestamp

CONNECTIONS = 1000
SAMPLE = 5000


def start_to_first_message(data: Path) -> float:
    """Return the seconds from starting the process to the first accepted message, with Python's bytecode in place."""
    times: list[float] = []
    for number in range(4):
        began = time.perf_counter()
        with pairbus(data / str(number), data / "bytecode") as server:
            asyncio.run(send(server, 1))
            times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first one has compiled


async def with_idle_connections(server: Server) -> int:
    """Return the broker's memory, in kilobytes, while so many clients are connected."""
    clients = [await Client.connect(server.port, server.login) for _ in range(CONNECTIONS)]
    memory = resident_kilobytes(server.pid)
    for client in clients:
        client.close()
    return memory


def deep(server: Server, depths: list[int]) -> None:
    """Print what a send and a delivery cost at each depth, as ratios to the first."""
    stored = 0
    base: tuple[float, float] | None = None
    for depth in depths:
        asyncio.run(send(server, depth - stored))
        before = resident_kilobytes(server.pid)
        sending, receiving = asyncio.run(send(server, SAMPLE)), asyncio.run(receive(server, SAMPLE))
        stored = depth
        base = base or (sending, receiving)
        ratios = f"send {sending / base[0]:.2f}, delivery {receiving / base[1]:.2f} of the first's rate"
        print(f"  {depth:9,} stored: {ratios}, {before // 1024} MB")


async def schedule(server: Server, count: int) -> None:
    """Send messages that are due tomorrow."""
    tomorrow = Timestamp(time.time_ns() // 1_000_000 + 86_400_000)
    payload = Message(PAYLOAD).rewritten(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): tomorrow})
    await produce(server.port, server.login, server.path, repeat(payload, count))


async def take(server: Server, count: int, outcome: DeliveryState | None) -> None:
    """Receive messages under lock, and settle them so, or leave them locked."""
    client = await Client.connect(server.port, server.login)
    link = client.amqp.begin().attach_receiver("taker", Source(server.path))
    taken = 0
    done = asyncio.get_running_loop().create_future()

    def on_event(event: Event) -> None:
        nonlocal taken
        if isinstance(event, LinkAttached):
            link.grant(count)
        elif isinstance(event, DeliveriesReceived):
            taken += len(event.deliveries)
            if outcome is not None:
                for delivery in event.deliveries:
                    link.settle(delivery, outcome)
            if taken == count:
                done.set_result(None)

    client.on_event = on_event
    client.flush()
    await done
    client.flush()
    client.close()


async def send_and_take(server: Server, count: int, outcome: DeliveryState | None) -> None:
    """Send messages and take them."""
    await send(server, count)
    await take(server, count, outcome)


def beside(data: Path, count: int) -> None:
    """Print what a delivery costs beside messages that cannot be received, as a ratio to an empty queue."""
    kinds: dict[str, Callable[[Server], Awaitable[None]]] = {
        "scheduled": lambda server: schedule(server, count),
        "deferred": lambda server: send_and_take(server, count, Modified(undeliverable_here=True)),
        "locked": lambda server: send_and_take(server, count, None),
    }
    for kind, prepare in kinds.items():
        with pairbus(data / kind) as server, pairbus(data / f"{kind}-empty") as empty:

            async def fill(server: Server = server, prepare: Callable[[Server], Awaitable[None]] = prepare) -> None:
                await prepare(server)

            asyncio.run(fill())
            ratios: list[tuple[float, float]] = []
            for _ in range(3):
                rates = [
                    (asyncio.run(send(each, SAMPLE)), asyncio.run(receive(each, SAMPLE))) for each in (server, empty)
                ]
                ratios.append((rates[0][0] / rates[1][0], rates[0][1] / rates[1][1]))
            sends, deliveries = (statistics.median(each) for each in zip(*ratios, strict=True))
            print(f"  beside {count:,} {kind}: send {sends:.2f}, delivery {deliveries:.2f} of an empty queue's rate")


async def sdk_rate(server: Server, work: Callable[[ServiceBusClient], Awaitable[int]]) -> float:
    """Return how many messages a second the official SDK sends."""
    text = (
        f"Endpoint=sb://127.0.0.1:{server.port};SharedAccessKeyName={server.login.name};"
        f"SharedAccessKey={server.login.key};UseDevelopmentEmulator=true"
    )
    async with ServiceBusClient.from_connection_string(text) as client:
        began = time.perf_counter()
        count = await work(client)
        return count / (time.perf_counter() - began)


async def lists_of_100(client: ServiceBusClient) -> int:
    async with client.get_queue_sender("orders") as sender:
        for _ in range(60):
            await sender.send_messages([ServiceBusMessage(b"x" * 1024) for _ in range(100)])
    return 6000


async def eight_senders(client: ServiceBusClient) -> int:
    async def one() -> None:
        async with client.get_queue_sender("orders") as sender:
            for _ in range(250):
                await sender.send_messages(ServiceBusMessage(b"x" * 1024))

    await asyncio.gather(*(one() for _ in range(8)))
    return 2000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--depth", type=int, default=200_000, help="the deepest queue; 1000000 takes a minute more")
    given = arguments.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        print(f"embedded broker: {start_to_first_message(data / 'start'):.2f} s from start to the first message")
        with pairbus(data / "idle") as server:
            print(f"  idle: {resident_kilobytes(server.pid) // 1024} MB")
            many = asyncio.run(with_idle_connections(server)) // 1024
            print(f"  {CONNECTIONS} idle connections: {many} MB")
        with pairbus(data / "deep") as server:
            deep(server, [depth for depth in (1000, 10_000, 100_000, 1_000_000) if depth < given.depth] + [given.depth])
        began = time.perf_counter()
        with pairbus(data / "deep", data / "start" / "bytecode"):
            print(f"  {given.depth:,} stored: {time.perf_counter() - began:.2f} s to open, with the process")
        beside(data, min(given.depth, 100_000))
        with pairbus(data / "sdk") as durable, pairbus(None) as in_memory:
            for name, work in (("lists of 100", lists_of_100), ("8 senders", eight_senders)):
                rates = [max(asyncio.run(sdk_rate(each, work)) for _ in range(2)) for each in (in_memory, durable)]
                print(f"  the SDK, {name}: durable / in memory {rates[1] / rates[0]:.2f}")


if __name__ == "__main__":
    main()
