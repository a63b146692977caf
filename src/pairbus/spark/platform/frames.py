"""Frames of the few rows that the driver has itself."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: StructType | str) -> DataFrame:
    """Make a frame of rows by name.

    They go to Java as they are, and its planner knows them. With a plain list of rows, Spark would start Python
    workers to read them, even for none at all.
    """
    import pyarrow as pa  # noqa: PLC0415 (slow to import)

    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(cast("StructType", columns), timezone="UTC"))
    return cast("Any", spark).createDataFrame(table, columns)
