"""K3: every gold table of generated days equals what DuckDB makes of the same files, however it was brought about."""

import json
import re
import shutil
from pathlib import Path

import pytest
from bench.duckdb_tables import Duck
from bench.generated_ledgers import World
from pyspark.sql import SparkSession
from tests.spark.rows import NOON, PLAN, record, rows, turn, write

from pairbus.core.ledger import Kind, Record, Stage
from pairbus.core.pricing import Plan, Tier
from pairbus.errors import LedgerError
from pairbus.spark.platform.files import Files
from pairbus.spark.report.page import render
from pairbus.spark.report.summary import as_json, gather
from pairbus.spark.tables.ledger import lines_of, malformed
from pairbus.spark.tables.ledger_tables import Settings, Tables
from pairbus.spark.tables.schemas import BRONZE, COST_HOURLY, GOLD, MESSAGE_COST, OUTAGES, SILVER
from pairbus.spark.tables.stream import arriving_lines, follow

pytestmark = pytest.mark.usefixtures("small")

SETTINGS = Settings(PLAN, {})


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days, two of them of one month and one of the next, with all that can be wrong with them."""
    directory = tmp_path_factory.mktemp("ledgers")
    World(9_000, days=3, clients=3, entities=5).write(directory, lines_in_a_file=3_000)
    return directory


@pytest.fixture(scope="module")
def made(spark: SparkSession, ledgers: Path, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables, made in one go, and each by several tasks."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("tables") / "all"), SETTINGS, few_bytes=0)
    tables.update([str(ledgers)])
    return tables


@pytest.fixture(scope="module")
def duck(ledgers: Path) -> Duck:
    """The same tables, made by another."""
    duck = Duck()
    duck.make(sorted(ledgers.iterdir()), PLAN)
    return duck


@pytest.mark.parametrize("table", GOLD, ids=lambda table: table.name)
def test_k3_every_gold_table_equals_an_independent_computation(made: Tables, duck: Duck, table: object) -> None:
    assert table in GOLD
    for each in GOLD:
        if each is table:
            found = rows(made.read(each), each)
            assert found == duck.rows(each.name, each.columns, each.key)
            assert found, f"{each.name} has no rows to compare"


def test_k3_no_line_is_dropped_silently(made: Tables, ledgers: Path) -> None:
    """Each line is a record or kept apart; each record is counted once."""
    texts = [line for file in ledgers.iterdir() for line in file.read_text().splitlines()]
    bronze = made.read(BRONZE)
    assert bronze.count() == len(texts)
    records: list[Record] = []
    wrong: list[str] = []
    for text in texts:
        try:
            records.append(Record.from_json(text))
        except LedgerError:
            wrong.append(text)
    assert sorted(row["line"] for row in malformed(bronze).collect()) == sorted(wrong)
    assert wrong
    ids = [row["id"] for row in made.read(SILVER).select("id").collect()]
    assert sorted(ids) == sorted({record.id for record in records})
    assert len(ids) < len(records)


def test_k3_what_is_no_ledger_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"body": "one coffee"}\n', encoding="utf-8")
    (tmp_path / "none").mkdir()
    tables = Tables(spark, str(tmp_path / "tables"), SETTINGS)
    for name in ("none", "orders.jsonl"):
        instead = "" if name == "none" else r" \(.*orders\.jsonl: field 'id' is missing\)"
        told = rf"{name}: there is no record of an operation{instead}; name what a factory"
        with pytest.raises(LedgerError, match=told):
            tables.update([str(tmp_path / name)])


def test_k3_day_after_day_gives_what_all_at_once_gives(
    spark: SparkSession, made: Tables, ledgers: Path, tmp_path: Path
) -> None:
    """Late records, an outage over midnight and a backlog that is carried over come out the same; so does one task."""
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    tables = Tables(spark, str(tmp_path / "out"), SETTINGS)
    for day in range(3):
        files = sorted(ledgers.glob(f"ledger-{day:03d}-*"))
        for file in files:
            shutil.copy2(file, arriving)
        assert tables.update([str(arriving)]) == len(files)
    for table in GOLD:
        assert rows(tables.read(table), table) == rows(made.read(table), table), table.name
        files = [Path(file).parent for file in tables.read(table).inputFiles()]
        assert len(files) == len(set(files)), f"{table.name} has a day of several files"


def test_k3_a_new_day_costs_only_the_new_day(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the day before is made again, nothing at all without news, and everything with other prices."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    hours = 3600
    yesterday = [
        turn(0, "suspect"),
        turn(60, "engaged"),
        record(61, Kind.SEND, Stage.PARK, messages=3, destination="orders"),
    ]
    yesterday += [
        turn(120, "healthy"),
        record(130, Kind.SEND, Stage.SYPHON, messages=3, entity="orders", destination="orders"),
    ]
    write(ledger, "ledger-1", yesterday)
    tables = Tables(spark, str(out), SETTINGS)
    assert tables.update([str(ledger)]) == 1
    before = _files(out)
    assert {name.split("/")[0] for name in before} >= {table.name for table in GOLD} - {
        "backlog_open",
        "client_vs_broker",
    }
    write(ledger, "ledger-2", [record(24 * hours, Kind.SEND, messages=9_000)])
    assert tables.update([str(ledger)]) == 1
    after = _files(out)
    assert {name: after.get(name) for name in before} == before
    assert tables.update([str(ledger)]) == 0
    assert _files(out) == after
    dear = Settings(Plan("dear", "USD", PLAN.as_of, 0, (Tier(None, 10**9),)), {})
    assert Tables(spark, str(out), dear).update([str(ledger)]) == 0
    cost = tables.read(COST_HOURLY).selectExpr("sum(charged)", "sum(nanos)").collect()[0]
    assert tuple(cost) == (9_006, 9_006_000)


def test_k3_a_stream_makes_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    """What has arrived is read once, also if the stream ends in between; a batch that comes again changes nothing."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    tables = Tables(spark, str(out), SETTINGS)
    for number in range(2):
        write(ledger, f"ledger-{number}", [record(number, kind, messages=4) for kind in (Kind.SEND, Kind.RECEIVE)])
        lines = arriving_lines(spark, str(ledger))
        query = follow(tables, lines, str(tmp_path / "checkpoint"), every=None)
        query.awaitTermination()
    tables.ingest(lines_of(spark, Files(spark).ledgers([str(ledger / "ledger-0.jsonl")])))
    cost = tables.read(MESSAGE_COST).collect()
    assert [(row["way"], row["messages"], row["operations"]) for row in cost] == [("direct", 8, 16)]


def test_k3_the_page_says_what_the_tables_say_and_loads_nothing(made: Tables) -> None:
    facts = gather(made, PLAN)
    told = json.loads(json.dumps(as_json(facts)))
    assert told["malformed"] == facts.malformed > 0
    assert told["outages"] == len(facts.outages) == made.read(OUTAGES).count()
    assert facts.charge_nanos == made.read(COST_HOURLY).selectExpr("sum(nanos)").collect()[0][0]
    assert 0 < told["availability"]["without_pairing"] < told["availability"]["with_pairing"] <= 1
    assert facts.largest is not None
    outage, curve = facts.largest
    assert max(curve.depth) > 0
    assert sum(curve.parked) >= outage["parked"]
    page = render(facts, NOON)
    assert page.count("<svg ") == 4
    assert not re.search(r"<(script|link|img|iframe)|@import|url\((?!#)", page)
    assert f"{facts.totals['parked']:,}" in page
    assert page.count("goes on") == sum(row["ended"] is None for row in facts.outages)


def _files(out: Path) -> dict[str, int]:
    """Return the tables' files, and when they were written."""
    return {str(file.relative_to(out)): file.stat().st_mtime_ns for file in out.glob("*/date=*/**/*.parquet")}
