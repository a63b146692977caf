"""A store in an SQLite file: write-ahead log, a flush to disk per commit, one writer thread that commits in groups."""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from zlib import crc32

from pairbus.broker.store.base import (
    DamagedRow,
    EntityRow,
    IndexRow,
    Journal,
    Row,
    RowState,
    StoreError,
    StoreFullError,
)
from pairbus.broker.store.callbacks import call_back
from pairbus.broker.store.commits import CommitRecord, refuse_loss
from pairbus.broker.store.files import make_directory
from pairbus.broker.store.lock import StoreLock
from pairbus.broker.store.opening import PAGE_SIZE, as_store_error, open_reader, open_writer
from pairbus.broker.store.queries import MIGRATIONS, QUERIES, with_keys
from pairbus.broker.store.reserve import Reserve
from pairbus.broker.store.timing import CommitTimes
from pairbus.broker.store.writing import JournalWriter, range_of

_logger = logging.getLogger(__name__)

INDEX_PAGE = 1_000
"""So many rows of an index are read at once: enough to be quick, and no read lasts while somebody else's code runs."""
KEYS_AT_ONCE = 100
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""About so much is written between checkpoints: each takes some milliseconds, in which nothing is committed."""
WAL_FRAMES_AT_MOST = 8192
"""If readers have kept the log from being used anew until it is this long, the writer waits for them a little."""

# A tuple becomes a named one without a step in Python: half the time of an index is this.
_new: Callable[..., Any] = getattr(tuple, "__new__")  # noqa: B009 its declared type is of no use here
_to_index_row: Callable[[Any], IndexRow] = partial(_new, IndexRow)


def _checked(found: tuple[Any, ...]) -> Row:
    """Return a message, with what is wrong with it if its body or its record is not what was stored."""
    body = found[7]
    if found[8] is not None and isinstance(body, bytes) and crc32(body) == found[8]:
        return _new(Row, found[:8])
    damage = "its body is not what was stored"
    if found[8] is None:
        damage = "its record is not what was stored"
    elif not isinstance(body, bytes):
        damage = "its body is missing"
    state, session = found[1], found[5]
    row = Row(
        found[0],
        state if state in tuple(RowState) else RowState.ACTIVE,
        0,
        None,
        None,
        session if isinstance(session, str) else None,
        0,
        body if isinstance(body, bytes) else b"",
    )
    return DamagedRow.of(row, damage)


class SqliteStore:
    """Keeps everything in one file, with ``-wal``, ``-shm``, ``.lock``, ``.reserve`` and ``.commits`` beside it.

    :param path: the file; it and its directory are made if they are not there.
    :param notify: runs a function on the owner's thread, such as ``loop.call_soon_threadsafe``. It is called from the
        writer's thread.
    :param migrations: the scripts that bring an older file up to date.
    :param accept_loss: open the file although commits that were acknowledged cannot be read; see
        :mod:`pairbus.broker.store.commits`.
    :raises StoreLossError: there are such commits.
    :raises StoreError: the file cannot be used; the text says why, and what helps.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        notify: Callable[[Callable[[], None]], object],
        *,
        migrations: Path = MIGRATIONS,
        accept_loss: bool = False,
    ) -> None:
        self.journal = Journal()
        self.commits = CommitTimes()
        self._path = Path(path).absolute()
        self._notify = notify
        self._reserve = Reserve(self._path)
        self._busy = False
        self._asked = False
        self._closed = False
        self._put_off = False
        self._failed = 0
        """How many commits have failed since the last one that succeeded."""
        self._inbox: SimpleQueue[Journal | None] = SimpleQueue()
        self._outbox: SimpleQueue[tuple[Journal, StoreError | None]] = SimpleQueue()
        try:
            with ExitStack() as opened:
                make_directory(self._path.parent)
                opened.callback(StoreLock(self._path).release)
                refuse_loss(self._path, accept=accept_loss)
                self._writer = open_writer(self._path, migrations)
                opened.callback(self._writer.close)
                self._reader = open_reader(self._path)
                opened.callback(self._reader.close)
                journals = JournalWriter(self._writer)
                self._record = CommitRecord(self._path, journals.last)
                opened.callback(self._record.close)
                self._reserve.keep()
                self._opened = opened.pop_all()
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            raise as_store_error(error, self._path) from error
        # A daemon: an owner that is gone without closing must not keep the process alive; all is as after a crash then.
        self._thread = threading.Thread(
            target=self._write, args=(journals,), name=f"store {self._path.name}", daemon=True
        )
        self._thread.start()

    def entities(self) -> Sequence[EntityRow]:
        """Return all entities."""
        return [EntityRow._make(row) for row in self._read(QUERIES["entities"], ())]

    def index(self, entity: int) -> Iterator[IndexRow]:
        """Return what is stored of an entity's messages, in the order of their sequence numbers."""
        first, last = range_of(entity)
        while page := self._read(QUERIES["index"], (first, last, INDEX_PAGE)):
            yield from map(_to_index_row, page)
            first = page[-1][0] + 1

    def load(self, keys: Sequence[int]) -> list[Row]:
        """Return stored messages in the order of the keys; those that are gone are left out."""
        if not keys:
            return []
        first = keys[0]
        if len(keys) > 1 and keys[-1] - first == len(keys) - 1 and list(keys) == list(range(first, first + len(keys))):
            return list(map(_checked, self._read(QUERIES["load_range"], (first, keys[-1]))))
        found: dict[int, Row] = {}
        for start in range(0, len(keys), KEYS_AT_ONCE):
            chunk = keys[start : start + KEYS_AT_ONCE]
            rows = self._read(with_keys("load_keys", len(chunk)), tuple(chunk))
            found.update((row[0], _checked(row)) for row in rows)
        return [found[key] for key in keys if key in found]

    def browse(self, entity: int, first: int, most: int) -> list[Row]:
        """Return the stored messages of an entity from a sequence number on, in order."""
        begin, last = range_of(entity)
        start = begin + max(0, first)
        return [] if start > last else list(map(_checked, self._read(QUERIES["browse"], (start, last, most))))

    def expired(self, entity: int, now: int, most: int) -> list[Row]:
        """Return stored messages of an entity that expire by ``now`` and are not scheduled, the earliest first."""
        return list(map(_checked, self._read(QUERIES["expired"], (entity, now, most))))

    def due(self, entity: int, now: int, most: int) -> list[Row]:
        """Return scheduled messages of an entity that are due by ``now``, the earliest first."""
        return list(map(_checked, self._read(QUERIES["due"], (entity, now, most))))

    def next_expiry(self, entity: int) -> int | None:
        """Return when the first message of an entity that is not scheduled expires."""
        ((first,),) = self._read(QUERIES["next_expiry"], (entity,))
        return first

    def next_due(self, entity: int) -> int | None:
        """Return when the first scheduled message of an entity is due."""
        ((first,),) = self._read(QUERIES["next_due"], (entity,))
        return first

    def session_states(self, entity: int) -> Iterable[tuple[str, bytes]]:
        """Return the stored session states of an entity; one that is damaged is left out, which is logged."""
        found = self._read(QUERIES["session_states"], (entity,))
        for session, _, is_whole in found:
            if not is_whole:
                _logger.error("%s: the state of a session is damaged, so it has none now: %r", self._path, session)
        return [(session, state) for session, state, is_whole in found if is_whole]

    def seen(self, entity: int, now: int) -> Iterable[tuple[str, int]]:
        """Return the message ids that an entity still remembers, and until when."""
        return self._read(QUERIES["seen"], (*range_of(entity), now))

    def flush(self) -> None:
        """Hand what has gathered to the writer, or, while it is busy, let it gather further."""
        if self._closed:
            raise StoreError(f"{self._path}: closed")
        if self._busy:
            self._asked = True
        elif not self.journal.is_empty():
            self._hand_over()

    def close(self) -> None:
        """Make durable what has gathered, call back, and end. Blocks."""
        if self._closed:
            return
        error: StoreError | None = None
        self._asked = False
        while self._busy or (error is None and not self.journal.is_empty()):
            if not self._busy:
                self._hand_over()
            journal, error = self._outbox.get()
            self._busy = False
            call_back(journal, error)
        self._closed = True
        if error is not None:
            # A callback that tries again after a failure would keep us here for ever.
            journal, self.journal = self.journal, Journal()
            call_back(journal, error)
        self._inbox.put(None)
        self._thread.join()
        self._opened.close()

    def _hand_over(self) -> None:
        journal, self.journal = self.journal, Journal()
        self._busy = True
        self._asked = False
        self._inbox.put(journal)

    def _settle(self) -> None:
        # On the owner's thread. After close(), which has settled everything, nothing is left here.
        while True:
            try:
                journal, error = self._outbox.get_nowait()
            except Empty:
                return
            self._busy = False
            if self._asked:
                # First, so that the writer works while the callbacks do.
                self._asked = False
                if not self.journal.is_empty():
                    self._hand_over()
            call_back(journal, error)

    def _read(self, query: str, values: tuple[int, ...]) -> list[Any]:
        if self._closed:
            raise StoreError(f"{self._path}: closed")
        try:
            return self._reader.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise as_store_error(error, self._path) from error

    # From here on: the writer's thread.

    def _write(self, writer: JournalWriter) -> None:
        written = 0
        while True:
            if writer.has_to_purge() and self._inbox.empty():
                written += self._purge(writer)
            else:
                journal = self._inbox.get()
                if journal is None:
                    return
                written += self._commit(writer, journal)
                del journal  # or the bodies would stay in memory until the next one comes
                if writer.has_to_purge():
                    written += self._purge(writer)
            if written >= CHECKPOINT_BYTES:
                written = 0
                self._checkpoint()
                self._reserve.keep()

    def _commit(self, writer: JournalWriter, journal: Journal) -> int:
        """Commit, let the owner know, and return about how many bytes were written."""
        began = time.perf_counter()
        error = self._try(writer, journal)
        if isinstance(error, StoreFullError) and (journal.removed or journal.dropped):
            if self._reserve.release():
                _logger.warning("%s: no room left; this is removed with the room that was kept for it", self._path)
            self._checkpoint()  # so that the log is used anew, and need not grow
            error = self._try(writer, journal)
        self.commits.add(time.perf_counter() - began, failed=error is not None)
        self._tell(error)
        written = 2 * PAGE_SIZE + sum(len(row[7]) for row in journal.rows)
        written += sum({body: len(row[7]) for row, body in journal.copies}.values())
        if isinstance(error, StoreFullError):
            # A checkpoint lets the log be used anew: often that is the room for the removals that make more of it.
            written = CHECKPOINT_BYTES
        self._outbox.put((journal, error))
        try:
            self._notify(self._settle)
        except Exception:  # the owner's loop may have ended; close() will find the outcome
            _logger.exception("%s: the owner cannot be notified", self._path)
        return written

    def _tell(self, error: StoreError | None) -> None:
        """Log that commits have begun to fail, and that they succeed again; a full disk fails thousands in a row."""
        if error is not None:
            if not self._failed:
                _logger.error("a commit has failed, and its senders are told so: %s", error)
            self._failed += 1
        elif self._failed:
            _logger.warning("%s: commits succeed again, after %d that failed", self._path, self._failed)
            self._failed = 0

    def _try(self, writer: JournalWriter, journal: Journal) -> StoreError | None:
        before = writer.last
        try:
            writer.commit(journal)
        except Exception as problem:  # noqa: BLE001 whoever waits must be told, whatever it was
            error = as_store_error(problem, self._path)
            error.__cause__ = problem
            return error
        if writer.last is not before:
            self._record.write(writer.last)  # before its senders are told
        return None

    def _purge(self, writer: JournalWriter) -> int:
        try:
            writer.purge()
        except sqlite3.Error as error:
            _logger.warning("%s: the room of dropped entities is not free yet: %s", self._path, error)
        return 4 * PAGE_SIZE

    def _checkpoint(self) -> None:
        # After the callbacks were let go, so that only those who come next wait.
        try:
            _, frames, _ = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames > WAL_FRAMES_AT_MOST:
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        except sqlite3.Error as error:
            # Nothing is lost: all is in the log still. The commits will tell if the disk stays full.
            if not self._put_off:
                _logger.warning("%s: checkpoint put off: %s", self._path, error)
            self._put_off = True
        else:
            self._put_off = False
