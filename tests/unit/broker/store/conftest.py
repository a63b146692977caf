"""An owner of stores: opens them, runs what they notify it of, and closes them."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import pytest

from pairbus.broker.store.base import EntityRow, Row, Store, StoreError, key_of
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.sqlite import SqliteStore

PATIENCE = 30.0


class Owner:
    """Whoever owns a store: its thread is the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.opened: list[Store] = []

    def notify(self, function: Callable[[], None]) -> None:
        self.inbox.put(function)

    def sqlite(self) -> SqliteStore:
        store = SqliteStore(self.path, self.notify)
        self.opened.append(store)
        return store

    def memory(self) -> MemoryStore:
        store = MemoryStore(self.notify)
        self.opened.append(store)
        return store

    def settle(self, store: Store) -> StoreError | None:
        """Flush, wait until all is durable or lost, and return the outcome."""
        outcomes: list[StoreError | None] = []

        def durable(error: StoreError | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            outcomes.append(error)

        store.journal.durable.append(durable)
        store.flush()
        while not outcomes:
            self.inbox.get(timeout=PATIENCE)()
        return outcomes[0]

    def close(self) -> None:
        for store in self.opened:
            store.close()


Make: TypeAlias = Callable[[], Store]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path / "data" / "store.db")
    yield owner
    owner.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, owner: Owner) -> Store:
    return owner.memory() if request.param == "memory" else owner.sqlite()


def row(sequence_number: int, entity: int = 1, payload: bytes | None = None, session: str | None = None) -> Row:
    body = b"body %d" % sequence_number if payload is None else payload
    return Row(key_of(entity, sequence_number), 0, 1_000 + sequence_number, None, None, session, 0, body)


def entity(number: int = 1, path: str = "orders", next_sequence: int = 1) -> EntityRow:
    return EntityRow(number, path, "{}", next_sequence)
