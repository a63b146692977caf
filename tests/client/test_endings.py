"""C2: nothing is left behind: no task, no thread, no socket; not at exit, and not in a forked process."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from tests.client.conftest import Play
from tests.client.linking import outgoing, transport_on
from tests.client.stage import Stage
from tests.client.syphoning import until
from tests.support.peer import Peer, stored

import pairbus
from pairbus.core.options import TransportName
from pairbus.errors import FactoryClosedError, FactoryForkedError, SendTimeoutError
from pairbus.links.sdk.links import Link, receiver_of, sender_to
from pairbus.syphon.transports import TRANSPORTS
from pairbus.testing import EmbeddedBroker


def sockets() -> int:
    """Count the sockets of this process."""
    return sum(_is_socket(file) for file in Path("/proc/self/fd").iterdir())


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except FileNotFoundError:  # the one that lists the others
        return False


async def start_all_threads_of_the_executor() -> None:
    """The loop of a test starts its own threads one by one as it needs them: not while others are counted."""
    count = min(32, (os.cpu_count() or 1) + 4)
    barrier = threading.Barrier(count)
    await asyncio.gather(*(asyncio.to_thread(barrier.wait) for _ in range(count)))


def test_open_pair_send_close_leaves_nothing_behind(play: Play) -> None:
    """C2: the short one; ten thousand times in tests/chaos."""

    async def scenario(stage: Stage) -> None:
        async def cycle() -> None:
            factory = stage.twin.factory(stage.address)
            other = stage.twin.factory(stage.secondary.connection_string)
            manager = stage.twin.manager(stage.secondary.connection_string)
            options = stage.twin.options(manager, other, backlog_queue_count=2, failover_interval=0)
            await factory.pair_namespace(options)
            await factory.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
            await factory.close()
            await other.close()
            await stage.twin.close_manager(manager)

        await start_all_threads_of_the_executor()
        await cycle()
        gc.collect()
        threads, tasks, open_sockets = threading.active_count(), len(asyncio.all_tasks()), sockets()
        for _ in range(3):
            await cycle()
        gc.collect()
        await stage.until(lambda: sockets() <= open_sockets)  # the broker's ends, which are in this process too
        assert threading.active_count() <= threads
        assert len(asyncio.all_tasks()) == tasks

    play(scenario, pairing={"pair": False})


@pytest.mark.parametrize("outage", ["silent", "stall", "down"])
def test_c2_s10_closing_never_hangs_and_an_outage_leaves_no_socket_open(play_aio: Play, outage: str) -> None:
    """The SDK leaves the socket of an opening that failed; a long outage must not use them all up."""

    async def scenario(stage: Stage) -> None:
        sender = stage.factory.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("one"))
        stage.fault(outage)
        for _ in range(4):
            with pytest.raises(SendTimeoutError):
                await sender.send_messages(ServiceBusMessage("two"), timeout=0.7)
        gc.collect()
        before = sockets()
        for _ in range(4):
            with pytest.raises(SendTimeoutError):
                await sender.send_messages(ServiceBusMessage("two"), timeout=0.7)
        gc.collect()
        await stage.until(lambda: sockets() <= before + 2)
        began = time.monotonic()
        await stage.factory.close()
        assert time.monotonic() - began < 6

    play_aio(scenario, pairing={"failover_interval": 60, "attempt_timeout": 0.5})


@pytest.mark.parametrize("carrier", TRANSPORTS)
def test_c2_closing_a_transport_closes_all_its_links_and_waits_until_they_are(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            await transport.send("orders", outgoing("one"))
            peer.give("backlog", stored(1))
            assert len(await transport.receive("backlog", 1, 5)) == 1
            assert len(peer.open_links("orders")) == len(peer.open_links("backlog")) == 1
            await transport.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await peer.heard(lambda: not peer.connections)

    asyncio.run(play())


@pytest.mark.parametrize("carrier", TRANSPORTS)
def test_a_settlement_ends_with_its_link_and_not_only_in_time(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier, attempt_timeout=600) as transport:
            peer.give("backlog", stored(1))
            messages = await transport.receive("backlog", 1, 5)
            peer.confirm = lambda _settled: None
            async with asyncio.timeout(10):
                settling = asyncio.create_task(transport.settle("backlog", messages, "complete"))
                await peer.heard(lambda: bool(peer.settled))
                peer.detach("backlog", "amqp:internal-error")
                (answer,) = await settling
            assert isinstance(answer, ServiceBusError)
            assert carrier == "sdk" or transport.facts(answer).in_doubt  # the SDK says only that the link is closed

    asyncio.run(play())


@pytest.mark.parametrize("make", [sender_to, receiver_of])
@pytest.mark.parametrize("outage", ["silent", "down"])
def test_c2_a_link_that_could_not_be_opened_leaves_no_socket(
    make: Callable[[ServiceBusClient, str], Link], outage: str
) -> None:
    """Whether its time is over, it was cancelled, or it was refused; the SDK forgets the sockets of all of these."""

    async def play() -> None:
        with EmbeddedBroker(queues=["orders"]) as broker:
            async with ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client:
                await open_and_close(client)  # what is made once is made
                before = sockets()
                broker.fault("localhost", outage)
                overdue, cancelled = make(client, "orders"), make(client, "orders")
                with pytest.raises((TimeoutError, ServiceBusError)):
                    await overdue.open(0.3)
                opening = asyncio.create_task(cancelled.open(20))
                await asyncio.wait({opening}, timeout=0.3)
                opening.cancel()
                await asyncio.wait({opening})
                assert isinstance(await overdue.close(in_doubt=True), Exception | None)
                await cancelled.close(in_doubt=True)
                broker.fault("localhost", "clear")
                await until(lambda: sockets() <= before)  # the broker's ends, which are in this process too
                assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    async def open_and_close(client: ServiceBusClient) -> None:
        await (await make(client, "orders").open()).close()

    asyncio.run(play())


def test_the_sync_client_is_shared_by_threads(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        with pairbus.MessagingFactory.from_connection_string(stage.address) as factory:
            sender = factory.get_queue_sender("orders")

            def send(worker: int) -> None:
                for number in range(20):
                    sender.send_messages(ServiceBusMessage(f"{worker}-{number}"))

            await asyncio.gather(*(asyncio.to_thread(send, worker) for worker in range(8)))
        got = await stage.take(count=160)
        for worker in range(8):
            own = [str(message) for message in got if str(message).startswith(f"{worker}-")]
            assert own == [f"{worker}-{number}" for number in range(20)]

    play_aio(scenario, pairing={"pair": False})


def test_a_fork_gets_a_clear_error_and_no_hang(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        program = f"""
import os, sys
from azure.servicebus import ServiceBusMessage
from pairbus import MessagingFactory
factory = MessagingFactory.from_connection_string({stage.address!r})
sender = factory.get_queue_sender("orders")
sender.send_messages(ServiceBusMessage("parent"))
child = os.fork()
if not child:
    try:
        sender.send_messages(ServiceBusMessage("child"))
    except Exception as error:
        print(type(error).__name__, flush=True)
    sys.exit()
