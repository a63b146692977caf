"""Damaged conversations of the official SDK, by the million frames: no crash, no hang, no growth."""

import asyncio
import gc
import logging
import os
import random
import resource
from collections.abc import Callable

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError
from tests.chaos.conversations import conversations, serving, talk

from pairbus.broker.listen.connection import ServerConnection
from pairbus.broker.listen.server import NamespaceServer

FRAMES = int(os.environ.get("PAIRBUS_FRAMES", "1000000"))
SEED = int(os.environ.get("PAIRBUS_SEED", "1"))
PER_BROKER = 25_000
WAIT = 0.3
"""Seconds after which nothing more is there to be received."""
SESSIONS = 4
"""How many of the sessions are read: damaged names make ever new ones."""
LOOKED_AT = [
    name
    for name in dir(ServiceBusReceivedMessage)
    if isinstance(getattr(ServiceBusReceivedMessage, name), property)
    and not name.startswith("_")
    and name != "message"  # which is deprecated
]
GROWTH = 64 * 1024
"""Kilobytes that the process may grow by, once it has warmed up."""


class Nowhere(asyncio.Transport):
    """A transport that takes everything and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def read_all(client: ServiceBusClient) -> None:
    """Receive what was accepted of the damaged conversations, however strange: it must not harm the SDK."""
    async with client.get_queue_receiver("orders") as receiver:
        number = 0
        while peeked := await receiver.peek_messages(100, sequence_number=number):
            number = 1 + max(read(message) for message in peeked)
        await complete_all(receiver)
    async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        await complete_all(receiver)
    for _ in range(SESSIONS):
        try:
            async with client.get_queue_receiver(
                "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT
            ) as receiver:
                await receiver.session.get_state()
                await complete_all(receiver)
        except OperationTimeoutError:
            return


async def complete_all(receiver: ServiceBusReceiver) -> None:
    while messages := await receiver.receive_messages(50, max_wait_time=WAIT):
        for message in messages:
            read(message)
            await receiver.complete_message(message)


def read(message: ServiceBusReceivedMessage) -> int:
    """Look at everything that a message says of itself."""
    for name in LOOKED_AT:
        getattr(message, name)
    number = message.sequence_number
    assert number is not None
    return number


def damage(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    """Change, cut, repeat, swap and drop some of what was said."""
    damaged = list(pieces)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(damaged))
        piece = bytearray(damaged[at])
        match chance.randrange(6):
            case 0 if piece:
                piece[chance.randrange(len(piece))] = chance.randrange(256)
            case 1 if piece:
                start = chance.randrange(len(piece))
                del piece[start : start + chance.choice((1, 4, 40))]
            case 2:
                start = chance.randrange(len(piece) + 1)
                piece[start:start] = chance.randbytes(chance.choice((1, 4, 40)))
            case 3:
                damaged.insert(at, damaged[chance.randrange(len(damaged))])
                continue
            case 4:
                other = chance.randrange(len(damaged))
                damaged[at], damaged[other] = damaged[other], damaged[at]
                continue
            case _ if len(damaged) > 1:
                del damaged[at]
                continue
            case _:
                pass
        damaged[at] = bytes(piece)
    return damaged


def memory() -> int:
    """Kilobytes at the peak."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def fuzz(wanted: int, report: Callable[[str], None]) -> None:
    chance = random.Random(SEED)
    recorded = conversations()
    fed = warm = 0
    while fed < wanted:
        async with serving("orders", "sessions", "calm", "sessions-calm") as (broker, server):
            target = fed + PER_BROKER  # a new one now and then: what was sent to it stays there
            while fed < target:
                fed += await replay(server, damage(chance.choice(recorded), chance))
            assert not server.connections
            await asyncio.wait_for(use(broker.endpoints["localhost"].connection_string), 120)
        gc.collect()
        warm = warm or memory()
    report(f"{fed} frames from seed {SEED}, {memory() - warm} KB of growth")
    assert memory() - warm < GROWTH


async def use(connection_string: str) -> None:
    """See that the broker still serves: queues that nobody has damaged, and those that were sent what was damaged."""
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        await talk(client, "calm", "sessions-calm")
        await read_all(client)


async def replay(server: NamespaceServer, pieces: list[bytes]) -> int:
    connection, transport = ServerConnection(server), Nowhere()
    connection.connection_made(transport)
    fed = 0
    for piece in pieces:
        if transport.closing:
            break
        connection.data_received(piece)
        fed += 1
        if fed % 8 == 0:
            await asyncio.sleep(0)  # lets the store and the deliveries have their turn
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return fed


def test_damaged_conversations_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="pairbus"):
        asyncio.run(fuzz(FRAMES, print))
    assert [record.getMessage() for record in caplog.records if record.name.startswith(("pairbus", "asyncio"))] == []
