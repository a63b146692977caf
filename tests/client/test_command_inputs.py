"""What ``pairbus send`` cannot read is an error that names the file and the line; the command never hangs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.commanding import Shell, broker, pairbus

__all__ = ["broker", "pairbus"]

DEEP = b'{"body_value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DEEP_VALUES = b'{"body_value": ' + b'{"type": "list", "value": [' * 400 + b"]}" * 400 + b"}"
BAD = {
    "not UTF-8": (b'{"body": "caf\xe9"}', "byte 14 is not UTF-8 (0xe9)"),
    "lone surrogate in the body": (rb'{"body": "\ud800"}', r"'\ud800' is half a character"),
    "lone surrogate in a property": (rb'{"application_properties": {"a": "\udfff"}}', "is half a character"),
    "lone surrogate in an id": (rb'{"message_id": "a\ud800b"}', "is half a character"),
    "deep JSON": (DEEP, "nested too deep"),
    "deep values": (DEEP_VALUES, "nested too deep"),
    "a time before the first": (b'{"scheduled_enqueue_time_utc": "0001-01-01T00:00:00+23:00"}', "it cannot be sent"),
    "a number of many digits": (b'{"priority": ' + b"9" * 5000 + b"}", "not a line of JSON"),
}


def send(
    shell: Shell, *arguments: str | bytes, stdin: "bytes | int" = b"", **environment: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run the command in a process of its own, which is killed if it hangs."""
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return subprocess.run(
        [sys.executable, "-m", "pairbus", "send", "orders", *arguments],
        env={**os.environ, "PAIRBUS_PRIMARY_CONNECTION_STRING": shell.primary, **environment},
        capture_output=True,
        timeout=60,
        check=False,
        **given,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_text_that_is_not_utf8_ends_with_the_line(pairbus: Shell, locale: str) -> None:
    ended = send(pairbus, "--text", "--json", stdin=b"tea\ncaf\xe9\nwater\n", LC_ALL=locale)
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["sent"] == 1
    assert b"standard input:2: byte 4 is not UTF-8 (0xe9); convert the text" in ended.stderr
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("bad", BAD)
def test_a_line_that_cannot_be_sent_is_named(pairbus: Shell, tmp_path: Path, bad: str) -> None:
    line, says = BAD[bad]
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b'{"body": "good"}\n\n' + line + b"\n")
    refused = send(pairbus, "--file", str(file))
    assert refused.returncode == 2
    assert f"{file}:3: " in refused.stderr.decode()
    assert says in refused.stderr.decode()
    assert b"nothing was sent" in refused.stderr
    streamed = send(pairbus, "--json", stdin=file.read_bytes())
    assert (streamed.returncode, json.loads(streamed.stdout)["sent"]) == (1, 1)
    assert "standard input:3: " in streamed.stderr.decode()
    assert says in streamed.stderr.decode()
    assert b"Traceback" not in refused.stderr + streamed.stderr


@pytest.mark.parametrize(
    "arguments", [(b"caf\xe9",), (b"x", "--subject", b"caf\xe9"), (b"x", "-p", b"caf\xe9=1"), (b"x", "--id", b"\xe9")]
)
def test_arguments_that_are_not_utf8_are_refused(pairbus: Shell, arguments: tuple[str | bytes, ...]) -> None:
    ended = send(pairbus, *arguments)
    assert ended.returncode == 2
    assert b"argument 1: " in ended.stderr
    assert b"is half a character" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_deep_property_is_refused(pairbus: Shell) -> None:
    ended = send(pairbus, "x", "-p", "deep:=" + "[" * 60_000)
    assert ended.returncode == 2
    assert b"nested" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_standard_input_that_cannot_be_read_is_an_error(pairbus: Shell, tmp_path: Path) -> None:
    """The thread that reads it ends with an error; the command does not wait for it."""
    unreadable = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        ended = send(pairbus, stdin=unreadable)
    finally:
        os.close(unreadable)
    assert ended.returncode == 2
    assert b"error: standard input: Bad file descriptor" in ended.stderr
