"""What only a store on a disk does: versions, damage, full disks, refusals."""

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.store.base import EntityKind, EntityRow, StoreError, StoreFullError, key_of
from pairbus.broker.store.checksums import add_functions
from pairbus.broker.store.opening import APPLICATION_ID, PAGE_SIZE, as_store_error, open_writer
from pairbus.broker.store.queries import MIGRATIONS, QUERIES, migrations, statements
from pairbus.broker.store.reserve import SIZES, Reserve
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.broker.store.writing import runs

NOBODY = 65534


def fill(owner: Owner, count: int = 10) -> None:
    store = owner.sqlite()
    store.journal.entities.append(entity())
    store.journal.rows += [row(number, payload=b"%d" % number * 200) for number in range(1, count + 1)]
    assert owner.settle(store) is None
    store.close()


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections with which stores write, as they are opened."""
    opened: list[sqlite3.Connection] = []

    def open_and_keep(path: Path, directory: Path) -> sqlite3.Connection:
        opened.append(open_writer(path, directory))
        return opened[-1]

    monkeypatch.setattr("pairbus.broker.store.sqlite.open_writer", open_and_keep)
    return opened


def refused(owner: Owner) -> str:
    with pytest.raises(StoreError) as caught:
        owner.sqlite()
    assert str(owner.path) in str(caught.value)
    return str(caught.value)


def test_all_is_there_after_reopening_and_only_the_file_and_its_lock_are_left(owner: Owner) -> None:
    fill(owner)
    assert sorted(path.name for path in owner.path.parent.iterdir()) == [
        "store.db",
        "store.db.commits",
        "store.db.lock",
        "store.db.reserve",
    ]
    store = owner.sqlite()
    assert store.entities() == [entity(next_sequence=11)]
    assert len(list(store.index(1))) == 10


def test_the_file_is_made_as_it_should_be(owner: Owner) -> None:
    fill(owner)
    with closing(sqlite3.connect(owner.path)) as plain:
        found = {
            name: plain.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "page_size", "user_version", "application_id", "auto_vacuum")
        }
        assert found == {
            "journal_mode": "wal",
            "page_size": PAGE_SIZE,
            "user_version": max(migrations(MIGRATIONS)),
            "application_id": APPLICATION_ID,
            "auto_vacuum": 0,
        }


def test_each_commit_is_flushed_to_the_disk(owner: Owner, writers: list[sqlite3.Connection]) -> None:
    owner.sqlite()
    assert writers[0].execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_log_does_not_grow_without_bound(owner: Owner) -> None:
    store = owner.sqlite()
    log = owner.path.with_name("store.db-wal")
    largest = 0
    for start in range(0, 40_000, 1000):
        store.journal.rows += [row(number, payload=bytes(1024)) for number in range(start, start + 1000)]
        store.journal.removed += [key_of(1, number) for number in range(start - 1000, start)]
        assert owner.settle(store) is None
        largest = max(largest, log.stat().st_size)
    assert largest < 20 * 1024 * 1024


def test_somebody_who_reads_the_file_holds_up_neither_commits_nor_for_ever_the_log(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.broker.store.sqlite.CHECKPOINT_BYTES", 0)
    monkeypatch.setattr("pairbus.broker.store.sqlite.WAL_FRAMES_AT_MOST", 10)
    monkeypatch.setattr("pairbus.broker.store.opening.BUSY_SECONDS", 0.01)
    store = owner.sqlite()
    log = owner.path.with_name("store.db-wal")

    def commit() -> int:
        store.journal.rows += [row(number, payload=bytes(5000)) for number in range(5)]
        assert owner.settle(store) is None
        return log.stat().st_size

    commit()
    with closing(sqlite3.connect(owner.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM meta").fetchone() == (5,)
        sizes = [commit() for _ in range(20)]  # more than the log has had before
        assert sizes[-1] > sizes[0]
    commit()
    longest = commit()
    assert [commit() for _ in range(6)] == [longest] * 6


def test_a_checkpoint_that_fails_is_told_once_and_made_later(
    owner: Owner, writers: list[sqlite3.Connection], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pairbus.broker.store.sqlite.CHECKPOINT_BYTES", 0)
    store = owner.sqlite()
    refuse = True

    def authorize(action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if refuse and action == sqlite3.SQLITE_PRAGMA else sqlite3.SQLITE_OK

    writers[0].set_authorizer(authorize)
    for number in range(3):
        store.journal.rows.append(row(number))
        assert owner.settle(store) is None
    refuse = False
    store.journal.rows.append(row(9))
    assert owner.settle(store) is None
    store.close()
    assert caplog.text.count("checkpoint put off") == 1


@pytest.mark.parametrize(
    "damage", ["SET next_sequence = 3", "SET next_sequence = next_sequence + 64", "SET path = 'r'"]
)
def test_a_file_whose_entity_is_damaged_is_refused(owner: Owner, damage: str) -> None:
    fill(owner)
    with closing(sqlite3.connect(owner.path)) as plain, plain:
        plain.execute("UPDATE entity " + damage)
    assert "entities [1] are not what was stored" in refused(owner)


def test_an_entity_is_whole_however_its_sequence_was_raised(owner: Owner) -> None:
    fill(owner)
    store = owner.sqlite()
    for change in (entity()._replace(path="other", next_sequence=2), entity()._replace(next_sequence=50)):
        store.journal.entities.append(change)
        store.journal.rows.append(row(30))
        assert owner.settle(store) is None
    store.close()
    store = owner.sqlite()
    assert [found.next_sequence for found in store.entities()] == [50]
    store.close()


def test_an_older_file_is_brought_up_to_date_with_its_content(owner: Owner, tmp_path: Path) -> None:
    fill(owner)
    newer = tmp_path / "migrations"
    newer.mkdir()
    for script in MIGRATIONS.glob("*.sql"):
        (newer / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    (newer / "0005.sql").write_text(
        "ALTER TABLE entity ADD COLUMN note TEXT;\nUPDATE entity SET note = 'a; b';\n", encoding="utf-8"
    )
    store = SqliteStore(owner.path, owner.notify, migrations=newer)
    assert len(store.load([key_of(1, number) for number in range(1, 11)])) == 10
    store.close()
    with closing(sqlite3.connect(owner.path)) as plain:
        assert plain.execute("SELECT note FROM entity").fetchall() == [("a; b",)]
        assert plain.execute("PRAGMA user_version").fetchone() == (5,)
    text = refused(owner)
    assert "store version 5" in text
    assert "this one knows 4" in text
    assert "install that version" in text


def test_a_migration_that_fails_leaves_the_file_as_it_was(owner: Owner, tmp_path: Path) -> None:
    fill(owner)
    newer = tmp_path / "migrations"
    newer.mkdir()
    (newer / "0005.sql").write_text("DELETE FROM meta;\nALTER TABLE nothing ADD COLUMN note TEXT;\n", encoding="utf-8")
    with pytest.raises(StoreError, match="from version 4 to 5, and was left as it is"):
        SqliteStore(owner.path, owner.notify, migrations=newer)
    store = owner.sqlite()
    assert len(list(store.index(1))) == 10


def test_a_script_is_split_into_statements() -> None:
    script = "-- one; really\nCREATE TABLE a (b);\nINSERT INTO a\nVALUES (';');\n"
    assert [part.count("\n") for part in statements(script)] == [2, 2]


def test_something_else_is_refused_and_left_alone(owner: Owner) -> None:
    owner.path.parent.mkdir()
    owner.path.write_bytes(b"this is a letter, not a database" * 100)
    before = owner.path.read_bytes()
    assert "no pairbus store" in refused(owner)
    assert owner.path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_alone(owner: Owner) -> None:
    owner.path.parent.mkdir()
    with closing(sqlite3.connect(owner.path)) as other:
        other.execute("CREATE TABLE meta (mine)")
    before = owner.path.read_bytes()
    assert "another program" in refused(owner)
    assert owner.path.read_bytes() == before


def test_a_directory_is_refused(owner: Owner) -> None:
    owner.path.mkdir(parents=True)
    assert "is a directory" in refused(owner)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    owner = Owner(tmp_path / "file" / "below" / "store.db")
    assert "may write to" in refused(owner)


def damage(path: Path, first_page: int) -> None:
    with path.open("r+b") as file:
        file.seek(first_page * PAGE_SIZE)
        file.write(os.urandom(path.stat().st_size - file.tell()))


def test_damage_in_a_small_file_is_found_when_it_is_opened(owner: Owner) -> None:
    fill(owner, 200)
    damage(owner.path, 2)
    assert "damaged" in refused(owner)


def test_damage_that_is_found_later_is_told(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(owner, 200)
    damage(owner.path, 12)  # the first pages are the roots of tables and indexes
    monkeypatch.setattr("pairbus.broker.store.opening.CHECKED_UP_TO", 0)
    store = owner.sqlite()
    with pytest.raises(StoreError, match="damaged"):
        store.load([key_of(1, number) for number in range(1, 200)])
    store.journal.removed += [key_of(1, number) for number in range(1, 200)]
    error = owner.settle(store)
    assert error is not None
    assert "damaged" in str(error)


def test_a_second_owner_is_refused_in_this_process_and_another(owner: Owner) -> None:
    store = owner.sqlite()
    assert f"process {os.getpid()}" in refused(owner)
    script = "import sys; from pairbus.broker.store.sqlite import SqliteStore; SqliteStore(sys.argv[1], print)"
    other = subprocess.run(
        [sys.executable, "-c", script, owner.path], check=False, capture_output=True, text=True, timeout=60
    )
    assert other.returncode == 1
    assert f"{owner.path}: in use by another broker (process {os.getpid()}); end it" in other.stderr
    store.close()
    owner.sqlite()


def bodies(path: Path) -> int:
    with closing(sqlite3.connect(path)) as plain:
        return plain.execute("SELECT count(*) FROM payload").fetchone()[0]


def test_the_bodies_of_a_dropped_entity_go_little_by_little(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(owner, 200)
    monkeypatch.setattr("pairbus.broker.store.writing.PURGED_AT_ONCE", 30)
    store = owner.sqlite()
    store.journal.dropped.append(1)
    assert owner.settle(store) is None
    assert list(store.index(1)) == []
    assert store.load([key_of(1, number) for number in range(1, 201)]) == []
    for _ in range(7):
        assert owner.settle(store) is None
    store.close()
    assert bodies(owner.path) == 0


def test_what_was_not_removed_yet_is_removed_after_reopening(owner: Owner) -> None:
    fill(owner, 1200)
    with closing(sqlite3.connect(owner.path)) as plain, plain:
        plain.execute("DELETE FROM meta")
        plain.execute("DELETE FROM entity")
        plain.execute("INSERT INTO dropped VALUES (1)")
    store = owner.sqlite()
    for _ in range(3):
        assert owner.settle(store) is None
    store.close()
    assert bodies(owner.path) == 0


def test_an_id_may_be_used_again_before_the_bodies_are_gone(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(owner, 200)
    monkeypatch.setattr("pairbus.broker.store.writing.PURGED_AT_ONCE", 1)
    store = owner.sqlite()
    store.journal.dropped.append(1)
    assert owner.settle(store) is None
    store.journal.entities.append(entity())
    store.journal.rows.append(row(5, payload=b"new"))
    assert owner.settle(store) is None
    for _ in range(3):
        assert owner.settle(store) is None
    assert [found.payload for found in store.load([key_of(1, 5)])] == [b"new"]
    store.close()
    assert bodies(owner.path) == 1


def test_room_that_cannot_be_freed_now_is_freed_later(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(owner, 20)
    body_after = QUERIES["body_after"]
    monkeypatch.setitem(QUERIES, "body_after", "SELECT nothing")
    store = owner.sqlite()
    store.journal.dropped.append(1)
    assert owner.settle(store) is None
    store.journal.seen.append((2, "id", 1))
    assert owner.settle(store) is None
    assert "not free yet" in caplog.text
    monkeypatch.setitem(QUERIES, "body_after", body_after)
    for _ in range(2):
        assert owner.settle(store) is None
    store.close()
    assert bodies(owner.path) == 0


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


def test_keys_are_split_into_ranges_and_the_rest() -> None:
    assert runs([]) == ([], [])
    assert runs(range(5)) == ([], [0, 1, 2, 3, 4])
    assert runs(range(8)) == ([(0, 7)], [])
    assert runs([*range(20, 40), 3, 1, 1, 50, *range(100, 108)]) == ([(20, 39), (100, 107)], [1, 3, 50])


@pytest.mark.parametrize("name", ["expired", "next_expiry", "due", "next_due"])
def test_what_is_timed_is_found_by_an_index(owner: Owner, name: str) -> None:
    owner.sqlite()
    values = {"expired": (1, 2, 3), "due": (1, 2, 3)}.get(name, (1,))
    with closing(sqlite3.connect(owner.path)) as plain:
        add_functions(plain)
        steps = [step[3] for step in plain.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values)]
    assert any("USING" in step and ("meta_expiry" in step or "meta_due" in step) for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


TOO_LARGE = 1 << 70
"""An entity's id that SQLite cannot hold: what comes before it in a journal is carried out, and then rolled back."""


