"""Following a ledger on disk as it grows and rotates."""

import os
from pathlib import Path

import pytest
from tests.support.records import NOON, record

from pairbus.core.ledger import Kind
from pairbus.dashboard import follow
from pairbus.dashboard.follow import Follower
from pairbus.instrument.ledger import LedgerFile


def ids(follower: Follower) -> list[str]:
    return [heard.record.id for heard in follower.read()]


def line(name: str) -> str:
    return record(Kind.SEND, 0, id=name).to_json() + "\n"


def test_what_is_new_is_read_once_through_rotation(tmp_path: Path) -> None:
    follower = Follower(tmp_path, NOON)
    ledger = LedgerFile(tmp_path, max_bytes=400)
    told: list[str] = []
    for number in range(12):
        ledger.record(record(Kind.SEND, number, id=f"r{number}"))
        assert ledger.flush()
        told += ids(follower)
    assert told == [f"r{number}" for number in range(12)]
    assert len(list(tmp_path.iterdir())) > 3
    ledger.close()
    assert ids(follower) == []
    assert follower.caught_up


def test_files_of_one_process_are_read_in_their_order(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        (tmp_path / f"ledger-20260305T120000Z-host-7-0123abcd-{number}.jsonl").write_text(line(f"r{number}"))
    (heard, *_) = Follower(tmp_path, NOON).read()
    assert heard.writer == "host-7"
    assert ids(Follower(tmp_path, NOON)) == ["r1", "r9", "r10"]


def test_a_line_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "ledger-x.jsonl"
    whole = line("second")
    file.write_text(line("first") + whole[:20])
    follower = Follower(tmp_path, NOON)
    assert ids(follower) == ["first"]
    assert ids(follower) == []
    assert follower.caught_up
    file.write_text(line("first") + whole)
    assert ids(follower) == ["second"]


def test_a_line_that_cannot_be_read_is_passed_over_and_told(tmp_path: Path) -> None:
    (tmp_path / "ledger-x.jsonl").write_text(line("first") + "no JSON\n" + line("second"))
    follower = Follower(tmp_path, NOON)
    assert ids(follower) == ["first", "second"]
    assert follower.problem is not None
    assert "ledger-x.jsonl, byte" in follower.problem


def test_what_was_written_last_month_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "ledger-old.jsonl"
    old.write_text(line("old"))
    os.utime(old, (NOON.timestamp() - 86400, NOON.timestamp() - 86400))
    (tmp_path / "notes.txt").write_text("no ledger")
    assert ids(Follower(tmp_path, NOON)) == []


def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "ledger", NOON)
    assert ids(follower) == []
    assert follower.problem is not None
    assert "cannot be read: No such file or directory" in follower.problem
    LedgerFile(tmp_path / "ledger").close()
    assert ids(follower) == []
    assert follower.problem is None


def test_a_long_ledger_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "CHUNK", 1000)
    names = [f"r{number}" for number in range(20)]
    file = tmp_path / "ledger-x.jsonl"
    file.write_text("".join(map(line, names)))
    follower = Follower(tmp_path, NOON)
    told = ids(follower)
    assert 0 < len(told) < 20
    assert 0 < follower.behind < follower.size
    while not follower.caught_up:
        told += ids(follower)
    assert told == names
    with file.open("a") as stream:
        stream.write("x" * 1000 + "\n" + line("after"))
    while not follower.caught_up or told[-1] != "after":
        told += ids(follower)
    assert told == [*names, "after"]


def test_what_its_writer_takes_back_and_what_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "ledger-x.jsonl"
    file.write_text(line("first") + line("second"))
    follower = Follower(tmp_path, NOON)
    assert ids(follower) == ["first", "second"]
    os.truncate(file, len(line("first")))
    assert ids(follower) == []
    with file.open("a") as stream:
        stream.write(line("third"))
    assert ids(follower) == ["third"]
    file.unlink()
    assert ids(follower) == []
    assert follower.size == 0
