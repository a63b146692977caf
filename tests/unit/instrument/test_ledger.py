"""K1: the ledger on disk. It never blocks, loses nothing silently, and has whole lines only."""

import errno
import json
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.instrument.conftest import made

from pairbus.core.ledger import Kind
from pairbus.errors import LedgerError, OptionError
from pairbus.instrument.files import RotatedFiles
from pairbus.instrument.ledger import LedgerFile, read_ledger


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl"))


def ids(directory: Path) -> list[str]:
    return [record.id for record in read_ledger(directory)]


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path / "made" / "anew")
    records = [made(number) for number in range(500)]
    for record in records:
        ledger.record(record)
    assert ledger.flush()
    assert list(read_ledger(tmp_path / "made" / "anew")) == records
    ledger.record(made(500))
    assert ledger.close()
    assert ledger.close()
    assert len(ids(tmp_path / "made" / "anew")) == 501
    (file,) = files(tmp_path / "made" / "anew")
    assert len(list(read_ledger(file))) == 501
    assert (ledger.dropped, ledger.waiting) == (0, 0)


def test_what_was_recorded_is_synced_to_the_disk_when_the_ledger_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        synced.append(os.fstat(file).st_size)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    ledger = LedgerFile(tmp_path)
    for number in range(3):
        ledger.record(made(number))
    assert ledger.close()
    assert synced == [file.stat().st_size for file in files(tmp_path)]
    assert "pairbus ledger" not in [thread.name for thread in threading.enumerate()]


def test_nothing_is_made_before_there_is_something_to_write(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path)
    assert ledger.close()
    assert files(tmp_path) == []


def test_a_directory_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"ledger=.*file' is not valid: a directory that can be written to"):
        LedgerFile(tmp_path / "file")


@pytest.mark.parametrize("bounds", [{"max_bytes": 5_000}, {"max_age": 0.0}])
def test_files_are_rotated_by_size_and_by_time(tmp_path: Path, bounds: dict[str, float]) -> None:
    ledger = LedgerFile(tmp_path, **bounds)  # pyright: ignore[reportArgumentType] (numbers, both)
    for number in range(200):
        ledger.record(made(number))
    assert ledger.close()
    assert len(files(tmp_path)) > 3
    assert sorted(ids(tmp_path)) == sorted(f"id-{number}" for number in range(200))
    if "max_bytes" in bounds:  # records are written together, so a file may hold one write that is larger
        assert all(len(file.read_bytes()) < 5_000 + 50 * 300 for file in files(tmp_path))


def test_a_file_that_is_old_is_closed_though_nothing_comes(tmp_path: Path) -> None:
    written = RotatedFiles(tmp_path, lambda number: f"{number}.jsonl", max_bytes=1000, max_age=0.0)
    assert written.idle_for() is None
    assert written.write(b"{}\n")
    assert written.idle_for() == 0.0
    written.close()
    assert written.idle_for() is None


def test_what_finds_no_room_is_counted_and_the_count_is_written(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path, room=10, interval=30.0)  # it gathers until it is told to hurry
    for number in range(25):
        ledger.record(made(number))
    assert (ledger.dropped, ledger.waiting) == (15, 10)
    assert ledger.flush()
    ledger.record(made(100))
    assert ledger.close()
    *written, gap, last = list(read_ledger(tmp_path))
    assert [record.id for record in (*written, last)] == [*(f"id-{number}" for number in range(10)), "id-100"]
    assert (gap.kind, gap.messages, gap.operations) == (Kind.DROPPED, 15, 0)
    assert (gap.client, gap.namespace, gap.detail) == (
        *("shop", "contoso"),
        "no room: records came faster than they could be written",
    )
    ledger.record(made(101))  # after its end
    assert ledger.dropped == 16


