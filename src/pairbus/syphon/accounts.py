"""The books of a drain: what became of every message, whoever moved it, also if that one died over it (Y6)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, Self

from pairbus.core.ledger import Record
from pairbus.errors import LedgerError
from pairbus.instrument.ledger import LedgerFile
from pairbus.syphon.reconciliation import Report, Tally

ELSEWHERE = "elsewhere"
"""Why a message waits that nobody here has received: it is under another receiver's lock, or has just come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a carrier tells of its work at one queue.

    :ivar carrier: who it is; each attempt at a task is another one.
    :ivar report: all that it has done so far, and what waits.
    :ivar completing: messages, by destination, that were delivered and are about to be completed. If nothing more is
        heard of the carrier, nobody knows whether they were.
    :ivar records: of its operations, for the ledger.
    :ivar problem: why the queue cannot be received from.
    """

    carrier: str
    queue: str
    slot: int
    report: Report
    completing: Mapping[str, int] = field(default_factory=dict[str, int])
    records: Sequence[Record] = ()
    problem: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON can carry it."""
        return {
            "carrier": self.carrier,
            "queue": self.queue,
            "slot": self.slot,
            "report": self.report.to_document(),
            "completing": dict(self.completing),
            "records": [record.to_json() for record in self.records],
            "problem": self.problem,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it back."""
        return cls(
            carrier=document["carrier"],
            queue=document["queue"],
            slot=document["slot"],
            report=Report.from_document(document["report"]),
            completing=document["completing"],
            records=[Record.from_json(line) for line in document["records"]],
            problem=document["problem"],
        )


class Account(Protocol):
    """Where a carrier's entries go."""

    async def enter(self, entry: Entry) -> None:
        """Take an entry; when it returns, the entry is in the books and its records in the ledger."""
        ...

    async def ask_for_new_shares(self) -> None:
        """Tell that a share's quota is used up: the work wants to be shared out anew."""
        ...


@dataclass(slots=True)
class Line:
    """What became of the messages of one queue for one destination.

    :ivar elsewhere: messages that are in the queue and that nobody here has received.
    """

    queue: str
    destination: str
    tally: Tally
    elsewhere: int = 0

    @property
    def waiting(self) -> dict[str, int]:
        """How many messages are still there, by reason."""
        reasons = {reason.name.lower(): count for reason, count in self.tally.waiting.items() if count}
        return reasons | ({ELSEWHERE: self.elsewhere} if self.elsewhere else {})

    @property
    def found(self) -> int:
        """How many messages were found: delivered, dead-lettered or still there."""
        return self.tally.found + self.elsewhere


class Accounts:
    """The books, kept where the drain is led from.

    :param ledger: where the records go, if anywhere.
    """

    def __init__(self, ledger: LedgerFile | None = None) -> None:
        self.ledger = ledger
        self.problems: dict[str, str] = {}
        """Why queues could not be received from the last time that was tried."""
        self._open: dict[tuple[str, str, int], Entry] = {}
        self._done: dict[str, Report] = {}
        self._elsewhere: dict[str, int] = {}

    async def enter(self, entry: Entry) -> None:
        """Take an entry, and write its records to the ledger.

        :raises LedgerError: the ledger cannot be written to.
        """
        self._open[entry.carrier, entry.queue, entry.slot] = entry
        if entry.problem is None:
            self.problems.pop(entry.queue, None)
        else:
            self.problems[entry.queue] = entry.problem
        if self.ledger is not None and entry.records:
            for record in entry.records:
                self.ledger.record(record)
            if not await asyncio.to_thread(self.ledger.flush):
                raise LedgerError("the ledger cannot be written to; nothing is completed before it can")

    def close(self, carrier: str) -> None:
        """Take it that nothing more is heard of a carrier.

        What it was about to complete is either gone or delivered again by somebody else: it counts as suspected.
        """
        for key in [key for key in self._open if key[0] == carrier]:
            entry = self._open.pop(key)
            for destination, count in entry.completing.items():
                entry.report.of(destination).duplicates_suspected += count
            self._done.setdefault(entry.queue, Report()).add(entry.report)

    def begin_round(self) -> None:
        """Forget what waited: whoever goes to work now tells anew."""
        for report in self._done.values():
            for tally in report.destinations.values():
                tally.waiting.clear()
        self._elsewhere.clear()

    def note_depths(self, depths: Mapping[str, int | None]) -> None:
        """Take note of what is in the queues at the end of a round: what nobody has told of is elsewhere."""
        for queue, depth in depths.items():
            waiting = self.of(queue).total().waiting.total()
            self._elsewhere[queue] = max(0, (depth or 0) - waiting)

    def of(self, queue: str) -> Report:
        """Return what became of the messages of a queue."""
        report = Report()
        report.add(self._done.get(queue, Report()))
        for entry in self._open.values():
            if entry.queue == queue:
                report.add(entry.report)
        return report

    def lines(self) -> list[Line]:
        """Return the reconciliation, by queue and destination."""
        queues = {*self._done, *(entry.queue for entry in self._open.values()), *self._elsewhere}
        lines: list[Line] = []
        for queue in sorted(queues):
            for destination, tally in sorted(self.of(queue).destinations.items()):
                lines.append(Line(queue, destination, tally))
            if self._elsewhere.get(queue):
                lines.append(Line(queue, "", Tally(), self._elsewhere[queue]))
        return lines

    def total(self) -> Line:
        """Return the sum of all lines."""
        return total_of(self.lines())


def total_of(lines: Iterable[Line]) -> Line:
    """Return the sum of some lines."""
    total = Line("", "", Tally())
    for line in lines:
        total.tally.add(line.tally)
        total.elsewhere += line.elsewhere
    return total


def oldest_age(tally: Tally, now: datetime) -> float | None:
    """Return how many seconds ago the oldest message was parked."""
    return None if tally.oldest_at is None else max(0.0, (now - tally.oldest_at).total_seconds())
