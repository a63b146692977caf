"""What all tests share: a time-out that also ends hangs, and a word about what could not be tested here."""

import faulthandler
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("pairbus", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("pairbus")

# Tests that interrupt a command also work where the process that runs them in the background has SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

SECONDS = {"spark": 900, "chaos": 3600, "package": 1800}
"""The time-out of a test, by its directory; elsewhere it is the one of pyproject.toml."""
TO_TEAR_DOWN = 60.0
"""Seconds that a test which timed out has to end; after that its process is ended, with a trace of all threads."""
SKIPPED = "PAIRBUS_SKIPPED"
"""Names the file to which each run adds what it could not test; `make` shows it at its end."""

_REAL_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep a way to the terminal that is not captured."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        config.stash[_REAL_STDERR] = os.dup(2)
    else:
        with capture.global_and_fixture_disabled():
            config.stash[_REAL_STDERR] = os.dup(2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests their time-outs."""
    here = Path(__file__).parent
    for item in items:
        inside = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ("",)
        if inside[0] in SECONDS and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS[inside[0]]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process if a test that timed out does not end: the time-out is raised once, and a fixture may hang."""
    marker = item.get_closest_marker("timeout")
    given = item.config.getini("timeout") if marker is None else marker.args[0]
    seconds = float(item.config.getoption("timeout") or given or 0)
    if seconds:
        file = item.config.stash[_REAL_STDERR]
        faulthandler.dump_traceback_later(seconds + TO_TEAR_DOWN, exit=True, file=file)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Note which tests were skipped and why, for the end of `make test`."""
    if file := os.environ.get(SKIPPED):
        reasons = [_reason(report) for report in terminalreporter.getreports("skipped")]
        lines = (f"{reasons.count(reason)} {reason}\n" for reason in sorted(set(reasons)))
        with Path(file).open("a", encoding="utf-8") as notes:
            notes.writelines(lines)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")
