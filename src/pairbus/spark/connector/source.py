"""The data source itself: Spark finds it by the name ``servicebus``.

Spark imports this module in every session that uses any data source of Python, so it imports little.
"""

import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pairbus.spark.platform.version import check_version

if TYPE_CHECKING:
    from pairbus.spark.connector.reader import BatchReader, StreamReader
    from pairbus.spark.connector.writer import BatchWriter, StreamWriter

_PUSHES: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of Spark's process that pushes filters down, which runs only if Spark is set to do so."""


class ServiceBusDataSource(DataSource):
    """Azure Service Bus, for ``spark.read``, ``spark.readStream``, ``write`` and ``writeStream``.

    .. code-block:: python

        spark.read.format("servicebus").option("connectionString", "env:ORDERS").load("orders")
    """

    def __init__(self, options: dict[str, str]) -> None:
        check_version()  # before an import of what older versions lack, whose error would come out of Spark's trace
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "servicebus"

    def schema(self) -> StructType:
        """Return the columns of a read."""
        from pairbus.spark.connector.columns import READ, READ_BACKLOG  # noqa: PLC0415
        from pairbus.spark.connector.options import read_options  # noqa: PLC0415

        return READ_BACKLOG if read_options(self.options).is_backlog else READ

    def reader(self, schema: StructType) -> "BatchReader":
        """Return what reads once."""
        from pairbus.spark.connector.options import read_options  # noqa: PLC0415
        from pairbus.spark.connector.reader import BatchReader, FilteringReader  # noqa: PLC0415

        kind = FilteringReader if _PUSHES in sys.modules else BatchReader
        return kind(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 (Spark's name)
        """Return what reads batch by batch."""
        from pairbus.spark.connector.options import read_options  # noqa: PLC0415
        from pairbus.spark.connector.reader import StreamReader  # noqa: PLC0415

        return StreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":  # noqa: FBT001 (Spark's)
        """Return what writes once."""
        from pairbus.spark.connector.options import write_options  # noqa: PLC0415
        from pairbus.spark.connector.writer import BatchWriter  # noqa: PLC0415

        _check_appends(overwrite, "mode('append')")
        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: FBT001, N802 (Spark's)
        """Return what writes batch by batch."""
        from pairbus.spark.connector.options import write_options  # noqa: PLC0415
        from pairbus.spark.connector.writer import StreamWriter  # noqa: PLC0415

        _check_appends(overwrite, "outputMode('append') or outputMode('update')")
        return StreamWriter(write_options(self.options), schema)


def _check_appends(overwrite: bool, cure: str) -> None:  # noqa: FBT001 (Spark's)
    if overwrite:
        raise ValueError(f"messages that were sent cannot be overwritten; use {cure}")
