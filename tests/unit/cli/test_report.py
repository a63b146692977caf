"""``pairbus report``: what is refused before Spark is started. What it makes is in tests/spark."""

import re

from typer.testing import CliRunner

from pairbus.cli import app


def test_an_alias_is_two_names() -> None:
    result = CliRunner().invoke(app, ["report", "ledger", "--out", "tables", "--alias", "contoso"])
    assert result.exit_code == 2
    assert "write it as localhost-5672=contoso" in re.sub(r"[\s│]+", " ", result.output)


def test_a_plan_is_one_of_the_price_file() -> None:
    result = CliRunner().invoke(app, ["report", "ledger", "--out", "tables", "--plan", "golden"])
    assert result.exit_code == 1
    assert "golden" in str(result.exception)
