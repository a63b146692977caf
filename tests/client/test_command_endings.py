"""How commands end: with a full output device, with a size that nobody has, by a signal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.commanding import Shell, broker, pairbus

__all__ = ["broker", "pairbus"]

COMMAND = [sys.executable, "-m", "pairbus"]
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no device that is always full")


@NEEDS_FULL
@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["cost"],
        ["cost", "--json"],
        ["status"],
        ["status", "--json"],
        ["deadletter", "list"],
        ["deadletter", "export", "orders"],
        ["send", "orders", "x"],
        ["syphon", "--once", "--engine", "local"],
        ["simulate", "--seeds", "1", "--jobs", "1"],
    ],
)
def test_a_full_output_device_is_an_error_and_no_traceback(pairbus: Shell, arguments: list[str]) -> None:
    environment = {
        **os.environ,
        "PAIRBUS_PRIMARY_CONNECTION_STRING": pairbus.primary,
        "PAIRBUS_SECONDARY_CONNECTION_STRING": pairbus.secondary,
    }
    if arguments[:2] == ["deadletter", "export"]:
        from tests.client.test_command_deadletter import bury_orders  # noqa: PLC0415 (only this one needs letters)

        bury_orders(pairbus)
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr.endswith("error: the output cannot be written: No space left on device\n")
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_b4_status_of_a_million_backlog_queues_lists_the_first_missing_and_counts_the_rest(pairbus: Shell) -> None:
    told = json.loads(pairbus("status", "--backlog-queues", "1000000", "--json").out)
    missing = [queue["path"] for queue in told["queues"] if queue["state"] == "missing"]
    there = len(told["queues"]) - len(missing)
    assert (told["missing"], len(missing)) == (1_000_000 - there, 100)
    assert missing[99] == f"{pairbus.backlog}/{there + 99}"
    shown = pairbus("status", "--backlog-queues", "1000000")
    assert shown.code == 0
    assert f"{told['missing'] - 100:,} more are missing." in shown.out


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_simulate_ends_its_workers(number: signal.Signals) -> None:
    """The workers hold the write end of a pipe: it is at its end when the last of them has ended."""
    with subprocess.Popen(
        [*COMMAND, "simulate", "--seeds", "1000000", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.stdout is not None
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        workers: list[str] = []
        while len(workers) < 2:
            assert running.poll() is None
            workers = [pid for task in children.parents[1].iterdir() for pid in (task / "children").read_text().split()]
        running.send_signal(number)
        assert running.wait(30) == -number
        assert running.stdout.read() == b"", "nothing is written, and every worker has ended"
