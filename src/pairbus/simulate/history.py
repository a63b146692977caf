"""What happened in a world, for people to read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pairbus.simulate.kernel import Kernel

WORLD = "the world"
"""Who did what nobody in the world did: faults, clocks, crashes."""

# What is told of a message, and of an entity
TRIED = "sends {} to {}"
NOT_TAKEN = "{} is not taken: {}"
ACCEPTED = "{} is accepted by the primary"
PARKING = "parks {} in {}"
PULLED = "{} is not taken by {}, which is pulled from the rotation: {}"
PARKED = "{} is parked in {}"
NOT_SENT = "{} is not sent: {}"
PINGED = "pings {}"
TURNED = "{} is {}"
COMPLETED = "{} is delivered and completed"
NOT_COMPLETED = "{} is delivered and not completed: {}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened."""

    at: float
    who: str
    form: str
    args: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.at:10.3f} s  {self.who:<12} {self.form.format(*self.args)}"


@dataclass(slots=True)
class History:
    """Everything that happened, in order; put into words only when somebody asks."""

    kernel: Kernel
    lines: list[HistoryEntry] = field(default_factory=list[HistoryEntry])

    def add(self, who: str, form: str, *args: object) -> None:
        """Note something."""
        self.lines.append(HistoryEntry(self.kernel.now, who, form, args))

    def about(self, subject: str) -> Iterator[str]:
        """Tell what concerns one message, queue or entity, with what went wrong meanwhile."""
        named = re.compile(rf"(?<![\w/]){re.escape(subject)}(?![\w/])")
        return (text for line in self.lines if named.search(text := str(line)) or line.who == WORLD)
