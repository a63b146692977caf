"""How a run puts what it has made in the place of what was there: all of it or nothing, whenever it is killed.

A directory of tables has

``TABLE/date=…``
    the partitions that readers see;
``.staging-RUN/TABLE/date=…``
    what a run has made so far; while it works, nothing that readers see is changed;
``.journal.json``
    the intent: which partitions the staged ones replace, which partitions are removed, and the new manifest. The run
    writes it when everything is staged, under another name first. Once it is there, the swap will be finished, if not
    by this run then by the next one;
``manifest.json``
    what the tables are made of: the ledger files that were read, and for each day the settings (prices, aliases) with
    which it was made.

A run that was killed has left no journal: the next run removes what was staged. Or it has left one: the next run
carries it out. Each step can be repeated. A partition is deleted and the staged one is renamed to its place, unless
that has been done, which the number of files and bytes at both places tells. A staged partition is only ever renamed,
so at every instant the old partition, the new one or both are whole. On an object store, renaming copies file by file
and deletes afterwards: a staged partition that is no longer whole has been copied whole.

This module knows nothing of Spark; :class:`~pairbus.spark.platform.files.Files` does the steps.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, Protocol

from pairbus.errors import TablesError

JOURNAL: Final = ".journal.json"
MANIFEST: Final = "manifest.json"
STAGING: Final = ".staging-"
_OLD_STAGING: Final = ".new"
"""Where versions before 2 staged."""


class FileSteps(Protocol):
    """The steps of which a swap consists; paths are the file system's."""

    def names(self, pattern: str) -> list[str]:
        """Return the paths that a pattern matches."""
        ...

    def contents(self, path: str) -> tuple[int, int] | None:
        """Return how many files and bytes are in a directory and below it; None: there is none."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file or directory, if it is there; one that is killed half way may have deleted a part."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Give a directory another path, at which nothing is."""
        ...

    def read(self, path: str) -> str | None:
        """Return a file's text; None: there is none."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file; one that is killed half way leaves the file as it was, or none."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """A partition that is replaced by a staged one of these contents, or removed if that has no files.

    :ivar partition: its path in the directory, and in that of the staged ones.
    """

    partition: str
    files: int
    bytes: int


class Journal:
    """Carries out swaps in one directory of tables.

    :param out: the directory.
    """

    def __init__(self, files: FileSteps, out: str) -> None:
        self._files = files
        self._out = out

    def manifest(self) -> dict[str, Any]:
        """Return the manifest; empty: there are no tables yet."""
        text = self._files.read(f"{self._out}/{MANIFEST}")
        return {} if text is None else json.loads(text)

    def recover(self) -> bool:
        """Finish the swap of a run that was killed, and remove what was staged for no swap.

        :return: whether there was a swap to finish.
        :raises TablesError: it cannot be finished.
        """
        text = self._files.read(f"{self._out}/{JOURNAL}")
        if text is not None:
            self._finish(json.loads(text))
        for pattern in (f"{self._out}/{STAGING}*", f"{self._out}/{_OLD_STAGING}"):
            for left in self._files.names(pattern):
                self._files.delete(left)
        return text is not None

    def new_staging(self) -> str:
        """Return the name of a directory to stage in, which no other run uses."""
        return f"{STAGING}{uuid.uuid4().hex}"

    def commit(
        self, staging: str, changes: Sequence[Change], manifest: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Put what was staged in its place.

        :param staging: the directory's name.
        :param before: the manifest with which the run began.
        :raises TablesError: another run has changed the tables meanwhile, where no lock keeps it from doing so.
        """
        if self.manifest() != before or self._files.read(f"{self._out}/{JOURNAL}") is not None:
            raise TablesError(
                f"{self._out}: another process has changed these tables meanwhile, so nothing of this run was taken "
                "over; run it again, one at a time"
            )
        intent = {"staging": staging, "changes": [astuple(each) for each in changes], "manifest": manifest}
        self._files.write(f"{self._out}/{JOURNAL}", json.dumps(intent))
        self._finish(intent)

    def _finish(self, intent: Mapping[str, Any]) -> None:
        staging = f"{self._out}/{intent['staging']}"
        for each in intent["changes"]:
            self._swap(Change(*each), staging)
        self._files.write(f"{self._out}/{MANIFEST}", json.dumps(intent["manifest"], indent=1))
        self._files.delete(staging)
        self._files.delete(f"{self._out}/{JOURNAL}")

    def _swap(self, change: Change, staging: str) -> None:
        staged, place = f"{staging}/{change.partition}", f"{self._out}/{change.partition}"
        wanted = (change.files, change.bytes)
        if not change.files:
            self._files.delete(place)
        elif self._files.contents(staged) == wanted:
            self._files.delete(place)
            self._files.rename(staged, place)
        elif self._files.contents(place) != wanted:
            raise TablesError(
                f"{place}: a run that was killed was to replace this, and neither there nor in {staged} is what it has "
                "made; were files deleted by hand? Delete the directory of the tables, and make them of the ledgers"
            )
