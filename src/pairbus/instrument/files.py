"""Files that are written one after the other, each up to a size or an age, in whole lines only."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pairbus.errors import OptionError

_LOGGER: Final = logging.getLogger(__name__)


class RotatedFiles:
    """Appends lines to files in a directory; one thread at a time.

    A write is all or nothing: of one that fails half way, nothing stays in the file.

    :param new_name: makes the name of a file from its running number; no two of a directory may be the same.
    :param write: writes some bytes to a file descriptor, as :func:`os.write`.
    :raises OptionError: the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        new_name: Callable[[int], str],
        *,
        max_bytes: int,
        max_age: float,
        write: Callable[[int, memoryview], int] = os.write,
    ) -> None:
        self.directory = directory
        self._new_name = new_name
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._os_write = write
        self._file: int | None = None
        self._number = 0
        self._size = 0
        self._began = 0.0
        self._failing = False
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError("ledger", str(directory), f"a directory that can be written to ({error})") from None

    def write(self, lines: bytes) -> bool:
        """Write whole lines; tell whether that went. If it did not, that is logged once, until it does."""
        try:
            self._append(lines)
        except OSError as error:
            if not self._failing:
                _LOGGER.warning("%s: %s; it is tried again until there is no room left", self.directory, error)
            self._failing = True
            return False
        if self._failing:
            self._failing = False
            _LOGGER.warning("%s: written to again", self.directory)
        return True

    def idle_for(self) -> float | None:
        """For how many seconds the file that is open may stay so; None: none is."""
        return None if self._file is None else max(0.0, self._began + self._max_age - time.monotonic())

    def close(self) -> None:
        """Close the file that is open, which no line is added to any more."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            os.fsync(file)
        except OSError as error:
            _LOGGER.warning("%s: a file may not be whole on disk: %s", self.directory, error)
        finally:
            os.close(file)

    def abandon(self) -> None:
        """Let go of a file that is another process's: the child of a fork begins its own."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _append(self, lines: bytes) -> None:
        if self._file is not None and (
            self._size + len(lines) > self._max_bytes or time.monotonic() >= self._began + self._max_age
        ):
            self.close()
        file = self._open() if self._file is None else self._file
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[self._os_write(file, rest) :]
        except OSError:
            self._take_back(file)
            raise
        self._size += len(lines)

    def _open(self) -> int:
        self._number += 1
        path = self.directory / self._new_name(self._number)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = 0
        self._began = time.monotonic()
        return self._file

    def _take_back(self, file: int) -> None:
        """Remove what a failed write has left; if that does not go, the next line begins another file."""
        try:
            os.ftruncate(file, self._size)
        except OSError:
            self.abandon()
