"""The paired client, synchronous and asynchronous, between two embedded brokers over sockets."""

# ruff: noqa: ANN401 (the options are handed on)

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import pytest
from tests.client.linking import HOUR
from tests.client.stage import Stage
from tests.client.twins import KINDS, Twin

Scenario: TypeAlias = Callable[[Stage], Awaitable[None]]
Play: TypeAlias = Callable[..., None]

TIMEOUT = 180.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what the synchronous SDK leaves open when its peer has gone."""
    for item in items:
        if "client" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(params=KINDS)
def twin(request: pytest.FixtureRequest) -> Twin:
    """Each of the clients."""
    return Twin(str(request.param))


@pytest.fixture
def play(twin: Twin) -> Play:
    """Run a scenario with each client."""

    def play(scenario: Scenario, **stage: Any) -> None:
        run(scenario, twin, **stage)

    return play


@pytest.fixture(params=("aio", "aio-native"))
def play_aio(request: pytest.FixtureRequest) -> Play:
    """Run a scenario with the asynchronous client only, by each transport."""

    def play(scenario: Scenario, **stage: Any) -> None:
        run(scenario, Twin(str(request.param)), **stage)

    return play


@pytest.fixture
def no_idle_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let minutes pass in an instant, in which no heartbeat comes."""
    monkeypatch.setattr("pairbus.links.native.connection.IDLE_SECONDS", 240 * HOUR)


def run(
    scenario: Scenario, twin: Twin, loops: Callable[[], asyncio.AbstractEventLoop] | None = None, **stage: Any
) -> None:
    async def run() -> None:
        async with asyncio.timeout(TIMEOUT), Stage(twin, **stage) as made:
            await scenario(made)

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(run())


@pytest.fixture(autouse=True)
def _nothing_goes_wrong_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    assert [each.getMessage() for each in records if each.name == "asyncio" and each.levelno >= logging.ERROR] == []
