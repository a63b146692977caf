"""The reconciliation of the syphon's runs, as a table that grows (Y6)."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from pairbus.spark.platform.frames import frame_of

SCHEMA: Final = (
    "at timestamp, queue string, destination string, found long, delivered long, dead_lettered map<string,long>, "
    "waiting map<string,long>, duplicates_suspected long, oldest_at timestamp, seconds double"
)
"""A row per run, queue and destination; ``found`` is the sum of what was delivered, dead-lettered and waits."""


def append(spark: SparkSession, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Append the rows of a run to a Parquet table."""
    if rows:
        frame_of(spark, rows, SCHEMA).coalesce(1).write.mode("append").parquet(table)
