"""A Spark that is too old is named, with the one that is wanted."""

import sys

import pytest

from pairbus.errors import SparkUnavailableError
from pairbus.spark.connector.source import ServiceBusDataSource
from pairbus.spark.platform.session import session_for_command, spark_session
from pairbus.spark.platform.version import check_version

LACKING = ("pyspark.sql.streaming.datasource", "pairbus.spark.connector.reader", "pairbus.spark.connector.writer")


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0", "3.5.6"])
def test_an_older_spark_is_refused_with_the_version_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Also where the classes are missing that it does not have."""
    monkeypatch.setattr("pyspark.__version__", version)
    for name in LACKING:
        monkeypatch.setitem(sys.modules, name, None)
    refusal = rf"this is PySpark {version}, and pairbus needs 4\.2 or later: pip install 'pyspark>=4\.2,<5'"
    with pytest.raises(SparkUnavailableError, match=refusal):
        ServiceBusDataSource({}).streamReader(None)  # type: ignore[arg-type]
    with pytest.raises(SparkUnavailableError, match=refusal):
        spark_session("old")
    with pytest.raises(SparkUnavailableError, match=refusal), session_for_command("old", master="local[1]"):
        pass


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0.dev1", "5.0.0"])
def test_a_newer_spark_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    check_version()
