"""The example of the connector, run as its reader would, with Spark's event log on."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "spark_orders.py"


def test_the_example_loses_nothing_and_tells_no_secret(tmp_path: Path) -> None:
    """Orders are written while the primary is killed and comes back; the key is nowhere in Spark's event log."""
    events, settings = tmp_path / "events", tmp_path / "conf"
    events.mkdir()
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\nspark.eventLog.compress false\n",
        encoding="utf-8",
    )
    told = subprocess.run(
        [sys.executable, str(PROGRAM), "--orders", "50"],
        env=os.environ | {"SPARK_CONF_DIR": str(settings)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "verdict: nothing lost, nothing twice" in told.stdout
    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert b"SparkListenerSQLExecutionStart" in logged or b"SparkListenerJobStart" in logged
    assert b"SharedAccessKey=" not in logged
