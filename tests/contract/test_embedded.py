"""The embedded broker as its users start it."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError

from pairbus.broker.config.options import from_file, from_options, to_document
from pairbus.broker.run.embedded import PORT_PAUSE
from pairbus.errors import OptionError, PairbusError
from pairbus.testing import EmbeddedBroker, EntityStatus, Policy, QueueSettings, Right

EVERYTHING = QueueSettings(
    lock_duration=30_500,
    max_size_in_megabytes=5,
    requires_duplicate_detection=True,
    default_message_time_to_live=3_600_000,
    dead_lettering_on_message_expiration=True,
    duplicate_detection_history_time_window=60_000,
    max_delivery_count=3,
    enable_batched_operations=False,
    status=EntityStatus.SEND_DISABLED,
    auto_delete_on_idle=600_000,
    forward_to="b",
    forward_dead_lettered_messages_to="c",
    max_message_size_in_kilobytes=1024,
    user_metadata="ours",
    enable_partitioning=True,
    enable_express=True,
    authorization_rules=(Policy("a", (Right.SEND,)), Policy("b", (Right.MANAGE,), "1", "2")),
)


def exchange(connection_string: str, queue: str) -> str:
    deletes = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(queue))
        with client.get_queue_receiver(queue, receive_mode=deletes) as receiver:
            return str(receiver.receive_messages(1, max_wait_time=10)[0])


@pytest.mark.parametrize("process", [False, True])
def test_namespaces_have_their_own_queues(*, process: bool) -> None:
    queues = ["contoso/orders", "fabrikam/bills"]
    with EmbeddedBroker(namespaces=["contoso", "fabrikam"], queues=queues, process=process) as broker:
        contoso = broker.endpoints["contoso"].connection_string
        fabrikam = broker.endpoints["fabrikam"].connection_string
        assert broker.connection_string == contoso
        assert exchange(contoso, "orders") == "orders"
        assert exchange(fabrikam, "bills") == "bills"
        with pytest.raises(MessagingEntityNotFoundError):
            exchange(contoso, "bills")


@pytest.mark.parametrize("process", [False, True])
def test_started_again_it_waits_for_its_port(monkeypatch: pytest.MonkeyPatch, *, process: bool) -> None:
    """While it is away, its port may be given to a connection of somebody else; at first it says so at once."""
    with EmbeddedBroker(process=process) as broker:
        port = broker.endpoints["localhost"].port
        broker.stop()
        with socket.create_server(("127.0.0.1", port)) as other:
            with pytest.raises((OSError, PairbusError), match="in use"):
                EmbeddedBroker(namespaces=[f"localhost:{port}"], process=process).start()
            tries: list[float] = []

            def leave(seconds: float) -> None:
                tries.append(seconds)
                other.close()

            clock = SimpleNamespace(sleep=leave, monotonic=time.monotonic)
            monkeypatch.setattr("pairbus.broker.run.embedded.time", clock)
            broker.start()
        assert tries == [PORT_PAUSE]
        assert broker.endpoints["localhost"].port == port


def test_the_command_makes_topics_and_subscriptions() -> None:
    command = [sys.executable, "-m", "pairbus", "broker", "--port", "0", "--json"]
    command += ["--subscription", "orders/all", "--subscription", "orders/audit", "--topic", "quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            with ServiceBusClient.from_connection_string(ready["connection_string"], retry_total=0) as client:
                for topic in ("quiet", "orders"):
                    with client.get_topic_sender(topic) as sender:
                        sender.send_messages(ServiceBusMessage(topic))
                for name in ("all", "audit"):
                    with client.get_subscription_receiver("orders", name) as receiver:
                        assert str(receiver.receive_messages(1, max_wait_time=10)[0]) == "orders"
        finally:
            broker.terminate()
    assert broker.returncode == 0


def test_a_process_of_its_own_has_the_settings_too() -> None:
    queues = {"orders": QueueSettings(), "closed": QueueSettings(status=EntityStatus.DISABLED)}
    with EmbeddedBroker(queues=queues, process=True) as broker:
        assert exchange(broker.connection_string, "orders") == "orders"
        with pytest.raises(MessagingEntityDisabledError):
            exchange(broker.connection_string, "closed")


def test_all_settings_pass_through_a_file(tmp_path: Path) -> None:
    config = from_options(
        ["contoso", "fabrikam:5700"], {"contoso/a": EVERYTHING, "fabrikam/b": QueueSettings()}, port=0
    )
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(to_document(config)), encoding="utf-8")
    assert from_file(file, port=0) == config


@pytest.mark.parametrize("port", [-1, 65536, "5672", True])
def test_a_bad_port_in_a_file_is_named(tmp_path: Path, port: object) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "contoso", "Port": port}]}}), encoding="utf-8")
    with pytest.raises(OptionError, match=r"Namespaces\[0\].Port"):
        from_file(file)


@pytest.mark.parametrize("process", [False, True])
def test_started_again_it_is_where_it_was(tmp_path: Path, process: bool) -> None:  # noqa: FBT001
    broker = EmbeddedBroker(queues=["orders"], data=tmp_path, process=process).start()
    before = broker.connection_string
    broker.stop()
    with broker:
        assert broker.connection_string == before
        assert exchange(before, "orders") == "orders"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="clock"):
        EmbeddedBroker(process=True, clock=lambda: 0)
    with EmbeddedBroker() as broker, pytest.raises(PairbusError, match="process=True"):
        broker.kill()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "localhost.db").write_bytes(b"not a database" * 1000)
    for process in (False, True):
        with pytest.raises(PairbusError, match="no pairbus store"):
            EmbeddedBroker(data=tmp_path, process=process).start()
