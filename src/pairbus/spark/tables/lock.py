"""One writer per directory of tables: a lock that ends with its process, however that ends."""

import json
import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pairbus.errors import TablesError

NAME: Final = ".lock"
"""The file in the directory. It stays: a process that deleted it would let two others in."""
_LOOK_AGAIN: Final = 0.2
"""Seconds between two tries of a caller that waits."""


@contextmanager
def directory_lock(directory: Path, *, wait: float = 0.0) -> Generator[None]:
    """Hold the lock of a directory, which is made if it is not there.

    The operating system takes the lock from a process that has ended, also by ``kill -9``.

    :param wait: for how many seconds another process may still hold it.
    :raises TablesError: another process holds it; the text says which one, and since when.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, directory, time.monotonic() + wait)
        holder = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(" ", "seconds"),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (" " + json.dumps(holder)).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, directory: Path, until: float) -> None:
    while True:
        try:
            _lock(descriptor)
        except OSError:
            if time.monotonic() >= until:
                raise TablesError(
                    f"{directory}: {_holder(descriptor)} brings these tables up to date; wait until it has ended and "
                    "run this again, or keep your tables in another directory"
                ) from None
            time.sleep(_LOOK_AGAIN)  # a file lock that blocks has no time-out
        else:
            return


def _holder(descriptor: int) -> str:
    """Say who holds the lock; it may have come to it a moment ago, and have written nothing yet."""
    try:
        told = json.loads(os.pread(descriptor, 4096, 1))
        return f"process {told['process']} on {told['host']}, since {told['since']},"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # the first byte, which is blank
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
