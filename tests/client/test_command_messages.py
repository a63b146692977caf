"""``pairbus send``, ``receive`` and ``status``, as a user meets them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.client.commanding import UNPAIRED, Shell, broker, pairbus

__all__ = ["broker", "pairbus"]

TYPED = {
    "text": "grüße",
    "int": 3,
    "long": {"type": "long", "value": 3},
    "big": 1 << 40,
    "double": 1.5,
    "flag": True,
    "nothing": None,
    "binary": {"type": "binary", "value": "AAH/"},
    "uuid": {"type": "uuid", "value": "12345678-1234-5678-1234-567812345678"},
    "when": {"type": "timestamp", "value": "2026-01-31T12:00:00.250Z"},
    "ulong": {"type": "ulong", "value": 1 << 63},
    "short": {"type": "short", "value": -2},
    "symbol": {"type": "symbol", "value": "sym"},
    "float": {"type": "float", "value": 0.5},
}
EVERYTHING = {
    "message_id": "m-1",
    "session_id": "table-4",
    "subject": "order",
    "to": "kitchen",
    "reply_to": "waiters",
    "reply_to_session_id": "w-1",
    "correlation_id": "c-1",
    "content_type": "text/plain",
    "content_encoding": "identity",
    "partition_key": "table-4",
    "time_to_live": 3600.5,
    "application_properties": TYPED,
}

BODIES = (
    {"body": "zwei Kaffee, größer"},
    {"body_base64": "/wAB"},
    {"body_base64": ["/wAB", "AA=="]},
    {"body_value": {"type": "map", "value": [["a", 1], ["b", {"type": "long", "value": 2}]]}},
    {"body_value": "text"},
    {"body_sequence": [[1, "two"], [{"type": "uuid", "value": "12345678-1234-5678-1234-567812345678"}]]},
)


def lines(*documents: object) -> str:
    return "".join(json.dumps(each) + "\n" for each in documents)


def without_received(output: str) -> list[dict[str, object]]:
    documents = [json.loads(line) for line in output.splitlines()]
    return [{name: value for name, value in each.items() if name != "received"} for each in documents]


def test_what_receive_writes_is_what_send_reads(pairbus: Shell) -> None:
    """A round trip: every property, every type and every kind of body, peeked and received."""
    given = [{**EVERYTHING, "message_id": f"m-{n}", **body} for n, body in enumerate(BODIES)]
    sent = pairbus("send", "orders", "--json", stdin=lines(*given))
    assert (sent.code, json.loads(sent.out)["sent"], sent.err) == (0, len(given), "")
    peeked = pairbus("receive", "orders", "--peek", "--all")
    assert without_received(peeked.out) == given
    assert pairbus("send", "copy", stdin=peeked.out).code == 0
    received = pairbus("receive", "copy", "--all", "--wait", "0.5s")
    assert without_received(received.out) == given
    assert pairbus("receive", "copy", "--peek", "--all").out == "", "they were completed"
    assert len(pairbus("receive", "orders", "--max", "6", "--mode", "receive-and-delete").out.splitlines()) == 6
    assert pairbus("receive", "orders", "--wait", "0.1s").out == ""


def test_options_say_what_a_line_does_not(pairbus: Shell, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text(lines({"body": "from a file", "subject": "own"}) + "\n", encoding="utf-8")
    options = ["--subject", "drink", "--ttl", "2h", "-p", "a=b", "-p", 'n:={"type":"long","value":1}']
    ended = pairbus("send", "orders", "an argument", "-f", str(file), *options, **UNPAIRED)
    assert (ended.code, ended.out) == (0, "2 sent, 0 parked, 0 failed\n")
    first, second = without_received(pairbus("receive", "orders", "--all", "--wait", "0.5s").out)
    assert (first["body"], first["subject"], first["time_to_live"]) == ("an argument", "drink", 7200.0)
    assert first["application_properties"] == {"a": "b", "n": {"type": "long", "value": 1}}
    assert (second["body"], second["subject"]) == ("from a file", "own")
    assert pairbus("send", "orders", "later", "--schedule", "1h", "--id", "x", **UNPAIRED).code == 0
    (later,) = map(json.loads, pairbus("receive", "orders", "--peek", "--all").out.splitlines())
    assert (later["message_id"], later["received"]["state"]) == ("x", "scheduled")


def test_a_bad_line_is_named_and_nothing_is_sent(pairbus: Shell, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"body": "good"}\n{"body": \n{"bdy": "x"}\n{"time_to_live": "soon"}\n', encoding="utf-8")
    refused = pairbus("send", "orders", "-f", str(file))
    assert refused.code == 2
    assert f"{file}:2: not a line of JSON" in refused.err
    assert f"{file}:3: bdy is 'x': not a field of a message; did you mean 'body'?" in refused.err
    assert f"{file}:4: time_to_live is 'soon': a number of seconds" in refused.err
    assert "nothing was sent" in refused.err
    assert pairbus("receive", "orders", "--peek", "--all").out == ""
    going_on = pairbus("send", "orders", "-f", str(file), "--keep-going", "--json", **UNPAIRED)
    assert going_on.code == 1
    assert json.loads(going_on.out) == {
        "entity": "orders",
        "sent": 1,
        "parked": 0,
        "failed": 3,
        "unknown": 0,
        "not_tried": 0,
    }
    streamed = pairbus("send", "orders", stdin='{"body": "good"}\n[]\n{"body": "not reached"}\n', **UNPAIRED)
    assert (streamed.code, streamed.out) == (1, "1 sent, 0 parked, 1 failed, 1 not tried\n")
    assert "standard input:2: the line is '[]': a message is a JSON object" in streamed.err
    assert pairbus("send", "orders", "-f", str(file), "--check").code == 2


def test_one_message_that_cannot_be_sent_does_not_hinder_the_others(pairbus: Shell, tmp_path: Path) -> None:
    failed = tmp_path / "failed.jsonl"
    given = [{"body": "small", "message_id": "1"}, {"body": "x" * 300_000, "message_id": "2"}, {"body": "small too"}]
    ended = pairbus("send", "orders", "--failed", str(failed), stdin=lines(*given), **UNPAIRED)
    assert (ended.code, ended.out) == (1, "2 sent, 0 parked, 1 failed\n")
    assert "standard input:2: " in ended.err
    assert "smaller parts" in ended.err
    assert [json.loads(line)["message_id"] for line in failed.read_text(encoding="utf-8").splitlines()] == ["2"]


def test_e3_a_property_of_ours_is_refused_when_paired(pairbus: Shell) -> None:
    ended = pairbus("send", "orders", "x", "-p", "x-ms-path=elsewhere")
    assert ended.code == 1
    assert "application property x-ms-path: reserved for parked messages" in ended.err


def test_s4_paired_messages_are_parked_while_the_primary_is_away_and_status_tells(pairbus: Shell) -> None:
    """B4, S4: parked, counted as such, and seen in the backlog with its destination."""
    pairbus.broker.fault("contoso", "down")
    ended = pairbus("send", "orders", "one", "two", "--failover-interval", "0s", "--backlog-queues", "2")
    assert (ended.code, ended.out) == (0, "0 sent, 2 parked, 0 failed\n")
    assert "orders is failing over: messages are parked in the secondary from now on" in ended.err
    status = json.loads(pairbus("status", "--json", "--backlog-queues", "1").out)
    assert (status["depth"], status["destinations"], status["dead_lettered"]) == (2, {"orders": 2}, 0)
    assert 0 <= status["oldest_seconds"] < 60
    assert [(queue["path"], queue["state"]) for queue in status["queues"]][:2] == [
        (f"{pairbus.backlog}/0", "in use"),
        (f"{pairbus.backlog}/1", "extra"),
    ]
    told = pairbus("status", "--backlog-queues", "11")
    assert told.code == 0
    assert "orders 2" in told.out
    assert "missing" in told.out
    assert "2 messages to be carried home, the oldest for" in told.out
    typed = {"body": "typed", "session_id": "s", "application_properties": TYPED}
    options = ["--failover-interval", "0s", "--backlog-queues", "2"]
    assert pairbus("send", "orders", *options, stdin=lines(typed)).out == "0 sent, 1 parked, 0 failed\n"
    unpaired = pairbus("send", "orders", "three", **UNPAIRED)
    assert (unpaired.code, unpaired.out) == (1, "0 sent, 0 parked, 1 failed\n")
    assert "check the connection string's endpoint and the network" in unpaired.err
    parked: list[dict[str, Any]] = []
    for index in range(2):
        taken = pairbus("receive", f"{pairbus.backlog}/{index}", "--all", "--wait", "0.2s", "--on", "secondary")
        parked += map(json.loads, taken.out.splitlines())
    assert [each["application_properties"]["x-ms-path"] for each in parked] == ["orders"] * 3
    (whole,) = [each["application_properties"] for each in parked if each["body"] == "typed"]
    assert whole == {**TYPED, "x-ms-path": "orders", "x-ms-sessionid": "s"}


def test_sessions_subscriptions_and_sub_queues(pairbus: Shell) -> None:
    documents = [{"body": f"{n}", "session_id": f"s{n % 2}", "message_id": f"{n}"} for n in range(4)]
    assert pairbus("send", "tables", stdin=lines(*documents), **UNPAIRED).code == 0
    denied = pairbus("receive", "tables", "--wait", "0.2s")
    assert denied.code == 2
    assert "session" in denied.err
    one = pairbus("receive", "tables", "--session", "s1", "--all", "--wait", "0.2s")
    assert [each["body"] for each in without_received(one.out)] == ["1", "3"]
    assert [e["body"] for e in without_received(pairbus("receive", "tables", "--session", "s0", "--peek").out)] == ["0"]
    following = pairbus("receive", "tables", "--next-session", "--all", "--wait", "0.2s")
    assert [each["body"] for each in without_received(following.out)] == ["0", "2"]
    assert pairbus("send", "news", "hello", **UNPAIRED).code == 0
    heard = pairbus("receive", "news", "-s", "audit", "--wait", "2s")
    assert [each["body"] for each in without_received(heard.out)] == ["hello"]
    dead = pairbus("receive", "news", "-s", "audit", "--sub-queue", "dead-letter", "--wait", "0.1s")
    assert (dead.code, dead.out) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["receive", "nowhere"], {}, "entity not found"),
        (["status"], {"PAIRBUS_SECONDARY_CONNECTION_STRING": None}, "set PAIRBUS_SECONDARY_CONNECTION_STRING"),
        (["status"], {"PAIRBUS_SECONDARY_CONNECTION_STRING": "secret"}, "cannot be read: copy it whole"),
        (["send", "orders", "x"], {"PAIRBUS_PRIMARY_CONNECTION_STRING": None}, "or give --primary"),
        (["send", "orders", "x", "--property", "x"], {}, "write name=text, or name:=JSON"),
        (["send", "orders", "x", "y", "--id", "1"], {}, "an id is for one message"),
        (["send", "orders", "x", "--schedule", "2026-99-01"], {}, "is no time"),
        (["send", "orders", "--file", "nowhere.jsonl"], {}, "nowhere.jsonl: No such file"),
        (["send", "orders", "--file", "a", "--failed", "./a"], {}, "it is one of the files that are read"),
        (["receive", "orders", "--session", "a", "--next-session"], {}, "either --session or --next-session"),
    ],
)
def test_what_is_wrong_is_named_with_the_cure(
    pairbus: Shell, arguments: list[str], environment: dict[str, str | None], says: str
) -> None:
    ended = pairbus(*arguments, **environment)
    assert ended.code == 2
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert "secret" not in ended.err


def test_a_key_that_is_not_good_enough_is_told_and_never_shown(pairbus: Shell) -> None:
    listener = pairbus.broker.create_policy("listener", ["Listen"], namespace="contoso")
    wrong = pairbus.secondary.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    try:
        denied = pairbus("send", "orders", "x", PAIRBUS_PRIMARY_CONNECTION_STRING=listener, **UNPAIRED)
        assert (denied.code, denied.out) == (1, "0 sent, 0 parked, 1 failed\n")
        assert "access denied" in denied.err
        assert "has the right (Send)" in denied.err
        status = pairbus("status", PAIRBUS_SECONDARY_CONNECTION_STRING=wrong)
        assert status.code == 2
        assert "access denied: InvalidSignature" in status.err
        paired = pairbus("send", "orders", "x", PAIRBUS_SECONDARY_CONNECTION_STRING=wrong)
        assert paired.code == 2
        assert "pairing needs the right to manage the secondary namespace" in paired.err
    finally:
        pairbus.broker.delete_policy("listener", namespace="contoso")


def spawn(shell: Shell, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PAIRBUS_PRIMARY_CONNECTION_STRING": shell.primary}
    return subprocess.Popen(
        [sys.executable, "-m", "pairbus", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupted_receive_leaves_what_it_has_not_written(pairbus: Shell) -> None:
    assert pairbus("send", "orders", "one", **UNPAIRED).code == 0
    with spawn(pairbus, "receive", "orders", "--all", "--wait", "60s") as command:
        assert command.stdout is not None
        assert json.loads(command.stdout.readline())["body"] == "one"
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=30)
    assert command.returncode == 130
    assert errors == "interrupted\n"
    assert pairbus("receive", "orders", "--peek").out == ""


def test_a_reader_that_has_gone_loses_nothing_that_was_not_written(pairbus: Shell) -> None:
    bodies = [{"body": f"{n} " + "x" * 2000} for n in range(400)]
    assert pairbus("send", "orders", stdin=lines(*bodies), **UNPAIRED).code == 0
    with spawn(pairbus, "receive", "orders", "--all", "--wait", "1s") as command:
        assert command.stdout is not None
        first = json.loads(command.stdout.readline())
        command.stdout.close()
        assert command.wait(timeout=30) == 141
        assert command.stderr is not None
        assert command.stderr.read() == ""
    assert first["body"].startswith("0 ")
    left = without_received(pairbus("receive", "orders", "--peek", "--all").out)
    assert len(left) >= 200, "those that were not written are still there"


def test_standard_input_is_sent_as_it_comes(pairbus: Shell) -> None:
    with spawn(pairbus, "send", "orders", "--text") as sending:
        assert sending.stdin is not None
        sending.stdin.write("one coffee\n")
        sending.stdin.flush()
        arrived = pairbus("receive", "orders", "--wait", "20s")
        assert [each["body"] for each in without_received(arrived.out)] == ["one coffee"]
        sending.send_signal(signal.SIGINT)
        out, errors = sending.communicate(timeout=30)
    assert (sending.returncode, out, errors) == (130, "1 sent, 0 parked, 0 failed\n", "interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no disk that is always full")
def test_a_full_disk_loses_nothing(pairbus: Shell) -> None:
    assert pairbus("send", "orders", "one", "--id", "1", **UNPAIRED).code == 0
    environment = {**os.environ, "PAIRBUS_PRIMARY_CONNECTION_STRING": pairbus.primary}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "pairbus", "receive", "orders"]
        ended = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: the output cannot be written: No space left on device")
    assert len(pairbus("receive", "orders").out.splitlines()) == 1
