"""Where Spark looks for data sources that are installed: it imports every module ``pyspark_*`` and takes this name."""

from pairbus.spark.connector.source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
