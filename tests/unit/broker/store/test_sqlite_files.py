"""Files that a store opens, migrates or refuses: older ones, damaged ones, those of other programs."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, fill, refused, row

from pairbus.broker.store.base import StoreError, key_of
from pairbus.broker.store.opening import PAGE_SIZE
from pairbus.broker.store.queries import MIGRATIONS, statements
from pairbus.broker.store.sqlite import SqliteStore

NOBODY = 65534


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
