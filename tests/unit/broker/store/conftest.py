"""An owner of stores: opens them, runs what they notify it of, and closes them."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import pytest

from pairbus.broker.store.base import EntityRow, Row, Store, StoreError, key_of
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.opening import open_writer
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


def fill(owner: Owner, count: int = 10) -> None:
    store = owner.sqlite()
    store.journal.entities.append(entity())
    store.journal.rows += [row(number, payload=b"%d" % number * 200) for number in range(1, count + 1)]
    assert owner.settle(store) is None
    store.close()


def refused(owner: Owner) -> str:
    with pytest.raises(StoreError) as caught:
        owner.sqlite()
    assert str(owner.path) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections with which stores write, as they are opened."""
    opened: list[sqlite3.Connection] = []

    def open_and_keep(path: Path, directory: Path) -> sqlite3.Connection:
        opened.append(open_writer(path, directory))
        return opened[-1]

    monkeypatch.setattr("pairbus.broker.store.sqlite.open_writer", open_and_keep)
    return opened
