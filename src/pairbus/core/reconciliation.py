"""What a mover has done, per destination: the reconciliation of Y6."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from pairbus.core.routing import DeadLetterReason, WaitReason


@dataclass(slots=True)
class Counts:
    """What became of the messages for one destination.

    :ivar waiting: messages that are under lock and wait now, by reason.
    :ivar duplicates_suspected: messages that the destination may have got twice: they were delivered after an attempt
        whose answer never came, or could not be removed from the backlog afterwards.
    :ivar oldest_at: when the oldest message was parked.
    """

    delivered: int = 0
    dead_lettered: Counter[DeadLetterReason] = field(default_factory=Counter[DeadLetterReason])
    waiting: Counter[WaitReason] = field(default_factory=Counter[WaitReason])
    duplicates_suspected: int = 0
    oldest_at: datetime | None = None

    @property
    def found(self) -> int:
        """How many messages were found: delivered, dead-lettered or waiting."""
        return self.delivered + self.dead_lettered.total() + self.waiting.total()

    def note_age(self, parked_at: datetime | None) -> None:
        """Take note of when a message was parked."""
        if parked_at is not None and (self.oldest_at is None or parked_at < self.oldest_at):
            self.oldest_at = parked_at

    def add(self, other: "Counts") -> None:
        """Add what another one counted."""
        self.delivered += other.delivered
        self.dead_lettered.update(other.dead_lettered)
        self.waiting.update(other.waiting)
        self.duplicates_suspected += other.duplicates_suspected
        self.note_age(other.oldest_at)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON can carry it."""
        return {
            "delivered": self.delivered,
            "dead_lettered": {reason.value: count for reason, count in self.dead_lettered.items()},
            "waiting": {reason.name.lower(): count for reason, count in self.waiting.items()},
            "duplicates_suspected": self.duplicates_suspected,
            "oldest_at": None if self.oldest_at is None else self.oldest_at.isoformat(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it back."""
        oldest_at = document["oldest_at"]
        return cls(
            document["delivered"],
            Counter({DeadLetterReason(reason): count for reason, count in document["dead_lettered"].items()}),
            Counter({WaitReason[reason.upper()]: count for reason, count in document["waiting"].items()}),
            document["duplicates_suspected"],
            None if oldest_at is None else datetime.fromisoformat(oldest_at),
        )


@dataclass(slots=True)
class Reconciliation:
    """What became of the messages that were found.

    :ivar destinations: by path; messages that name no destination are under the empty path.
    """

    destinations: dict[str, Counts] = field(default_factory=dict[str, Counts])

    def of(self, destination: str) -> Counts:
        """Return what is counted for a destination."""
        return self.destinations.setdefault(destination, Counts())

    def add(self, other: "Reconciliation") -> None:
        """Add what another one counted."""
        for destination, counts in other.destinations.items():
            self.of(destination).add(counts)

    def total(self) -> Counts:
        """Return the sum over all destinations."""
        total = Counts()
        for counts in self.destinations.values():
            total.add(counts)
        return total

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON can carry it."""
        return {destination: counts.to_document() for destination, counts in self.destinations.items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it back."""
        return cls({destination: Counts.from_document(counts) for destination, counts in document.items()})
