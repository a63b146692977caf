"""The tables as a stream: kept up to date while ledger files arrive, with the functions that a batch has."""

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from pairbus.spark.platform.files import SUFFIX
from pairbus.spark.tables.ledger_tables import Tables
from pairbus.spark.tables.schemas import LINES

EVERY: Final = timedelta(minutes=1)


def arriving_lines(spark: SparkSession, directory: str) -> DataFrame:
    """Return the lines of a directory's ledger files as a stream.

    Spark reads a file once, when it first sees it. So the directory has to be one that whole files are moved to, as
    when they are shipped to an object store, and not the one that they are written in.
    """
    return (
        spark.readStream.option("pathGlobFilter", f"*{SUFFIX}")
        .text(directory)
        .select("value", F.col("_metadata.file_path").alias("file"))
        .withColumn("source", F.substring(F.sha2("file", 256), 1, 16))
        .select(*LINES.names)
    )


def follow(
    tables: Tables,
    lines: DataFrame,
    checkpoint: str,
    *,
    every: timedelta | None = EVERY,
) -> StreamingQuery:
    """Bring the tables up to date with each batch of a stream of lines.

    A batch that is repeated after a crash replaces what it has written before.

    :param lines: as :func:`arriving_lines` gives them.
    :param checkpoint: where Spark keeps which files it has read.
    :param every: how often; None: once, with all that is there, and then it ends.
    """

    def take(batch: DataFrame, _number: int) -> None:
        tables.ingest(batch)

    writer = lines.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every.total_seconds():.3f} seconds").start()
