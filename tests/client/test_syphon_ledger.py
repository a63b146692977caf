"""Y1, K1: a syphon that is killed with -9 leaves no message completed of which the ledger does not tell."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from tests.client.syphoning import Pair
from tests.support.ports import free_port

from pairbus import NamespaceManager
from pairbus.core.ledger import Kind, Outcome, Stage
from pairbus.instrument.ledger import read_ledger

MESSAGES = 1500

SYPHON = """
import asyncio, sys
from azure.servicebus.aio import ServiceBusClient
from pairbus.core.moving import Pace
from pairbus.syphon.in_process import Syphon
from pairbus.links.sdk.transport import SdkTransport
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile

async def main(primary, secondary, ledger, *queues):
    clients = [ServiceBusClient.from_connection_string(each, retry_total=0) for each in (primary, secondary)]
    made = Syphon(
        *map(SdkTransport, clients), queues, instrument=Instrument([LedgerFile(ledger)]), pace=Pace(burst=50)
    )
    made.start()
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("after", [1, 400])
def test_k1_every_message_that_was_completed_is_in_the_ledger(after: int, tmp_path: Path) -> None:
    async def park(pair: Pair) -> None:
        for queue in pair.backlogs:
            await pair.park([ServiceBusMessage(f"{n}") for n in range(MESSAGES // len(pair.backlogs))], queue=queue)

    async def play() -> None:
        async with Pair(backlogs=3, data=tmp_path, ports=(free_port(), free_port())) as pair:
            await park(pair)
            ends = [pair.primary.connection_string, pair.secondary.connection_string]
            command = [sys.executable, "-c", SYPHON, *ends, str(tmp_path / "ledger"), *pair.backlogs]
            completed = await asyncio.to_thread(kill_midway, command, ends[1], pair.backlogs, after)
            told = [
                record.messages
                for record in read_ledger(tmp_path / "ledger")
                if (record.kind, record.stage, record.outcome) == (Kind.SEND, Stage.SYPHON, Outcome.DONE)
            ]
            assert after <= completed < MESSAGES
            assert sum(told) >= completed

    asyncio.run(play())


def kill_midway(command: list[str], secondary: str, queues: Sequence[str], after: int) -> int:
    """Kill a syphon when it has completed some messages, and tell how many it has."""
    with NamespaceManager.from_connection_string(secondary) as manager, subprocess.Popen(command) as syphon:

        def completed() -> int:
            counts = [manager.get_queue_runtime_properties(queue).total_message_count or 0 for queue in queues]
            return MESSAGES - sum(counts)

        ends = time.monotonic() + 60
        while completed() < after:
            assert time.monotonic() < ends, "the syphon does nothing"
        syphon.kill()
        syphon.wait()
        return completed()
