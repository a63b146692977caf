"""K3: a run that is killed, two at once and tables that were damaged leave what a run from nothing makes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from tests.spark.rows import PLAN, record, rows, turn, write

from pairbus.core.ledger import Kind, Record, Stage
from pairbus.core.pricing import Plan, Tier
from pairbus.spark.platform.files import Files
from pairbus.spark.tables.journal import JOURNAL, Journal
from pairbus.spark.tables.ledger_tables import Settings, Tables
from pairbus.spark.tables.schemas import GOLD, SILVER

pytestmark = pytest.mark.usefixtures("small")

DAY = 24 * 3600.0
CHEAP = Settings(PLAN, {})
DEAR = Settings(Plan("dear", "USD", PLAN.as_of, 0, (Tier(None, 10**9),)), {})


def a_day(seconds: float, messages: int) -> list[Record]:
    """Some traffic with an outage; every gold table but one gets rows."""
    return [
        record(seconds, Kind.SEND, messages=messages),
        turn(seconds + 1, "suspect"),
        turn(seconds + 2, "engaged"),
        record(seconds + 3, Kind.SEND, Stage.PARK, messages=3, destination="orders"),
        turn(seconds + 4, "healthy"),
        record(seconds + 5, Kind.SEND, Stage.SYPHON, messages=2, entity="orders", destination="orders"),
    ]


def told(tables: Tables) -> dict[str, list[tuple[Any, ...]]]:
    return {table.name: rows(tables.read(table), table) for table in (SILVER, *GOLD)}


def tree(out: Path) -> dict[str, bytes]:
    """Return what readers see, but for the page."""
    files = (file for pattern in ("*/**/*.parquet", "manifest.json") for file in out.glob(pattern))
    return {str(file.relative_to(out)): file.read_bytes() for file in files if not file.name.startswith(".")}


def fresh(spark: SparkSession, ledger: Path, out: Path, settings: Settings) -> dict[str, list[tuple[Any, ...]]]:
    tables = Tables(spark, str(out), settings)
    tables.update([str(ledger)])
    return told(tables)


class Watched(Files):
    """Tells before each step that changes something."""

    steps: ClassVar[list[Callable[[], object]]] = []

    def delete(self, path: str) -> None:
        self.steps[0]()
        super().delete(path)

    def rename(self, path: str, to: str) -> None:
        self.steps[0]()
        super().rename(path, to)

    def write(self, path: str, text: str) -> None:
        self.steps[0]()
        super().write(path, text)


def test_k3_a_run_can_be_killed_at_every_instant(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each step of a real run leaves is made good: a new day, a day that has gone, and other prices for all."""
    ledger, out, copies = tmp_path / "ledger", tmp_path / "out", tmp_path / "copies"
    write(ledger, "ledger-1", a_day(0, 9_000))
    write(ledger, "ledger-2", a_day(DAY, 9_000))
    Tables(spark, str(out), CHEAP).update([str(ledger)])
    before = tree(out)
    write(ledger, "ledger-2", a_day(3 * DAY, 7))  # instead of what it was
    write(ledger, "ledger-3", [record(10, Kind.SEND, messages=5), *a_day(40 * DAY, 1)])

    Watched.steps[:] = [lambda: shutil.copytree(out, copies / str(len(list(copies.glob("*")))))]
    copies.mkdir()
    monkeypatch.setattr("pairbus.spark.tables.ledger_tables.Files", Watched)
    tables = Tables(spark, str(out), DEAR)
    assert tables.update([str(ledger)]) == 2
    monkeypatch.undo()
    after = tree(out)
    assert told(tables) == fresh(spark, ledger, tmp_path / "fresh", DEAR)
    assert [str(day) for day in tables.days] == ["2026-03-30", "2026-04-02", "2026-05-09"]
    assert not [name for name in after if "date=2026-03-31" in name]

    outcomes: list[bool] = []
    for copy in sorted(copies.iterdir(), key=lambda copy: int(copy.name)):
        begun = (copy / JOURNAL).exists()
        assert Journal(Files(spark), str(copy)).recover() == begun
        assert tree(copy) == (after if begun else before), f"killed before step {copy.name}"
        outcomes.append(begun)
    assert outcomes == sorted(outcomes)
    assert sum(outcomes) > 30
    assert not outcomes[0]


DRIVER = """
import os, signal, sys
from pathlib import Path
from tests.spark import test_tables_killed as test
from pairbus.spark.platform.session import spark_session
rename = test.Files.rename
def kill(files, path, to):
    if "/silver/date=" in to:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(files, path, to)
test.Files.rename = kill
spark = spark_session("killed", master="local[1]", brief=True)
test.Tables(spark, sys.argv[2], test.DEAR).update([sys.argv[1]])
"""


def test_k3_another_process_is_refused_and_one_that_was_killed_is_made_good(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two at once really are; and a re-pricing that is killed between deleting and renaming a day leaves no trace."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    write(ledger, "ledger-1", a_day(0, 9_000) + a_day(DAY, 9_000))
    refused: list[subprocess.CompletedProcess[str]] = []

    def meanwhile(step: str) -> None:
        if step == "costs":
            refused.append(run("-m", "pairbus", "report", str(ledger), "--out", str(out)))

    tables = Tables(spark, str(out), CHEAP)
    assert tables.update([str(ledger)], meanwhile) == 1
    assert refused[0].returncode == 2
    assert f"process {os.getpid()} on " in " ".join(refused[0].stderr.split())
    assert "Traceback" not in refused[0].stderr
    wanted = fresh(spark, ledger, tmp_path / "fresh", CHEAP)
    assert told(tables) == wanted

    assert run("-c", DRIVER, str(ledger), str(out)).returncode == -9
    assert (out / JOURNAL).exists()
    assert not list(out.glob("silver/date=2026-03-30"))
    assert tables.update([str(ledger)]) == 0
    assert told(tables) == wanted


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300)


def test_k3_bronze_is_listed_once_and_what_is_damaged_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run lists once, however many files are new. Days that a version before 2 has lost come back from bronze."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    for number in range(20):
        write(ledger, f"ledger-{number}", [record(number * DAY / 10, Kind.SEND, messages=number)])
    listed: list[str] = []
    names = Files.names

    def listing(files: Files, pattern: str) -> list[str]:
        listed.append(pattern)
        return names(files, pattern)

    monkeypatch.setattr(Files, "names", listing)
    tables = Tables(spark, str(out), CHEAP)
    assert tables.update([str(ledger)]) == 20
    assert len([each for each in listed if "/bronze/" in each]) <= 3  # there, staged, there then
    wanted = told(tables)

    shutil.rmtree(next(out.glob("bronze/date=2026-03-31/source=*")))
    assert tables.update([str(ledger)]) == 1
    assert told(tables) == wanted

    manifest = json.loads((out / "manifest.json").read_text())
    old = {"version": 1, "settings": CHEAP.fingerprint, "files": manifest["files"]}
    (out / "manifest.json").write_text(json.dumps(old))
    (out / ".manifest.json.crc").unlink()
    shutil.rmtree(out / "silver" / "date=2026-03-30")
    shutil.rmtree(next(out.glob("bronze/date=2026-03-31/source=*")))
    assert tables.update([str(ledger)]) > 0
    assert told(tables) == wanted