os.waitpid(child, 0)
sender.send_messages(ServiceBusMessage("parent still"))
print("sent", flush=True)
"""
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-X", "dev", "-c", program],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert done.stdout.split() == [FactoryForkedError.__name__, "sent"]
        assert "Traceback" not in done.stderr
        assert "Task was destroyed" not in done.stderr

    play_aio(scenario, pairing={"pair": False})


def test_importing_pairbus_does_not_import_the_sdk() -> None:
    program = (
        "import sys, pairbus, pairbus.cli; print(any(name.startswith('azure.servicebus') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "False"


def test_a_callback_must_not_wait_for_its_own_factory(play_aio: Play) -> None:
    async def scenario(stage: Stage) -> None:
        with pairbus.MessagingFactory.from_connection_string(stage.address) as factory:
            sender = factory.get_queue_sender("orders")
            sender.send_messages(ServiceBusMessage("one"))
            caught: list[BaseException] = []

            def callback() -> None:
                try:
                    sender.send_messages(ServiceBusMessage("two"))
                except RuntimeError as error:
                    caught.append(error)

            factory._portal.soon(callback)  # pyright: ignore[reportPrivateUsage]
            await stage.until(lambda: bool(caught))
            assert "must not wait" in str(caught[0])

    play_aio(scenario, pairing={"pair": False})


def test_a_sender_may_be_closed_after_its_factory_as_with_the_sdk(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        factory = stage.twin.factory(stage.address)
        sender = factory.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("one"))
        await factory.close()
        await sender.close()
        with pytest.raises(FactoryClosedError):
            await sender.send_messages(ServiceBusMessage("two"))

    play(scenario)
