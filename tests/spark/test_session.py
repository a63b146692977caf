"""The session: our settings, and the Java that pip brings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pairbus.errors import SparkUnavailableError
from pairbus.spark.session import spark_session

A = "Endpoint=sb://a.localhost;SharedAccessKeyName=n;SharedAccessKey=k"


def test_a_session_counts_in_utc_and_runs_python_on_this_interpreter(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(1000).selectExpr("sum(id)").first() == (499500,)


def test_a_missing_extra_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkUnavailableError, match=r"Spark is not installed .*; pip install 'pairbus\[spark\]'"):
        spark_session("nothing")


def test_a_java_that_does_not_start_is_told_with_the_cure(tmp_path: Path) -> None:
    variables = {"JAVA_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pairbus", "syphon", "--once", "--primary", A, "--secondary", A],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is not the home of a Java" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
