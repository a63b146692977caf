"""The syphon on Spark beside the same mover in plain processes: parked messages a second.

Messages of 1 KB, over ten backlog queues, from one broker to a queue of another; the brokers run in processes of their
own and keep everything in memory. Spark is warm: a first, small backlog is drained before the one that is measured. The
plain processes, two of them with five queues each, have been started and have imported everything, too. Each opens
its links within the time that is measured. Then Spark clusters of one and of two executors, the best loop that the
SDK's own methods allow, and the whole command with nothing to do, the start of Java included.

With the native transport a message costs the mover about as much as the two brokers, which share two cores with it: so
how it scales is also measured with the SDK's transport, where the mover does nearly all the work.

Run by ``make bench``; ``--full`` takes 40,000 messages, and 10,000 with the SDK's transport.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context

from azure.servicebus.aio import ServiceBusClient
from bench.syphon import best_loop
from bench.syphon import fill as park

from pairbus.core.naming import backlog_paths
from pairbus.core.options import TransportName
from pairbus.core.slots import Share
from pairbus.spark.platform.session import spark_session
from pairbus.spark.syphon.account_server import AccountServer
from pairbus.spark.syphon.job import SparkEngine
from pairbus.syphon.accounts import Accounts
from pairbus.syphon.rounds import Drain, LocalAccount
from pairbus.syphon.survey import Depths
from pairbus.syphon.worker import Orders, work
from pairbus.testing import EmbeddedBroker

QUEUES = 10
WARM_UP = 500
WANTED, WANTED_SCALE, WANTED_TIMES, WANTED_START = 0.8, 1.7, 20.0, 12.0


@dataclass
class Pair:
    """Two namespaces in processes of their own, and the backlog queues of the one in the other."""

    primary: EmbeddedBroker
    secondary: EmbeddedBroker
    host: str
    queues: Sequence[str]
    accounts: Accounts = field(default_factory=Accounts)

    def depths(self) -> Depths:
        return Depths(self.secondary.connection_string, self.host, len(self.queues))


@contextmanager
def pair() -> Generator[Pair]:
    with EmbeddedBroker(namespaces=["contoso"], queues=["orders"], process=True) as primary:
        host = ServiceBusClient.from_connection_string(primary.connection_string).fully_qualified_namespace
        paths = backlog_paths(host, QUEUES)
        with EmbeddedBroker(namespaces=["fabrikam"], queues=paths, process=True) as secondary:
            yield Pair(primary, secondary, host, paths)


def fill(stage: Pair, messages: int) -> None:
    """Park messages in all queues alike."""

    async def send() -> None:
        async with ServiceBusClient.from_connection_string(stage.secondary.connection_string) as client:
            await park(client, messages, stage.queues)

    asyncio.run(send())


def told(name: str, messages: int, seconds: float) -> float:
    """Say how fast it was."""
    print(f"{name:<36} {messages:>7,} messages {seconds:>7.1f} s {messages / seconds:>8,.0f}/s")
    return messages / seconds


def by_hand(primary: str, secondary: str, shares: Sequence[Share], transport: TransportName) -> int:
    """Carry some shares in this process."""

    async def carry() -> int:
        accounts = Accounts()
        end = asyncio.Event()
        account, orders = LocalAccount(accounts, end), Orders(once=True, wait=5.0)
        await work("process", shares, orders, account, end, primary=primary, secondary=secondary, transport=transport)
        return accounts.total().counts.delivered

    return asyncio.run(carry())


def plain_processes(messages: int, transport: TransportName) -> float:
    """Measure two processes with five queues each."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool, pair() as stage:
        for size in (WARM_UP, messages):
            fill(stage, size)
            shares = [Share(queue, 0, size // QUEUES) for queue in stage.queues]
            began = time.perf_counter()
            halves = [
                pool.submit(
                    by_hand,
                    stage.primary.connection_string,
                    stage.secondary.connection_string,
                    shares[number::2],
                    transport,
                )
                for number in range(2)
            ]
            moved = sum(half.result() for half in halves)
            seconds = time.perf_counter() - began
            assert moved == size, moved
    return told(f"{transport}: two plain processes", messages, seconds)


def on_spark(master: str, messages: int, transport: TransportName) -> float:
    """Measure a warm Spark."""
    spark = spark_session("bench", master=master)

    async def drain(stage: Pair) -> float:
        stage.accounts = Accounts()
        async with AccountServer(stage.accounts, bind="127.0.0.1", host="127.0.0.1") as account_server:
            primary, secondary = stage.primary.connection_string, stage.secondary.connection_string
            engine = SparkEngine(spark, account_server, primary, secondary, transport=transport)
            began = time.perf_counter()
            await Drain(stage.depths(), engine, stage.accounts, stop=asyncio.Event()).once()
            return time.perf_counter() - began

    seconds = 0.0
    with pair() as stage:
        for size in (WARM_UP, messages):
            fill(stage, size)
            seconds = asyncio.run(drain(stage))
            assert stage.accounts.total().counts.delivered == size
    spark.stop()
    return told(f"{transport}: Spark, {master}", messages, seconds)


def nothing_to_do() -> float:
    """Measure the whole command with an empty backlog, the second time: Java has remembered its classes by then."""
    with pair() as stage:
        environment = {
            **os.environ,
            "PAIRBUS_PRIMARY_CONNECTION_STRING": stage.primary.connection_string,
            "PAIRBUS_SECONDARY_CONNECTION_STRING": stage.secondary.connection_string,
        }
        seconds = 0.0
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "pairbus", "syphon", "--once", "--json"],
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds = time.perf_counter() - began
    return seconds


def by_best_loop(messages: int) -> float:
    """Measure the best that can be made of the SDK's own methods, in one process."""
    with pair() as stage:
        fill(stage, messages)

        async def move() -> float:
            async with (
                ServiceBusClient.from_connection_string(stage.primary.connection_string) as primary,
                ServiceBusClient.from_connection_string(stage.secondary.connection_string) as secondary,
            ):
                began = time.perf_counter()
                await best_loop(primary, secondary, messages, stage.queues)
                return time.perf_counter() - began

        return told("the SDK's best loop", messages, asyncio.run(move()))


def main(native: int, sdk: int) -> None:
    """Measure them all, and say how they compare."""
    ratios: dict[str, tuple[float, float]] = {}
    best = by_best_loop(sdk)
    counts: dict[TransportName, int] = {"native": native, "sdk": sdk}
    for transport, messages in counts.items():
        plain = plain_processes(messages, transport)
        local = on_spark("local[2]", messages, transport)
        one = on_spark("local-cluster[1,1,1024]", messages, transport)
        two = on_spark("local-cluster[2,1,1024]", messages, transport)
        ratios[f"{transport}: Spark / plain processes"] = local / plain, WANTED
        ratios[f"{transport}: two executors / one"] = two / one, WANTED_SCALE
        if transport == "native":
            ratios["native: two executors / the SDK's best loop"] = two / best, WANTED_TIMES
    start = nothing_to_do()
    for name, (ratio, wanted) in ratios.items():
        print(f"{name}: {ratio:.2f} (wanted: {wanted:g} or more)")
    print(f"pairbus syphon --once, nothing parked: {start:.1f} s (wanted: less than {WANTED_START:g})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="40,000 messages, and 10,000 with the SDK's transport")
    main(*((40_000, 10_000) if parser.parse_args().full else (10_000, 4_000)))
