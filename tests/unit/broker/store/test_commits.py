"""Commits that were acknowledged and cannot be read: noticed at opening, refused, and gone on without if told to.

A copy of the files of a store that is open is what a killed process leaves.
"""

import logging
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.store.base import StoreError, key_of
from pairbus.broker.store.commits import SLOT, StoreLossError, read_record, record_path
from pairbus.broker.store.opening import PAGE_SIZE, open_writer
from pairbus.broker.store.queries import MIGRATIONS
from pairbus.broker.store.sqlite import SqliteStore

WAL_HEADER = 32
FRAME_HEADER = 24
FRAME = FRAME_HEADER + PAGE_SIZE


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (octet,) = file.read(1)
        file.seek(position)
        file.write(bytes((octet ^ 0x10,)))


def commit(owner: Owner, store: SqliteStore, numbers: range) -> None:
    """Make a commit per message."""
    for number in numbers:
        if number == 1:
            store.journal.entities.append(entity())
        store.journal.rows.append(row(number, payload=b"%d" % number * 200))
        assert owner.settle(store) is None


def left_behind(owner: Owner, to: Path) -> Owner:
    """Return what a process that was killed now would leave, as another owner finds it."""
    to.mkdir()
    for file in owner.path.parent.iterdir():
        if not file.name.endswith((".lock", ".reserve", "-shm")):
            shutil.copyfile(file, to / file.name)
    return Owner(to / owner.path.name)


def killed(owner: Owner, tmp_path: Path, commits: int = 20) -> Owner:
    store = owner.sqlite()
    commit(owner, store, range(1, commits + 1))
    return left_behind(owner, tmp_path / "left")


def stored(store: SqliteStore) -> list[int]:
    return [found.key - key_of(1, 0) for found in store.index(1)]


def frames(path: Path) -> list[tuple[int, bool]]:
    """Return page and commit mark of each frame in a log that belongs to it still."""
    content = wal(path).read_bytes()
    salts, found = content[16:24], list[tuple[int, bool]]()
    for start in range(WAL_HEADER, len(content), FRAME):
        page, size = struct.unpack(">II", content[start : start + 8])
        if content[start + 8 : start + 16] != salts:
            break
        found.append((page, size > 0))
    return found


def test_a_killed_process_leaves_nothing_to_complain_about(owner: Owner, tmp_path: Path) -> None:
    left = killed(owner, tmp_path)
    assert stored(left.sqlite()) == list(range(1, 21))
    left.close()
    record = read_record(left.path)
    assert record is not None
    assert record.number == 20


