"""What the official SDK says to a broker, recorded once, so that a run of the fuzz can be repeated byte for byte.

``python tests/chaos/conversations.py`` records it anew, for a newer SDK. The token in it is good until the year 2100.
"""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.broker.access.policies import ALL, ROOT, Policy
from pairbus.broker.access.tokens import sign
from pairbus.broker.config.options import BrokerConfig, NamespaceConfig
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.listen.connection import ServerConnection
from pairbus.broker.listen.server import NamespaceServer
from pairbus.broker.run.running import Broker

RECORDED = Path(__file__).with_name("conversations.amqp.gz")
KEY = "known to every broker here, so that what was said to one can be said to another"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
LATER = datetime(2099, 1, 1, tzinfo=UTC)
EXPIRES = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())


class Recorder(ServerConnection):
    """A connection that notes what its client says."""

    said: list[list[bytes]]

    def data_received(self, data: bytes) -> None:
        if not hasattr(self, "_mine"):
            self._mine: list[bytes] = []
            self.said.append(self._mine)
        self._mine.append(data)
        super().data_received(data)


@asynccontextmanager
async def serving(*queues: str) -> AsyncGenerator[tuple[Broker, NamespaceServer]]:
    """A broker with queues; those whose name begins with "sessions" have sessions."""
    settings = {name: QueueSettings(requires_session=name.startswith("sessions")) for name in queues}
    broker = Broker(BrokerConfig([NamespaceConfig("localhost", 0, settings, policies=(Policy(ROOT, ALL, KEY),))]))
    await broker.start()
    (server,) = broker._servers.values()  # pyright: ignore[reportPrivateUsage]
    yield broker, server
    await broker.stop()


async def talk(client: ServiceBusClient, queue: str, with_sessions: str) -> None:
    """Use everything that a client of queues can use."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("one", message_id="1", application_properties={"a": 1, "b": "x"}))
        await sender.send_messages([ServiceBusMessage(f"m{n}", time_to_live=timedelta(hours=1)) for n in range(9)])
        await sender.send_messages(ServiceBusMessage("x" * 150_000))
        await sender.cancel_scheduled_messages(await sender.schedule_messages(ServiceBusMessage("s"), LATER))
    async with client.get_queue_receiver(queue) as receiver:
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
    async with client.get_queue_sender(with_sessions) as sender:
        await sender.send_messages([ServiceBusMessage("s", session_id="a"), ServiceBusMessage("t", session_id="b")])
    async with client.get_queue_receiver(with_sessions, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        await receiver.session.set_state(b"state")
        await receiver.session.get_state()
        await receiver.session.renew_lock()
        for message in await receiver.receive_messages(1, max_wait_time=5):
            await receiver.complete_message(message)


async def record() -> bytes:
    """Have the SDK talk to a broker, and return what it says, one connection after the other."""
    Recorder.said = []
    async with serving("orders", "sessions") as (_, server):
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: Recorder(server), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        token = sign("sb://127.0.0.1/", ROOT, KEY, EXPIRES)
        where = f"Endpoint=sb://127.0.0.1:{port};SharedAccessSignature={token};UseDevelopmentEmulator=true"
        async with ServiceBusClient.from_connection_string(where, retry_total=0) as client:
            await talk(client, "orders", "sessions")
        listening.close()
    return b"".join(piece for said in Recorder.said for piece in said)


def conversations() -> list[list[bytes]]:
    """Return what was recorded, a list of protocol headers and frames per connection."""
    data = gzip.decompress(RECORDED.read_bytes())
    found: list[list[bytes]] = []
    start = 0
    while start < len(data):
        is_header = data.startswith(b"AMQP", start)
        end = start + (8 if is_header else int.from_bytes(data[start : start + 4]))
        if data.startswith(SASL_HEADER, start):
            found.append([])
        found[-1].append(data[start:end])
        start = end
    return found


if __name__ == "__main__":
    RECORDED.write_bytes(gzip.compress(asyncio.run(record()), mtime=0))
    print(f"{RECORDED.name}: {sum(map(len, conversations()))} frames of {len(conversations())} connections")
