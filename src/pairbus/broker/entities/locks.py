"""Which messages are under lock, and until when."""

from collections.abc import Iterator

from pairbus.broker.entities.message import Held

_BUCKET = 100
"""Milliseconds: how late the end of a lock may be noticed. Whoever uses an ended lock is refused on the spot."""


class Locks:
    """Messages by their lock tokens. A lock that is given up leaves nothing behind, however long it had to go."""

    __slots__ = ("_by_token", "_ending")

    def __init__(self) -> None:
        self._by_token: dict[bytes, Held] = {}
        self._ending: dict[int, dict[bytes, Held]] = {}
        """By the time at which they end, in buckets."""

    def __len__(self) -> int:
        return len(self._by_token)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._by_token.values())

    def add(self, held: Held, token: bytes, until: int) -> None:
        """Lock a message."""
        held.token, held.until = token, until
        self._by_token[token] = held
        bucket = until // _BUCKET
        ending = self._ending.get(bucket)
        if ending is None:
            ending = self._ending[bucket] = {}
        ending[token] = held

    def find(self, token: bytes, now: int) -> Held | None:
        """Return the message of a lock that holds."""
        held = self._by_token.get(token)
        return held if held is not None and held.until > now else None

    def remove(self, held: Held) -> None:
        """Give up a lock."""
        token = held.token
        if token is None:
            return
        held.token = None
        del self._by_token[token]
        bucket = held.until // _BUCKET
        ending = self._ending[bucket]
        del ending[token]
        if not ending:
            del self._ending[bucket]

    def renew(self, held: Held, until: int) -> None:
        """Let a lock end later, or earlier."""
        token = held.token
        if token is not None:
            self.remove(held)
            self.add(held, token, until)

    @property
    def wake_at(self) -> int | None:
        """When :meth:`take_ended` has something to give; None: nothing is locked."""
        return (min(self._ending) + 1) * _BUCKET if self._ending else None

    def take_ended(self, now: int) -> list[Held]:
        """Give up the locks that have ended, and return their messages in the order of the queue."""
        ended = [
            held
            for bucket in [bucket for bucket in self._ending if bucket <= now // _BUCKET]
            for held in self._ending[bucket].values()
            if held.until <= now
        ]
        for held in ended:
            self.remove(held)
        return sorted(ended, key=lambda held: held.sequence)
