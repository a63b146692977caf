"""The files of a store: whose they are, and that their directory is durable."""

import os
from pathlib import Path

import pytest
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.store.files import make_directory, sync_directory


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_and_directories_are_their_owners_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        owner = Owner(tmp_path / "made" / "data" / "store.db")
        store = owner.sqlite()
        store.journal.entities.append(entity())
        store.journal.rows.append(row(1))
        assert owner.settle(store) is None
        files = {path.name: mode_of(path) for path in owner.path.parent.iterdir()}
        store.close()
    finally:
        os.umask(before)
    beside = ("-wal", "-shm", ".lock", ".reserve", ".commits")
    assert {"store.db", *(f"store.db{each}" for each in beside)} <= files.keys()
    assert set(files.values()) == {0o600}
    assert (mode_of(tmp_path / "made"), mode_of(tmp_path / "made" / "data")) == (0o700, 0o700)


def test_files_of_an_older_version_become_their_owners_only(owner: Owner, tmp_path: Path) -> None:
    store = owner.sqlite()
    store.journal.entities.append(entity())
    assert owner.settle(store) is None
    left = tmp_path / "left"  # what a killed process leaves
    left.mkdir()
    names = ("store.db", "store.db-wal", "store.db-shm", "store.db.lock", "store.db.commits")
    for name in names:
        (left / name).write_bytes(owner.path.with_name(name).read_bytes())
        (left / name).chmod(0o644)
    other = Owner(left / "store.db")
    store = other.sqlite()
    assert store.entities() == [entity()]
    assert {name: mode_of(left / name) for name in names} == dict.fromkeys(names, 0o600)
    other.close()


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Owner(tmp_path / "store.db").sqlite().close()
    assert mode_of(tmp_path) == 0o755


def test_each_directory_that_is_made_is_synced_into_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    make_directory(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2
    sync_directory(tmp_path)
    assert synced[2:] == [str(tmp_path)]
