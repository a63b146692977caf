"""K3: what cannot be read among ledgers is set aside with its file and reason, and the rest is read."""

import gzip
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.rows import PLAN, record, write

from pairbus.core.ledger import VERSION, Kind
from pairbus.spark.report.summary import gather
from pairbus.spark.tables.ledger import malformed
from pairbus.spark.tables.ledger_tables import Settings, Tables
from pairbus.spark.tables.schemas import BRONZE, SILVER

pytestmark = pytest.mark.usefixtures("small")

NEWER = f"a record of a newer version than {VERSION}, the last that this pairbus reads"


def of_a_newer_version(seconds: float, **fields: object) -> str:
    """Return a line that a later pairbus might write: not all is where it is now."""
    line = json.loads(record(seconds, Kind.SEND, messages=9).to_json())
    return json.dumps({**line, "v": VERSION + 1, **fields}) + "\n"


def test_k3_a_truncated_file_and_junk_do_not_keep_the_rest_out(spark: SparkSession, tmp_path: Path) -> None:
    """They are tried again every time, and read when they are whole."""
    ledger = tmp_path / "ledger"
    write(ledger, "good", [record(0, Kind.SEND, messages=2)])
    whole = gzip.compress("".join(record(n, Kind.SEND).to_json() + "\n" for n in range(500)).encode())
    (ledger / "torn.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (ledger / "junk.jsonl.gz").write_bytes(bytes(range(256)) * 20)
    tables = Tables(spark, str(tmp_path / "out"), Settings(PLAN, {}))
    for read in (1, 0):
        assert tables.update([str(ledger)]) == read
        assert sorted(Path(file).name for file in tables.set_aside) == ["junk.jsonl.gz", "torn.jsonl.gz"]
        assert all(tables.set_aside.values())
        assert tables.read(SILVER).count() == 1
    (ledger / "torn.jsonl.gz").write_bytes(whole)
    assert tables.update([str(ledger)]) == 1
    assert [Path(file).name for file in tables.set_aside] == ["junk.jsonl.gz"]
    assert tables.read(SILVER).count() == 501


def test_k3_random_bytes_and_records_of_a_newer_version_are_lines_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each with its file and its reason; a byte that is no UTF-8 does not make a record unreadable."""
    ledger = tmp_path / "ledger"
    good = write(ledger, "good", [record(0, Kind.SEND, messages=2), record(1, Kind.SEND, client="caf?")])
    good.write_bytes(good.read_bytes().replace(b"caf?", b"caf\xe9"))
    (ledger / "junk.jsonl").write_bytes(random.Random(1).randbytes(20_000))
    (ledger / "newer.jsonl").write_text(
        of_a_newer_version(2)
        + of_a_newer_version(3, messages="nine", kind="teleport")
        + record(4, Kind.SEND).to_json()
        + "\n"
    )
    tables = Tables(spark, str(tmp_path / "out"), Settings(PLAN, {}))
    assert tables.update([str(ledger)]) == 3
    assert tables.set_aside == {}
    assert tables.read(SILVER).count() == 3
    found = {(Path(row["file"]).name, row["reason"]) for row in malformed(tables.read(BRONZE)).collect()}
    assert {name for name, _ in found} == {"junk.jsonl", "newer.jsonl"}
    assert {reason for name, reason in found if name == "newer.jsonl"} == {NEWER}
    facts = gather(tables, PLAN)
    assert {Path(file).name: count for file, count in facts.newer.items()} == {"newer.jsonl": 2}


def test_k3_the_command_tells_of_both_and_ends_with_1(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    write(ledger, "good", [record(0, Kind.SEND, messages=2)])
    (ledger / "junk.jsonl.gz").write_bytes(bytes(range(256)) * 20)
    (ledger / "newer.jsonl").write_text(of_a_newer_version(2))
    command = [sys.executable, "-m", "pairbus", "report", str(ledger), "--out", str(tmp_path / "out"), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert re.search(r"junk\.jsonl\.gz was set aside, since it cannot be read: ", ended.stderr)
    assert re.search(r"newer\.jsonl: 1 record of a newer pairbus cannot be read and not counted; update", ended.stderr)
    assert "Traceback" not in ended.stderr
    told = json.loads(ended.stdout)
    assert (told["records"], told["malformed"]) == (1, 1)
    assert [each["reason"] for each in told["malformed_lines"]] == [NEWER]
