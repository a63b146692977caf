"""Makes Spark sessions, with the settings that pairbus needs, on one machine or on a cluster.

A session that exists already is used as it is, and so is a Spark that was started by ``spark-submit`` or that a
platform provides: it has its own Java, master and log.
"""

import contextlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pairbus.errors import SparkUnavailableError
from pairbus.spark.platform.java import find_java, launcher_home, user_directory

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",  # so that links to the broker outlive a task
    "spark.sql.codegen.cache.maxEntries": "2000",  # the tables' plans are more than the 100 that Spark would keep
    "spark.sql.python.filterPushdown.enabled": "true",  # which the connector's reads make use of
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # each column would note the line it was made on
    "spark.speculation": "false",  # a second attempt beside a first one would move messages twice
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|connection[._]?string|sharedaccess",
    "spark.sql.redaction.string.regex": "(?i)(sharedaccess(key|signature)|sig)=[^;&\\s]+",
    "spark.ui.showConsoleProgress": "false",
}
"""What all sessions have; settings that are asked for win."""
BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java's options for a run of a minute or two, or with little to do for Java: it compiles once, quickly, and keeps all
that it has compiled. Compiling well takes as much of the processor as the work itself until it pays."""
KEPT_LOGS: Final = 10
_FAILURE: Final = re.compile(r"(Exception|Error)\b")


def spark_session(
    app_name: str,
    *,
    master: str = "local[*]",
    ui: bool = False,
    brief: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a Spark session: the one that is active, or else a new one.

    :param master: ``local[*]``, ``local-cluster[…]``, ``spark://…``, ``k8s://…`` or ``yarn``; of no meaning when
        Spark is already there, as after ``spark-submit``.
    :param ui: whether Spark's web page is served.
    :param brief: whether Java will not have much to do, so that it is started with :data:`BRIEF`.
    :param settings: more settings of Spark. They are no place for secrets: Spark shows them in its process's arguments.
    :raises SparkUnavailableError: Spark or Java is not installed, or Spark does not start.
    """
    _check_installed()
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (an extra, and slow to import)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    conf = SparkConf()
    for name, value in {**SETTINGS, "spark.ui.enabled": str(ui).lower(), **(settings or {})}.items():
        conf.set(name, value)
    conf.setAppName(app_name)
    if not _is_submitted():
        conf.setMaster(master)
        for name, value in _of_this_machine(master).items():
            conf.setIfMissing(name, value)
        if SparkContext._gateway is None:  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 (none started yet)
            _start(conf, master, BRIEF if brief else "")
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _check_installed() -> None:
    try:
        importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise SparkUnavailableError(f"Spark is not installed ({error}); pip install 'pairbus[spark]'") from None
    from pairbus.spark.platform.version import check_version  # noqa: PLC0415 (it imports Spark)

    check_version()


def is_local(master: str) -> bool:
    """Tell whether a master is this machine."""
    return master.startswith("local")


@contextlib.contextmanager
def session_for_command(
    app_name: str, *, master: str, ui: bool = False, brief: bool = False, settings: Mapping[str, str] | None = None
) -> Generator["SparkSession"]:
    """Give :func:`spark_session`, and stop it afterwards if it was made for this.

    One that was there already, and the Spark of ``spark-submit``, belong to somebody else.
    """
    _check_installed()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    is_provided = _is_submitted() or SparkSession.getActiveSession() is not None
    spark = spark_session(app_name, master=master, ui=ui, brief=brief, settings=settings)
    try:
        yield spark
    finally:
        if not is_provided:
            spark.stop()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _of_this_machine(master: str) -> Mapping[str, str]:
    if not is_local(master):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "pairbus-warehouse"),
    }


def _start(conf: "SparkConf", master: str, options: str) -> None:
    """Start Spark with what it has to say going to a file."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

    module = importlib.import_module("pyspark.java_gateway")  # which has no types
    launch = cast("Callable[[SparkConf, dict[str, Any]], Any]", module.launch_gateway)
    log = _log_file()
    levels = resources.files("pairbus.spark.platform").joinpath("log4j2.properties")
    environment = {
        "JAVA_HOME": str(launcher_home(find_java(), spark=importlib.import_module("pyspark").__file__ or ""))
    }
    if is_local(master):
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with resources.as_file(levels) as file, log.open("wb") as output:
        of_user = os.environ.get("SPARK_SUBMIT_OPTS", "")  # which comes last, and so wins
        all_options = " ".join((f"-Dlog4j2.configurationFile={file.as_uri()}", options, of_user))
        with _environment(environment | {"SPARK_SUBMIT_OPTS": all_options.strip()}):
            try:
                gateway = launch(conf, {"stdout": output, "stderr": output})
            except PySparkRuntimeError:
                said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                reason = next((line for line in said if _FAILURE.search(line)), said[-1] if said else "it said nothing")
                reason = reason.removeprefix('Exception in thread "main" ')
                raise SparkUnavailableError(f"Spark does not start: {reason} (all it said is in {log})") from None
    try:
        SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        raise SparkUnavailableError(f"Spark does not start at {master!r}: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Say what is wrong in a line; an error that comes from Java has pages."""
    lines = str(error).strip().splitlines()
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else type(error).__name__)


def _log_file() -> Path:
    directory = user_directory("XDG_STATE_HOME", ".local/state")
    for old in sorted(directory.glob("spark-*.log"))[: -KEPT_LOGS + 1]:
        if not Path("/proc", old.stem.rpartition("-")[2]).exists():  # somebody may run for months
            old.unlink(missing_ok=True)
    return directory / f"spark-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for what is started within."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
