"""Bits that flip on the disk: what is not what was stored is told, and never served as if it were.

The database file has no checksums of SQLite's own. The write-ahead log has: see test_commits.py.
"""

import random
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager

import pytest
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.store.base import EntityKind, EntityRow, Row, StoreError, key_of
from pairbus.broker.store.sqlite import SqliteStore

FLIPS = 250
ENTITIES = (1, 2, 4, 5)


def fill(owner: Owner) -> None:
    store = owner.sqlite()
    store.journal.entities += [
        EntityRow(1, "orders", '{"a": 1}', 1),
        EntityRow(2, "other", '{"b": 2}', 1),
        EntityRow(3, "topic", "{}", 1, EntityKind.TOPIC),
        *(EntityRow(number, f"topic/{number}", "{}", 1, EntityKind.SUBSCRIPTION) for number in (4, 5)),
    ]
    choice = random.Random(1)
    for number in range(1, 201):
        expires, due = choice.choice((None, 1_800_000_000_000)), choice.choice((None, 1_900_000_000_000))
        session = choice.choice((None, "red", f"blue {number}"))
        body = choice.randbytes(choice.choice((8, 40, 300)))
        key = key_of(1 + number % 2, number)
        store.journal.rows.append(Row(key, choice.choice((0, 0, 1, 2)), 5, expires, due, session, number % 3, body))
    for number in range(1, 30):
        body = choice.randbytes(30)
        store.journal.copies += [(row(number, i, payload=body), key_of(3, number)) for i in (4, 5)]
    assert owner.settle(store) is None
    store.close()


class Content:
    """All that a store serves, read in the ways in which the broker reads it.

    :ivar rows: what it gives as whole.
    :ivar damaged: the keys of what it says is damaged.
    """

    def __init__(self, store: SqliteStore) -> None:
        self.entities = [found[:5] for found in store.entities()]
        self.rows: dict[int, Row] = {}
        self.damaged: set[int] = set()
        for number in ENTITIES:
            keys = [found.key for found in store.index(number)]
            self.damaged.update(found.key for found in store.index(number) if not found.is_whole)
            for found in (*store.browse(number, 0, 1_000), *store.load(keys)):
                if found.damage is None:
                    self.rows[found.key] = found
                else:
                    self.damaged.add(found.key)


@contextmanager
def opened(owner: Owner) -> Generator[SqliteStore]:
    store = owner.sqlite()
    try:
        yield store
    finally:
        store.close()


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("where", ["anywhere", "in the structure of a page"])
def test_a_flip_in_the_database_is_noticed_or_changes_nothing(
    owner: Owner, where: str, size: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if size == "large":  # so large a file is not checked as a whole
        monkeypatch.setattr("pairbus.broker.store.opening.CHECKED_UP_TO", 0)
    fill(owner)
    with opened(owner) as store:
        intact = Content(store)
    assert len(intact.rows) == 258
    content, record = owner.path.read_bytes(), owner.path.with_name("store.db.commits").read_bytes()
    choice = random.Random(where)
    noticed = 0
    refusals: list[str] = []
    for _ in range(FLIPS):
        caplog.clear()
        position = choice.randrange(len(content))
        if where != "anywhere":
            position = position // 8192 * 8192 + choice.randrange(64)
        flipped = bytearray(content)
        flipped[position] ^= 1 << choice.randrange(8)
        for file in owner.path.parent.glob("store.db*"):
            file.unlink()
        owner.path.write_bytes(flipped)
        owner.path.with_name("store.db.commits").write_bytes(record)
        try:
            with opened(owner) as store:
                found = Content(store)
        except StoreError as error:
            refusals.append(str(error))
            continue
        noticed += bool(found.damaged)
        assert found.entities == intact.entities, position
        assert {key for key, each in found.rows.items() if each != intact.rows.get(key)} == set(), position
        missing = intact.rows.keys() - found.rows.keys() - found.damaged
        # A key that has flipped is that of another record, which is damaged or has no entity.
        elsewhere = found.damaged - intact.rows.keys()
        assert not missing or len(elsewhere) >= len(missing) or "which do not exist" in caplog.text, position
    assert noticed + len(refusals) > FLIPS // 20
    assert all(text.startswith(str(owner.path)) for text in refusals), refusals


@pytest.mark.parametrize("column", ["state", "deliveries"])
def test_a_zero_that_became_an_empty_blob_is_damage(owner: Owner, column: str) -> None:
    with opened(owner) as store:
        store.journal.entities.append(entity())
        store.journal.rows.append(row(1))
    with closing(sqlite3.connect(owner.path)) as plain, plain:
        plain.execute(f"UPDATE meta SET {column} = x''")  # noqa: S608 (a name of ours)
    with opened(owner) as store:
        assert [found.is_whole for found in store.index(1)] == [False]
        assert [found.damage for found in store.load([key_of(1, 1)])] == ["its record is not what was stored"]


def test_records_that_moved_to_an_entity_that_does_not_exist_are_told(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(owner) as store:
        store.journal.entities += [entity(), entity(4, "other")]
        store.journal.rows += [row(1), row(2), row(1, 4)]
    with opened(owner):
        assert not caplog.records
    with closing(sqlite3.connect(owner.path)) as plain, plain:
        plain.execute("UPDATE meta SET key = ? WHERE key = ?", (key_of(3, 2), key_of(1, 2)))
    with opened(owner):
        assert "messages of entities [3], which do not exist, are not served" in caplog.text


def test_a_damaged_session_state_is_told_and_not_given(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    with opened(owner) as store:
        store.journal.entities.append(entity())
        store.journal.session_states += [(1, "red", b"state"), (1, "blue", b"other")]
    with opened(owner) as store:
        store.journal.session_states.append((1, "blue", b"newer"))
    with closing(sqlite3.connect(owner.path)) as plain, plain:
        plain.execute("UPDATE session_state SET state = x'00' WHERE session = 'red'")
    with opened(owner) as store:
        assert list(store.session_states(1)) == [("blue", b"newer")]
    assert "the state of a session is damaged, so it has none now: 'red'" in caplog.text
