"""Opening a store's file: the lock, the checks, the migrations, and what SQLite's errors mean to the owner."""

import logging
import os
import sqlite3
from pathlib import Path

from pairbus.broker.store.base import StoreError, StoreFullError
from pairbus.broker.store.checksums import add_functions
from pairbus.broker.store.files import keep_private
from pairbus.broker.store.queries import QUERIES, migrations, statements

_logger = logging.getLogger(__name__)

APPLICATION_ID = 0x50425553
"""In the header of the file: it is ours ("PBUS")."""
PAGE_SIZE = 8192
"""Seven messages of 1 KB to a page: a third less work per message than with the default; a lone commit stays small."""
CHECKED_UP_TO = 8 * 1024 * 1024
"""A file of at most this many bytes is checked as a whole when it is opened; that takes some 10 ms. Of a larger one the
records are, without the bodies: 16 ms for 200,000 messages, a tenth of what reading them takes. A record that lies
where it does not belong would not be found, and so not be missed; a body that is missing is noticed by its record."""
WAL_PAGES_AT_MOST = 2048
"""The owner's checkpoints come sooner; this one is for what it has not foreseen."""
WAL_BYTES_KEPT = 16 * 1024 * 1024
BUSY_SECONDS = 0.5
"""The store has one writer: only another program can be in the way, somebody who looks into the file."""


def as_store_error(error: Exception, path: Path) -> StoreError:
    """Return what an error of SQLite, or of the system, means for a store."""
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it cannot read, and Python cannot read that
        return StoreError(f"{path}: damaged ({error}); restore it, or move it out of the way")
    if isinstance(error, OSError):
        return StoreError(f"{path}: {error.strerror or error}; give the broker a directory that it may write to")
    name = getattr(error, "sqlite_errorname", "") or ""
    if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and _is_full(path)):
        return StoreFullError(f"{path}: no room left; nothing of this was stored. Free some room on the disk")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreError(f"{path}: damaged, or no pairbus store ({error}); restore it, or move it out of the way")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreError(f"{path}: cannot be written ({error}); make file and directory writable for the broker")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(f"{path}: another program has it open ({error}); end that first")
    return StoreError(f"{path}: {name or type(error).__name__}: {error}")


def _is_full(path: Path) -> bool:
    # SQLite reports some writes that found no room, such as those to its shared memory, as plain I/O errors.
    try:
        disk = os.statvfs(path.parent)
    except (OSError, AttributeError):
        return False
    return disk.f_bavail * disk.f_frsize < PAGE_SIZE


def open_writer(path: Path, directory: Path) -> sqlite3.Connection:
    """Return a connection that may write, to a file of the current version.

    :param directory: the migrations.
    :raises StoreError: nothing was changed in a file that is refused.
    """
    if path.is_dir():
        raise StoreError(f"{path}: is a directory; name a file")
    keep_private(path)
    for beside in (path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        if beside.exists():  # left by a process that was killed, perhaps one of an older version
            keep_private(beside)
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
        )
    except sqlite3.Error as error:
        raise as_store_error(error, path) from error
    try:
        _prepare(connection, path, migrations(directory))
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise as_store_error(error, path) from error
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Return a connection that reads."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    connection.text_factory = _text  # a damaged text is to be noticed by its checksum, not to fail the query
    add_functions(connection)
    connection.execute("PRAGMA cache_size = -2000")
    return connection


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return a number that SQLite keeps."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _prepare(connection: sqlite3.Connection, path: Path, scripts: dict[int, Path]) -> None:
    newest = max(scripts)
    add_functions(connection)
    # These are of the connection, or of a file that has nothing in it yet. Debian's SQLite wipes what is deleted unless
    # told otherwise, which would double the writing.
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA auto_vacuum = NONE")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -8000")
    is_empty = connection.execute("SELECT NOT EXISTS (SELECT * FROM sqlite_master)").fetchone()[0]
    version = pragma(connection, "user_version")
    if not is_empty and pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program; name another file")
    if version > newest:
        raise StoreError(
            f"{path}: written by a newer pairbus (store version {version}, this one knows {newest}); "
            "install that version, or name another file"
        )
    if not is_empty:
        what = "1" if path.stat().st_size <= CHECKED_UP_TO else "meta"
        verdict = connection.execute(f"PRAGMA quick_check({what})").fetchone()[0]
        if verdict != "ok":
            raise StoreError(f"{path}: damaged ({verdict}); restore it, or move it out of the way")
    # To begin is not enough: SQLite lets a transaction begin on a file that it may only read.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_AT_MOST}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    if version < newest:
        _migrate(connection, path, version, scripts)
    found = [number for (number,) in connection.execute(QUERIES["entities_damaged"])]
    if found:
        raise StoreError(
            f"{path}: damaged (entities {found} are not what was stored); restore it, or move it out of the way"
        )
    strays = [number for (number,) in connection.execute(QUERIES["stray_entities"])]
    if strays:
        _logger.error("%s: damaged: messages of entities %s, which do not exist, are not served", path, strays)


def _migrate(connection: sqlite3.Connection, path: Path, version: int, scripts: dict[int, Path]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, script in scripts.items():
            if number > version:
                for statement in statements(script.read_text(encoding="utf-8")):
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(scripts)}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        why = as_store_error(error, path)
        if isinstance(why, StoreFullError):
            raise why from error
        raise StoreError(
            f"{path}: cannot be brought from version {version} to {max(scripts)}, and was left as it is ({why})"
        ) from error
