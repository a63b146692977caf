"""kill -9 at random points: nothing that was acknowledged is lost, nothing that was removed comes back.

``PAIRBUS_CRASHES`` sets the number of kills (default 6).
"""

import os
import random
import selectors
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.unit.broker.store.conftest import Owner
from tests.unit.broker.store.crashing import body_of, payload_of

from pairbus.broker.store.base import entity_of, sequence_of

ROUNDS = int(os.environ.get("PAIRBUS_CRASHES", "6"))
CHILD = Path(__file__).with_name("crashing.py")


def run_and_kill(path: Path, seed: int) -> list[str]:
    """Return what the child said before it was killed, some time after its first word."""
    choice = random.Random(seed)
    said = b""
    with (
        subprocess.Popen([sys.executable, CHILD, path, str(seed)], stdout=subprocess.PIPE) as child,
        selectors.DefaultSelector() as ready,
    ):
        assert child.stdout is not None
        output = child.stdout.fileno()
        ready.register(output, selectors.EVENT_READ)
        assert ready.select(timeout=30), "the child says nothing"
        deadline = time.monotonic() + choice.uniform(0, 0.6)
        while (left := deadline - time.monotonic()) > 0:
            if ready.select(left):
                said += os.read(output, 1 << 16)
        child.kill()
        while more := os.read(output, 1 << 16):
            said += more
    # The last line may be half a line.
    return said.decode("ascii").rpartition("\n")[0].split()


def test_after_kill_9_what_was_acknowledged_is_there_and_what_was_removed_is_not(owner: Owner) -> None:
    durable: set[int] = set()
    begun: set[int] = set()
    removed: set[int] = set()
    delivered: set[int] = set()
    for seed in range(ROUNDS):
        words = run_and_kill(owner.path, random.randrange(1 << 30) + seed)
        assert words
        durable |= {int(word[1:]) for word in words if word[0] == "+"}
        begun |= {int(word[1:]) for word in words if word[0] == "?"}
        removed |= {int(word[1:]) for word in words if word[0] == "-"}
        delivered |= {int(word[1:]) for word in words if word[0] == "*"}
        store = owner.sqlite()
        entities = store.entities()
        next_sequence = {found.id: found.next_sequence for found in entities}
        there = {found.key for found in entities for found in store.index(found.id)}
        assert not durable - begun - there, "an acknowledged message is lost"
        assert not removed & there, "a message is back though its removal was acknowledged"
        for key in durable | begun | there:
            assert sequence_of(key) < next_sequence[entity_of(key)]
        for start in range(0, len(keys := sorted(there)), 500):
            for found in store.load(keys[start : start + 500]):
                assert found.payload == payload_of(found.key)
                assert found.deliveries >= (found.key in delivered)
        assert len(store.load(keys)) == len(keys)
        store.close()
        with closing(sqlite3.connect(owner.path)) as plain:
            stored = {key for (key,) in plain.execute("SELECT key FROM payload")}
        assert stored == set(map(body_of, there)), "a body is lost, or nobody's"
    assert removed
    assert delivered
