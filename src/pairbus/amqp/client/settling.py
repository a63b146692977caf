"""Settlements that a receiver has asked for and the sender has not answered yet (rcv-settle-mode *second*)."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from pairbus.amqp.link import SERIAL_MASK
from pairbus.amqp.performatives import DeliveryState

C = TypeVar("C")


class Group(Generic[C]):
    """Deliveries that one call settles; the call has ended when ``left`` is nothing.

    :ivar states: what the sender has answered, by delivery id; None: nothing, and now nobody knows.
    :ivar context: the caller's own.
    """

    __slots__ = ("context", "left", "states")

    def __init__(self, left: int, context: C) -> None:
        self.left = left
        self.context = context
        self.states: dict[int, DeliveryState | None] = {}


class Settlements(Generic[C]):
    """What was asked on one session."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, Group[C]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, ids: Sequence[int], context: C) -> Group[C]:
        """Note that these deliveries are to be settled together."""
        group = Group(len(ids), context)
        self._asked.update(dict.fromkeys(ids, group))
        return group

    def forget(self, ids: Iterable[int]) -> None:
        """Note that nobody waits for these any more."""
        for number in ids:
            self._asked.pop(number, None)

    def answered(self, first: int, last: int, state: DeliveryState | None) -> list[Group[C]]:
        """Take the sender's answer for a range, and return the groups that have ended by it."""
        asked = self._asked
        span = (last - first) & SERIAL_MASK
        if span < len(asked):
            numbers = [(first + step) & SERIAL_MASK for step in range(span + 1)]
        else:  # the peer chooses the range, so it is never walked
            numbers = [number for number in asked if (number - first) & SERIAL_MASK <= span]
        ended: list[Group[C]] = []
        for number in numbers:
            group = asked.pop(number, None)
            if group is not None:
                group.states[number] = state
                group.left -= 1
                if not group.left:
                    ended.append(group)
        return ended

    def lost(self) -> list[Group[C]]:
        """Take note that no answer will come any more, and return the groups that are left in doubt."""
        groups = dict.fromkeys(self._asked.values())
        self._asked.clear()
        return list(groups)


def runs_of(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Cut delivery ids into runs that follow each other: first and last of each."""
    runs: list[tuple[int, int]] = []
    first = last = -2
    for number in sorted(ids):
        if number == last + 1:
            last = number
            continue
        if first >= 0:
            runs.append((first, last))
        first = last = number
    if first >= 0:
        runs.append((first, last))
    return runs
