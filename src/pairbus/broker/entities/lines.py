"""The order in which messages are given out."""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice


class Line:
    """Sequence numbers in order. One that comes back takes its old place again, before all later ones.

    A message costs a number here and nothing else, so that a queue may be deep.
    """

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._returned: list[int] = []

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    def push(self, number: int) -> None:
        """Append a number that is larger than all before."""
        self._fresh.append(number)

    def put_back(self, number: int) -> None:
        """Take a number back into its place."""
        heapq.heappush(self._returned, number)

    def pop(self) -> int | None:
        """Take out the first number."""
        returned, fresh = self._returned, self._fresh
        if returned and (not fresh or returned[0] < fresh[0]):
            return heapq.heappop(returned)
        return fresh.popleft() if fresh else None

    def ahead(self, most: int) -> Iterator[int]:
        """Look at numbers that will be popped soon."""
        yield from heapq.nsmallest(most, self._returned)
        yield from islice(self._fresh, most)
