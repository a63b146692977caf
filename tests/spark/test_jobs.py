"""The jobs as functions, called with a session that pairbus did not make, as a notebook or an Airflow task has one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.spark.notebook import ZONE

from pairbus.errors import ConnectionStringError, PricesError
from pairbus.operate.prices import read_plan
from pairbus.spark import drain
from pairbus.spark.platform.java import find_java, launcher_home
from pairbus.spark.platform.session import session_for_command


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a program says that has a session of its own."""
    place = tmp_path_factory.mktemp("notebook")
    java = launcher_home(find_java(), spark=pyspark.__file__)
    subprocess.run(
        [sys.executable, "-m", "tests.spark.notebook", str(place)],
        env={**os.environ, "JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable, "TZ": ZONE},
        cwd=Path(__file__).parents[2],
        check=True,
    )
    return json.loads((place / "told.json").read_text(encoding="utf-8"))


def test_the_session_is_as_it_was_and_still_works(told: dict[str, Any]) -> None:
    assert told["session"] == {
        "unchanged": True,
        "active": True,
        "name": "a notebook",
        "zone": ZONE,
        "works": 499500,
    }


def test_k3_a_report_has_the_days_of_utc_wherever_the_session_is(told: dict[str, Any]) -> None:
    reports = told["reports"]
    assert reports["steps"] == ["bronze", "silver", "costs", "backlog", "availability", "page"]
    assert reports["read"] == [1, 1]
    facts = reports["facts"]
    assert facts["days"] == ["2026-03-30", "2026-03-31"]
    assert (facts["plan"], facts["records"], facts["availability"]["attempted"]) == ("standard", 4, 4)
    (outage,) = facts["latest_outages"]
    assert (outage["began"], outage["ended"]) == ("2026-03-31T01:00:00.000Z", "2026-03-31T01:30:00.000Z")
    assert "2026-03-31 01:00:00" in reports["page"]


def test_y6_a_drain_carries_home_and_tells_what_became_of_every_message(told: dict[str, Any]) -> None:
    drains = told["drains"]
    counts = ("found", "delivered", "dead_lettered", "waiting", "duplicates_suspected")
    assert [drains["first"][each] for each in counts] == [43, 40, 3, 0, 0]
    assert [drains["second"][each] for each in counts] == [0, 0, 0, 0, 0]
    assert drains["complete"] == [True, True]
    assert drains["arrived"] == 40
    assert drains["progress"] == 43
    assert drains["ledger"] > 0
    assert drains["table"] == [["orders", 40], ["nowhere", 0]]
    assert drains["times"]


def test_a_command_does_not_stop_a_session_that_was_there(spark: SparkSession) -> None:
    with session_for_command("a command", master="local[1]") as given:
        assert given is spark
    assert spark.range(3).count() == 3


def test_a_connection_string_that_cannot_be_read_is_not_shown(spark: SparkSession) -> None:
    good = "Endpoint=sb://a.localhost;SharedAccessKeyName=n;SharedAccessKey=k"
    for which, given in (("primary", ("SharedAccessKey=hush", good)), ("secondary", (good, "SharedAccessKey=hush"))):
        with pytest.raises(ConnectionStringError, match=f"of the {which} cannot be read") as refused:
            drain(spark, *given)
        assert "hush" not in str(refused.value)


def test_a_price_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("plans = 7")
    with pytest.raises(PricesError, match=r"prices\.toml: plans is 7"):
        read_plan(file=tmp_path / "prices.toml")
