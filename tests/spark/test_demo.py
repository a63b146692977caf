"""The demo, from its first broker to its verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_demo_loses_nothing_and_leaves_a_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pairbus", "demo", "--json", "--keep", str(tmp_path / "demo")]
    ended = subprocess.run(
        command, env=os.environ | {"COLUMNS": "80"}, check=False, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["sent"] == told["received"] > 500
    assert (told["lost"], told["duplicates"], told["failed_sends"]) == (0, 0, 0)
    assert told["delivered"] >= told["parked"] > 100
    assert told["failover_seconds"] > 0
    assert told["drain_seconds"] > 0
    assert told["cost"]["stages"]["park"]["operations"] > 0
    assert told["without_pairing"]["failed_sends"] > 0
    assert (tmp_path / "demo" / "report" / "report.html").stat().st_size > 10_000
    for text in ("kill -9", "failover", "a ping got through", "pairbus syphon --once"):
        assert text in ended.stderr
    assert "\x1b[" not in ended.stderr, "no colour when piped"
    assert max(map(len, ended.stderr.splitlines())) <= 80
