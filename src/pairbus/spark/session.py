"""The public name of :func:`pairbus.spark.platform.session.spark_session`."""

from pairbus.spark.platform.session import spark_session

__all__ = ["spark_session"]
