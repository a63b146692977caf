"""The messages of a queue that are in memory with their payload."""

from collections.abc import Iterable, Sequence
from typing import Final

from pairbus.amqp import Message
from pairbus.broker.entities.message import Held
from pairbus.broker.store.base import Row, Store, key_of, sequence_of

KEPT: Final = 1000
"""Messages that just came in and are kept until they go out, if there are not more of them."""
KEPT_BYTES: Final = 2 * 1024 * 1024
FETCH: Final = 64
"""Messages that are read from the store at a time."""


class Pool:
    """Messages that just came in, are about to go out, or are under lock; all others are read when they are needed."""

    __slots__ = ("_bytes", "_entity", "_held", "_store")

    def __init__(self, entity: int, store: Store) -> None:
        self._entity = entity
        self._store = store
        self._held: dict[int, Held] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for messages that need not be here."""
        return len(self._held) >= KEPT or self._bytes >= KEPT_BYTES

    def keep_if_there_is_room(self, row: Row, message: Message | None = None) -> None:
        """Keep a message that just came in, so that it need not be read when it goes out at once."""
        if len(self._held) < KEPT and self._bytes < KEPT_BYTES:
            self.hold(row, message)

    def hold(self, row: Row, message: Message | None = None) -> Held:
        """Keep a message."""
        held = self._held[sequence_of(row.key)] = Held(row, message)
        self._bytes += len(row.payload)
        return held

    def take_back(self, held: Held) -> None:
        """Keep a message that was let go."""
        self._held[held.sequence] = held
        self._bytes += len(held.payload)

    def find(self, number: int) -> Held | None:
        """Return a message that is here."""
        return self._held.get(number)

    def fetch(self, number: int, ahead: Iterable[int]) -> Held | None:
        """Return a message, reading it and some of those that come after it; None: there is no such message."""
        if number not in self._held:
            self._load([number, *(each for each in ahead if each not in self._held)][:FETCH])
        return self._held.get(number)

    def fetch_all(self, numbers: Sequence[int]) -> list[Held]:
        """Return messages, reading those that are not here; those that are gone are left out."""
        self._load([number for number in numbers if number not in self._held])
        return [self._held[number] for number in numbers if number in self._held]

    def _load(self, numbers: Iterable[int]) -> None:
        for row in self._store.load([key_of(self._entity, number) for number in numbers]):
            self.hold(row)

    def change(self, held: Held, payload: bytes) -> None:
        """Give a message another payload."""
        self._bytes += len(payload) - len(held.payload)
        held.payload = payload
        held.message = None

    def let_go(self, held: Held) -> None:
        """Keep a message no longer."""
        if self._held.get(held.sequence) is held:
            del self._held[held.sequence]
            self._bytes -= len(held.payload)
