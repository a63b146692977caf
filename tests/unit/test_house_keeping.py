"""The tests' own house-keeping: a hang fails, and what is skipped is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HANGS = """
import threading, pytest

@pytest.fixture
def disk():
    yield
    print("torn down")

@pytest.mark.timeout(1)
def test_it(disk):
    threading.Event().wait()
"""
HANGS_FOR_EVER = """
import threading, pytest
from tests import conftest
conftest.TO_TEAR_DOWN = 0.5

@pytest.mark.timeout(0.5)
def test_it():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()
"""
SKIPS = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    pytest.skip("no browser: install one")

pytest.importorskip("proton_of_another_age", reason="no proton")
"""


def run(directory: Path, code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a test in a pytest of its own, with the plugin and the settings of these."""
    (directory / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments, str(directory)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=120,
    )


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_test_that_hangs_fails_and_its_fixtures_are_torn_down(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = run(tmp_path, HANGS, "-rA", *arguments)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Timeout (>1.0s)" in ended.stdout
    assert "torn down" in ended.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_test_that_does_not_end_at_its_time_out_is_ended(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = run(tmp_path, HANGS_FOR_EVER, *arguments)
    assert ended.returncode == 1
    assert "in test_it" in ended.stderr  # where it hung


def test_what_is_skipped_is_noted_with_its_reason(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert run(tmp_path, SKIPS.partition("pytest.importorskip")[0], PAIRBUS_SKIPPED=str(notes)).returncode == 0
    run(tmp_path, SKIPS, PAIRBUS_SKIPPED=str(notes))
    assert notes.read_text().splitlines() == ["2 no browser: install one", "1 no proton"]
