"""Which messages are under lock, and until when."""

from collections.abc import Callable, Iterator, Sequence

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
        self.add_all((held,), lambda: token, until)

    def add_all(self, messages: Sequence[Held], tokens: Callable[[], bytes], until: int) -> None:
        """Lock messages, each with a token of its own."""
        if not messages:
            return
        by_token, ending = self._by_token, self._ending.setdefault(until // _BUCKET, {})
        for held in messages:
            token = held.token = tokens()
            held.until = until
            by_token[token] = ending[token] = held

    def find(self, token: bytes, now: int) -> Held | None:
        """Return the message of a lock that holds."""
        held = self._by_token.get(token)
        return held if held is not None and held.until > now else None

    def find_all(self, tokens: Sequence[bytes], now: int) -> list[Held] | None:
        """Return the messages of locks; None: not all of them hold."""
        by_token = self._by_token
        found = [held for token in tokens if (held := by_token.get(token)) is not None and held.until > now]
        return found if len(found) == len(tokens) else None

    def remove(self, held: Held) -> None:
        """Give up a lock."""
        self.remove_all((held,))

    def remove_all(self, messages: Sequence[Held]) -> None:
        """Give up locks that hold."""
        bucket, ending = -1, dict[bytes, Held]()
        for held in messages:
            token = held.token
            if token is None:
                continue
            held.token = None
            del self._by_token[token]
            if held.until // _BUCKET != bucket:
                self._drop_if_empty(bucket)
                bucket = held.until // _BUCKET
                ending = self._ending[bucket]
            del ending[token]
        self._drop_if_empty(bucket)

    def _drop_if_empty(self, bucket: int) -> None:
        if self._ending.get(bucket) == {}:
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
        self.remove_all(ended)
        return sorted(ended, key=lambda held: held.sequence)
