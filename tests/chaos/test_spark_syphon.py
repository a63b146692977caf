"""kill -9 in the middle of a drain on a Spark cluster: of Python workers, executors and the driver (Y1, Y6).

``PAIRBUS_KILLS`` says how many, 20 unless told otherwise; ``PAIRBUS_SEED`` which.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.spark.stage import Pair, arrived, for_orders, pair
from tests.support.waiting import wait_until

from pairbus.core.ledger import Kind, Outcome
from pairbus.core.moving import BURST
from pairbus.instrument.ledger import read_ledger

KILLS = int(os.environ.get("PAIRBUS_KILLS", "20"))
SEED = int(os.environ.get("PAIRBUS_SEED", "0")) or random.randrange(10**6)
BACKLOG = 6_000
QUEUES = 4
EXECUTOR = "CoarseGrainedExecutorBackend"
DAEMON = "pyspark.daemon"


class Run:
    """One run of the command, in a session of its own, so that all its processes can be found."""

    def __init__(self, stage: Pair, ledger: Path, state: Path) -> None:
        variables = {
            "PAIRBUS_PRIMARY_CONNECTION_STRING": stage.primary.connection_string,
            "PAIRBUS_SECONDARY_CONNECTION_STRING": stage.secondary.connection_string,
            "XDG_STATE_HOME": str(state),
        }
        options = ["--once", "--json", "--master", "local-cluster[2,1,1024]", "--ledger", str(ledger)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "syphon", *options],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> dict[int, tuple[int, str]]:
        """Return the parent and the command line of each of its processes."""
        found: dict[int, tuple[int, str]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                state, parent, _group, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
                line = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if int(session) == self.process.pid and state != "Z":
                found[int(entry.name)] = int(parent), line
        return found

    def victims(self, kind: str) -> list[int]:
        processes = self.processes()
        if kind == "driver":
            return [self.process.pid]
        executors = [pid for pid, (_, line) in processes.items() if EXECUTOR in line and "java" in line]
        if kind == "executor":
            return executors
        daemons = {pid for pid, (parent, line) in processes.items() if DAEMON in line and parent in executors}
        return [pid for pid, (parent, _) in processes.items() if parent in daemons]

    def wait_until_gone(self) -> None:
        wait_for(lambda: not self.processes() or self.processes().keys() == {self.process.pid})


def wait_for(condition: Callable[[], bool]) -> None:
    wait_until(condition, 300.0)


def depth(stage: Pair) -> int:
    return sum(each or 0 for each in asyncio.run(stage.depths().look()).values())


def kill_in_the_middle(run: Run, stage: Pair, chance: random.Random) -> str | None:
    """Kill something once the drain is moving; tell what it was, or nothing if the drain was over."""
    before = depth(stage)
    wait_for(lambda: run.process.poll() is not None or depth(stage) < before)
    time.sleep(chance.uniform(0.0, 0.5))  # any instant will do
    kind = chance.choice(["worker", "executor", "driver"])
    victims = run.victims(kind)
    if run.process.poll() is not None or not victims or not depth(stage):
        return None
    os.kill(chance.choice(victims), signal.SIGKILL)
    return kind


def test_kills_lose_nothing(tmp_path: Path) -> None:
    """Y1, Y6: nothing is lost, each duplicate is a burst that was sent and not completed, and the books add up."""
    print(f"\n{KILLS} kills, PAIRBUS_SEED={SEED}")
    chance = random.Random(SEED)
    ledger = tmp_path / "ledger"
    killed, parked = Counter[str](), 0
    with pair(QUEUES, process=True, lock_seconds=5) as stage:
        while True:
            there = depth(stage)
            if killed.total() < KILLS and there < BACKLOG // 2:
                each = (BACKLOG - there) // QUEUES
                asyncio.run(
                    stage.park([m for queue in range(QUEUES) for m in for_orders(each, queue, f"{parked}-{queue}-")])
                )
                parked += each * QUEUES
                there = depth(stage)
            run, suspects = Run(stage, ledger, tmp_path), Counter[str]()
            while killed.total() + suspects.total() < KILLS and suspects["driver"] == 0:
                kind = kill_in_the_middle(run, stage, chance)
                if kind is not None:
                    suspects[kind] += 1
                if run.process.poll() is not None:
                    break
            told = run.process.communicate()[0]
            run.wait_until_gone()
            killed += suspects
            print(dict(suspects), "of", there, "->", depth(stage), "left; killed so far", killed.total())
            if suspects["driver"]:
                continue
            books = json.loads(told)
            assert run.process.returncode == 0, books
            assert books["found"] == books["delivered"] + books["dead_lettered"] + books["waiting"]
            assert there <= books["delivered"] <= there + books["duplicates_suspected"], books
            if killed.total() >= KILLS:
                break
        ids = Counter(asyncio.run(arrived(stage)))
    assert len(ids) == parked, "lost"
    assert ids.total() - parked <= killed.total() * QUEUES * BURST, "more came twice than bursts were interrupted"
    records = [each for each in read_ledger(ledger) if each.outcome is Outcome.DONE]
    sent = sum(each.messages for each in records if each.kind is Kind.SEND)
    assert not [each for each in records if each.kind is Kind.DROPPED]
    assert parked <= sent <= ids.total(), "a message left the backlog without its send in the ledger"
    print(f"{parked} parked, {ids.total() - parked} twice, {sent} sends in the ledger, killed {dict(killed)}")
