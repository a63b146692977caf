"""Promises of the commands, each of which could once be broken without a test that failed."""

import asyncio
import json
import sys
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from tests.client.commanding import UNPAIRED, Shell, broker, pairbus
from tests.client.test_command_deadletter import bury_orders, ids

from pairbus.aio.sdk_links import QueueLink
from pairbus.cli.running import explained
from pairbus.errors import PairbusError

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


def _send(connection_string: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("late"))
