"""The entities of a namespace as they are stored: new ones, changed ones, and what the store has refused."""

from collections.abc import Callable

from pairbus.broker.refusals import Answer, store_failed
from pairbus.broker.store.base import EntityKind, EntityRow, Store, StoreError


class EntityRecords:
    """Journals the rows of entities.

    :param clock: tells the time, in milliseconds since the epoch.
    """

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self.store = store
        self.clock = clock
        self._last_id = 0
        self._described: dict[int, EntityRow] = {}
        """By id: entities whose description was changed, with the last one that the store has accepted."""

    def recall(self) -> dict[str, EntityRow]:
        """Return the entities that are stored, by their paths in lower case."""
        rows = {row.path.lower(): row for row in self.store.entities()}
        self._last_id = max((row.id for row in rows.values()), default=0)
        return rows

    def make(self, path: str, description: str, kind: EntityKind) -> EntityRow:
        """Return a new entity, which is not journalled."""
        self._last_id += 1
        now = self.clock()
        return EntityRow(self._last_id, path, description, 1, kind, now, now)

    def add(self, path: str, description: str, kind: EntityKind) -> EntityRow:
        """Return a new entity, and journal it."""
        row = self.make(path, description, kind)
        self.store.journal.entities.append(row)
        return row

    def change(self, row: EntityRow, description: str) -> EntityRow:
        """Return an entity with another description, and journal it."""
        self._described.setdefault(row.id, row)
        changed = row._replace(description=description, updated=self.clock())

        def durable(error: StoreError | None) -> None:
            if error is None and changed.id in self._described:
                self._described[changed.id] = changed

        self.store.journal.entities.append(changed)
        self.store.journal.durable.append(durable)
        return changed

    def is_changed(self, row: EntityRow) -> bool:
        """Tell whether an entity's description was changed since the broker started."""
        return row.id in self._described

    def stored(self, row: EntityRow) -> EntityRow:
        """Return an entity with the description that the store has, which has refused another one.

        It is journalled: what was noted of the entity meanwhile is on its way with the description that was refused.
        """
        stored = self._described[row.id]
        row = row._replace(description=stored.description, updated=stored.updated)
        self.store.journal.entities.append(row)
        return row

    def drop(self, *ids: int) -> None:
        """Journal that entities are gone, with all they had."""
        self.store.journal.dropped.extend(ids)
        for number in ids:
            self._described.pop(number, None)

    def when_durable(self, path: str, answer: Answer, undo: Callable[[], None] | None = None) -> None:
        """Answer once what was journalled is durable.

        :param undo: takes back what was done in memory, if the store has refused it.
        """

        def durable(error: StoreError | None) -> None:
            try:
                if error is not None and undo is not None:
                    undo()
            finally:
                answer(None if error is None else store_failed(path))

        self.store.journal.durable.append(durable)
