"""``pairbus report``: what is refused before Spark is started. What it makes is in tests/spark."""

import re
from pathlib import Path

from typer.testing import CliRunner

from pairbus.cli import app
from pairbus.cli.report import SMALL_BYTES, are_small


def test_an_alias_is_two_names() -> None:
    result = CliRunner().invoke(app, ["report", "ledger", "--out", "tables", "--alias", "contoso"])
    assert result.exit_code == 2
    assert "write it as localhost-5672=contoso" in re.sub(r"[\s│]+", " ", result.output)


def test_a_plan_is_one_of_the_price_file() -> None:
    result = CliRunner().invoke(app, ["report", "ledger", "--out", "tables", "--plan", "golden"])
    assert result.exit_code == 1
    assert "golden" in str(result.exception)


def test_small_ledgers_are_files_of_this_machine(tmp_path: Path) -> None:
    """What cannot be seen before Spark runs, or is large, is not taken for small."""
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_bytes(b"{}\n")
    assert are_small([str(tmp_path), str(ledger)])
    assert not are_small([str(tmp_path), "hdfs:///ledgers"])
    assert not are_small([str(tmp_path / "*.jsonl")])
    with ledger.open("r+b") as file:
        file.truncate(SMALL_BYTES + 1)
    assert not are_small([str(tmp_path)])
