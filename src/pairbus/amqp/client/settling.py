"""Settlements that a receiver has asked for and the sender has not answered yet (rcv-settle-mode *second*)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from pairbus.amqp.link import SERIAL_MASK
from pairbus.amqp.performatives import DeliveryState

C = TypeVar("C")

Run: TypeAlias = tuple[int, int]
"""The first and the last of delivery ids that follow each other."""


class RunAnswer(NamedTuple):
    """What the sender has answered for a run."""

    first: int
    last: int
    state: DeliveryState | None


@dataclass(slots=True, eq=False)
class Group(Generic[C]):
    """Deliveries that one call settles; the call has ended when ``left``, the number without an answer, is nothing.

    :ivar context: the caller's own.
    """

    left: int
    context: C
    answers: list[RunAnswer] = field(default_factory=list[RunAnswer])

    def answer(self, number: int) -> RunAnswer | None:
        """Return what was answered for one of them; None: nothing, and now nobody knows."""
        return next((answer for answer in self.answers if answer.first <= number <= answer.last), None)


class Settlements(Generic[C]):
    """What was asked on one session."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[Run, Group[C]] = {}

    def ask(self, runs: Iterable[Run], context: C) -> Group[C]:
        """Note that the deliveries of these runs are to be settled together."""
        group = Group(0, context)
        for run in runs:
            self._asked[run] = group
            group.left += run[1] - run[0] + 1
        return group

    def answered(self, first: int, last: int, state: DeliveryState | None) -> list[Group[C]]:
        """Take the sender's answer for a range, and return the groups that have ended by it."""
        if first > last:  # the numbers begin anew in between
            return self.answered(first, SERIAL_MASK, state) + self.answered(0, last, state)
        touched = [(first, last)] if (first, last) in self._asked else list(self._asked)
        ended: list[Group[C]] = []
        for begin, end in touched:  # never the range itself, which the peer chooses
            low, high = max(first, begin), min(last, end)
            if low > high:
                continue
            group = self._asked.pop((begin, end))
            if begin < low:
                self._asked[begin, low - 1] = group
            if high < end:
                self._asked[high + 1, end] = group
            group.answers.append(RunAnswer(low, high, state))
            group.left -= high - low + 1
            if not group.left:
                ended.append(group)
        return ended

    def lost(self) -> list[Group[C]]:
        """Take note that no answer will come any more, and return the groups that are left in doubt."""
        groups = dict.fromkeys(self._asked.values())
        self._asked.clear()
        return list(groups)


def runs_of(ids: Iterable[int]) -> list[Run]:
    """Cut delivery ids into runs."""
    numbers = sorted(set(ids))
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:  # as a rule
        return [(numbers[0], numbers[-1])]
    runs: list[Run] = []
    first = last = -2
    for number in numbers:
        if number == last + 1:
            last = number
            continue
        if first >= 0:
            runs.append((first, last))
        first = last = number
    if first >= 0:
        runs.append((first, last))
    return runs
