"""The tables of a ledger: Spark beside DuckDB, which makes the same tables of the same files, and how it grows.

A generator writes ledgers of some days with outages in them, with lines written twice, late and wrong. Both start from
the files' JSON, on two cores, Spark with 4 GiB; both are warm. All tables are compared, row by row. Spark also
writes what it makes as Parquet.

Run by ``make bench`` with 1,000,000 operations; ``--full`` takes 10,000,000, and 1,000,000 to see how it grows.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from bench.duckdb_tables import Duck
from bench.generated_ledgers import World
from pyspark.sql import SparkSession

from pairbus.core.pricing import Plan, parse_prices
from pairbus.spark.platform.session import spark_session
from pairbus.spark.tables.ledger_tables import Settings, Tables
from pairbus.spark.tables.schemas import GOLD

SMALL, LARGE = 1_000_000, 10_000_000
MOST_TIMES_DUCKDB = 8.0
MOST_GROWTH = 11.0
DAYS = 5


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(spark: SparkSession, ledger: Path, plan: Plan, where: Path) -> tuple[float, float]:
    """Make the tables twice, compare them, and return the seconds of Spark and of DuckDB."""
    tables = Tables(spark, str(where / "tables"), Settings(plan, {}))

    def step(name: str) -> None:
        print(f"    {name}, {time.strftime('%X')}", flush=True)

    by_spark = timed(lambda: tables.update([str(ledger)], step))
    duck = Duck()
    by_duck = timed(lambda: duck.make(sorted(ledger.iterdir()), plan))
    for table in GOLD:
        mine: list[tuple[Any, ...]] = [tuple(row) for row in tables.read(table).orderBy(*table.key).collect()]
        if mine != duck.rows(table.name, table.columns, table.key):
            sys.exit(f"{table.name}: Spark and DuckDB do not agree")
    return by_spark, by_duck


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    full = parser.parse_args().full
    plan = parse_prices(resources.files("pairbus.core").joinpath("prices.toml").read_text(encoding="utf-8"))["standard"]
    settings = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8"}
    spark = spark_session("pairbus bench", master="local[2]", settings=settings)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        for operations in (50_000, SMALL, LARGE) if full else (50_000, SMALL):
            lines = World(operations, days=DAYS).write(where / "ledger")
            by_spark, by_duck = measure(spark, where / "ledger", plan, where)
            if operations >= SMALL:  # the first one is to warm up
                seconds.append(by_spark)
                print(
                    f"{lines:,} lines: Spark {by_spark:.1f} s, DuckDB {by_duck:.1f} s, {by_spark / by_duck:.1f} times "
                    f"(at most {MOST_TIMES_DUCKDB:g}); all tables equal"
                )
            shutil.rmtree(where / "ledger")
            shutil.rmtree(where / "tables")
    spark.stop()
    if full:
        print(f"10 times the records: {seconds[1] / seconds[0]:.1f} times the time (at most {MOST_GROWTH:g})")
    print(f"Python's memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
