"""What only a store on a disk does: durability, its log, and what is removed little by little."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, fill, row

from pairbus.broker.store.base import EntityKind, EntityRow, key_of
from pairbus.broker.store.checksums import add_functions
from pairbus.broker.store.opening import APPLICATION_ID, PAGE_SIZE
from pairbus.broker.store.queries import MIGRATIONS, QUERIES, migrations
from pairbus.broker.store.writing import runs

NOBODY = 65534


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
