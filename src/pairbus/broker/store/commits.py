"""Noticing, when a store is opened, that commits which were acknowledged cannot be read any more.

SQLite reads its write-ahead log up to the first frame whose checksum is wrong, and takes that for the end: after a
power cut it usually is. A bit that flipped in the middle looks the same, and everything behind it is gone, without a
word. An older copy of the database file looks like a whole database, too. So commits are counted, in two places:

- in the database, a row of the table ``commits`` that is changed in the same transaction;
- beside it, in the file ``NAME.db.commits``, which is written after the commit has been flushed to the disk, and before
  anyone is told of it.

When the store is opened, the number beside the database must not be higher than the one in it. It may be lower: the
process was killed between the two, or the machine lost power, for the file beside is not flushed to the disk (a second
flush would halve the throughput). Lower means only that the last commits are not watched over.

The file beside has two slots of 512 bytes, each with a checksum, which are written in turns: one that is torn leaves
the other. It also has the random id that the database was made with: a file that was left by another database says
nothing. A database that is copied without it is opened without complaint.

A loss is refused with :class:`StoreLossError`. If the owner accepts it, there may be two databases to choose from. A
log whose first part was copied into the database file before it was damaged ends at an older state than that of the
file, and read together they would be a mixture of both: then the file counts without its log. What cannot be read of
the log is kept as ``NAME.db-wal.unreadable-TIME``.

Cost: one more statement and one more page in the log per commit, and a write without a flush. That is 6 µs of CPU: 4 to
9 % of the time of a commit of one message of 1 KB, 4 to 7 % of one of 20, and too little to be measured for one of 200.
"""

import logging
import os
import shutil
import sqlite3
import struct
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from pairbus.broker.store.base import StoreError
from pairbus.broker.store.files import keep_private, sync_directory
from pairbus.broker.store.queries import QUERIES

_LOGGER = logging.getLogger(__name__)

SLOT: Final = 512
"""The distance of the two slots: a sector is written whole, or not at all."""
_MAGIC: Final = b"PBUScmt1"
_FIELDS: Final = struct.Struct("<8s16sqq")
_CHECKSUM: Final = struct.Struct("<I")
_RECORD_BYTES: Final = _FIELDS.size + _CHECKSUM.size


class Commit(NamedTuple):
    """The last commit of a store.

    :ivar store: the random id of the database.
    :ivar number: how many commits there were.
    :ivar at: when it was, in milliseconds since the epoch, UTC.
    """

    store: bytes
    number: int
    at: int


class StoreLossError(StoreError):
    """Commits that were acknowledged cannot be read.

    :ivar recorded: the last commit that there was.
    :ivar found: the last one that can be read; None: the database has none.
    """

    def __init__(self, path: Path, recorded: Commit, found: Commit | None) -> None:
        self.recorded = recorded
        self.found = found
        number = 0 if found is None else found.number
        end = "has no commit" if found is None else f"ends with commit {number}{_time(found)}"
        super().__init__(
            f"{path}: {recorded.number - number} of {recorded.number} acknowledged commits cannot be read: the file "
            f"{end}, and the last one was {recorded.number}{_time(recorded)}. What was sent in between is missing, and "
            "what was settled may come back. Restore the file and its -wal; or go on without, with --accept-loss "
            "(EmbeddedBroker: accept_loss=True)"
        )


class CommitRecord:
    """The file beside an open database.

    :param commit: the last commit of the database, which is recorded at once.
    :raises OSError: the file cannot be made.
    """

    def __init__(self, path: Path, commit: Commit) -> None:
        self._path = record_path(path)
        self._is_behind = False
        is_new = not self._path.exists()
        keep_private(self._path)
        before = read_record(path)
        self._descriptor = os.open(self._path, os.O_RDWR)
        try:
            os.pwrite(self._descriptor, b"\0", 2 * SLOT - 1)  # the room is taken now, not when the disk is full
            if before is None or before.store != commit.store or before.number > commit.number:
                # To go back must be durable, or a power cut would bring the higher number again.
                os.pwrite(self._descriptor, bytes(2 * SLOT), 0)
                self._write(commit)
                os.fsync(self._descriptor)
            if is_new:
                sync_directory(path.parent)
        except OSError:
            self.close()
            raise

    def write(self, commit: Commit) -> None:
        """Record a commit that is durable. A failure is logged: the commit itself has not failed."""
        try:
            self._write(commit)
        except OSError as error:
            if not self._is_behind:
                _LOGGER.warning("%s: commits are not recorded, so a loss would not be noticed: %s", self._path, error)
            self._is_behind = True
        else:
            self._is_behind = False

    def _write(self, commit: Commit) -> None:
        fields = _FIELDS.pack(_MAGIC, *commit)
        os.pwrite(self._descriptor, fields + _CHECKSUM.pack(crc32(fields)), commit.number % 2 * SLOT)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def record_path(path: Path) -> Path:
    """Return the file beside a database."""
    return path.with_name(path.name + ".commits")


