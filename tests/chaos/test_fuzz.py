"""Damaged conversations of the official SDK, by the million frames: no crash, no hang, no growth."""

import asyncio
import gc
import logging
import os
import random
import resource
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.broker.auth.policies import ALL, ROOT, Policy
from pairbus.broker.config import BrokerConfig, NamespaceConfig
from pairbus.broker.connection import ServerConnection
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.running import Broker
from pairbus.broker.server import NamespaceServer

FRAMES = int(os.environ.get("PAIRBUS_FRAMES", "1000000"))
PER_BROKER = 10_000
KEY = "known to every broker here, so that what was said to one can be said to another"
GROWTH = 64 * 1024
"""Kilobytes that the process may grow by, once it has warmed up."""


class Recorder(ServerConnection):
    """A connection that notes what its client says."""

    said: list[list[bytes]]

    def data_received(self, data: bytes) -> None:
        if not hasattr(self, "_mine"):
            self._mine: list[bytes] = []
            self.said.append(self._mine)
        self._mine.append(data)
        super().data_received(data)


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


async def talk(connection_string: str) -> None:
    """Use everything that a client of queues can use."""
    later = datetime.now(UTC) + timedelta(hours=1)
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one", message_id="1", application_properties={"a": 1}))
            await sender.send_messages([ServiceBusMessage(f"m{n}", time_to_live=timedelta(hours=1)) for n in range(9)])
            await sender.send_messages(ServiceBusMessage("x" * 150_000))
            await sender.cancel_scheduled_messages(await sender.schedule_messages(ServiceBusMessage("s"), later))
        async with client.get_queue_receiver("orders") as receiver:
            await receiver.peek_messages(5)
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < 11:
                messages += await receiver.receive_messages(11, max_wait_time=5)
            await receiver.renew_message_lock(messages[0])
            await receiver.complete_message(messages[0])
            await receiver.abandon_message(messages[1])
            await receiver.defer_message(messages[2])
            await receiver.dead_letter_message(messages[3], reason="r", error_description="d")
            number = messages[2].sequence_number
            assert number is not None
            await receiver.receive_deferred_messages([number])
        async with client.get_queue_sender("sessions") as sender:
            await sender.send_messages([ServiceBusMessage("s", session_id="a"), ServiceBusMessage("t", session_id="b")])
        async with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            await receiver.session.set_state(b"state")
            await receiver.session.get_state()
            await receiver.session.renew_lock()
            for message in await receiver.receive_messages(1, max_wait_time=5):
                await receiver.complete_message(message)


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


def frames(pieces: list[bytes]) -> list[bytes]:
    """Cut a conversation into protocol headers and frames, so that damage reaches deep."""
    data = b"".join(pieces)
    cut: list[bytes] = []
    while data:
        size = 8 if data[:4] == b"AMQP" else int.from_bytes(data[:4])
        cut.append(data[:size])
        data = data[size:]
    return cut


def memory() -> int:
    """Kilobytes at the peak."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def fuzz(wanted: int, report: Callable[[str], None]) -> None:
    chance = random.Random(int(os.environ.get("PAIRBUS_SEED", "1")))
    async with serving() as (broker, server):
        conversations = [frames(said) for said in await record(server)]
        del broker
    fed = warm = 0
    while fed < wanted:
        async with serving() as (broker, server):  # a new one now and then: what was sent to it stays there
            target = fed + PER_BROKER
            while fed < target:
                fed += await replay(server, damage(chance.choice(conversations), chance))
            assert not server.connections
            await asyncio.wait_for(talk(broker.endpoints["localhost"].connection_string), 60)  # it still serves
        gc.collect()
        warm = warm or memory()
    report(f"{fed} frames, {memory() - warm} KB of growth")
    assert memory() - warm < GROWTH


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[Broker, NamespaceServer]]:
    queues = {"orders": QueueSettings(), "sessions": QueueSettings(requires_session=True)}
    broker = Broker(BrokerConfig([NamespaceConfig("localhost", 0, queues, policies=(Policy(ROOT, ALL, KEY),))]))
    await broker.start()
    (server,) = broker._servers.values()  # pyright: ignore[reportPrivateUsage]
    yield broker, server
    await broker.stop()


async def record(server: NamespaceServer) -> list[list[bytes]]:
    """Have the SDK talk to the broker, and note what it says."""
    Recorder.said = []
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Recorder(server), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    key = f"SharedAccessKeyName={ROOT};SharedAccessKey={KEY}"
    await talk(f"Endpoint=sb://127.0.0.1:{port};{key};UseDevelopmentEmulator=true")
    listening.close()
    return Recorder.said


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
