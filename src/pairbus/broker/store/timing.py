"""How long commits take."""

from bisect import bisect_left
from typing import Final

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Seconds; a commit counts in the first bucket that it does not exceed, or in the last one, which has no bound."""


class CommitTimes:
    """Commits of one store, by how long they took. Written to by one thread; whoever reads may see one too few.

    :ivar seconds: what all of them took together.
    :ivar failed: how many of them did not succeed.
    """

    __slots__ = ("counts", "failed", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.failed = 0

    def add(self, seconds: float, *, failed: bool) -> None:
        """Count a commit."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        self.failed += failed
