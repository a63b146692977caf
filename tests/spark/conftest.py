"""What the tests of the pipeline share: one Spark session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pairbus.spark.platform.session import BRIEF, spark_session

# For every Java that the tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{BRIEF} -XX:+UseSerialGC")

TABLES = ("test_tables.py", "test_tables_real.py")
LONGEST = (
    "test_tables_generated.py",
    "test_connector.py",
    "test_demo.py",
    "test_connector_streams.py",
    "test_connector_example.py",
    *TABLES,
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that at the end no worker waits for another.

    A file's tests are one worker's, and so are those of the tables: Spark has compiled their plans by then.
    """
    ours = [item for item in items if item.path.parent == Path(__file__).parent]  # pytest hands in those of others, too
    ours.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    items[:] = ours + [item for item in items if item.path.parent != Path(__file__).parent]
    for item in ours:
        together = "tables" if item.path.name in TABLES else item.path.stem
        item.add_marker(pytest.mark.xdist_group(together))


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
