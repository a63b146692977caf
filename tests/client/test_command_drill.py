"""``pairbus drill``: pairs that would survive, pairs that would not, and nothing left behind by any drill."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from tests.client.commanding import Shell, broker
from tests.client.commanding import pairbus as shell

from pairbus import NamespaceManager
from pairbus.testing import QueueSettings

__all__ = ["broker", "shell"]

ADMINISTRATION = "PAIRBUS_PRIMARY_ADMIN_CONNECTION_STRING"
QUICK = ["--failover-interval", "0s", "--messages", "2", "--backlog-queues", "2"]


@pytest.fixture
def pairbus(shell: Shell) -> Iterator[Shell]:
    """The command; after each drill nothing of it is left."""
    yield shell
    with NamespaceManager.from_connection_string(shell.primary) as manager:
        assert [queue.name for queue in manager.list_queues() if queue.name.startswith("pairbus-drill")] == []
    with NamespaceManager.from_connection_string(shell.secondary) as manager:
        left = [(each.name, each.total_message_count) for each in manager.list_queues_runtime_properties()]
        assert [each for each in left if each[1]] == []


def outcome(shell: Shell, *arguments: str, **environment: str) -> tuple[int, dict[str, object], dict[str, str]]:
    """Run a drill; return its exit code, what it found, and what each step that failed says."""
    ended = shell("drill", "--json", *QUICK, *arguments, **environment)
    found = json.loads(ended.out)
    assert found["leftovers"] == []
    return ended.code, found, {step["name"]: step["detail"] for step in found["steps"] if not step["ok"]}


def make_backlog(shell: Shell, index: int) -> str:
    """Make a backlog queue unless it is there, and return its path."""
    path = f"{shell.backlog}/{index}"
    with NamespaceManager.from_connection_string(shell.secondary) as manager:
        if path not in [queue.name for queue in manager.list_queues()]:
            shell.broker.create_queue(path, QueueSettings(), namespace="fabrikam")
    return path


def test_a_pair_that_survives(pairbus: Shell) -> None:
    """S3, S4, G1, G2, Y1: failover, park, ping, switch-back and drain, end to end, in words."""
    ended = pairbus("drill", "--messages", "3", "--failover-interval", "1s")
    assert ended.code == 0
    assert "This pair would have survived. 9 messages sent, 3 of them by way of the backlog, 0 lost." in ended.out
    for step in ("pair", "queue", "healthy", "fail over", "parked", "switch back", "healthy again", "drain"):
        assert f"✓ {step}" in ended.out
    assert "9 of 9 messages received, none twice" in ended.out


def test_the_applications_keys_may_be_of_least_privilege(pairbus: Shell) -> None:
    sender = pairbus.broker.create_policy("sender", ["Send"], namespace="contoso")
    try:
        code, found, failed = outcome(
            pairbus, PAIRBUS_PRIMARY_CONNECTION_STRING=sender, **{ADMINISTRATION: pairbus.primary}
        )
        assert (code, found["survived"], found["lost"], failed) == (0, True, 0, {})
        code, found, failed = outcome(pairbus, PAIRBUS_PRIMARY_CONNECTION_STRING=sender)
        assert (code, found["survived"]) == (2, None), "it cannot be told: the drill has no queue"
        assert "has the right (Manage)" in failed["queue"]
    finally:
        pairbus.broker.delete_policy("sender", namespace="contoso")


def test_without_the_right_to_manage_the_secondary_it_would_not_survive(pairbus: Shell) -> None:
    policy = pairbus.broker.create_policy("some", ["Send", "Listen"], namespace="fabrikam")
    try:
        code, found, failed = outcome(pairbus, PAIRBUS_SECONDARY_CONNECTION_STRING=policy)
        assert (code, found["survived"]) == (1, False)
        assert "pairing needs the right to manage the secondary namespace" in failed["pair"]
    finally:
        pairbus.broker.delete_policy("some", namespace="fabrikam")


def test_with_a_secondary_that_is_away_it_would_not_survive(pairbus: Shell) -> None:
    pairbus.broker.fault("fabrikam", "down")
    ended = pairbus("drill", *QUICK)
    pairbus.broker.fault("fabrikam", "clear")
    assert ended.code == 1
    assert "no backlog queue of" in ended.out
    assert "This pair would not have survived." in ended.out


def test_with_a_backlog_that_takes_no_messages_it_would_not_survive(pairbus: Shell) -> None:
    for index in range(2):
        make_backlog(pairbus, index)
        pairbus.broker.fault(f"fabrikam/{pairbus.backlog}/{index}", "full")
    code, found, failed = outcome(pairbus)
    pairbus.broker.fault("fabrikam", "clear")
    assert (code, found["survived"]) == (1, False)
    assert "no backlog queue is left" in failed["fail over"]


def test_without_a_syphon_it_would_not_survive(pairbus: Shell) -> None:
    code, found, failed = outcome(pairbus, "--syphon", "yours", "--drain-timeout", "1s")
    assert (code, found["survived"], found["lost"], found["received"]) == (1, False, 2, 4)
    assert "the pair's syphon has not carried them home; see that one runs" in failed["drain"]


def test_a_backlog_that_is_in_use_is_left_alone(pairbus: Shell) -> None:
    path = make_backlog(pairbus, 0)
    with ServiceBusClient.from_connection_string(pairbus.secondary) as client, client.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("parked", application_properties={"x-ms-path": "orders"}))
    code, found, failed = outcome(pairbus)
    assert (code, found["survived"]) == (2, None)
    assert "the backlog holds 1 messages" in failed["pair"]
    assert len(pairbus("receive", path, "--on", "secondary").out.splitlines()) == 1


def test_an_interrupted_drill_cleans_up(pairbus: Shell) -> None:
    environment = {
        **os.environ,
        "PAIRBUS_PRIMARY_CONNECTION_STRING": pairbus.primary,
        "PAIRBUS_SECONDARY_CONNECTION_STRING": pairbus.secondary,
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "pairbus", "drill", "--syphon", "yours", *QUICK]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        while not (line := running.stdout.readline()).startswith("✓ parked"):
            assert line, "it has ended before"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors == "interrupted\n"
