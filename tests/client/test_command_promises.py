"""Promises of the commands, each of which could once be broken without a test that failed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from tests.client.commanding import UNPAIRED, Shell, broker, pairbus
from tests.client.test_command_deadletter import bury_orders, ids

from pairbus.cli.inputs import BadLine, InputMessage
from pairbus.cli.running import explained
from pairbus.cli.shipping import ParkedCount, Shipper
from pairbus.errors import BacklogUnavailableError, PairbusError
from pairbus.links.sdk.links import QueueLink
from pairbus.syphon import rounds as drain
from pairbus.syphon.worker import Orders
from pairbus.testing import EntityStatus, QueueSettings

__all__ = ["broker", "pairbus"]


def _is_a_person(_stream: object) -> bool:
    return True


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 2, ["a", "b", "c", "d"]), ("y\n", 0, ["b"])])
def test_discard_asks_and_does_as_it_is_told(
    pairbus: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: list[str]
) -> None:
    bury_orders(pairbus)
    monkeypatch.setattr(sys.modules["pairbus.cli.deadletter"], "is_terminal", _is_a_person)
    asked = pairbus("deadletter", "discard", "orders", "--reason", "Poison", stdin=answer)
    assert asked.code == code
    assert "Remove 3 dead letters for good?" in asked.out + asked.err
    assert ids(pairbus("deadletter", "list", "orders", "--json").out) == left


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=verysecret=",
        "bad token SharedAccessSignature sr=x&sig=verysecret&se=1",
        "sharedaccesskey=verysecret;EntityPath=q",
    ],
)
def test_no_key_is_in_an_error(text: str) -> None:
    for error in (PairbusError(text), ValueError(text), OSError(text)):
        assert "verysecret" not in explained(error)


def test_s7_unknown_is_not_failed(pairbus: Shell) -> None:
    """The broker stores the message and never says so."""
    pairbus.broker.fault("contoso/orders", "lose-answers")
    ended = pairbus("send", "orders", "x", "--timeout", "1s", "--json", **UNPAIRED)
    told = json.loads(ended.out)
    assert (ended.code, told["unknown"], told["failed"], told["sent"]) == (1, 1, 0, 0)


@pytest.mark.parametrize(("maybe_sent", "unknown", "failed"), [(True, 1, 0), (False, 0, 1)])
def test_s7_unknown_is_not_failed_if_it_cannot_be_parked_either(maybe_sent: bool, unknown: int, failed: int) -> None:  # noqa: FBT001
    """An attempt at the primary was never answered, and no backlog queue is left: the sender says so, and is heard."""

    class Sender:
        async def __aenter__(self) -> None:
            pass

        async def send_messages(self, _message: object, **_options: object) -> None:
            raise BacklogUnavailableError("orders", None, None, maybe_sent=maybe_sent)

    async def chunks() -> AsyncGenerator[list[InputMessage | BadLine]]:
        yield [InputMessage("argument 1", {}, AmqpAnnotatedMessage(data_body=b"x"), 1)]

    shipper = Shipper(cast("Any", Sender()), 1.0, ParkedCount(), lambda _line, _error: None, lambda: None)
    asyncio.run(shipper.ship(chunks(), keep_going=False, endless=False))
    assert (shipper.counts.unknown, shipper.counts.failed) == (unknown, failed)


def test_receive_and_delete_writes_what_is_on_its_way(pairbus: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker forgets a message when it sends it: one that comes after the last wait is written all the same."""
    real = QueueLink.take

    async def take(self: QueueLink, most: int, wait: float) -> Any:  # noqa: ANN401 (the SDK's own)
        got = await real(self, most, wait)
        await asyncio.to_thread(_send, pairbus.primary)
        return got

    monkeypatch.setattr(QueueLink, "take", take)
    written = pairbus("receive", "orders", "--wait", "0.01s", "--mode", "receive-and-delete").out.splitlines()
    left = pairbus("receive", "orders", "--peek", "--all").out.splitlines()
    assert [json.loads(line)["body"] for line in [*written, *left]] == ["late"]


def test_y3_a_backlog_queue_that_cannot_be_received_from_is_named_and_the_exit_code_is_1(
    pairbus: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it waits, although no mover has seen it."""
    monkeypatch.setattr(drain, "Orders", partial(Orders, patience=0.0))
    monkeypatch.setattr(drain, "LOCK_PATIENCE", 0.0)
    queue = f"{pairbus.backlog}/0"
    pairbus.broker.create_queue(queue, QueueSettings(status=EntityStatus.RECEIVE_DISABLED), namespace="fabrikam")
    try:
        _send(pairbus.secondary, queue)
        ended = pairbus("syphon", "--once", "--engine", "local", COLUMNS="300")
    finally:
        pairbus.broker.delete_queue(queue, namespace="fabrikam")
    assert ended.code == 1
    assert f"{queue} cannot be received from:" in ended.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no device that is always full")
@pytest.mark.parametrize(
    ("mode", "left", "told"),
    [
        ("peek-lock", 1, "is still in the queue"),
        ("receive-and-delete", 0, "up to 1 message that the broker has forgott"),
    ],
)
def test_what_a_full_output_costs_is_told_as_it_is(pairbus: Shell, mode: str, left: int, told: str) -> None:
    _send(pairbus.primary)
    environment = {**os.environ, "PAIRBUS_PRIMARY_CONNECTION_STRING": pairbus.primary}
    command = [sys.executable, "-m", "pairbus", "receive", "orders", "--mode", mode]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert len(pairbus("receive", "orders", "--peek", "--all").out.splitlines()) == left


def _send(connection_string: str, queue: str = "orders") -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("late"))
