"""The accounts of a drain: what became of every message, also of those whose worker died (Y6)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from pairbus.core.ledger import Record
from pairbus.core.reconciliation import Counts, Reconciliation
from pairbus.errors import LedgerError
from pairbus.instrument.ledger import LedgerFile

ELSEWHERE = "elsewhere"
"""Why a message waits that no worker of this drain has received: another receiver has it, or it has just come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a worker tells of its work at one queue.

    :ivar worker: its name.
    :ivar reconciliation: all that it has done so far, and what waits.
    :ivar completing: messages, by destination, that were delivered and are about to be completed. If the worker sends
        no further entry, it is not known whether they were.
    :ivar records: of its operations, for the ledger.
    :ivar problem: why the queue cannot be received from.
    """

    worker: str
    queue: str
    slot: int
    reconciliation: Reconciliation
    completing: Mapping[str, int] = field(default_factory=dict[str, int])
    records: Sequence[Record] = ()
    problem: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON can carry it."""
        return {
            "worker": self.worker,
            "queue": self.queue,
            "slot": self.slot,
            "reconciliation": self.reconciliation.to_document(),
            "completing": dict(self.completing),
            "records": [record.to_json() for record in self.records],
            "problem": self.problem,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it back."""
        return cls(
            worker=document["worker"],
            queue=document["queue"],
            slot=document["slot"],
            reconciliation=Reconciliation.from_document(document["reconciliation"]),
            completing=document["completing"],
            records=[Record.from_json(line) for line in document["records"]],
            problem=document["problem"],
        )


class Account(Protocol):
    """Where a worker's entries go."""

    async def enter(self, entry: Entry) -> None:
        """Take an entry; when it returns, its records are in the ledger."""
        ...

    async def ask_for_new_shares(self) -> None:
        """Tell that a share's quota is used up: the work should be shared out again."""
        ...


@dataclass(slots=True)
class Row:
    """What became of the messages of one queue for one destination.

    :ivar elsewhere: messages that are in the queue and that no worker of this drain has received.
    """

    queue: str
    destination: str
    counts: Counts
    elsewhere: int = 0

    @property
    def waiting(self) -> dict[str, int]:
        """How many messages are still there, by reason."""
        reasons = {reason.name.lower(): count for reason, count in self.counts.waiting.items() if count}
        return reasons | ({ELSEWHERE: self.elsewhere} if self.elsewhere else {})

    @property
    def found(self) -> int:
        """How many messages were found: delivered, dead-lettered or still there."""
        return self.counts.found + self.elsewhere


class Accounts:
    """What the workers of a drain have told, and what was found in the queues.

    :param ledger: where the records go, if anywhere.
    """

    def __init__(self, ledger: LedgerFile | None = None) -> None:
        self.ledger = ledger
        self.problems: dict[str, str] = {}
        """Why queues could not be received from the last time that was tried."""
        self._open: dict[tuple[str, str, int], Entry] = {}
        self._done: dict[str, Reconciliation] = {}
        self._elsewhere: dict[str, int] = {}

    async def enter(self, entry: Entry) -> None:
        """Take an entry, and write its records to the ledger.

        :raises LedgerError: the ledger cannot be written to.
        """
        self._open[entry.worker, entry.queue, entry.slot] = entry
        if entry.problem is None:
            self.problems.pop(entry.queue, None)
        else:
            self.problems[entry.queue] = entry.problem
        if self.ledger is not None and entry.records:
            for record in entry.records:
                self.ledger.record(record)
            if not await asyncio.to_thread(self.ledger.flush):
                raise LedgerError("the ledger cannot be written to; nothing is completed before it can")

    def close(self, worker: str) -> None:
        """Note that a worker sends no more entries.

        What it was about to complete is either gone or will be delivered again: it counts as suspected.
        """
        for key in [key for key in self._open if key[0] == worker]:
            entry = self._open.pop(key)
            for destination, count in entry.completing.items():
                entry.reconciliation.of(destination).duplicates_suspected += count
            self._done.setdefault(entry.queue, Reconciliation()).add(entry.reconciliation)

    def begin_round(self) -> None:
        """Forget what waited: the workers of the round tell again."""
        for report in self._done.values():
            for counts in report.destinations.values():
                counts.waiting.clear()
        self._elsewhere.clear()

    def note_depths(self, depths: Mapping[str, int | None]) -> None:
        """Take note of what is in the queues at the end of a round: what no worker has told of is elsewhere."""
        for queue, depth in depths.items():
            waiting = self.of(queue).total().waiting.total()
            self._elsewhere[queue] = max(0, (depth or 0) - waiting)

    def of(self, queue: str) -> Reconciliation:
        """Return what became of the messages of a queue."""
        report = Reconciliation()
        report.add(self._done.get(queue, Reconciliation()))
        for entry in self._open.values():
            if entry.queue == queue:
                report.add(entry.reconciliation)
        return report

    def rows(self) -> list[Row]:
        """Return the reconciliation, by queue and destination."""
        queues = {*self._done, *(entry.queue for entry in self._open.values()), *self._elsewhere}
        rows: list[Row] = []
        for queue in sorted(queues):
            for destination, counts in sorted(self.of(queue).destinations.items()):
                rows.append(Row(queue, destination, counts))
            if self._elsewhere.get(queue):
                rows.append(Row(queue, "", Counts(), self._elsewhere[queue]))
        return rows

    def total(self) -> Row:
        """Return the sum of all rows."""
        return total_of(self.rows())


def total_of(rows: Iterable[Row]) -> Row:
    """Return the sum of some rows."""
    total = Row("", "", Counts())
    for row in rows:
        total.counts.add(row.counts)
        total.elsewhere += row.elsewhere
    return total