def test_a_drop_that_was_rolled_back_takes_no_bodies_away(owner: Owner) -> None:
    fill(owner, 20)
    store = owner.sqlite()
    store.journal.dropped += [1, TOO_LARGE]
    assert owner.settle(store) is not None
    for number in range(3):  # a commit that succeeds is followed by the removal of what was dropped
        store.journal.seen.append((2, f"id {number}", 1))
        assert owner.settle(store) is None
    assert len(store.load([key_of(1, number) for number in range(1, 21)])) == 20
    store.close()
    assert bodies(owner.path) == 20


def test_a_subscription_whose_drop_was_rolled_back_still_shares_its_bodies(owner: Owner) -> None:
    store = owner.sqlite()
    topic = EntityRow(1, "orders", "{}", 1, EntityKind.TOPIC)
    store.journal.entities += [topic, *(EntityRow(i, f"s{i}", "{}", 1, EntityKind.SUBSCRIPTION) for i in (2, 3))]
    store.journal.copies += [(row(1, entity=i, payload=b"shared"), key_of(1, 1)) for i in (2, 3)]
    assert owner.settle(store) is None
    store.journal.dropped += [2, 3, TOO_LARGE]
    assert owner.settle(store) is not None
    for subscription in (2, 3):
        assert [found.payload for found in store.load([key_of(subscription, 1)])] == [b"shared"]
        store.journal.removed.append(key_of(subscription, 1))
        assert owner.settle(store) is None
    store.close()
    assert bodies(owner.path) == 0