@pytest.mark.parametrize("part", ["a page", "a frame's header", "the salt", "the log's header", "all of it", "its end"])
def test_a_log_that_cannot_be_read_to_its_end_is_refused_and_left_as_it_is(
    owner: Owner, tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    left = killed(owner, tmp_path)
    log, middle = wal(left.path), WAL_HEADER + len(frames(left.path)) // 2 * FRAME
    match part:
        case "a page":
            flip(log, middle + FRAME_HEADER + 4000)
        case "a frame's header":
            flip(log, middle)
        case "the salt":
            flip(log, middle + 9)
        case "the log's header":
            flip(log, 17)
        case "all of it":
            log.unlink()
        case _:
            os.truncate(log, log.stat().st_size - FRAME)
    before = {file.name: file.read_bytes() for file in left.path.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(StoreLossError) as caught:
            left.sqlite()
        assert str(left.path) in str(caught.value)
        assert "--accept-loss" in str(caught.value)
        assert caught.value.recorded.number == 20
        assert "not opened, for acknowledged commits cannot be read" in caplog.text
    after = {name: (left.path.parent / name).read_bytes() for name in before}
    assert after == before


def test_every_bit_of_the_log_counts(owner: Owner, tmp_path: Path) -> None:
    left = killed(owner, tmp_path, 4)
    content = wal(left.path).read_bytes()
    names = (left.path.name, record_path(left.path).name)
    whole = {name: (left.path.parent / name).read_bytes() for name in names}
    for position in range(0, WAL_HEADER + len(frames(left.path)) * FRAME, 1009):
        wal(left.path).write_bytes(content)
        for name in names:
            (left.path.parent / name).write_bytes(whole[name])
        flip(wal(left.path), position)
        with pytest.raises(StoreLossError):
            left.sqlite()


def test_accepted_the_rest_is_served_and_the_loss_is_told_once(
    owner: Owner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = killed(owner, tmp_path)
    flip(wal(left.path), WAL_HEADER + len(frames(left.path)) // 2 * FRAME + 5000)
    log = wal(left.path).read_bytes()
    with caplog.at_level(logging.WARNING):
        store = SqliteStore(left.path, left.notify, accept_loss=True)
    left.opened.append(store)
    there = stored(store)
    assert there == list(range(1, len(there) + 1))
    assert 5 < len(there) < 20
    assert f"a loss was accepted: {left.path}: {20 - len(there)} of 20 acknowledged commits" in caplog.text
    (kept,) = left.path.parent.glob("store.db-wal.unreadable-*")
    assert kept.read_bytes() == log
    caplog.clear()
    left.close()
    store = left.sqlite()  # although nothing was committed in between
    commit(left, store, range(50, 52))
    left.close()
    assert stored(left.sqlite()) == [*there, 50, 51]
    assert not caplog.records
    left.close()


def test_a_log_that_ends_before_what_the_file_has_does_not_make_a_mixture(owner: Owner, tmp_path: Path) -> None:
    """Frames that were copied into the file stay in the log: up to where it is damaged, it is older than the file."""
    store = owner.sqlite()
    commit(owner, store, range(1, 11))
    with closing(sqlite3.connect(owner.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")  # so that the log is not begun again
        reader.execute("SELECT * FROM meta").fetchone()
        with closing(sqlite3.connect(owner.path)) as other:
            assert other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
        commit(owner, store, range(11, 21))
        left = left_behind(owner, tmp_path / "left")
    fifth = [number for number, (_, is_commit) in enumerate(frames(left.path)) if is_commit][5]
    flip(wal(left.path), WAL_HEADER + (fifth + 1) * FRAME + 5000)
    with pytest.raises(StoreLossError) as caught:
        left.sqlite()
    assert caught.value.found is not None
    assert caught.value.found.number == 10
    store = SqliteStore(left.path, left.notify, accept_loss=True)
    left.opened.append(store)
    assert stored(store) == list(range(1, 11))
    assert len(store.load([key_of(1, number) for number in range(1, 11)])) == 10
    left.close()


def test_an_older_copy_of_the_file_is_refused(owner: Owner, tmp_path: Path) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 6))
    store.close()
    shutil.copyfile(owner.path, tmp_path / "backup.db")
    store = owner.sqlite()
    commit(owner, store, range(6, 9))
    store.close()
    shutil.copyfile(tmp_path / "backup.db", owner.path)
    with pytest.raises(StoreLossError, match="3 of 8 acknowledged commits cannot be read") as caught:
        owner.sqlite()
    assert "ends with commit 5 (20" in str(caught.value)
    store = SqliteStore(owner.path, owner.notify, accept_loss=True)
    assert stored(store) == [1, 2, 3, 4, 5]
    store.close()


def test_an_empty_file_in_place_of_the_database_is_refused_and_keeps_its_log(owner: Owner, tmp_path: Path) -> None:
    left = killed(owner, tmp_path)
    left.path.write_bytes(b"")
    log = wal(left.path).read_bytes()
    with pytest.raises(StoreLossError, match="has no commit"):
        left.sqlite()
    assert wal(left.path).read_bytes() == log
    SqliteStore(left.path, left.notify, accept_loss=True).close()
    (kept,) = left.path.parent.glob("store.db-wal.unreadable-*")
    assert kept.read_bytes() == log


def test_what_is_left_and_damaged_is_refused_although_the_loss_is_accepted(owner: Owner, tmp_path: Path) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 200))
    store.close()
    store = owner.sqlite()
    commit(owner, store, range(200, 203))
    left = left_behind(owner, tmp_path / "left")
    wal(left.path).unlink()
    with left.path.open("r+b") as file:
        file.seek(13 * PAGE_SIZE)
        file.write(os.urandom(left.path.stat().st_size - file.tell()))
    with pytest.raises(StoreError, match="commits are missing, and the rest is damaged"):
        SqliteStore(left.path, left.notify, accept_loss=True)


def without_record(path: Path) -> None:
    record_path(path).unlink()


def with_a_torn_record(path: Path) -> None:
    for slot in (0, SLOT):
        flip(record_path(path), slot + 30)


def with_an_empty_record(path: Path) -> None:
    record_path(path).write_bytes(b"")


@pytest.mark.parametrize("change", [without_record, with_a_torn_record, with_an_empty_record])
def test_a_database_whose_record_says_nothing_is_opened(
    owner: Owner, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    left = killed(owner, tmp_path)
    change(left.path)
    wal(left.path).unlink()
    left.sqlite().close()
    record = read_record(left.path)
    assert record is not None
    assert record.number == 0


def test_one_torn_slot_leaves_the_other(owner: Owner, tmp_path: Path) -> None:
    left = killed(owner, tmp_path, 4)
    flip(record_path(left.path), 30)
    record = read_record(left.path)
    assert record is not None
    assert record.number == 3
    assert stored(left.sqlite()) == [1, 2, 3, 4]
    left.close()


def test_a_database_that_was_moved_out_of_the_way_makes_room_for_a_new_one(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 6))
    store.close()
    owner.path.rename(owner.path.with_name("away.db"))
    owner.sqlite().close()
    assert "not there any more, with its 5 commits" in caplog.text
    caplog.clear()
    owner.sqlite().close()
    assert not caplog.records


def test_another_database_in_its_place_is_opened(owner: Owner, tmp_path: Path) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 6))
    store.close()
    other = Owner(tmp_path / "other" / "store.db")
    store = other.sqlite()
    commit(other, store, range(1, 3))
    store.close()
    shutil.copyfile(other.path, owner.path)
    assert stored(owner.sqlite()) == [1, 2]


