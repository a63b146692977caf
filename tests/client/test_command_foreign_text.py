"""What others have written is shown literally: no markup of Rich's, nothing that a terminal obeys.

Whoever may send to a backlog queue, or dead-letter a message, writes into the terminal of whoever runs the commands.
"""

import json
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from tests.client.commanding import UNPAIRED, Shell, broker, pairbus
from tests.client.test_command_deadletter import bury

from pairbus.testing import QueueSettings

__all__ = ["broker", "pairbus"]

HOSTILE = (
    "orders[/b]",
    "orders[eu]",
    "[link=https://example.com]orders",
    "\x1b[31morders",
    "orders:smile:",
    "a\nb\u202ec\x9b2J",
)
SHOWN = (
    "orders[/b]",
    "orders[eu]",
    "[link=https://example.com]orders",
    r"\x1b[31morders",
    "orders:smile:",
    r"a\nb\u202ec\x9b2J",
)
OBEYED = ("\x1b", "\x9b", "\u202e")
WIDE = {"COLUMNS": "400"}


@pytest.fixture
def backlog(pairbus: Shell) -> Iterator[str]:
    """A backlog queue of the pairing."""
    path = f"{pairbus.backlog}/0"
    pairbus.broker.create_queue(path, QueueSettings(), namespace="fabrikam")
    yield path
    pairbus.broker.delete_queue(path, namespace="fabrikam")


def hostile_messages(**options: str) -> list[ServiceBusMessage]:
    """Messages with a hostile text wherever their sender may write one."""
    return [
        ServiceBusMessage(
            text,
            message_id=f"{number} {text}",
            subject=text,
            correlation_id=text,
            application_properties={"x-ms-path": text, text: text},
            **options,  # type: ignore[arg-type]
        )
        for number, text in enumerate(HOSTILE)
    ]


def put(connection_string: str, queue: str, *messages: ServiceBusMessage) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for message in messages:
            sender.send_messages(message)


def assert_literal(output: str, *, what: tuple[str, ...] = SHOWN) -> None:
    for text in what:
        assert text in output
    assert not [each for each in OBEYED if each in output]


def test_status_and_syphon_show_destinations_literally(pairbus: Shell, backlog: str) -> None:
    put(pairbus.secondary, backlog, *hostile_messages())
    status = pairbus("status", **WIDE)
    assert status.code == 0
    assert_literal(status.out)
    assert json.loads(pairbus("status", "--json").out)["destinations"] == dict.fromkeys(HOSTILE, 1)
    foreseen = pairbus("syphon", "--dry-run", "--engine", "local", **WIDE)
    assert foreseen.code == 0
    assert_literal(foreseen.out)
    moved = pairbus("syphon", "--once", "--engine", "local", **WIDE)
    assert moved.code == 0, moved.err
    assert_literal(moved.out)
    listed = pairbus("deadletter", "list", **WIDE)
    assert listed.code == 0
    assert_literal(listed.out)


def test_dead_letters_are_shown_literally(pairbus: Shell) -> None:
    messages = hostile_messages()
    bury(pairbus.primary, "orders", *zip(messages, HOSTILE, strict=True))
    listed = pairbus("deadletter", "list", "orders", **WIDE)
    assert listed.code == 0
    assert_literal(listed.out)
    for arguments in (["resubmit", "orders", "--dry-run"], ["discard", "orders", "--all", "--dry-run"]):
        would = pairbus("deadletter", *arguments, **WIDE)
        assert would.code == 0
        assert_literal(would.out)
        assert len(would.out.splitlines()) == len(HOSTILE) + 1
    for number, text in enumerate(HOSTILE):
        shown = pairbus("deadletter", "show", "orders", "--id", f"{number} {text}")
        document = json.loads(shown.out)
        assert (document["body"], document["received"]["dead_letter_reason"]) == (text, text)
        assert_literal(shown.out, what=())
    exported = pairbus("deadletter", "export", "orders")
    assert [json.loads(line)["body"] for line in exported.out.splitlines()] == list(HOSTILE)
    assert_literal(exported.out, what=())


def test_received_lines_are_json_that_a_terminal_does_not_obey(pairbus: Shell) -> None:
    put(pairbus.primary, "orders", *hostile_messages())
    for number, text in enumerate(HOSTILE):
        put(pairbus.primary, "tables", ServiceBusMessage(text, session_id=f"{number} {text}"))
    received = pairbus("receive", "orders", "--all", "--wait", "0.2s")
    assert [json.loads(line)["application_properties"]["x-ms-path"] for line in received.out.splitlines()] == list(
        HOSTILE
    )
    assert_literal(received.out, what=())
    looked = pairbus("receive", "tables", "--peek", "--all")
    assert [json.loads(line)["session_id"].partition(" ")[2] for line in looked.out.splitlines()] == list(HOSTILE)
    assert_literal(looked.out, what=())
    for number, text in enumerate(HOSTILE):
        mine = pairbus("receive", "tables", "--session", f"{number} {text}", "--wait", "0.2s")
        assert json.loads(mine.out)["body"] == text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_errors_are_shown_literally(pairbus: Shell, name: str) -> None:
    for arguments in (["send", name, "x"], ["receive", name], ["deadletter", "list", name], ["fault", name, "down"]):
        ended = pairbus(*arguments, **UNPAIRED, **WIDE)
        assert ended.code in (1, 2)
        assert_literal(ended.out + ended.err, what=())
        assert "Traceback" not in ended.err
    kept = pairbus("deadletter", "resubmit", "news", "-s", name, "--to", "orders", **WIDE)
    assert kept.code == 2
    assert_literal(kept.out + kept.err, what=())


def test_a_drill_beside_hostile_messages_is_told_literally(pairbus: Shell, backlog: str) -> None:
    put(pairbus.secondary, backlog, *hostile_messages())
    options = ["--syphon", "yours", "--backlog-queues", "1", "--messages", "1", "--drain-timeout", "0.1s"]
    ended = pairbus("drill", *options, **WIDE)
    assert (ended.code, "This pair would not have survived." in ended.out) == (1, True)
    assert_literal(ended.out + ended.err, what=())
