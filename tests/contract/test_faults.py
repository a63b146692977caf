"""Faults on command, and what the official SDK, untouched, makes of each."""

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, receive, send

from pairbus.errors import OptionError
from pairbus.testing import EmbeddedBroker, QueueSettings

SHORT = 1.5
"""Seconds after which a send of a test gives up."""
TWO = {"orders": QueueSettings(), "other": QueueSettings()}


async def impatient_sender(lab: Lab, queue: str = "orders") -> ServiceBusSender:
    """Return a sender that does not try again; its link is open."""
    sender = lab.client(retry_total=0).get_queue_sender(queue)
    return await lab.open(sender)


async def outcome(sender: ServiceBusSender, body: str = "a") -> type[Exception] | None:
    """Send, and return what the SDK raises."""
    try:
        await sender.send_messages(ServiceBusMessage(body), timeout=SHORT)
    except (ServiceBusError, OperationTimeoutError) as error:
        return type(error)
    return None


async def switch(lab: Lab, where: str, kind: str, **options: str) -> None:
    await asyncio.to_thread(lab.broker.fault, where, kind, **options)


@pytest.mark.parametrize("where", ["localhost", "localhost/orders"])
@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("cut", ServiceBusConnectionError),
        ("silent", OperationTimeoutError),
        ("stall", OperationTimeoutError),
        ("lose-answers", OperationTimeoutError),
        ("busy", ServiceBusServerBusyError),
        ("full", ServiceBusQuotaExceededError),
        ("disabled", ServiceBusConnectionError),
        ("deny", ServiceBusConnectionError),
        ("expire-tokens", ServiceBusConnectionError),
    ],
)
def test_a_link_that_is_open(run: Run, kind: str, raised: type[Exception], where: str) -> None:
    """Links that are ended for a reason show it only when they are opened again: so it is with the cloud, too."""

    async def scenario(lab: Lab) -> None:
        sender = await impatient_sender(lab)
        await switch(lab, where, kind)
        assert await outcome(sender) is raised
        await switch(lab, "localhost", "clear")
        again = await impatient_sender(lab)
        assert await outcome(again, "b") is None

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("down", ServiceBusConnectionError),
        ("busy", ServiceBusServerBusyError),
        ("disabled", MessagingEntityDisabledError),
        ("deny", ServiceBusAuthorizationError),
    ],
)
def test_a_link_that_is_opened(run: Run, kind: str, raised: type[Exception]) -> None:
    async def scenario(lab: Lab) -> None:
        await switch(lab, "localhost", kind)
        with pytest.raises(raised):
            await impatient_sender(lab)
        await switch(lab, "localhost", "clear")
        assert await outcome(await impatient_sender(lab)) is None

    run(scenario)


@pytest.mark.parametrize("kind", ["silent", "stall"])
def test_a_peer_that_accepts_a_connection_and_never_answers(tmp_path: Path, kind: str) -> None:
    """Only the asynchronous client: the synchronous one may wait for minutes, whatever its time-outs say."""

    async def scenario() -> None:
        with EmbeddedBroker(queues=["orders"], data=tmp_path) as broker:
            broker.fault("localhost", kind)
            async with ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client:
                sender = client.get_queue_sender("orders")
                assert await outcome(sender) is OperationTimeoutError
                broker.fault("localhost", "clear")
                await sender.close()

    asyncio.run(scenario())


