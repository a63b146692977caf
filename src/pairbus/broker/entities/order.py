"""The order in which messages are given out."""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice


class DeliveryOrder:
    """Sequence numbers of messages that wait. One that is put back takes its old place, before all later ones."""

    __slots__ = ("_dropped", "_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._returned: list[int] = []
        self._dropped: set[int] = set()
        """Numbers that are still in one of the two, and do not count."""

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned) - len(self._dropped)

    def push(self, number: int) -> None:
        """Append a number that is larger than all before."""
        self._fresh.append(number)

    def put_back(self, number: int) -> None:
        """Insert a number in its old place."""
        if number in self._dropped:
            self._dropped.discard(number)
        else:
            heapq.heappush(self._returned, number)

    def drop(self, number: int) -> None:
        """Leave out a number that waits. Dropped numbers are swept out once they are as many as the others."""
        self._dropped.add(number)
        if len(self._dropped) > len(self):
            self._fresh = deque(each for each in self._fresh if each not in self._dropped)
            self._returned = [each for each in self._returned if each not in self._dropped]
            heapq.heapify(self._returned)
            self._dropped.clear()

    def pop_many(self, most: int) -> list[int]:
        """Take out the first numbers, ``most`` of them if there are."""
        fresh = self._fresh
        if not self._returned and not self._dropped:
            return [fresh.popleft() for _ in range(min(most, len(fresh)))]
        popped: list[int] = []
        while len(popped) < most and (number := self.pop()) is not None:
            popped.append(number)
        return popped

    def pop(self) -> int | None:
        """Take out the first number."""
        returned, fresh = self._returned, self._fresh
        while returned or fresh:
            is_back = returned and (not fresh or returned[0] < fresh[0])
            number = heapq.heappop(returned) if is_back else fresh.popleft()
            if number not in self._dropped:
                return number
            self._dropped.discard(number)
        return None

    def ahead(self, most: int) -> Iterator[int]:
        """Look at numbers that will be popped soon."""
        for number in chain(heapq.nsmallest(most, self._returned), islice(self._fresh, most)):
            if number not in self._dropped:
                yield number
