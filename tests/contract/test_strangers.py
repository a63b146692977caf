"""What those cost who have not shown who they are: little, whatever they send, and however long they stay."""

import asyncio
import json
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.client import Client

from pairbus.amqp import build_message
from pairbus.amqp.events import DeliveriesReceived, Event
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sections import Properties
from pairbus.broker.listen.connection import CBS_BYTES
from pairbus.testing import EmbeddedBroker

STRANGERS = 300
MEGABYTE = 1024 * 1024
ROOM = 60
"""Megabytes for all of them; their bodies are 300. A head may have 64 KB, and each has a socket and a connection."""


def megabytes_of(process: int) -> int:
    """Return how much memory a process takes."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    (line,) = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def heads(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"PUT {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


@pytest.fixture(scope="module", autouse=True)
def _many_sockets() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * STRANGERS)), hard))


def answer(stranger: socket.socket) -> bytes:
    """Read an answer to its end; the broker says no more after it."""
    said = b""
    while more := stranger.recv(65536):
        said += more
    return said


@pytest.mark.parametrize(
    ("path", "status"),
    [("/orders", b"401"), ("/a/Subscriptions/b", b"401"), ("/$health", b"405"), ("/$metrics/x", b"404")],
)
@pytest.mark.parametrize(
    "lines",
    [
        (f"Content-Length: {MEGABYTE}",),
        (f"Content-Length: {MEGABYTE}", "Authorization: SharedAccessSignature sr=x&sig=y&se=9999999999&skn=z"),
        ("Transfer-Encoding: chunked",),
    ],
    ids=["without a token", "with a wrong one", "in chunks"],
)
def test_a_stranger_is_answered_before_its_body(path: str, status: bytes, lines: tuple[str, ...]) -> None:
    with (
        EmbeddedBroker(queues=["orders"]) as broker,
        socket.create_connection(("127.0.0.1", broker.endpoints["localhost"].port), 10) as stranger,
    ):
        stranger.sendall(heads(path, *lines))
        said = answer(stranger)
        assert said.startswith(b"HTTP/1.1 " + status)
        assert b"connection: close" in said.lower()
        stranger.sendall(b"x" * 1000)  # which is dropped


def test_the_bodies_of_strangers_are_not_kept() -> None:
    command = [sys.executable, "-m", "pairbus", "broker", "--json", "--port", "0", "--queue", "orders"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker, ExitStack() as strangers:
        strangers.callback(broker.terminate)
        assert broker.stdout is not None
        port = json.loads(broker.stdout.readline())["port"]
        before = megabytes_of(broker.pid)
        for _ in range(STRANGERS):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            stranger.sendall(heads("/orders", f"Content-Length: {MEGABYTE}") + bytes(MEGABYTE - 1))
            assert answer(stranger).startswith(b"HTTP/1.1 401")
        assert megabytes_of(broker.pid) - before < ROOM


def request(name: str) -> bytes:
    """Return a token that is none, with an id that its answer has to repeat."""
    asked = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": "sb://x"}
    properties = Properties(message_id=name, reply_to="me")
    return build_message(encode_value_section("no token"), properties=properties, application_properties=asked)


def test_answers_that_a_stranger_does_not_take_are_not_kept_without_bound() -> None:
    async def scenario(port: int) -> list[bytes]:
        client = await Client.connect(port, None)
        session = client.amqp.begin()
        asking = session.attach_sender("asking", Target("$cbs"))
        hearing = session.attach_receiver("hearing", Source("$cbs"), Target("me"))
        events: asyncio.Queue[Event] = asyncio.Queue()
        for link in (asking, hearing):
            client.handle(link, events.put_nowait)
        client.flush()
        while not (asking.credit and hearing.is_attached):
            await asyncio.wait_for(events.get(), 10)
        for number in range(40):
            asking.send(request(f"{number} " + "x" * 3000), number.to_bytes(4), settled=True)
        hearing.grant(1000)  # only now
        asking.send(request("last"), b"last", settled=True)
        client.flush()
        answers: list[bytes] = []
        while not any(b"last" in each for each in answers):
            event = await asyncio.wait_for(events.get(), 10)
            if isinstance(event, DeliveriesReceived):
                answers += [delivery.payload for delivery in event.deliveries]
        client.close()
        await client.lost
        return answers

    with EmbeddedBroker(queues=["orders"]) as broker:
        answers = asyncio.run(scenario(broker.endpoints["localhost"].port))
    assert 1 < len(answers) < 40
    assert sum(map(len, answers[:-1])) <= CBS_BYTES
