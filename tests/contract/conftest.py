"""The contract: what the unmodified SDK, synchronous and asynchronous, makes of the embedded broker over sockets."""

import asyncio
import gc
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.contract.lab import Lab
from tests.contract.sdk import Sdk

from pairbus.aio import NamespaceManager
from pairbus.testing import EmbeddedBroker, QueueSettings

Scenario: TypeAlias = Callable[[Lab], Awaitable[None]]
Run: TypeAlias = Callable[..., None]
Manage: TypeAlias = Callable[[Callable[[NamespaceManager], Awaitable[None]]], None]

TIMEOUT = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what the SDK leaves open when its peer has gone: the socket of a connection that failed."""
    for item in items:
        if "contract" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings(
                    r"ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
                )
            )


@pytest.fixture(autouse=True)
def _no_errors_in_the_broker(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    assert [each.getMessage() for each in records if each.name == "asyncio" and each.levelno >= logging.ERROR] == []


@pytest.fixture(params=["sync-memory", "aio-sqlite"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a scenario on a broker of its own, with each client of the SDK and each store."""
    kind, _, store = str(request.param).partition("-")

    def run(scenario: Scenario, **queues: QueueSettings) -> None:
        play(scenario, Sdk(kind), queues or {"orders": QueueSettings()}, tmp_path if store == "sqlite" else None)

    return run


@pytest.fixture(params=["sync", "aio"])
def run_durable(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a scenario on a broker that keeps what it has, with each client of the SDK."""

    def run(scenario: Scenario, **queues: QueueSettings) -> None:
        play(scenario, Sdk(str(request.param)), queues or {"orders": QueueSettings()}, tmp_path)

    return run


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[EmbeddedBroker]:
    """A broker for tests that leave nothing behind."""
    with EmbeddedBroker(queues=["orders"]) as broker:
        yield broker


@pytest.fixture(params=["sync", "aio"])
def manage(request: pytest.FixtureRequest, shared_broker: EmbeddedBroker) -> Manage:
    """Run a scenario of administration only, with each client of the SDK, on a broker that others use too."""

    def manage(scenario: Callable[[NamespaceManager], Awaitable[None]]) -> None:
        async def play() -> None:
            async with Sdk(str(request.param)).manager(shared_broker.connection_string) as manager:
                await scenario(manager)

        asyncio.run(play())

    return manage


def play(
    scenario: Scenario, sdk: Sdk, queues: Mapping[str, QueueSettings], data: Path | None, *, process: bool = False
) -> None:
    async def play() -> None:
        async with asyncio.timeout(TIMEOUT), Lab(sdk, queues, data, process=process) as lab:
            await scenario(lab)

    asyncio.run(play())


@pytest.fixture(autouse=True)
def _sockets_that_the_sdk_leaves_open() -> Iterator[None]:
    """The synchronous SDK does not close the socket of a connection that the broker has ended: collect them here."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
