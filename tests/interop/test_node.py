"""Microsoft's client for Node.js sends, receives and settles."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pairbus.testing import EmbeddedBroker

HERE = Path(__file__).parent / "node"

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    pytest.mark.skipif(not (HERE / "node_modules").exists(), reason="no @azure/service-bus: make interop"),
]


def test_it_sends_peeks_receives_and_settles_in_every_way() -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:
        command = ["node", str(HERE / "client.mjs"), broker.connection_string]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "peeked": [1, 2, 3, 4],
        "received": [[1, "m1", 1, 0], [2, "m2", 2, 0], [3, "m3", 3, 0], [4, "m4", 4, 0]],
        "again": [2, 1, "later"],
        "deferred": 3,
        "dead": [4, "bad", "very"],
    }
