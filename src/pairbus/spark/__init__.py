"""The data pipeline: the syphon at scale, the connector, and the analytics of the ledger.

What jobs and notebooks use is here; Spark itself is imported only when one of these names is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "DrainProgress",
    "DrainResult",
    "LedgerReport",
    "MessageCounts",
    "Tables",
    "arriving_lines",
    "drain",
    "follow",
    "make_report",
    "spark_session",
]

if TYPE_CHECKING:
    from pairbus.spark.platform.session import spark_session
    from pairbus.spark.report.job import LedgerReport, make_report
    from pairbus.spark.syphon.drain import drain
    from pairbus.spark.tables.ledger_tables import Tables
    from pairbus.spark.tables.stream import arriving_lines, follow
    from pairbus.syphon.draining import DrainProgress, DrainResult, MessageCounts
else:
    _WHERE = {
        "DrainProgress": "pairbus.syphon.draining",
        "LedgerReport": "pairbus.spark.report.job",
        "MessageCounts": "pairbus.syphon.draining",
        "DrainResult": "pairbus.syphon.draining",
        "Tables": "pairbus.spark.tables.ledger_tables",
        "arriving_lines": "pairbus.spark.tables.stream",
        "drain": "pairbus.spark.syphon.drain",
        "follow": "pairbus.spark.tables.stream",
        "make_report": "pairbus.spark.report.job",
        "spark_session": "pairbus.spark.platform.session",
    }

    def __getattr__(name: str) -> object:
        if name in _WHERE:
            return getattr(import_module(_WHERE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
