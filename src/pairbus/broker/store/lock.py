"""One owner per store: a lock that ends with its process, however that ends.

It is on a file of its own: SQLite's own locks on the database are lost when anybody in the process closes that file.
"""

import os
import sys
from pathlib import Path

from pairbus.broker.store.base import StoreError
from pairbus.broker.store.files import keep_private


class StoreLock:
    """Held from its making until :meth:`release`. The file stays: to delete it would let two owners in.

    :raises StoreError: somebody else holds it.
    :raises OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        file = path.with_name(path.name + ".lock")
        keep_private(file)
        self._descriptor: int | None = os.open(file, os.O_RDWR)
        try:
            _lock(self._descriptor)
        except OSError as error:
            holder = os.pread(self._descriptor, 32, 1).decode("ascii", "replace").strip() if os.name == "posix" else ""
            self.release()
            raise StoreError(
                f"{path}: in use by another broker{f' (process {holder})' if holder else ''}; "
                "end it, or name another file"
            ) from error
        if os.name == "posix":
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f" {os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let go of it; again: nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
