"""The swap of staged partitions, killed at every step, and the lock; without Spark."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

from pairbus.errors import TablesError
from pairbus.spark.tables.journal import JOURNAL, MANIFEST, Change, Journal
from pairbus.spark.tables.lock import directory_lock

STAGING = ".staging-1"
BEFORE = {
    "silver/date=1/a": "old",
    "silver/date=2/a": "to be removed",
    "cost/date=1/a": "old cost",
    "cost/date=1/b": "more of it",
    "cost/date=0/a": "not touched",
    MANIFEST: '{"prices": "old"}',
}
STAGED = {"silver/date=1/c": "new", "silver/date=3/c": "a new day", "cost/date=1/c": "new cost", "cost/date=1/d": "!"}
AFTER = {"cost/date=0/a": "not touched", **STAGED, MANIFEST: json.dumps({"prices": "new"}, indent=1)}
PARTITIONS = ("silver/date=1", "silver/date=2", "silver/date=3", "cost/date=1")


class Disk:
    """The steps on this machine's files, each of which may be the last.

    :param step: told before each step that changes something.
    :param copies: whether renaming is copying and then deleting, as on an object store.
    """

    def __init__(self, step: Callable[[], None] = lambda: None, *, copies: bool = False) -> None:
        self._step = step
        self._copies = copies

    def names(self, pattern: str) -> list[str]:
        return sorted(glob(pattern))  # noqa: PTH207 (the pattern begins with the path)

    def contents(self, path: str) -> tuple[int, int] | None:
        if not Path(path).exists():
            return None
        files = _files(Path(path))
        return len(files), sum(file.stat().st_size for file in files)

    def delete(self, path: str) -> None:
        place = Path(path)
        for file in _files(place) if place.is_dir() else [place]:
            self._step()
            file.unlink(missing_ok=True)
        self._step()
        shutil.rmtree(place, ignore_errors=True)

    def rename(self, path: str, to: str) -> None:
        assert not Path(to).exists()
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        self._step()
        if not self._copies or Path(path).is_file():
            Path(path).rename(to)
            return
        Path(to).mkdir()
        for file in _files(Path(path)):
            self._step()
            shutil.copy2(file, Path(to) / file.name)
        self.delete(path)

    def read(self, path: str) -> str | None:
        return Path(path).read_text() if Path(path).exists() else None

    def write(self, path: str, text: str) -> None:
        for part in (text[: len(text) // 2], text):
            self._step()
            Path(f"{path}.new").write_text(part)
        self.delete(path)
        self.rename(f"{path}.new", path)


def _files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file())


def tree(out: Path) -> dict[str, str]:
    """Return what readers see."""
    found = {str(file.relative_to(out)): file.read_text() for file in _files(out)}
    return {name: text for name, text in found.items() if not name.startswith(".") and not name.endswith(".new")}


def lay_out(out: Path) -> list[Change]:
    """Make tables with a staged run beside them."""
    shutil.rmtree(out, ignore_errors=True)
    for root, texts in ((out, BEFORE), (out / STAGING, STAGED)):
        for name, text in texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return [Change(each, *(Disk().contents(f"{out / STAGING}/{each}") or (0, 0))) for each in PARTITIONS]


def killed_at(number: int, work: Callable[[Callable[[], None]], object]) -> bool:
    """Do something in a process of its own that is killed with -9 before a step; tell whether it came to that."""
    child = os.fork()
    if child == 0:
        left = [number]

        def step() -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            work(step)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("copies", [False, True], ids=["renames", "copies"])
def test_a_swap_that_is_killed_at_any_step_is_done_or_was_never_begun(tmp_path: Path, *, copies: bool) -> None:
    """K3: also if the process that finishes it is killed at any step of that."""
    out = tmp_path / "tables"
    number, outcomes = 0, set[str]()
    while True:
        changes = lay_out(out)

        def swap(step: Callable[[], None], changes: list[Change] = changes) -> None:
            journal = Journal(Disk(step, copies=copies), str(out))
            journal.commit(STAGING, changes, {"prices": "new"}, {"prices": "old"})

        if not killed_at(number, swap):
            break
        wanted = AFTER if (out / JOURNAL).exists() or tree(out) == AFTER else BEFORE
        outcomes.add("after" if wanted is AFTER else "before")
        again = 0
        while killed_at(again, lambda step: Journal(Disk(step, copies=copies), str(out)).recover()):
            again += 1
            assert again < 200
        assert not Journal(Disk(), str(out)).recover()
        assert tree(out) == wanted, f"killed before step {number}"
        assert not list(out.glob(".staging*"))
        number += 1
    assert number > 20
    assert outcomes == {"before", "after"}
    assert tree(out) == AFTER


def test_what_was_deleted_by_hand_cannot_be_finished(tmp_path: Path) -> None:
    changes = lay_out(tmp_path)
    journal = Journal(Disk(), str(tmp_path))
    (tmp_path / STAGING / "cost/date=1/d").unlink()
    with pytest.raises(TablesError, match=r"cost/date=1: a run that was killed .* make them of the ledgers"):
        journal.commit(STAGING, changes, {"prices": "new"}, {"prices": "old"})


def test_tables_that_another_run_has_changed_are_left_alone(tmp_path: Path) -> None:
    """Where no lock can be had, the run that ends last is refused."""
    changes = lay_out(tmp_path)
    with pytest.raises(TablesError, match="another process has changed these tables meanwhile"):
        Journal(Disk(), str(tmp_path)).commit(STAGING, changes, {"prices": "new"}, {"prices": "mine"})
    assert tree(tmp_path) == BEFORE


HOLD = """
import sys
from pathlib import Path
from pairbus.spark.tables.lock import directory_lock
with directory_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    """The second is refused; ``kill -9`` of the first frees it; one that waits gets it then."""
    out = tmp_path / "new" / "tables"
    for kill in (True, False):
        command = [sys.executable, "-c", HOLD, str(out)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdin is not None
            assert holder.stdout.readline() == b"held\n"
            refusal = rf"tables: process {holder.pid} on .*, since 20.*, brings these tables .* run this again"
            with pytest.raises(TablesError, match=refusal), directory_lock(out):
                pass
            if kill:
                holder.kill()
            else:
                holder.stdin.close()
            with directory_lock(out, wait=60):
                pass
    with directory_lock(out):
        pass