def test_many_threads_and_no_record_is_missing(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path, room=1000, interval=0.001)

    def record(first: int) -> None:
        for number in range(first, first + 2000):
            ledger.record(made(number))

    threads = [threading.Thread(target=record, args=(first,)) for first in range(0, 8000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.close()
    records = list(read_ledger(tmp_path))
    gaps = sum(record.messages for record in records if record.kind is Kind.DROPPED)
    assert sum(record.kind is Kind.SEND for record in records) + gaps == 8000
    assert gaps == ledger.dropped


class Disk:
    """Writes half of what it is given when it is full, and then nothing, as a disk does."""

    def __init__(self) -> None:
        self.full = False
        self.refused = threading.Event()

    def write(self, file: int, data: memoryview) -> int:
        if not self.full:
            return os.write(file, data)
        if len(data) > 100:
            return os.write(file, data[: len(data) // 2])
        self.refused.set()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    written = RotatedFiles(tmp_path, lambda number: f"{number}.jsonl", max_bytes=10**6, max_age=60, write=disk.write)
    line = made(1).to_json().encode() + b"\n"
    assert written.write(line)
    disk.full = True
    assert not written.write(line * 5)
    assert not written.write(line * 5)
    assert (tmp_path / "1.jsonl").read_bytes() == line
    disk.full = False
    assert written.write(line * 5)
    written.close()
    assert (tmp_path / "1.jsonl").read_bytes() == line * 6
    assert [each.getMessage() for each in caplog.records] == [
        f"{tmp_path}: [Errno 28] No space left on device; it is tried again until there is no room left",
        f"{tmp_path}: written to again",
    ]


def test_if_it_cannot_be_taken_back_another_file_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    written = RotatedFiles(tmp_path, lambda number: f"{number}.jsonl", max_bytes=10**6, max_age=60, write=disk.write)
    line = made(1).to_json().encode() + b"\n"
    assert written.write(line)
    disk.full = True
    with monkeypatch.context() as patched:

        def refuse(_file: int, _size: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patched.setattr(os, "ftruncate", refuse)
        assert not written.write(line)
    disk.full = False
    assert written.write(line)
    written.close()
    assert (tmp_path / "2.jsonl").read_bytes() == line
    assert ids(tmp_path) == ["id-1", "id-1"]  # the torn line is passed over


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    mounted = subprocess.run(command, check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a disk of its own can be had by root only; test_a_limit_of_a_file runs everywhere")
    yield place
    # Lazily: a test that failed has left the ledger's file open, and the disk would stay.
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # noqa: S607


def test_a_full_disk_is_survived_and_what_it_cost_is_known(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 480_000)
    ledger = LedgerFile(small_disk, room=300, interval=0.01)
    for number in range(1000):
        ledger.record(made(number))
        if number % 100 == 0:
            ledger.flush(0.2)
    assert not ledger.flush(0.05)
    assert ledger.dropped > 0
    assert len(list(read_ledger(small_disk))) > 0  # whole lines, while it is full
    ballast.unlink()
    assert ledger.close()
    records = list(read_ledger(small_disk))
    gaps = sum(record.messages for record in records if record.kind is Kind.DROPPED)
    sent = [record.id for record in records if record.kind is Kind.SEND]
    assert len(set(sent)) == len(sent)
    assert (len(sent) + gaps, gaps) == (1000, ledger.dropped)


LIMITED = """
import resource, sys
from tests.unit.instrument.conftest import made
from pairbus.instrument.ledger import LedgerFile
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
ledger = LedgerFile(sys.argv[1], interval=0.01)
for number in range(200):
    ledger.record(made(number))
print(ledger.flush(0.3))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(ledger.close(), ledger.dropped)
"""


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)


def test_a_limit_of_a_file_cuts_a_write_short_and_no_line_is_torn(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    ran = run(LIMITED, str(tmp_path))
    assert ran.stdout.split() == ["False", "True", "0"], ran.stderr
    assert ids(tmp_path) == [f"id-{number}" for number in range(200)]


UNCLOSED = """
import sys
from tests.unit.instrument.conftest import made
from pairbus.instrument.ledger import LedgerFile
ledger = LedgerFile(sys.argv[1], interval=30.0)
ledger.record(made(1))
"""


def test_at_the_end_of_the_process_what_there_is_is_written(tmp_path: Path) -> None:
    ran = run(UNCLOSED, str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ids(tmp_path) == ["id-1"]


def test_a_ledger_that_cannot_write_ends_in_time_and_says_what_it_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "ledger"
    ledger = LedgerFile(place, interval=0.01)
    place.rmdir()
    for number in range(3):
        ledger.record(made(number))
    assert not ledger.close(0.1)
    assert ledger.dropped == 3
    assert f"{place}: closed with 3 records that could not be written" in caplog.messages
    assert not ledger.flush()


KILLED = """
import itertools, sys
from tests.unit.instrument.conftest import made
from pairbus.instrument.ledger import LedgerFile
ledger = LedgerFile(sys.argv[1], interval=0.0001)
for number in itertools.count():
    ledger.record(made(number))
    if number % 1000 == 0:
        ledger.flush()
        print(number, flush=True)
"""


def test_many_processes_killed_in_the_middle_leave_whole_records(tmp_path: Path) -> None:
    """What was flushed is there after kill -9; a torn last line is passed over; files are nobody else's."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    flushed: list[int] = []
    for process in processes:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= 5000:
                    flushed.append(int(line))
                    break
            process.send_signal(signal.SIGKILL)
    assert len(files(tmp_path)) == 3
    found = sorted(len(list(read_ledger(file))) for file in files(tmp_path))
    assert found[0] > min(flushed)
    for file in files(tmp_path):
        assert [record.id for record in read_ledger(file)][:5001] == [f"id-{number}" for number in range(5001)]


def _record_in_child(ledger: LedgerFile) -> None:
    ledger.record(made(2))
    os._exit(0 if ledger.close() else 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_after_a_fork_the_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path, interval=0.05)
    ledger.record(made(0))
    assert ledger.flush()
    ledger.record(made(1))  # may not be written yet: that is the parent's business
    child = multiprocessing.get_context("fork").Process(target=_record_in_child, args=(ledger,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert ledger.close()
    assert sorted([record.id for record in read_ledger(file)] for file in files(tmp_path)) == [
        ["id-0", "id-1"],
        ["id-2"],
    ]


def test_a_torn_last_line_is_passed_over_and_any_other_is_named(tmp_path: Path) -> None:
    line = made(1).to_json()
    file = tmp_path / "a.jsonl"
    for torn in ("", "{", line[:-1], line, "\0\0\0"):
        file.write_text(line + "\n" + torn)
        assert len(list(read_ledger(file))) == 1
    file.write_text(line + "\n" + line[:20] + "\n" + line + "\n")
    with pytest.raises(LedgerError, match=r"a\.jsonl, line 2: not a line of JSON"):
        list(read_ledger(tmp_path))
    file.write_bytes(line.encode() + b"\n\xff\n")
    with pytest.raises(LedgerError, match=r"a\.jsonl, line 2: 'utf-8' codec can't decode"):
        list(read_ledger(file))
    file.write_text(json.dumps({**json.loads(line), "kind": "sent"}) + "\n")
    with pytest.raises(LedgerError, match=r"a\.jsonl, line 1: field 'kind' is 'sent'"):
        list(read_ledger(file))


def test_nothing_is_logged_when_all_is_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="pairbus")
    ledger = LedgerFile(tmp_path)
    ledger.record(made(1))
    assert ledger.close()
    assert caplog.records == []
