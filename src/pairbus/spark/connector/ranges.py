"""Ranges of sequence numbers: where a stream has come to, how far a batch may go, and who reads what. Pure.

An offset is the sequence number from which to go on, by the entity's path. A range goes up to its end, exclusive.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

Offsets: TypeAlias = Mapping[str, int]

FirstAt: TypeAlias = Callable[[int], Awaitable[int | None]]
"""Tells the sequence number of the first message at or after one, or None if there is none."""

FIRST: Final = 1
"""The lowest sequence number."""
LEAST_TO_SPLIT: Final = 250
"""A range is not split into smaller ones than this: a look shows about as many messages."""


@dataclass(frozen=True, slots=True)
class Range:
    """Sequence numbers of one entity, from ``start`` up to ``end``, exclusive.

    :ivar newest: when the last message was enqueued that was seen there, in milliseconds since the epoch, if that is
        known. No message before ``end`` was enqueued later.
    """

    path: str
    start: int
    end: int
    newest: int | None = None

    @property
    def span(self) -> int:
        """How many messages it can have at most."""
        return self.end - self.start


async def available(first_at: FirstAt, path: str, start: int, most: int | None = None) -> Range:
    """Find the range of the messages that are there from ``start`` on, with a number of looks that grows with its log.

    :param most: it may span no more numbers than this; None: up to the last message there is.
    :return: it begins with the first message there is, and is empty if there is none.
    """
    first = await first_at(start)
    if first is None:
        return Range(path, start, start)
    low, step = first, 64 if most is None else most
    while (found := await first_at(low + step)) is not None:
        if most is not None:
            return Range(path, first, first + most)
        low, step = found, step * 4
    at = low + step
    while at - low > 1:  # the last message is at low, or between low and at
        middle = (low + at) // 2
        found = await first_at(middle)
        if found is None:
            at = middle
        else:
            low = found
    return Range(path, first, low + 1)


def share(wanted: Mapping[str, int], most: int) -> dict[str, int]:
    """Share out how many messages a batch may have: evenly, and what one does not need goes to the others.

    What cannot be divided goes to those that want most.
    """
    given = dict.fromkeys(wanted, 0)
    left = min(most, sum(wanted.values()))
    while left > 0:
        needy = sorted((path for path in wanted if wanted[path] > given[path]), key=lambda path: -wanted[path])
        each = left // len(needy)
        for path in needy if each else needy[:left]:
            more = min(max(each, 1), wanted[path] - given[path])
            given[path] += more
            left -= more
    return given


def split(ranges: list[Range], most: int) -> list[Range]:
    """Cut ranges into about equal ones, to be read at the same time.

    :param most: how many there are to be in all; each range is at least one.
    """
    ranges = [each for each in ranges if each.span > 0]
    total = sum(each.span for each in ranges)
    parts: list[Range] = []
    for whole in ranges:
        count = max(1, min(most * whole.span // total, whole.span // LEAST_TO_SPLIT))
        cuts = [whole.start + whole.span * index // count for index in range(count + 1)]
        parts += [Range(whole.path, start, end) for start, end in pairwise(cuts)]
    return parts
