"""The long run: every kind of client, callers with and without patience, and a nemesis at both brokers.

``PAIRBUS_CHAOS_MINUTES`` says how long (20), ``PAIRBUS_SEED`` which faults.

Promised: nothing that was acknowledged is lost; nothing arrives twice without an answer that may have been lost; and no
call raises anything but its caller's own time-out while the primary or the secondary takes messages.
"""

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from tests.chaos.nemesis.clients import Client, paired
from tests.chaos.nemesis.menu import Nemesis
from tests.chaos.nemesis.run import Run, every, play
from tests.client.twins import KINDS

from pairbus.aio import MessageSender
from pairbus.testing import QueueSettings

MINUTES = float(os.environ.get("PAIRBUS_CHAOS_MINUTES", "20"))
SETTLING = 60.0
"""Seconds in which everything under way must end when both brokers are in order again."""

NARROW = "narrow"
QUEUES = {"orders": QueueSettings(), "bills": QueueSettings(), NARROW: QueueSettings(max_size_in_megabytes=1)}
MANY = 250
"""Messages of a list that still fits in one batch of 256 KB, and has to be split when it is parked."""
TIMEOUTS = (0.005, 0.05, 0.3, 1, 5, 20, None, None, None)
OPTIONS = {
    "aio": {"failover_interval": 2, "enable_syphon": True, "syphon_transport": "sdk"},
    "sync": {"failover_interval": 0},
    "aio-native": {"failover_interval": 0, "enable_syphon": True, "syphon_transport": "native"},
    "sync-native": {"failover_interval": 2},
}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_hostile_run(tmp_path: Path) -> None:
    seed = int(os.environ.get("PAIRBUS_SEED", random.randrange(2**32)))
    print(f"seed {seed}, {MINUTES:g} minutes")
    run = Run(tmp_path, QUEUES, backlog_queue_count=4)

    async def scenario() -> None:
        async with run.brokers():
            nemesis = await _hostilities(run, Random(seed))
            there = await run.read()
            run.checker([*there, *nemesis.consumed.values()]).check()

    play(scenario, seconds=MINUTES * 60 + 600)


async def _hostilities(run: Run, chance: Random) -> Nemesis:
    loop = asyncio.get_running_loop()
    ends = loop.time() + MINUTES * 60
    ended: Callable[[], bool] = lambda: loop.time() >= ends  # noqa: E731
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                paired(
                    kind,
                    run.journal,
                    run.primary,
                    run.secondary,
                    factory={"retry_total": 0 if kind == "sync" else 3},
                    **run.pairing,
                    **OPTIONS[kind],
                )
            )
            for kind in KINDS
        ]
        nemesis = Nemesis(run, Random(chance.random()), NARROW, ended)
        calling = [asyncio.create_task(_call(client, Random(chance.random()), ended)) for client in clients]
        async with run.primary.trouble("nearly full", NARROW):  # at any time: this is not its log's to know
            await asyncio.gather(nemesis.disturb_primary(), nemesis.disturb_secondary(), nemesis.narrow())
        _, hanging = await asyncio.wait(calling, timeout=SETTLING)
        run.journal.ended = True
        for task in hanging:
            task.cancel()
        await asyncio.gather(*calling, return_exceptions=True)
        emptying = asyncio.create_task(nemesis.keep_narrow_empty())
        await run.drain()
        emptying.cancel()
        await asyncio.wait({emptying})
    return nemesis


async def _call(client: Client, chance: Random, ended: Callable[[], bool]) -> None:
    """Have one application make its calls: some by senders that live long, some by one sender per request."""
    async with AsyncExitStack() as stack:
        senders = {name: await stack.enter_async_context(client.factory.get_queue_sender(name)) for name in QUEUES}

        async def caller(chance: Random) -> None:
            while not ended():
                entity = chance.choices(list(QUEUES), (5, 3, 2))[0]
                await _one(client, chance, entity, senders[entity])
                await asyncio.sleep(chance.expovariate(4))

        await asyncio.gather(
            *(caller(Random(chance.random())) for _ in range(4)),
            every(0.8, ended, lambda: _one(client, chance, chance.choice(list(QUEUES)), None), most=30),
        )


async def _one(client: Client, chance: Random, entity: str, sender: MessageSender | None) -> None:
    timeout = chance.choice(TIMEOUTS)
    count = chance.choices((1, chance.randrange(2, 20), MANY), (80, 18, 2))[0]
    size = chance.randrange(50, 800 if count == MANY else 1000)
    if entity == NARROW:
        count, size = 1, chance.choice((200, 200, 60_000))
    await client.send(
        "own sender" if sender is None else "long-lived sender",
        entity,
        sender=sender,
        count=count,
        size=size,
        timeout=timeout,
        as_batch=count < MANY and chance.random() < 0.2,
    )