def test_other_entities_are_not_concerned(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, other = await asyncio.gather(impatient_sender(lab), impatient_sender(lab, "other"))
        for kind in ("busy", "full", "lose-answers", "silent", "cut", "deny"):
            await switch(lab, "localhost/orders", kind)
            assert await outcome(other) is None
        assert await outcome(sender) is not None

    run(scenario, **TWO)


def test_an_answer_that_is_lost_is_about_a_message_that_is_there(run: Run) -> None:
    """S7: a time-out is "unknown", not "failed"."""

    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(impatient_sender(lab), lab.receiver())
        await switch(lab, "localhost", "lose-answers")
        assert await outcome(sender, "stored all the same") is OperationTimeoutError
        assert bodies(await receive(receiver)) == ["stored all the same"]

    run(scenario)


def test_a_slow_connection_carries_everything_in_order(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await switch(lab, "localhost", "slow", latency="30ms", rate="100KB")
        await send(sender, *"abc")
        messages = await receive(receiver, 3)
        assert bodies(messages) == ["a", "b", "c"]
        for message in messages:
            await receiver.complete_message(message)
        await switch(lab, "localhost", "clear")
        await send(sender, "d")
        assert bodies(await receive(receiver)) == ["d"]

    run(scenario)


def test_a_fault_ends_when_its_time_is_over(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await impatient_sender(lab)
        await switch(lab, "localhost/orders", "busy", duration="30s")
        await lab.pass_time(29)
        assert await outcome(sender) is ServiceBusServerBusyError
        await lab.pass_time(2)
        assert await outcome(sender) is None
        assert await asyncio.to_thread(lab.broker.faults) == {"localhost": []}

    run(scenario)


def test_a_namespace_that_was_down_is_back_on_its_port(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        await switch(lab, "localhost", "down", duration="1m")
        with pytest.raises(ServiceBusConnectionError):
            await impatient_sender(lab)
        with pytest.raises(OSError, match="in use"):  # nor can the port be another program's meanwhile
            socket.create_server(("127.0.0.1", lab.broker.endpoints["localhost"].port)).close()
        await lab.pass_time(61)
        assert await outcome(await impatient_sender(lab)) is None

    run(scenario)


def test_an_order_that_makes_no_sense_is_refused() -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:
        for where, kind, options in (
            ("nowhere", "down", {}),
            ("localhost/nothing", "busy", {}),
            ("localhost/orders", "down", {}),
            ("localhost", "broken", {}),
            ("localhost", "cut", {"duration": "30s"}),
            ("localhost", "slow", {}),
            ("localhost", "busy", {"latency": "1s"}),
            ("localhost", "slow", {"rate": "fast"}),
        ):
            with pytest.raises(OptionError):
                broker.fault(where, kind, **options)
        assert broker.faults() == {"localhost": []}


def pairbus(*arguments: str) -> str:
    command = [sys.executable, "-m", "pairbus", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_the_command_line_reaches_a_broker_that_refuses_connections(tmp_path: Path) -> None:
    with EmbeddedBroker(namespaces=["contoso-fault"], queues=["orders"], data=tmp_path, process=True) as broker:
        assert pairbus("fault", "contoso-fault", "down", "--for", "1h") == "contoso-fault: down for 1h\n"
        (fault,) = json.loads(pairbus("fault", "--json"))["contoso-fault"]
        assert fault["kind"] == "down"
        assert broker.faults()["contoso-fault"] == [fault]
        assert "down" in pairbus("fault")
        assert pairbus("fault", "contoso-fault", "clear") == "contoso-fault: 1 cleared\n"

        async def scenario() -> None:
            client = ServiceBusClient.from_connection_string(broker.connection_string)
            async with client, client.get_queue_sender("orders") as sender:
                await send(sender, "a")

        asyncio.run(scenario())


def test_of_two_brokers_with_one_name_the_process_says_which() -> None:
    with (
        EmbeddedBroker(namespaces=["contoso-twice"], process=True) as one,
        EmbeddedBroker(namespaces=["contoso-twice"], process=True) as other,
    ):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            pairbus("fault", "contoso-twice", "busy")
        said = " ".join(refused.value.stderr.split())
        assert "say which one with --pid, or end the others" in said
        pids = [int(word.strip(",):")) for word in said.partition("(processes ")[2].split()[:2]]
        assert pairbus("fault", "contoso-twice", "busy", "--pid", str(pids[0])) == "contoso-twice: busy\n"
        assert sorted(len(each.faults()["contoso-twice"]) for each in (one, other)) == [0, 1]


def test_a_script_plays_faults_from_the_start(tmp_path: Path) -> None:
    script = tmp_path / "outage.yaml"
    script.write_text("""
        - {at: 0s, where: contoso-script, fault: busy, for: 1h}
        - {at: 1h, where: contoso-script, fault: clear}
    """)
    command = [sys.executable, "-m", "pairbus", "broker", "--namespace", "contoso-script", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--queue", "orders", "--faults", str(script)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            text = json.loads(process.stdout.readline())["connection_string"]

            async def scenario() -> None:
                async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
                    assert await outcome(client.get_queue_sender("orders")) is ServiceBusServerBusyError

            asyncio.run(scenario())
        finally:
            process.terminate()
