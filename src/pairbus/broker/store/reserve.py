"""Room on the disk that is kept for removals: without any, a full disk could not even be made emptier."""

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

SIZES: Final = (4 * 1024 * 1024, 1024 * 1024, 256 * 1024)
"""What it takes to remove some hundred messages that lie apart from each other, or else as much as there is."""


class Reserve:
    """A file of nothing beside the store, from :meth:`keep` to :meth:`release`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".reserve")

    def keep(self) -> None:
        """Take the room, if it is not taken and there is some: a disk that has none makes itself heard elsewhere."""
        for size in SIZES:
            if self._path.exists():
                return
            try:
                with os.fdopen(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    _fill(file, size)
            except OSError:
                self.release()

    def release(self) -> bool:
        """Give the room back; tell whether there was some."""
        with suppress(FileNotFoundError):
            self._path.unlink()
            return True
        return False


def _fill(file: BinaryIO, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.write(bytes(size))
