"""Duplicate detection: which message ids came within the window."""

from collections import deque
from collections.abc import Iterable


class Duplicates:
    """Remembers message ids for a while. Ids are compared case-sensitively, as in the cloud."""

    __slots__ = ("_ends", "_until", "window")

    def __init__(self, window: int, known: Iterable[tuple[str, int]] = ()) -> None:
        self.window = window
        self._until: dict[str, int] = dict(known)
        self._ends: deque[tuple[int, str]] = deque(sorted((until, name) for name, until in self._until.items()))

    def __len__(self) -> int:
        return len(self._until)

    def is_known(self, message_id: str, now: int) -> bool:
        """Tell whether a message with this id came within the window."""
        self._forget(now)
        return message_id in self._until

    def remember(self, message_id: str, now: int) -> int:
        """Remember an id, and return until when."""
        until = now + self.window
        self._until[message_id] = until
        self._ends.append((until, message_id))
        return until

    def forget(self, message_id: str, until: int) -> None:
        """Forget an id whose message was not stored after all, unless a later message has it by now.

        :param until: what :meth:`remember` has returned for it.
        """
        if self._until.get(message_id) == until:
            del self._until[message_id]

    def _forget(self, now: int) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now:
            until, name = ends.popleft()
            if self._until.get(name) == until:
                del self._until[name]
