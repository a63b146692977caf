"""What a store promises and shows nowhere else: damage is refused, directories are synced, rollbacks leave nothing."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.access.keyring import Keyring
from pairbus.broker.store.base import Journal, StoreError, key_of
from pairbus.broker.store.opening import PAGE_SIZE, open_writer
from pairbus.broker.store.queries import MIGRATIONS
from pairbus.broker.store.writing import JournalWriter

TOO_LARGE = 1 << 70
"""An entity's id that SQLite cannot hold: what comes before it in a journal is carried out, and then rolled back."""


# --- a damaged file --------------------------------------------------------------------------------------------------


def fill(owner: Owner, count: int = 1000) -> None:
    store = owner.sqlite()
    store.journal.entities.append(entity())
    store.journal.rows += [row(number, payload=b"%d" % number * 200) for number in range(1, count + 1)]
    assert owner.settle(store) is None
    store.close()


def pages_of(path: Path, table: str) -> list[int]:
    """Return the leaves of a table, which begin with what they are: 13, or 10 in an index."""
    with closing(sqlite3.connect(path)) as plain:
        (root,) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    data = path.read_bytes()
    page = data[(root - 1) * PAGE_SIZE : root * PAGE_SIZE]
    assert page[0] in {2, 5}, "the table has leaves besides its root"
    count = int.from_bytes(page[3:5])
    cells = [int.from_bytes(page[12 + 2 * each : 14 + 2 * each]) for each in range(count)]
    return [int.from_bytes(page[cell : cell + 4]) for cell in cells]


def spoil(path: Path, page: int) -> None:
    """Make a page one that no table has, and leave all others as they are."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(b"\xff" * 64)


@pytest.mark.parametrize("table", ["payload", "meta"])
def test_a_file_with_one_damaged_page_is_refused(owner: Owner, table: str) -> None:
    fill(owner)
    spoil(owner.path, pages_of(owner.path, table)[1])
    with pytest.raises(StoreError, match="damaged"):
        owner.sqlite()


def test_a_large_file_whose_records_have_one_damaged_page_is_refused(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.broker.store.opening.CHECKED_UP_TO", 0)
    fill(owner)
    spoil(owner.path, pages_of(owner.path, "meta")[1])
    with pytest.raises(StoreError, match="damaged"):
        owner.sqlite()


# --- directories -----------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is flushed to the disk by name, in order."""
    names: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return names


def test_the_directory_of_a_new_file_is_synced(tmp_path: Path, synced: list[Path]) -> None:
    owner = Owner(tmp_path / "store.db")
    owner.sqlite()
    assert tmp_path in synced
    owner.close()
    synced.clear()
    owner.sqlite()
    assert tmp_path not in synced  # it has the files already
    owner.close()


def test_the_directory_of_new_keys_is_synced_after_they_have_taken_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def look(directory: Path) -> None:
        found.append((directory / "keys.json").exists())

    monkeypatch.setattr("pairbus.broker.access.keyring.sync_directory", look)
    Keyring(tmp_path / "keys.json", ())
    assert found == [True]


# --- a rollback ------------------------------------------------------------------------------------------------------


@pytest.fixture
def writing(tmp_path: Path) -> tuple[JournalWriter, Callable[[str], list[tuple[int, ...]]]]:
    """A writer, and a way to look at what it has written."""
    connection = open_writer(tmp_path / "store.db", MIGRATIONS)
    return JournalWriter(connection), lambda query: connection.execute(query).fetchall()


def test_a_commit_that_was_rolled_back_is_not_counted(
    writing: tuple[JournalWriter, Callable[[str], list[tuple[int, ...]]]],
) -> None:
    writer, _look = writing
    before = writer.last
    journal = Journal()
    journal.entities.append(entity())
    journal.dropped.append(TOO_LARGE)
    for _ in range(3):
        with pytest.raises(OverflowError):
            writer.commit(journal)
        assert writer.last is before
    journal.dropped.clear()
    writer.commit(journal)
    assert writer.last.number == before.number + 1


def test_ids_that_were_rolled_back_leave_no_gap(
    writing: tuple[JournalWriter, Callable[[str], list[tuple[int, ...]]]],
) -> None:
    writer, look = writing
    journal = Journal()
    journal.entities.append(entity())
    journal.seen += [(1, "a", 10), (1, "b", 10)]
    journal.dropped.append(TOO_LARGE)
    with pytest.raises(OverflowError):
        writer.commit(journal)
    assert look("SELECT key FROM seen") == []
    journal.dropped.clear()
    writer.commit(journal)
    assert look("SELECT key FROM seen ORDER BY key") == [(key_of(1, 1),), (key_of(1, 2),)]
