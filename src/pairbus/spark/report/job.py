"""The report as a function: brings the tables up to date with ledgers, and writes the page that shows them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from pairbus.core.pricing import Plan
from pairbus.operate.prices import read_plan
from pairbus.spark.platform.files import Files
from pairbus.spark.platform.isolation import utc_session
from pairbus.spark.report.page import render
from pairbus.spark.report.summary import Facts, gather
from pairbus.spark.tables.ledger_tables import Settings, Tables

STEPS = ("bronze", "silver", "costs", "backlog", "availability", "page")
"""What ``step`` is told, in this order; steps that have nothing to do are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReport:
    """What a run of :func:`make_report` has made.

    :ivar facts: what the tables say in short.
    :ivar page: where the page is.
    :ivar files_read: how many ledger files were new or had grown.
    :ivar set_aside: ledger files that could not be read, and why; the next run tries them again.
    """

    facts: Facts
    page: str
    files_read: int
    set_aside: Mapping[str, str]


def make_report(
    spark: SparkSession,
    ledgers: str | Sequence[str],
    out: str,
    *,
    plan: Plan | None = None,
    aliases: Mapping[str, str] | None = None,
    step: Callable[[str], None] = lambda _name: None,
) -> LedgerReport:
    """Make tables of ledgers, and a page that shows costs, outages, availability and the backlog.

    The next run on the same directory reads only files that are new or have grown, and computes again only the days
    that these touch. Nothing is set on the session, whatever its time zone is, and it is not stopped.

    :param ledgers: directories with ledger files, files, or patterns, wherever Spark can read.
    :param out: where the tables are kept and ``report.html`` is written, wherever Spark can write.
    :param plan: what operations and bytes cost, see :func:`pairbus.operate.prices.read_plan`; the list prices of the
        plan ``standard`` unless told otherwise.
    :param aliases: other names of namespaces, and the ones that are meant.
    :param step: told the name of each of :data:`STEPS` when it begins.
    :raises LedgerError: the ledgers are not there, or have no record.
    :raises TablesError: another process brings these tables up to date.
    """
    chosen = plan or read_plan()
    page = f"{out.rstrip('/')}/report.html"
    with utc_session(spark) as own:
        tables = Tables(own, out, Settings(chosen, aliases or {}))
        with tables.lock():
            files_read = tables.update([ledgers] if isinstance(ledgers, str) else ledgers, step)
            step("page")
            facts = gather(tables, chosen)
            Files(own).write(page, render(facts, datetime.now(UTC)))
    return LedgerReport(facts=facts, page=page, files_read=files_read, set_aside=tables.set_aside)
