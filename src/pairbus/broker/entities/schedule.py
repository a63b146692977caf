"""Messages of a queue or a topic that are not due yet."""

from collections.abc import Callable, Sequence
from typing import Final

from pairbus.broker.refusals import message_not_found
from pairbus.broker.store.base import Row, RowState, Store, StoreError, key_of, sequence_of

AT_ONCE: Final = 256
"""Messages that are taken at a time."""
RETRY: Final = 1000
"""After how many milliseconds that is tried again which the store has refused."""


class Schedule:
    """Keeps account of scheduled messages, which lie in the store.

    :ivar count: how many there are; whoever recalls what is stored counts those.
    :ivar due_at: when some are due, at the earliest; None: there are none.
    :param leaving: the entity's messages that are removed as soon as the store has done so; until then it still shows
        them.
    :param resized: is told by how many bytes there is less now, and again more, if the store has refused.
    """

    def __init__(self, entity: int, store: Store, leaving: set[int], resized: Callable[[int], None]) -> None:
        self.count = 0
        self.due_at: int | None = store.next_due(entity)
        self._entity = entity
        self._store = store
        self._leaving = leaving
        self._resized = resized

    def arrive(self, row: Row) -> None:
        """Count a message that is stored now."""
        self.count += 1
        if row.due is not None:
            self.due_at = row.due if self.due_at is None else min(self.due_at, row.due)

    def take_due(self, now: int) -> list[Row]:
        """Remove messages that are due and return them; if the store refuses, they are due again later."""
        rows = [row for row in self._store.due(self._entity, now, AT_ONCE) if sequence_of(row.key) not in self._leaving]
        stored = self._store.next_due(self._entity)
        self.due_at = None if stored is None else max(stored, now + RETRY)  # what is overdue is going already
        if rows:
            self._drop(rows)
        return rows

    def cancel(self, numbers: Sequence[int]) -> None:
        """Remove messages by their sequence numbers; all must be there."""
        numbers = list(dict.fromkeys(numbers))
        wanted = [key_of(self._entity, number) for number in numbers if number not in self._leaving]
        rows = [row for row in self._store.load(wanted) if row.state == RowState.SCHEDULED]
        if len(rows) != len(numbers):
            raise message_not_found(numbers)
        self._drop(rows)

    def _drop(self, rows: Sequence[Row]) -> None:
        total = sum(len(row.payload) for row in rows)
        numbers = [sequence_of(row.key) for row in rows]
        self._resized(-total)
        self.count -= len(rows)
        self._leaving.update(numbers)
        self._store.journal.removed.extend(row.key for row in rows)

        def durable(error: StoreError | None) -> None:
            self._leaving.difference_update(numbers)
            if error is None:
                self.due_at = self._store.next_due(self._entity)
            else:
                self._resized(total)
                self.count += len(rows)

        self._store.journal.durable.append(durable)
