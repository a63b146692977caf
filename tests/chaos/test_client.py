"""The long proofs of the client: ten thousand factories, and a producer through kill -9 of its broker."""

import asyncio
import gc
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus.aio import ServiceBusClient
from tests.client.test_endings import sockets, start_all_threads_of_the_executor
from tests.client.twins import KINDS, Twin
from tests.support.ports import free_port
from tests.support.waiting import wait_until

import pairbus
from pairbus.aio import NamespaceManager
from pairbus.core.naming import backlog_paths
from pairbus.testing import EmbeddedBroker, QueueSettings

CYCLES = 10_000
CUSTOMERS, ORDERS = 5, 400
AWAY = 30
"""Seconds without the primary."""


@pytest.mark.parametrize("twin", [Twin(kind) for kind in KINDS], ids=KINDS)
def test_c2_ten_thousand_factories_leak_nothing(twin: Twin) -> None:
    """Open, pair, close: no task, thread, socket or memory is left."""

    async def cycle(primary: str, secondary: str, manager: NamespaceManager) -> None:
        factory, other = twin.factory(primary), twin.factory(secondary)
        await factory.pair_namespace(twin.options(manager, other, backlog_queue_count=1))
        await factory.close()
        await other.close()

    async def cycles(primary: str, secondary: str) -> None:
        manager = twin.manager(secondary)
        await start_all_threads_of_the_executor()
        for _ in range(200):
            await cycle(primary, secondary, manager)
        before = _possessions()
        for _ in range(CYCLES):
            await cycle(primary, secondary, manager)
        after = _possessions()
        await twin.close_manager(manager)
        print(f"{CYCLES} cycles: {before} -> {after}")
        megabytes = after.pop("megabytes") - before.pop("megabytes")
        assert after == before
        assert megabytes < 20

    with EmbeddedBroker(queues=["orders"], process=True) as one, EmbeddedBroker(process=True) as two:
        asyncio.run(cycles(one.connection_string, two.connection_string))


def _possessions() -> dict[str, int]:
    gc.collect()
    return {
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "sockets": sockets(),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def test_a_producer_lives_through_kill_9_of_the_primary(tmp_path: Path) -> None:
    """``examples/orders.py``, 30 s without its broker: no exception, nothing lost or twice, sessions as Y5 says."""
    queues = {"orders": QueueSettings(requires_session=True, requires_duplicate_detection=True)}
    primary = EmbeddedBroker(namespaces=[f"localhost:{free_port()}"], queues=queues, process=True, data=tmp_path)
    with primary, EmbeddedBroker(process=True) as secondary:
        program = Path(__file__).parents[2] / "examples" / "orders.py"
        producer = subprocess.Popen(
            [sys.executable, str(program), "--orders", str(ORDERS), "--pause", "0.1"],
            env=os.environ
            | {
                "PAIRBUS_PRIMARY_CONNECTION_STRING": primary.connection_string,
                "PAIRBUS_SECONDARY_CONNECTION_STRING": secondary.connection_string,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        _wait_for_orders(primary.connection_string)
        primary.kill()
        time.sleep(AWAY)  # that is what the outage is: nothing is waited for
        parked = asyncio.run(_parked(primary.connection_string, secondary.connection_string))
        primary.start()
        with _syphon(
            primary.connection_string, secondary.connection_string
        ):  # the producer may leave before all is home
            orders = asyncio.run(_consume(primary.connection_string))
        out, _ = producer.communicate(timeout=120)
    assert producer.returncode == 0
    assert out.strip() == f"sent {CUSTOMERS * ORDERS} orders"
    for customer, numbers in orders.items():
        assert sorted(numbers) == list(range(ORDERS)), customer  # none is missing, none came twice
        print(customer, "in order" if numbers == sorted(numbers) else "in the order of Y5")
    for queue, sessions in parked.items():
        for customer, numbers in sessions.items():
            came = [number for number in orders[customer] if number in numbers]
            assert came == numbers, f"{customer} by way of {queue}"  # Y5


def _wait_for_orders(connection_string: str) -> None:
    """Wait until the producer is well under way; the queue's length is the only sign of it."""
    with pairbus.NamespaceManager.from_connection_string(connection_string) as manager:
        wait_until(
            lambda: (manager.get_queue_runtime_properties("orders").active_message_count or 0) >= 10 * CUSTOMERS, 60
        )


@contextmanager
def _syphon(primary: str, secondary: str) -> Generator[None]:
    """Have another process's syphon at work, beside the producer's own (Y4)."""
    with (
        pairbus.MessagingFactory.from_connection_string(primary) as factory,
        pairbus.MessagingFactory.from_connection_string(secondary) as other,
        pairbus.NamespaceManager.from_connection_string(secondary) as manager,
    ):
        factory.pair_namespace(pairbus.SendAvailabilityPairedNamespaceOptions(manager, other, enable_syphon=True))
        yield


async def _parked(primary: str, secondary: str) -> dict[str, dict[str, list[int]]]:
    """Look which orders of which customer are parked in which backlog queue, in their order there."""
    found: dict[str, dict[str, list[int]]] = {}
    async with ServiceBusClient.from_connection_string(secondary) as client:
        with pairbus.MessagingFactory.from_connection_string(primary) as factory:
            queues = backlog_paths(factory.fully_qualified_namespace, 10)
        for queue in queues:
            sessions = found.setdefault(queue, {})
            async with client.get_queue_receiver(queue) as receiver:
                first = 1
                while page := await receiver.peek_messages(250, sequence_number=first):
                    for message in page:
                        customer, _, number = (message.message_id or "").partition("-")
                        sessions.setdefault(f"customer-{customer}", []).append(int(number))
                    first = (page[-1].sequence_number or 0) + 1
    assert any(found.values()), "nothing was parked"
    return found


async def _consume(connection_string: str) -> dict[str, list[int]]:
    """Receive all orders, and return those of each customer in the order in which they reached the queue.

    A receiver may see them in another one: what comes between two receives the SDK gives back.
    """

    async def session(client: ServiceBusClient, customer: int) -> list[int]:
        numbers: dict[int, int] = {}
        ends = time.monotonic() + 240
        async with client.get_queue_receiver("orders", session_id=f"customer-{customer}") as receiver:
            while len(numbers) < ORDERS and time.monotonic() < ends:
                await receiver.session.renew_lock()  # it may take longer than one lock lasts
                for message in await receiver.receive_messages(100, max_wait_time=5):
                    numbers[message.sequence_number or 0] = int(str(message).rpartition(" ")[2])
                    await receiver.complete_message(message)
        return [number for _, number in sorted(numbers.items())]

    async with ServiceBusClient.from_connection_string(connection_string) as client:
        got = await asyncio.gather(*(session(client, customer) for customer in range(CUSTOMERS)))
    return {f"customer-{customer}": numbers for customer, numbers in enumerate(got)}
