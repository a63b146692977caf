"""Pauses that grow with each failure in a row, up to a cap, with jitter."""

from dataclasses import dataclass
from random import Random

_MAX_DOUBLINGS = 32
"""Beyond this every cap is reached; keeps the power from overflowing."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause after the n-th failure in a row: ``first * 2**(n - 1)``, at most ``cap``, in seconds.

    Jitter shortens a pause by up to ``jitter`` of itself, so that clients which failed together do not
    come back together; a pause is never longer than it says.
    """

    first: float
    cap: float
    jitter: float = 0.2

    def pause(self, failures: int, random: Random) -> float:
        """Return the pause after ``failures`` failures in a row, in seconds."""
        longest = min(self.cap, self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return longest * (1 - self.jitter * random.random())
