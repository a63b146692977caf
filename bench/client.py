"""The paired client beside the bare SDK: ratios of one run, on one broker.

- one send after another, synchronous and asynchronous: at least 0.97 of the bare SDK's rate,
- 100 tasks on one sender: at least 2.5 times what the bare SDK reaches with 8 senders,
- from the end of ``failover_interval`` to the first parked message accepted: under 50 ms,
- from an accepted ping to the first message on the primary: under 50 ms.

Both clients are healthy and open; rounds are interleaved and the median of their ratios is taken. The brokers run in
processes of their own. Run by ``make bench``; ``python -m bench.client --rounds 1`` for a quick look.
"""

# ruff: noqa: ANN401 (options are handed on)

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus import aio as sdk

import pairbus
from pairbus import aio
from pairbus.core.health import State
from pairbus.core.options import TransportName
from pairbus.testing import EmbeddedBroker

BODY = "x" * 1024
PRIMARY_CORE_SENDERS = 8
TASKS = 100
BARS = {"aio, one by one": 0.97, "sync, one by one": 0.97, "100 tasks on one sender": 2.5}
LIMIT_MS = 50.0


def message() -> ServiceBusMessage:
    """Make a message of 1 KB."""
    return ServiceBusMessage(BODY)


async def one_by_one(send: Callable[[ServiceBusMessage], Awaitable[None]], count: int) -> float:
    """Send one after another; messages a second."""
    began = time.perf_counter()
    for _ in range(count):
        await send(message())
    return count / (time.perf_counter() - began)


async def together(sends: list[Callable[[ServiceBusMessage], Awaitable[None]]], each: int) -> float:
    """Send with as many tasks at once; messages a second."""
    began = time.perf_counter()
    await asyncio.gather(*(one_by_one(send, each) for send in sends))
    return len(sends) * each / (time.perf_counter() - began)


@asynccontextmanager
async def paired(
    primary: str, secondary: str, transport: TransportName = "sdk", **options: Any
) -> AsyncGenerator[aio.MessagingFactory]:
    """A paired factory."""
    async with (
        aio.MessagingFactory.from_connection_string(primary, transport=transport, retry_total=0) as factory,
        aio.MessagingFactory.from_connection_string(secondary) as other,
        aio.NamespaceManager.from_connection_string(secondary) as manager,
    ):
        await factory.pair_namespace(aio.SendAvailabilityPairedNamespaceOptions(manager, other, **options))
        yield factory


@contextmanager
def paired_sync(primary: str, secondary: str) -> Generator[pairbus.MessagingFactory]:
    """A paired factory, synchronous."""
    with (
        pairbus.MessagingFactory.from_connection_string(primary) as factory,
        pairbus.MessagingFactory.from_connection_string(secondary) as other,
        pairbus.NamespaceManager.from_connection_string(secondary) as manager,
    ):
        factory.pair_namespace(pairbus.SendAvailabilityPairedNamespaceOptions(manager, other))
        yield factory


async def healthy(primary: str, secondary: str, rounds: int, count: int) -> dict[str, list[float]]:
    """Compare the asynchronous clients."""
    ratios: dict[str, list[float]] = {"aio, one by one": [], "100 tasks on one sender": []}
    async with sdk.ServiceBusClient.from_connection_string(primary) as client, paired(primary, secondary) as factory:
        bare = [client.get_queue_sender("orders") for _ in range(PRIMARY_CORE_SENDERS)]
        for each in bare:
            await each.__aenter__()
        async with factory.get_queue_sender("orders") as ours:
            for number in range(rounds + 1):
                slices = [await _slice(bare[0], ours, count // 5) for _ in range(5)]
                eight = await together([each.send_messages for each in bare], max(1, count // PRIMARY_CORE_SENDERS))
                hundred = await together([ours.send_messages] * TASKS, max(1, 3 * count // TASKS))
                if number:  # the first one warms up
                    ratios["aio, one by one"].append(statistics.median(slices))
                    ratios["100 tasks on one sender"].append(hundred / eight)
        await asyncio.gather(*(each.close() for each in bare))
    return ratios


async def _slice(bare: sdk.ServiceBusSender, ours: aio.MessageSender, count: int) -> float:
    """Ours beside the bare SDK within a moment, so that what else the machine does hits both."""
    before = await one_by_one(bare.send_messages, count)
    own = await one_by_one(ours.send_messages, 2 * count)
    after = await one_by_one(bare.send_messages, count)
    return 2 * own / (before + after)


def healthy_sync(primary: str, secondary: str, rounds: int, count: int) -> dict[str, list[float]]:
    """Compare the synchronous clients."""

    def rate(send: Callable[[ServiceBusMessage], None], count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            send(message())
        return count / (time.perf_counter() - began)

    ratios: list[float] = []
    with (
        ServiceBusClient.from_connection_string(primary) as client,
        client.get_queue_sender("orders") as bare,
        paired_sync(primary, secondary) as factory,
        factory.get_queue_sender("orders") as ours,
    ):
        for number in range(rounds + 1):
            slices: list[float] = []
            for _ in range(5):
                before = rate(bare.send_messages, count // 5)
                own = rate(ours.send_messages, 2 * count // 5)
                slices.append(2 * own / (before + rate(bare.send_messages, count // 5)))
            if number:
                ratios.append(statistics.median(slices))
    return {"sync, one by one": ratios}


async def failing_over(primary: EmbeddedBroker, secondary: str) -> tuple[float, float]:
    """Return the milliseconds from the end of the interval to the first message parked, and from ping to primary."""
    turned: dict[State, float] = {}
    healthy_again = asyncio.Event()

    def note(turn: aio.Turn) -> None:
        turned.setdefault(turn.state, time.perf_counter())
        if turn.state is State.HEALTHY:
            healthy_again.set()

    options: dict[str, Any] = {"failover_interval": 2, "ping_primary_interval": 1, "backlog_queue_count": 2}
    address = primary.connection_string
    async with paired(address, secondary, **options) as factory, factory.get_queue_sender("orders") as sender:
        factory.availability.subscribe(note)
        await sender.send_messages(message())
        primary.fault("localhost", "down")
        await sender.send_messages(message())
        parked = time.perf_counter() - turned[State.ENGAGED]
        primary.fault("localhost", "clear")
        await healthy_again.wait()
        await sender.send_messages(message())
        back = time.perf_counter() - turned[State.HEALTHY]
    return parked * 1000, back * 1000


def main() -> None:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=1000)
    arguments = parser.parse_args()
    failed = False
    with EmbeddedBroker(queues=["orders"], process=True) as one, EmbeddedBroker(process=True) as two:
        ends = (one.connection_string, two.connection_string)
        ratios = asyncio.run(healthy(*ends, arguments.rounds, arguments.messages))
        ratios |= healthy_sync(*ends, arguments.rounds, arguments.messages)
        for name, values in ratios.items():
            ratio = statistics.median(values)
            failed |= ratio < BARS[name]
            seen = ", ".join(f"{value:.2f}" for value in values)
            print(f"{name:26} {ratio:6.2f} x the bare SDK  (bar {BARS[name]}, rounds {seen})")
        times = [asyncio.run(failing_over(one, ends[1])) for _ in range(arguments.rounds)]
        named = zip(("interval over to parked", "ping accepted to primary"), zip(*times, strict=True), strict=True)
        for name, values in named:
            median = statistics.median(values)
            failed |= median >= LIMIT_MS
            print(f"{name:26} {median:6.1f} ms  (bar {LIMIT_MS:g} ms, rounds {', '.join(f'{v:.1f}' for v in values)})")
    sys.exit(failed)


if __name__ == "__main__":
    main()