def test_a_file_of_version_3_is_opened_and_counted_from_then_on(owner: Owner, tmp_path: Path) -> None:
    older = tmp_path / "migrations"
    older.mkdir()
    for number in (1, 2, 3):
        shutil.copy(MIGRATIONS / f"000{number}.sql", older)
    owner.path.parent.mkdir()
    with closing(open_writer(owner.path, older)) as plain:
        plain.execute("INSERT INTO session_state VALUES (1, 'red', x'01')")
    shutil.copyfile(owner.path, tmp_path / "version3.db")
    store = owner.sqlite()
    assert list(store.session_states(1)) == [("red", b"\x01")]
    commit(owner, store, range(1, 4))
    store.close()
    record = read_record(owner.path)
    assert record is not None
    assert record.number == 3
    shutil.copyfile(tmp_path / "version3.db", owner.path)
    with pytest.raises(StoreLossError, match="3 of 3 acknowledged commits"):
        owner.sqlite()


def test_what_changes_nothing_is_not_flushed_to_the_disk(owner: Owner) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 3))
    before = wal(owner.path).stat().st_size, read_record(owner.path)
    assert owner.settle(store) is None
    assert (wal(owner.path).stat().st_size, read_record(owner.path)) == before


def test_a_commit_that_fails_is_not_counted(owner: Owner) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 3))
    store.journal.rows.append(row(3, session="\ud800"))
    assert owner.settle(store) is not None
    commit(owner, store, range(3, 4))
    record = read_record(owner.path)
    assert record is not None
    assert record.number == 3
    store.close()
    assert stored(owner.sqlite()) == [1, 2, 3]


def test_a_record_that_cannot_be_written_is_told_once_and_fails_no_commit(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = owner.sqlite()
    commit(owner, store, range(1, 2))

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", fail)
        commit(owner, store, range(2, 4))
    commit(owner, store, range(4, 5))
    assert caplog.text.count("commits are not recorded") == 1
    record = read_record(owner.path)
    assert record is not None
    assert record.number == 4
