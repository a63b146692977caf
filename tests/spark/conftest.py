"""What the tests of the pipeline share: one Spark session."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pairbus.spark.session import spark_session

# For every Java that the tests start: for minutes on two cores, more threads and better code do not pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of all tests, on two cores of this machine."""
    session = spark_session(
        "pairbus tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, set for plans that are large and data that is small: they are not planned again stage by stage."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield spark
    spark.conf.set("spark.sql.adaptive.enabled", "true")
