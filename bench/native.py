"""The native client beside the SDK: a backlog drained, and messages sent, in ratios of one run.

- a drain of parked messages of 1 KB, in process: at least 50 times the loop that a user would write on the SDK, and at
  least 15 times the best loop that its own methods allow, and the mover on the SDK, in CPU per message;
- paired sends one by one: at least 4 times the bare SDK. Beside it stands a round trip of nothing between two
  processes on asyncio, which no client on asyncio can beat;
- paired sends by 100 tasks: at least 10 times the bare SDK.

The brokers run in processes of their own and keep everything in memory. A rate on a machine whose cores are shared
by client and brokers says less than what a message costs the client, so the CPU time is what is compared for the
drain; rates stand beside it. Run by ``make bench``; ``python bench/native.py --quick`` for a look.
"""

import argparse
import asyncio
import gc
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from client import BODY, PRIMARY_CORE_SENDERS, TASKS, paired
from pairbus.aio.mover import Pace
from pairbus.aio.pumps import Syphon
from pairbus.aio.transports import transport_to
from pairbus.core.options import TransportName
from pairbus.testing import EmbeddedBroker
from syphon import QUEUES, best_loop, fill, users_loop

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BARS = {"user's loop": 50.0, "best loop": 15.0, "SDK mover": 15.0, "one by one": 4.0, "100 tasks": 10.0}


@dataclass(frozen=True)
class Figures:
    """What something took: messages a second, and microseconds of CPU of this process per message."""

    rate: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.rate:>8,.0f}/s {self.cpu:>7,.1f} µs of CPU each"


async def measured(work: Callable[[], Awaitable[None]], messages: int) -> Figures:
    """Measure something."""
    began, worked = time.perf_counter(), time.process_time()
    await work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    return Figures(messages / seconds, cpu / messages * 1e6)


def moving(name: TransportName) -> Callable[[ServiceBusClient, ServiceBusClient, int], Awaitable[None]]:
    """Move messages by the syphon."""

    async def move(primary: ServiceBusClient, secondary: ServiceBusClient, messages: int) -> None:
        made = Syphon(transport_to(primary, name), transport_to(secondary, name), QUEUES, pace=Pace())
        made.start()
        while made.report().total().delivered < messages:  # noqa: ASYNC110 (looking now and then costs the least)
            await asyncio.sleep(0.1)
        await made.stop()

    return move


async def drain(
    move: Callable[[ServiceBusClient, ServiceBusClient, int], Awaitable[None]], messages: int, name: str
) -> Figures:
    """Fill the backlog, and drain it."""
    with (
        EmbeddedBroker(namespaces=["contoso"], queues=["orders"], process=True) as one,
        EmbeddedBroker(namespaces=["fabrikam"], queues=QUEUES, process=True) as other,
    ):
        async with (
            ServiceBusClient.from_connection_string(one.connection_string, retry_total=0) as primary,
            ServiceBusClient.from_connection_string(other.connection_string, retry_total=0) as secondary,
        ):
            await fill(secondary, messages)
            figures = await measured(lambda: move(primary, secondary, messages), messages)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {name:<28} {messages:>7,} messages {figures}  {peak:>4,.0f} MB at most", flush=True)
    return figures


async def drains(rounds: int, user: int, sdk: int, native: int) -> dict[str, float]:
    """Compare other ways to drain a backlog with the native one, which is measured right before and after each."""
    print("drain of 1 KB messages, ten backlog queues:")
    ways = {
        "user's loop": (users_loop, user, "the user's loop on the SDK"),
        "best loop": (best_loop, user, "the SDK's best loop"),
        "SDK mover": (moving("sdk"), sdk, "syphon, transport='sdk'"),
    }
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    before = await drain(moving("native"), native, "syphon, transport='native'")
    for _ in range(rounds):
        for name, (move, messages, told) in ways.items():
            other = await drain(move, messages, told)
            after = await drain(moving("native"), native, "syphon, transport='native'")
            ratios[name].append(other.cpu / statistics.mean((before.cpu, after.cpu)))
            rates[name].append(statistics.mean((before.rate, after.rate)) / other.rate)
            before = after
    print("  rates: " + ", ".join(f"{statistics.median(its):.1f} x {name}" for name, its in rates.items()))
    print("  CPU:   " + ", ".join(f"{min(its):.1f} to {max(its):.1f} x {name}" for name, its in ratios.items()))
    return {name: statistics.median(values) for name, values in ratios.items()}


