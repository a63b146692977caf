"""K3: a ledger file that cannot be read is set aside with its reason, and the rest is read."""

import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.rows import PLAN, record, write

from pairbus.core.ledger import Kind
from pairbus.spark.schemas import SILVER
from pairbus.spark.tables import Settings, Tables

pytestmark = pytest.mark.usefixtures("small")


def test_k3_a_truncated_file_and_junk_do_not_keep_the_rest_out(spark: SparkSession, tmp_path: Path) -> None:
    """They are tried again every time, and read when they are whole."""
    ledger = tmp_path / "ledger"
    good = write(ledger, "good", [record(0, Kind.SEND, messages=2)])
    whole = gzip.compress("".join(record(n, Kind.SEND).to_json() + "\n" for n in range(500)).encode())
    (ledger / "torn.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (ledger / "junk.jsonl.gz").write_bytes(bytes(range(256)) * 20)
    tables = Tables(spark, str(tmp_path / "out"), Settings(PLAN, {}))
    given = [str(good), str(ledger / "*.gz")]
    for read in (1, 0):
        assert tables.update(given) == read
        assert sorted(Path(file).name for file in tables.set_aside) == ["junk.jsonl.gz", "torn.jsonl.gz"]
        assert all(tables.set_aside.values())
        assert tables.read(SILVER).count() == 1
    (ledger / "torn.jsonl.gz").write_bytes(whole)
    assert tables.update(given) == 1
    assert [Path(file).name for file in tables.set_aside] == ["junk.jsonl.gz"]
    assert tables.read(SILVER).count() == 501
