"""Following a ledger as it grows: new lines of its files, new files, files that are removed. Blocking."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pairbus.core.ledger import Record
from pairbus.dashboard.health import Heard
from pairbus.errors import LedgerError
from pairbus.instrument.ledger import SUFFIX

CHUNK: Final = 1 << 20
"""Bytes that are read at once, so that the page is alive while a long ledger is read."""

_NAME: Final = re.compile(r"ledger-(?P<began>\d{8}T\d{6}Z)-(?P<writer>.+)-[0-9a-f]{8}-(?P<number>\d+)")


@dataclass(slots=True)
class _File:
    path: Path
    size: int = 0
    read: int = 0

    @property
    def writer(self) -> str:
        """The process that writes it: its machine and id; of a file with another name, the name."""
        match = _NAME.fullmatch(self.path.stem)
        return self.path.name if match is None else match["writer"]

    @property
    def order(self) -> tuple[str, int]:
        match = _NAME.fullmatch(self.path.stem)
        return (self.path.name, 0) if match is None else (match["began"], int(match["number"]))


class Follower:
    """Reads what is new in the ledger of a directory.

    :param since: files that were written to for the last time before that are passed over.
    :ivar problem: why the directory, or a line of it, could not be read; None: all is well.
    """

    def __init__(self, directory: Path, since: datetime) -> None:
        self.directory: Final = directory
        self.problem: str | None = None
        self.caught_up = False
        """Whether the last :meth:`read` found nothing new; a line that was never ended stays unread."""
        self._since = since.timestamp()
        self._files: dict[str, _File] = {}

    @property
    def behind(self) -> int:
        """Bytes that are there and not read yet."""
        return sum(file.size - file.read for file in self._files.values())

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return sum(file.size for file in self._files.values())

    def read(self) -> list[Heard]:
        """Return the records of the next lines, none if there are none; a line without its end waits for it."""
        try:
            self._look()
        except OSError as error:
            self.problem = f"{self.directory} cannot be read: {error.strerror or error}"
            self.caught_up = True
            return []
        left = CHUNK
        heard: list[Heard] = []
        was_behind = self.behind
        for file in sorted(self._files.values(), key=lambda file: file.order):
            if left <= 0:
                break
            if file.size > file.read:
                lines = self._lines(file, left)
                left -= len(lines)
                heard += self._records(file, lines)
        self.caught_up = self.behind == was_behind
        return heard

    def _look(self) -> None:
        there: set[str] = set()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX):
                    continue
                found = entry.stat()
                if entry.name not in self._files and found.st_mtime < self._since:
                    continue
                there.add(entry.name)
                file = self._files.setdefault(entry.name, _File(Path(entry.path)))
                file.size = found.st_size
                file.read = min(file.read, file.size)  # its writer has taken a failed write back
        for gone in self._files.keys() - there:
            del self._files[gone]
        if self.problem is not None and self.problem.startswith(f"{self.directory} cannot"):
            self.problem = None

    def _lines(self, file: _File, at_most: int) -> bytes:
        try:
            with file.path.open("rb") as stream:
                stream.seek(file.read)
                data = stream.read(at_most)
        except OSError as error:
            self.problem = f"{file.path.name} cannot be read: {error.strerror or error}"
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == CHUNK:
            self.problem = f"{file.path.name}, byte {file.read}: no line of JSON, {CHUNK} bytes are passed over"
            file.read += CHUNK
        return whole

    def _records(self, file: _File, lines: bytes) -> Iterator[Heard]:
        at = file.read
        file.read += len(lines)
        for line in lines.splitlines(keepends=True):
            try:
                yield Heard(file.writer, Record.from_json(line.decode()))
            except (LedgerError, UnicodeDecodeError) as error:
                self.problem = f"{file.path.name}, byte {at}: {error}; the line is passed over"
            at += len(line)
