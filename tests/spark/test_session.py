"""The session: our settings, and the Java that pip brings."""

from pyspark.sql import SparkSession


def test_a_session_counts_in_utc_and_runs_python_on_this_interpreter(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(1000).selectExpr("sum(id)").first() == (499500,)
