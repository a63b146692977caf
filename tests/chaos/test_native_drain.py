"""kill -9 of the syphon, of the primary and of the secondary in the middle of a native drain (Y1).

Nothing is lost. A message comes twice only if the answer to its send, or to its completion, was lost: the syphon says
how many those may be, and one that was itself killed can have left no more than what it held.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from azure.servicebus.aio import ServiceBusClient
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from pairbus.amqp import Message, build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.core.envelope import PATH
from pairbus.core.naming import backlog_paths
from pairbus.links.transport import Outgoing
from pairbus.syphon.transports import transport_to
from pairbus.testing import EmbeddedBroker, QueueSettings

KILLS = int(os.environ.get("PAIRBUS_KILLS", "50"))
MESSAGES = 400
"""Parked between two kills."""
LOCK_MS = 5_000
QUEUES = backlog_paths("contoso", 2)
BURST = 200
DEADLINE = 300.0

SYPHON = """
import asyncio, json, os, sys
from azure.servicebus.aio import ServiceBusClient
from pairbus.syphon.transports import transport_to
from pairbus.syphon.in_process import Syphon

async def main():
    status, primary, secondary, *queues = sys.argv[1:]
    ends = [ServiceBusClient.from_connection_string(each, retry_total=0) for each in (primary, secondary)]
    syphon = Syphon(*(transport_to(end, "native", attempt_timeout=5) for end in ends), queues)
    syphon.start()
    while True:
        total = syphon.report().total()
        with open(status + ".new", "w") as file:
            json.dump([total.delivered, total.duplicates_suspected], file)
        os.replace(status + ".new", status)
        await asyncio.sleep(0.02)

asyncio.run(main())
"""


class Syphon:
    """A syphon in a process of its own, to be killed; it says what it has done in a file."""

    def __init__(self, status: Path, primary: str, secondary: str) -> None:
        self._status = status
        self._seen = 0
        status.unlink(missing_ok=True)
        self._process = subprocess.Popen([sys.executable, "-c", SYPHON, str(status), primary, secondary, *QUEUES])

    def _said(self) -> tuple[int, int]:
        delivered, duplicates = json.loads(self._status.read_text()) if self._status.exists() else (0, 0)
        return delivered, duplicates

    def until_moving(self) -> None:
        """Wait until it has delivered something that it had not when it was asked before."""
        wait_until(lambda: self._said()[0] > self._seen, DEADLINE, lambda: "it delivers nothing")
        self._seen = self._said()[0]

    def kill(self) -> int:
        """Kill it, and return how many duplicates it had reported."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return self._said()[1]


async def park(connection_string: str, numbers: range) -> None:
    """Park messages in both queues; a broker that has just begun may need another try."""
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        transport = transport_to(client, "native")
        for index, queue in enumerate(QUEUES):
            batch = [
                build_message(
                    encode_data_section(b"x" * 200),
                    properties=Properties(message_id=str(number)),
                    application_properties={PATH: "orders"},
                )
                for number in numbers[index :: len(QUEUES)]
            ]
            await transport.send(queue, Outgoing(batch))
        await transport.close()


async def arrived(connection_string: str, wanted: int) -> Counter[str]:
    """Receive until every message is there, and then until no more come."""
    got: Counter[str] = Counter()
    ends = time.monotonic() + DEADLINE
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        transport = transport_to(client, "native")
        while True:
            burst = await transport.receive("orders", 500, 3.0)
            for each in burst:
                properties = Message(each.payload).properties()
                got[str(properties.message_id if properties is not None else None)] += 1
            await transport.settle("orders", burst, "complete")
            if not burst and (len(got) >= wanted or time.monotonic() > ends):
                break
        await transport.close()
    return got


def test_fifty_kills_lose_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("PAIRBUS_SEED", random.randrange(2**32)))
    chance = random.Random(seed)
    one, other = free_port(), free_port()
    primary = EmbeddedBroker(
        namespaces=[f"contoso:{one}"], queues={"orders": QueueSettings()}, data=tmp_path / "one", process=True
    )
    settings = QueueSettings(max_delivery_count=2**31 - 1, lock_duration=LOCK_MS)
    secondary = EmbeddedBroker(
        namespaces=[f"fabrikam:{other}"], queues=dict.fromkeys(QUEUES, settings), data=tmp_path / "other", process=True
    )
    explained = made = 0
    killed: Counter[str] = Counter()
    with primary, secondary:
        ends = primary.connection_string, secondary.connection_string
        syphon = Syphon(tmp_path / "status", *ends)
        for _ in range(KILLS):
            asyncio.run(park(ends[1], range(made, made + MESSAGES)))
            made += MESSAGES
            syphon.until_moving()
            time.sleep(chance.uniform(0, 0.15))  # any instant will do
            victim = chance.choice(("syphon", "primary", "secondary"))
            killed[victim] += 1
            if victim == "syphon":
                explained += syphon.kill() + len(QUEUES) * BURST
                syphon = Syphon(tmp_path / "status", *ends)
            else:
                broker = primary if victim == "primary" else secondary
                broker.kill()
                broker.start()
        got = asyncio.run(arrived(ends[0], made))
        explained += syphon.kill()
    twice = sum(got.values()) - len(got)
    print(f"seed {seed}: {dict(killed)}, {made} parked, {len(got)} arrived, {twice} twice, {explained} explained")
    assert set(got) == {str(number) for number in range(made)}
    assert twice <= explained
