"""Files wherever Spark reads and writes them: on this machine, HDFS or an object store."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Hadoop is called through the JVM, which has no types here.

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from pairbus.errors import LedgerError, TablesError

SUFFIX = ".jsonl"
_IN_A_DIRECTORY: Final = (f"*{SUFFIX}", f"*{SUFFIX}.gz")


@dataclass(frozen=True, slots=True, order=True)
class LedgerPath:
    """A ledger file as it was found.

    :ivar path: where it is.
    :ivar names: the same as Spark may write it in a row: some characters are encoded, and there are one slash or three.
    :ivar modified: milliseconds since the epoch.
    """

    path: str
    names: tuple[str, ...]
    length: int
    modified: int


class Files:
    """What the pipeline does with files, beyond reading and writing tables."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._hadoop: Any = session._jvm.org.apache.hadoop.fs  # noqa: SLF001 (PySpark has no other way to files)
        self._configuration: Any = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def ledgers(self, paths: Iterable[str]) -> list[LedgerPath]:
        """Return the files that paths name: a file, a directory with ledger files, or a pattern.

        :raises LedgerError: a path names nothing.
        """
        found: set[LedgerPath] = set()
        for path in paths:
            named = self._glob(path)
            if not named:
                raise LedgerError(
                    f"{path}: there is no such ledger; name a directory with *{SUFFIX} files, or such files"
                )
            for each in named:
                found.update(map(_found, self._inside(each) if each.isDirectory() else [each]))
        return sorted(found)

    def _inside(self, directory: Any) -> list[Any]:  # noqa: ANN401 (a Java object)
        return [each for pattern in _IN_A_DIRECTORY for each in self._glob(f"{directory.getPath()}/{pattern}")]

    def names(self, pattern: str) -> list[str]:
        """Return the paths that a pattern matches."""
        return sorted(str(each.getPath().toString()) for each in self._glob(pattern))

    def exists(self, path: str) -> bool:
        """Tell whether there is something."""
        return bool(self._of(path).exists(self._path(path)))

    def contents(self, path: str) -> tuple[int, int] | None:
        """Return how many files and bytes are in it and below it; None: it is not there."""
        if not self.exists(path):
            return None
        summary = self._of(path).getContentSummary(self._path(path))
        return int(summary.getFileCount()), int(summary.getLength())

    def local(self, path: str) -> Path | None:
        """Return where it is on this machine; None: it is on a cluster or in a store."""
        uri = self._of(path).makeQualified(self._path(path)).toUri()
        return Path(str(uri.getPath())) if str(uri.getScheme()) == "file" else None

    def delete(self, path: str) -> None:
        """Delete it with all that is in it, if it is there."""
        self._of(path).delete(self._path(path), True)  # noqa: FBT003 (Hadoop's)

    def rename(self, path: str, to: str) -> None:
        """Give it another path, at which nothing is.

        :raises TablesError: it did not go.
        """
        files, target = self._of(to), self._path(to)
        files.mkdirs(target.getParent())
        if not files.rename(self._path(path), target):
            raise TablesError(f"{path} could not be moved to {to}; look at the rights there, and run it again")

    def read(self, path: str) -> str | None:
        """Return a small file's text, or None if it is not there."""
        if not self.exists(path):
            return None
        stream = self._of(path).open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small file beside its place, and then put it there: whole or not at all."""
        stream = self._of(path).create(self._path(f"{path}.new"), True)  # noqa: FBT003
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.delete(path)
        self.rename(f"{path}.new", path)

    def _glob(self, pattern: str) -> list[Any]:
        return list(self._of(pattern).globStatus(self._path(pattern)) or ())

    def _path(self, path: str) -> Any:  # noqa: ANN401 (a Java object)
        return self._hadoop.Path(path)

    def _of(self, path: str) -> Any:  # noqa: ANN401
        return self._path(path).getFileSystem(self._configuration)


def _found(status: Any) -> LedgerPath:  # noqa: ANN401
    path, uri = str(status.getPath().toString()), str(status.getPath().toUri().toString())
    spellings = (re.sub("^file:/+", slashes, uri) for slashes in ("file:/", "file:///"))
    return LedgerPath(
        re.sub("^file:/+", "file:/", path), tuple(sorted(set(spellings))), status.getLen(), status.getModificationTime()
    )
