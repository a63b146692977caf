"""A store whose disk is full, is read-only or fails."""

import os
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, fill, refused, row

from pairbus.broker.store.base import StoreError, StoreFullError, key_of
from pairbus.broker.store.opening import as_store_error
from pairbus.broker.store.reserve import SIZES, Reserve
from pairbus.broker.store.sqlite import SqliteStore

NOBODY = 65534


@contextmanager
def as_somebody_who_may_not_write() -> Generator[Path]:
    """Give a directory under /tmp that is read as an ordinary user: the superuser may write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


@contextmanager
def unprivileged() -> Generator[None]:
    superuser = os.geteuid() == 0
    if superuser:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if superuser:
            os.seteuid(0)


def test_a_read_only_directory_is_refused() -> None:
    with as_somebody_who_may_not_write() as directory:
        directory.chmod(0o555)
        with unprivileged():
            assert "may write to" in refused(Owner(directory / "store.db"))


def test_a_read_only_file_is_refused() -> None:
    with as_somebody_who_may_not_write() as directory:
        owner = Owner(directory / "store.db")
        fill(owner)
        owner.path.chmod(0o444)
        directory.chmod(0o777)
        for beside in ("store.db.lock", "store.db.commits"):
            owner.path.with_name(beside).chmod(0o666)
        with unprivileged():
            assert "cannot be written" in refused(owner)


def test_a_full_disk_loses_one_journal_and_the_next_one_is_taken(
    owner: Owner, writers: list[sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    store = owner.sqlite()
    store.journal.entities.append(entity())
    store.journal.rows.append(row(1))
    assert owner.settle(store) is None
    pages = writers[0].execute("PRAGMA page_count").fetchone()[0]
    writers[0].execute(f"PRAGMA max_page_count = {pages + 2}")
    calls: list[StoreError | None] = []
    store.journal.durable.append(calls.append)
    store.journal.removed.append(key_of(1, 1))
    store.journal.rows += [row(number, payload=bytes(2000)) for number in range(2, 100)]
    error = owner.settle(store)
    assert isinstance(error, StoreFullError)
    assert "no room left" in str(error)
    assert calls == [error]
    store.journal.rows += [row(number, payload=bytes(2000)) for number in range(2, 100)]
    assert isinstance(owner.settle(store), StoreFullError)
    assert [record.levelname for record in caplog.records].count("ERROR") == 1  # not one for each
    assert "no room left" in caplog.text
    assert [found.key for found in store.index(1)] == [key_of(1, 1)]
    assert store.entities() == [entity(next_sequence=2)]
    store.journal.deliveries.append((key_of(1, 1), 4))
    assert owner.settle(store) is None
    assert "commits succeed again, after 2 that failed" in caplog.text
    writers[0].execute("PRAGMA max_page_count = 100000")
    store.journal.rows += [row(number, payload=bytes(2000)) for number in range(2, 100)]
    store.journal.seen.append((1, "id", 5))
    assert owner.settle(store) is None
    assert len(list(store.index(1))) == 99
    assert store.load([key_of(1, 1)])[0].deliveries == 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB, where one can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=False, capture_output=True)  # noqa: S607
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # noqa: S607


@pytest.fixture
def cramped(small_disk: Path) -> Iterator[Owner]:
    """An owner on that disk, whose stores are closed before the disk goes, also after a test that failed."""
    owner = Owner(small_disk / "store.db")
    yield owner
    owner.close()


def test_messages_can_be_removed_from_a_full_disk(cramped: Owner) -> None:
    owner, small_disk = cramped, cramped.path.parent
    store = owner.sqlite()
    store.journal.entities.append(entity())
    stored = 0
    error = owner.settle(store)
    while error is None:
        store.journal.rows += [row(number, payload=bytes(10_000)) for number in range(stored + 1, stored + 51)]
        error = owner.settle(store)
        stored += 50 if error is None else 0
    assert isinstance(error, StoreFullError)
    with (small_disk / "somebody else's").open("wb", buffering=0) as other:
        while True:
            try:
                other.write(bytes(4096))
            except OSError:
                break
    removed = 0
    for number in range(1, stored + 1, 7):  # far apart, so that many pages change
        store.journal.removed.append(key_of(1, number))
        if owner.settle(store) is None:
            removed += 1
    assert removed == len(range(1, stored + 1, 7))
    assert len(list(store.index(1))) == stored - removed


def test_room_is_kept_and_taken_again_once_there_is_some(owner: Owner) -> None:
    owner.path.parent.mkdir()
    reserve = Reserve(owner.path)
    reserve.keep()
    assert reserve.release()
    assert not reserve.release()
    reserve.keep()
    assert owner.path.with_name("store.db.reserve").stat().st_size == SIZES[0]


def test_a_write_error_loses_one_journal_and_the_next_one_is_taken(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    store = owner.sqlite()
    store.journal.rows.append(row(1))
    assert owner.settle(store) is None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store.journal.rows += [row(number, payload=bytes(5000)) for number in range(2, 100)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (owner.path.with_name("store.db-wal").stat().st_size, hard))
    try:
        error = owner.settle(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error is not None
    assert not isinstance(error, StoreFullError)
    assert "IOERR" in str(error)
    assert "IOERR" in caplog.text
    assert [found.key for found in store.index(1)] == [key_of(1, 1)]
    store.journal.rows.append(row(2))
    assert owner.settle(store) is None
    assert len(list(store.index(1))) == 2


def test_what_sqlite_cannot_hold_is_told_to_those_who_wait(owner: Owner) -> None:
    store = owner.sqlite()
    store.journal.rows.append(row(1, session="\ud800"))
    error = owner.settle(store)
    assert error is not None
    assert "UnicodeEncodeError" in str(error)
    store.journal.rows.append(row(2))
    assert owner.settle(store) is None


def test_closing_after_a_failure_tells_everybody_and_ends(owner: Owner) -> None:
    store = owner.sqlite()
    calls: list[StoreError | None] = []

    def again(error: StoreError | None) -> None:
        calls.append(error)
        store.journal.durable.append(calls.append)

    store.journal.rows.append(row(1, session="\ud800"))
    store.journal.durable.append(again)
    store.close()
    assert len(calls) == 2
    assert all(calls)


def test_an_owner_that_cannot_be_notified_learns_it_from_closing(tmp_path: Path) -> None:
    def deaf(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    store = SqliteStore(tmp_path / "store.db", deaf)
    calls: list[StoreError | None] = []
    store.journal.rows.append(row(1))
    store.journal.durable.append(calls.append)
    store.flush()
    store.close()
    assert calls == [None]


def test_a_disk_without_room_is_recognised_behind_an_io_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    assert not isinstance(as_store_error(error, tmp_path / "store.db"), StoreFullError)
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 1, 1, 1, 0, 255))

    def statvfs(_: Path) -> os.statvfs_result:
        return full

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert isinstance(as_store_error(error, tmp_path / "store.db"), StoreFullError)