class Echo(asyncio.Protocol):
    """Answers whatever comes with a few bytes, as few as a broker's answer to a send."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        cast("asyncio.Transport", self.transport).write(data[:30])


class Asker(asyncio.Protocol):
    """Waits for an answer."""

    answered: asyncio.Future[None]

    def data_received(self, data: bytes) -> None:
        del data
        self.answered.set_result(None)


def serve_echo(ports: "Connection") -> None:
    """Serve echoes until it is ended."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        ports.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


async def round_trips(count: int) -> Figures:
    """Measure round trips of 1 KB there and nothing back."""
    theirs, ours = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve_echo, args=(theirs,), daemon=True)
    process.start()
    loop = asyncio.get_running_loop()
    transport, asker = await loop.create_connection(Asker, "127.0.0.1", await asyncio.to_thread(ours.recv))

    async def ask() -> None:
        for _ in range(count):
            asker.answered = loop.create_future()
            transport.write(BODY.encode())
            await asker.answered

    figures = await measured(ask, count)
    transport.close()
    process.terminate()
    return figures


async def sending(sends: list[Callable[[ServiceBusMessage], Awaitable[None]]], each: int) -> Figures:
    """Send with as many tasks at once messages that are made before, which is the application's part."""
    messages = [[ServiceBusMessage(BODY) for _ in range(each)] for _ in sends]

    async def one(send: Callable[[ServiceBusMessage], Awaitable[None]], own: list[ServiceBusMessage]) -> None:
        for message in own:
            await send(message)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, sends, messages))

    gc.collect()
    gc.freeze()  # so many at once are the bench's doing: the collector would look at them again and again
    try:
        return await measured(all_of_them, each * len(sends))
    finally:
        gc.unfreeze()


async def sends(rounds: int, count: int) -> dict[str, float]:
    """Compare paired sends by the native client with the bare SDK, in turns."""
    ratios: dict[str, list[float]] = {"one by one": [], "100 tasks": []}
    nothing: list[float] = []
    seen: dict[str, Figures] = {}
    with EmbeddedBroker(queues=["orders"], process=True) as one, EmbeddedBroker(process=True) as two:
        client = ServiceBusClient.from_connection_string(one.connection_string)
        bare = [client.get_queue_sender("orders") for _ in range(PRIMARY_CORE_SENDERS)]
        for each in bare:
            await each.__aenter__()
        async with paired(one.connection_string, two.connection_string, transport="native") as factory:
            ours = factory.get_queue_sender("orders")
            for number in range(rounds + 1):
                seen["bare SDK, one by one"] = theirs = await sending([bare[0].send_messages], count)
                seen["native, one by one"] = mine = await sending([ours.send_messages], 4 * count)
                seen["bare SDK, 8 senders"] = eight = await sending(
                    [each.send_messages for each in bare], max(1, count // len(bare))
                )
                seen["native, 100 tasks"] = hundred = await sending(
                    [ours.send_messages] * TASKS, max(1, 10 * count // TASKS)
                )
                seen["a round trip of nothing"] = trip = await round_trips(count)
                if number:  # the first one warms up
                    ratios["one by one"].append(mine.rate / theirs.rate)
                    ratios["100 tasks"].append(hundred.rate / eight.rate)
                    nothing.append(trip.rate / theirs.rate)
        await asyncio.gather(*(each.close() for each in bare))
        await client.close()
    print("sends of 1 KB messages to one queue (the last round):")
    for name, figures in seen.items():
        print(f"  {name:<28} {figures}")
    print(f"  one by one, a round trip of nothing would be {statistics.median(nothing):.1f} x the bare SDK")
    return {name: statistics.median(values) for name, values in ratios.items()}


async def main(*, quick: bool) -> bool:
    """Measure and judge."""
    ratios = await drains(*((1, 1_000, 5_000, 20_000) if quick else (3, 8_000, 20_000, 40_000)))
    ratios |= await sends(1 if quick else 5, 500 if quick else 1_000)
    for name, ratio in ratios.items():
        print(f"native / {name:<14} {ratio:6.1f}  (bar {BARS[name]:g})")
    return all(ratio >= BARS[name] for name, ratio in ratios.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    sys.exit(not asyncio.run(main(quick=parser.parse_args().quick)))
