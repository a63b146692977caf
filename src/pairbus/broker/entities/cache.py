"""The messages of a queue that are in memory with their payloads."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from pairbus.broker.entities.message import Held
from pairbus.broker.store.base import Row, Store, key_of

KEPT: Final = 1000
"""Messages that just came in and are kept until they go out, if there are not more of them."""
KEPT_BYTES: Final = 2 * 1024 * 1024
FETCH: Final = 64
"""Messages that are read from the store at a time."""


class MessageCache:
    """Messages that just came in, are about to go out, or are locked; all others are read when they are needed."""

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

    def keep_if_there_is_room(self, row: Row) -> None:
        """Keep a message that just came in, so that it need not be read when it goes out at once."""
        if len(self._held) < KEPT and self._bytes < KEPT_BYTES:
            self.hold(row)

    def hold(self, row: Row) -> Held:
        """Keep a message, and return it."""
        held = Held(row)
        self._held[held.sequence] = held
        self._bytes += len(row.payload)
        return held

    def keep(self, held: Held) -> None:
        """Keep a message that was released."""
        self._held[held.sequence] = held
        self._bytes += len(held.payload)

    def find(self, number: int) -> Held | None:
        """Return a message that is here."""
        return self._held.get(number)

    def fetch(self, numbers: Sequence[int], ahead: Iterable[int] = ()) -> list[Held]:
        """Return messages, reading those that are not here and some that come after; those that are gone are left out.

        :param ahead: what is read along if something must be read at all, so that the next one need not be.
        """
        held = self._held
        missing = [number for number in numbers if number not in held]
        if missing:
            room = max(0, FETCH - len(missing))
            self._load(missing + [number for number in islice(ahead, room) if number not in held])
        return [held[number] for number in numbers if number in held]

    def _load(self, numbers: Iterable[int]) -> None:
        base = key_of(self._entity, 0)
        rows = self._store.load([base | number for number in numbers])
        self._held.update([(held.sequence, held) for held in map(Held, rows)])
        self._bytes += sum([len(row.payload) for row in rows])

    def change(self, held: Held, payload: bytes) -> None:
        """Give a message another payload."""
        self._bytes += len(payload) - len(held.payload)
        held.payload = payload

    def release(self, *messages: Held) -> None:
        """Keep messages no longer."""
        kept = self._held
        for held in messages:
            if kept.get(held.sequence) is held:
                del kept[held.sequence]
                self._bytes -= len(held.payload)
