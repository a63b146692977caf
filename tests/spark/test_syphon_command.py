"""``pairbus syphon`` as its user sees it: what it prints, and its exit codes."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.spark.stage import Pair, arrived, for_orders, pair

from pairbus.core.envelope import Label

COMMAND = (sys.executable, "-m", "pairbus", "syphon")


def syphon(stage: Pair, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PAIRBUS_PRIMARY_CONNECTION_STRING": stage.primary.connection_string,
        "PAIRBUS_SECONDARY_CONNECTION_STRING": stage.secondary.connection_string,
        **variables,
    }
    return subprocess.run([*COMMAND, *options], env=environment, capture_output=True, text=True, check=False)


def test_what_it_does_in_one_process(tmp_path: Path) -> None:
    with pair(2) as stage:
        asyncio.run(stage.park([*for_orders(30), *for_orders(3, 1, "gone", "nowhere"), (1, "bad", Label())]))
        looked = syphon(stage, "--dry-run", "--json")
        assert looked.returncode == 0
        first, second = json.loads(looked.stdout)["queues"].values()
        assert first == {"orders": {"deliver": 30, "dead_letter": {}}}
        assert second == {
            "nowhere": {"deliver": 3, "dead_letter": {}},
            "": {"deliver": 0, "dead_letter": {"NoDestination": 1}},
        }
        done = syphon(stage, "--once", "--engine", "local", "--json", "--ledger", str(tmp_path / "ledger"))
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        counts = ("found", "delivered", "dead_lettered", "waiting", "duplicates_suspected")
        assert [told[each] for each in counts] == [34, 30, 4, 0, 0]
        assert told["seconds"] > 0
        assert [(each["destination"], each["delivered"], each["dead_lettered"]) for each in told["queues"]] == [
            ("orders", 30, 0),
            (None, 0, 1),
            ("nowhere", 0, 3),
        ]
        assert list((tmp_path / "ledger").iterdir())
        assert len(asyncio.run(arrived(stage))) == 30
        nothing = syphon(stage, "--once", "--engine", "local")
        assert (nothing.returncode, "0 messages" in nothing.stdout) == (0, True)


def test_what_cannot_go_now_is_told_and_stays() -> None:
    """Y3: exit code 1 says that messages wait."""
    with pair(1, process=True) as stage:
        asyncio.run(stage.park(for_orders(7)))
        stage.primary.kill()
        done = syphon(stage, "--once", "--engine", "local", "--json")
        told = json.loads(done.stdout)
        assert (done.returncode, told["found"], told["waiting"]) == (1, 7, 7)
        assert told["waiting_by_reason"] == {"outage": 7}
        shown = syphon(stage, "--once", "--engine", "local", COLUMNS="120")
        assert shown.returncode == 1
        assert "7 outage" in shown.stdout
        stage.secondary.kill()
        lost = syphon(stage, "--once", "--engine", "local")
        assert lost.returncode == 2
        assert "the queues of the secondary cannot be listed" in " ".join(lost.stderr.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--primary", "Endpoint=sb://x;SharedAccessKey=verysecret"), "the connection string of the primary"),
        (("--engine", "local", "--table", "t"), "with --engine spark only"),
    ],
)
def test_a_wrong_option_is_named_and_no_secret_is(options: tuple[str, ...], says: str) -> None:
    environment = {
        **os.environ,
        "PAIRBUS_PRIMARY_CONNECTION_STRING": "Endpoint=sb://a.localhost;SharedAccessKeyName=n;SharedAccessKey=k",
        "PAIRBUS_SECONDARY_CONNECTION_STRING": "Endpoint=sb://b.localhost;SharedAccessKeyName=n;SharedAccessKey=k",
    }
    done = subprocess.run([*COMMAND, "--once", *options], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "verysecret" not in done.stdout + done.stderr


def test_it_needs_no_java_on_the_machine(tmp_path: Path) -> None:
    """With no ``java`` on the path and no JAVA_HOME, the Java that pip brought carries the backlog home."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "ps", "uname", "cat", "head", "env", "nice", "id", "readlink"):
        found = shutil.which(name)
        if found is not None:
            (programs / name).symlink_to(found)
    with pair(2) as stage:
        asyncio.run(stage.park([*for_orders(30), *for_orders(20, 1, "n")]))
        variables = {"PATH": str(programs), "JAVA_HOME": "", "XDG_STATE_HOME": str(tmp_path / "state")}
        done = syphon(stage, "--once", "--master", "local[2]", "--json", **variables)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["delivered"] == 50
        expected = [*(f"m{number}" for number in range(30)), *(f"n{number}" for number in range(20))]
        assert Counter(asyncio.run(arrived(stage))) == Counter(expected)
    assert "WARN" not in done.stderr
