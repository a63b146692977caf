"""The native client beside the SDK: a backlog drained, and messages sent, in ratios of one run.

- a drain of parked messages of 1 KB, in process: at least 50 times the loop that a user would write on the SDK, and at
  least 15 times the best loop that its own methods allow, and the mover on the SDK, in CPU per message;
- paired sends one by one: at least 4 times the bare SDK, by their rate. Client and broker take turns then, so it is
  measured on one core, where waking the other one costs the least, and on all. Beside it stands a round trip of
  nothing between two processes on asyncio, which no client on asyncio can beat;
- paired sends by 100 tasks: at least 10 times the bare SDK.

The brokers run in processes of their own and keep everything in memory. A rate on a machine whose cores are shared
by client and brokers says less than what a message costs the client, so the CPU time is what is compared for the
drain; rates stand beside it. Run by ``make bench``; ``python -m bench.native --quick`` for a look.
"""

import argparse
import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import mean, median
from typing import TYPE_CHECKING, cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from bench.client import BODY, PRIMARY_CORE_SENDERS, TASKS, paired
from bench.syphon import QUEUES, best_loop, fill, users_loop

from pairbus.core.moving import Pace
from pairbus.core.options import TransportName
from pairbus.syphon.in_process import Syphon
from pairbus.syphon.transports import transport_to
from pairbus.testing import EmbeddedBroker

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
            ratios[name].append(other.cpu / mean((before.cpu, after.cpu)))
            rates[name].append(mean((before.rate, after.rate)) / other.rate)
            before = after
    print("  rates: " + ", ".join(f"{median(its):.1f} x {name}" for name, its in rates.items()))
    print("  CPU:   " + ", ".join(f"{min(its):.1f} to {max(its):.1f} x {name}" for name, its in ratios.items()))
    return {name: median(values) for name, values in ratios.items()}


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


@contextmanager
def on_cores(cores: set[int]) -> Generator[None]:
    """Have this process, and those that it starts meanwhile, run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def one_by_one(rounds: int, count: int) -> float:
    """Compare sends that wait for each other, in turns."""
    seen: dict[str, list[Figures]] = {"the bare SDK": [], "native": [], "a round trip of nothing": []}
    with EmbeddedBroker(queues=["orders"], process=True) as one, EmbeddedBroker(process=True) as two:
        async with (
            ServiceBusClient.from_connection_string(one.connection_string) as client,
            client.get_queue_sender("orders") as bare,
            paired(one.connection_string, two.connection_string, transport="native") as factory,
            factory.get_queue_sender("orders") as ours,
        ):
            for number in range(rounds + 1):
                figures = (
                    await sending([bare.send_messages], count),
                    await sending([ours.send_messages], 4 * count),
                    await round_trips(count),
                )
                if number:  # the first one warms up
                    for name, figure in zip(seen, figures, strict=True):
                        seen[name].append(figure)
    theirs, *others = seen.values()
    for name, each in seen.items():
        print(f"  {name:<28} {Figures(median(f.rate for f in each), median(f.cpu for f in each))}")
    native, nothing = [
        [(mine.rate / their.rate, their.cpu / mine.cpu) for mine, their in zip(each, theirs, strict=True)]
        for each in others
    ]
    rate, cpu = median(rate for rate, _ in native), median(cpu for _, cpu in native)
    floor = median(rate for rate, _ in nothing)
    print(f"  native: {rate:.1f} x the rate, 1/{cpu:.1f} of the CPU; a round trip of nothing: {floor:.1f} x the rate")
    return rate


async def together(rounds: int, count: int) -> float:
    """Compare sends by a hundred tasks with as many senders of the bare SDK as do best, in turns."""
    pairs: list[tuple[Figures, Figures]] = []
    with EmbeddedBroker(queues=["orders"], process=True) as one, EmbeddedBroker(process=True) as two:
        client = ServiceBusClient.from_connection_string(one.connection_string)
        bare = [client.get_queue_sender("orders") for _ in range(PRIMARY_CORE_SENDERS)]
        for each in bare:
            await each.__aenter__()
        async with paired(one.connection_string, two.connection_string, transport="native") as factory:
            ours = factory.get_queue_sender("orders")
            for _ in range(rounds + 1):
                eight = await sending([each.send_messages for each in bare], max(1, count // len(bare)))
                hundred = await sending([ours.send_messages] * TASKS, max(1, 10 * count // TASKS))
                pairs.append((eight, hundred))
        await asyncio.gather(*(each.close() for each in bare))
        await client.close()
    for name, figures in zip(("the bare SDK, 8 senders", "native, 100 tasks"), pairs[-1], strict=True):
        print(f"  {name:<28} {figures}")
    return median(hundred.rate / eight.rate for eight, hundred in pairs[1:])  # the first one warms up


async def sends(rounds: int, count: int) -> dict[str, float]:
    """Compare paired sends by the native client with the bare SDK."""
    print("sends of 1 KB messages to one queue, by many at once (the last round):")
    ratios = {"100 tasks": await together(rounds, count)}
    print("one by one, client and broker on whichever core the system gives them (medians):")
    ratios["one by one"] = await one_by_one(rounds, count)
    if hasattr(os, "sched_setaffinity"):
        print("one by one, client and broker on one core (medians):")
        with on_cores({min(os.sched_getaffinity(0))}):
            ratios["one by one"] = await one_by_one(rounds, count)
    return ratios


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
