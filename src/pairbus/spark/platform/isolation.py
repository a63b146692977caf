"""A session of our own beside the caller's: the same Spark, cluster and credentials, with settings that stay here.

Days and hours of the tables are those of UTC, and Spark cuts a time into days by the time zone of the session. A
notebook's session may have any zone, and it is not ours to change.
"""

# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001 (PySpark has no public way to say which session is the active one)

import contextlib
from collections.abc import Generator
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession


@contextlib.contextmanager
def utc_session(spark: SparkSession) -> Generator[SparkSession]:
    """Give a session with the settings of another one, but for the time zone, which is UTC.

    Making frames makes a session the active one of the thread; afterwards the one is active again that was.
    """
    own = spark.newSession()
    known = own.conf.getAll
    for name, value in spark.conf.getAll.items():
        if known.get(name) != value:
            with contextlib.suppress(AnalysisException):  # one of the settings that all sessions of a Spark share
                own.conf.set(name, value)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    before = SparkSession.getActiveSession()
    try:
        yield own
    finally:
        _activate(own, before)


def _activate(any_session: Any, session: Any) -> None:  # noqa: ANN401 (their private parts have no types)
    of_java: Any = SparkSession._get_j_spark_session_class(any_session._jvm)
    if session is None:
        of_java.clearActiveSession()
    else:
        of_java.setActiveSession(session._jsparkSession)
    SparkSession._activeSession = session
