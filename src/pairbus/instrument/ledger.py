"""The ledger on disk: append-only JSON lines, in files of one directory that any number of processes may share.

:class:`LedgerFile` is the sink. It never blocks who records: a bounded queue takes the records, and a thread writes
them. What finds no room is counted, and the count is written as a record of its own as soon as there is room again.
:func:`read_ledger` reads the records back.
"""

import atexit
import logging
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.errors import LedgerError
from pairbus.instrument.files import RotatedFiles

SUFFIX: Final = ".jsonl"

_AT_ONCE: Final = 50
"""So many records are encoded before the interpreter's lock is given up: a send that waits for it waits briefly."""
_LAST_WORDS: Final = 2.0
"""Seconds that a ledger has at the end of the process, if nobody has closed it."""
_LOGGER: Final = logging.getLogger(__name__)

_Item: TypeAlias = Record | threading.Event
"""A record; or what is set once all records before it are written."""


class LedgerFile:
    """Writes records to files in a directory.

    Safe to use from many threads, and from many processes with a ledger each: every file has a name of its own. After
    a fork the child goes on with a file of its own, and what was not written yet stays the parent's. Of a process that
    is killed with -9, what was recorded in the last ``interval`` may be missing, and the last line may be torn.

    :param directory: where the files are; it is made if it is not there.
    :param max_bytes: a file that has so many bytes is followed by a new one.
    :param max_age: a file that is so many seconds old is followed by a new one.
    :param room: records that wait to be written, at most; those that find no room are counted as dropped.
    :param interval: seconds for which records gather before they are written together, and between two tries when
        writing has failed.
    :raises OptionError: the directory cannot be used.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_age: float = 3600.0,
        room: int = 20_000,
        interval: float = 0.2,
    ) -> None:
        self._files = RotatedFiles(Path(directory), _new_name, max_bytes=max_bytes, max_age=max_age)
        self._room = room
        self._interval = interval
        self._closed = False
        self._begin_anew()
        _OPEN.add(self)

    def _begin_anew(self) -> None:
        """Set what does not outlive a fork."""
        self._queue: deque[_Item] = deque()
        self._wake = threading.Event()
        """Set as long as there is something to do."""
        self._hurry = threading.Event()
        """Set when it is not the time to gather."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._untold: Record | None = None
        """The last record that was dropped, if that is not written yet."""
        self._told = 0

    def record(self, record: Record) -> None:
        """Take a record, or count it as dropped. Never blocks, never raises."""
        queue = self._queue
        if self._closed or len(queue) >= self._room:
            with self._lock:
                self._dropped += 1
                self._untold = record
            return
        queue.append(record)
        if not self._wake.is_set():
            self._start()

    @property
    def dropped(self) -> int:
        """How many records found no room."""
        return self._dropped

    @property
    def waiting(self) -> int:
        """How many records wait to be written."""
        return len(self._queue)

    def flush(self, timeout: float = 5.0) -> bool:
        """Write all that was recorded before; tell whether that went within ``timeout`` seconds. Blocks."""
        if self._closed:
            return not self._queue
        written = threading.Event()
        self._queue.append(written)
        self._start()
        self._hurry.set()
        return written.wait(timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Write what there is, and end; tell whether that went within ``timeout`` seconds. Blocks.

        What could not be written by then is dropped, and said so in the log.
        """
        if self._closed:
            return not self._queue
        ends = time.monotonic() + timeout
        all_written = self._thread is None or self.flush(timeout)
        self._closed = True
        _OPEN.discard(self)
        self._wake.set()
        self._hurry.set()
        if self._thread is not None:
            self._thread.join(max(0.0, ends - time.monotonic()))
        left = sum(1 for item in list(self._queue) if isinstance(item, Record))
        if left:
            with self._lock:
                self._dropped += left
            _LOGGER.error("%s: closed with %d records that could not be written", self._files.directory, left)
        return all_written and not left

    def _start(self) -> None:
        self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    # A daemon: at exit everything is written by _close_all, and a full disk must not keep the process.
                    self._thread = threading.Thread(target=self._write, name="pairbus ledger", daemon=True)
                    self._thread.start()

    def after_fork(self) -> None:
        """Go on in the child of a fork."""
        self._files.abandon()
        self._begin_anew()

    # From here on: the writer's thread.

    def _write(self) -> None:
        while not self._closed:
            self._wake.wait(self._files.idle_for())
            if not self._wake.is_set():
                self._files.close()  # it is old, and nothing comes
                continue
            self._hurry.wait(self._interval)
            self._hurry.clear()
            self._wake.clear()
            left = len(self._queue)
            while left > 0 and (taken := self._write_some()):
                left -= taken
            self._tell_dropped()
            if self._queue:
                self._wake.set()
        self._files.close()

    def _write_some(self) -> int:
        """Write the first records of the queue, and tell how much has left it; none if that did not go."""
        queue = self._queue
        if self._closed:  # in time or not: nobody waits for it any more
            return 0
        records: list[Record] = []
        for index in range(min(_AT_ONCE, len(queue))):
            item = queue[index]
            if not isinstance(item, Record):
                break
            records.append(item)
        if records and not self._write_lines(records):
            return 0
        for _ in records:
            queue.popleft()
        if not queue or isinstance(item := queue[0], Record):
            return len(records)
        self._tell_dropped()
        queue.popleft()
        item.set()
        return len(records) + 1

    def _write_lines(self, records: list[Record]) -> bool:
        return self._files.write("".join([record.to_json() + "\n" for record in records]).encode())

    def _tell_dropped(self) -> None:
        with self._lock:
            count, last, self._untold = self._dropped, self._untold, None
        if last is not None and not self._write_lines([_gap(last, count - self._told)]):
            with self._lock:
                self._untold = self._untold or last
            self._wake.set()
        elif last is not None:
            self._told = count


def _gap(last: Record, count: int) -> Record:
    return Record(
        id=os.urandom(16).hex(),
        at=datetime.now(UTC),
        metered_by=last.metered_by,
        client=last.client,
        namespace=last.namespace,
        entity="",
        kind=Kind.DROPPED,
        stage=Stage.DIRECT,
        outcome=Outcome.FAILED,
        messages=count,
        detail="no room: records came faster than they could be written",
    )


def _new_name(number: int) -> str:
    began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"ledger-{began}-{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}-{number}{SUFFIX}"


def read_ledger(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Return the records of a file, or of all ledger files in a directory, in the order of the files' names.

    A last line without its end is passed over: its writer was killed, or is at it.

    :raises LedgerError: a line cannot be read; the text names the file and the line.
    """
    there = Path(path)
    for file in sorted(there.glob(f"*{SUFFIX}")) if there.is_dir() else (there,):
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    yield Record.from_json(line.decode())
                except (LedgerError, UnicodeDecodeError) as error:
                    raise LedgerError(f"{file}, line {number}: {error}") from None


_OPEN: Final["weakref.WeakSet[LedgerFile]"] = weakref.WeakSet()


def _close_all() -> None:
    for ledger in list(_OPEN):
        ledger.close(_LAST_WORDS)


def _after_fork() -> None:
    for ledger in list(_OPEN):
        ledger.after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
