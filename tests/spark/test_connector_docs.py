"""What the page about the connector tells a reader to run does run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.buses import look

from pairbus.testing import EmbeddedBroker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-connector.md"


def test_the_blocks_of_the_page_run_one_after_the_other(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "orders.json").write_text('{"customer": "c-1", "total": 5}\n', encoding="utf-8")
    with EmbeddedBroker(queues=["orders"]) as primary, EmbeddedBroker() as secondary:
        places = {'"reports"': f'"{tmp_path}/reports"', '"checkpoint"': f'"{tmp_path}/checkpoint"'}
        for name, broker in (("ORDERS_PRIMARY", primary), ("ORDERS_SECONDARY", secondary)):
            (tmp_path / name).write_text(broker.connection_string, encoding="utf-8")
            places[f"env:{name}"] = f"file:{tmp_path / name}"  # Spark was started in another environment
        orders = spark.readStream.schema("customer string, total int").json(str(files))
        names: dict[str, Any] = {"spark": spark, "orders": orders}
        first, *others = blocks(places)
        exec(first, names)  # noqa: S102 (the page's own code)
        query: StreamingQuery = names["query"]
        query.processAllAvailable()
        query.stop()
        (message,) = look(primary, "orders")
        assert message.data_sections() == [b'{"customer":"c-1","total":5}']
        for block in others:
            exec(block, names)  # noqa: S102 (likewise)
    shown = capsys.readouterr().out
    assert re.search(r"\|\s*0\|\s*1\|\s*0\|", shown)  # batch, sent, parked
    assert "c-1" in shown


def blocks(places: Mapping[str, str]) -> list[str]:
    """Return the page's blocks, with other places in them."""
    text = PAGE.read_text(encoding="utf-8")
    for place, here in places.items():
        text = text.replace(place, here)
    return [match[1] for match in re.finditer(r"^```\{code-block\} python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
