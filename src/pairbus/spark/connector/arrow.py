"""Arrow's batches, which have no types."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

RecordBatch: TypeAlias = Any
"""``pyarrow.RecordBatch``."""


def columns_of(batch: RecordBatch, indexes: Sequence[int]) -> list[list[Any]]:
    """Return the values of some columns, as Python has them."""
    return [batch.column(index).to_pylist() for index in indexes]


class Schema:
    """Columns as Spark wants them from Arrow."""

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def batch(self, columns: Sequence[Sequence[Any]]) -> RecordBatch:
        """Make a batch of columns; times and durations are microseconds, maps are pairs."""
        import pyarrow as pa  # noqa: PLC0415 (of the extra, and slow)

        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