def read_record(path: Path) -> Commit | None:
    """Return the last commit that is recorded beside a database; None: there is no such file, or it is damaged."""
    try:
        content = record_path(path).read_bytes()
    except FileNotFoundError:
        return None
    slots = [_read_slot(content[start : start + _RECORD_BYTES]) for start in (0, SLOT)]
    found = [slot for slot in slots if slot is not None]
    if content and not found:
        _LOGGER.warning(
            "%s: damaged; whether commits are missing cannot be told this time, and it is written again",
            record_path(path),
        )
    return max(found, key=lambda commit: commit.number, default=None)


def _read_slot(content: bytes) -> Commit | None:
    if len(content) < _RECORD_BYTES:
        return None
    fields = content[: _FIELDS.size]
    magic, store, number, at = _FIELDS.unpack(fields)
    if magic != _MAGIC or content[_FIELDS.size :] != _CHECKSUM.pack(crc32(fields)):
        return None
    return Commit(store, number, at)


def refuse_loss(path: Path, *, accept: bool) -> None:
    """See to it that a database which is about to be opened has all its commits. It is read only, and not changed.

    :param accept: go on without those that are missing.
    :raises StoreLossError: some are missing, and that is not accepted.
    :raises StoreError: what is left is damaged.
    """
    recorded = read_record(path)
    if recorded is None:
        return
    if not path.exists():
        _LOGGER.warning("%s: not there any more, with its %d commits; a new one is made", path, recorded.number)
        return
    found = _last_commit(path, "mode=ro")
    if found is _UNREADABLE and not accept:
        return  # whoever opens it says why
    if isinstance(found, Commit) and (found.store != recorded.store or found.number >= recorded.number):
        return
    if recorded.number == 0:
        return
    log = path.with_name(path.name + "-wal")
    alone = _last_commit(path, "immutable=1") if _has_content(log) else None
    if accept:
        _accept(path, recorded, found, alone)
        return
    best = max((each for each in (found, alone) if isinstance(each, Commit)), key=_number, default=None)
    error = StoreLossError(path, recorded, best)
    _LOGGER.error("%s: not opened, for acknowledged commits cannot be read", path)
    raise error


class _Unreadable:
    """Stands for a database of which SQLite cannot read the last commit."""


_UNREADABLE: Final = _Unreadable()


def _accept(
    path: Path, recorded: Commit, found: Commit | _Unreadable | None, alone: Commit | _Unreadable | None
) -> None:
    """Go on with the database and what can be read of its log, or without the log if that has more."""
    log = path.with_name(path.name + "-wal")
    kept = path.with_name(f"{log.name}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    without_log = isinstance(alone, Commit) and (not isinstance(found, Commit) or alone.number > found.number)
    best = alone if without_log else found
    damage = _damage(path, "immutable=1" if without_log else "mode=ro")
    if damage is not None:
        raise StoreError(
            f"{path}: commits are missing, and the rest is damaged ({damage}); restore it, or move it out of the way"
        )
    if _has_content(log):
        if without_log:
            log.replace(kept)
            path.with_name(path.name + "-shm").unlink(missing_ok=True)
        else:
            shutil.copy2(log, kept)
        sync_directory(path.parent)
        _LOGGER.warning("%s: the log, of which not all can be read, is kept as %s", path, kept.name)
    loss = StoreLossError(path, recorded, best if isinstance(best, Commit) else None)
    _LOGGER.error("a loss was accepted: %s", loss)


def _last_commit(path: Path, mode: str) -> Commit | _Unreadable | None:
    """Return the last commit that a database has; None: it has never counted any, or is empty."""
    if not path.stat().st_size:
        return None  # SQLite would delete the log of an empty file
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)) as connection:
            if not connection.execute("SELECT * FROM sqlite_master WHERE name = 'commits'").fetchall():
                return None
            return Commit(*connection.execute(QUERIES["last_commit"]).fetchone())
    except (sqlite3.Error, UnicodeDecodeError, TypeError):  # TypeError: the row is not there
        return _UNREADABLE


def _has_content(log: Path) -> bool:
    """Tell whether a log is there: one that is missing is made, without content, by reading its database."""
    return log.exists() and log.stat().st_size > 0


def _damage(path: Path, mode: str) -> str | None:
    if not path.stat().st_size:
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)
    return None if verdict == "ok" else verdict


def _number(commit: Commit) -> int:
    return commit.number


def _time(commit: Commit) -> str:
    return f" ({datetime.fromtimestamp(commit.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
