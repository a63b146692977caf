"""The public name of :mod:`pairbus.spark.tables.stream`."""

from pairbus.spark.tables.stream import arriving_lines, follow

__all__ = ["arriving_lines", "follow"]
