"""A store that forgets everything with the process: for tests, notebooks and brokers without a directory."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from pairbus.broker.store.base import (
    EntityRow,
    IndexRow,
    Journal,
    Row,
    RowState,
    StoreError,
    entity_of,
    sequence_of,
)
from pairbus.broker.store.callbacks import call_back
from pairbus.broker.store.timing import CommitTimes


class MemoryStore:
    """Keeps what it is given in dictionaries.

    :param notify: runs a function on the owner's thread, later. Callbacks come that way, as from a store that has to
        wait for a disk.
    """

    def __init__(self, notify: Callable[[Callable[[], None]], object]) -> None:
        self.journal = Journal()
        self.commits = CommitTimes()
        self._notify = notify
        self._closed = False
        self._taken: deque[Journal] = deque()
        self._entities: dict[int, EntityRow] = {}
        self._next: dict[int, int] = {}
        """By entity: the sequence number after that of its last message."""
        self._rows: dict[int, dict[int, Row]] = {}
        self._session_states: dict[int, dict[str, bytes]] = {}
        self._seen: dict[int, dict[str, int]] = {}

    def entities(self) -> Sequence[EntityRow]:
        """Return all entities."""
        self._refuse_if_closed()
        return [row._replace(next_sequence=self._next[entity]) for entity, row in sorted(self._entities.items())]

    def index(self, entity: int) -> Iterator[IndexRow]:
        """Return what is stored of an entity's messages, in the order of their sequence numbers."""
        self._refuse_if_closed()
        rows = self._rows.get(entity, {})
        return (
            IndexRow(row.key, row.state, row.expires, row.due, row.session, len(row.payload))
            for row in (rows[key] for key in sorted(rows))
        )

    def load(self, keys: Sequence[int]) -> list[Row]:
        """Return stored messages in the order of the keys; those that are gone are left out."""
        self._refuse_if_closed()
        found = (self._rows.get(entity_of(key), {}).get(key) for key in keys)
        return [row for row in found if row is not None]

    def browse(self, entity: int, first: int, most: int) -> list[Row]:
        """Return the stored messages of an entity from a sequence number on, in order."""
        self._refuse_if_closed()
        rows = self._rows.get(entity, {})
        return [rows[key] for key in heapq.nsmallest(most, (key for key in rows if sequence_of(key) >= first))]

    def expired(self, entity: int, now: int, most: int) -> list[Row]:
        """Return stored messages of an entity that expire by ``now`` and are not scheduled, the earliest first."""
        return [row for at, row in self._timed(entity, _expiry)[:most] if at <= now]

    def due(self, entity: int, now: int, most: int) -> list[Row]:
        """Return scheduled messages of an entity that are due by ``now``, the earliest first."""
        return [row for at, row in self._timed(entity, _due)[:most] if at <= now]

    def next_expiry(self, entity: int) -> int | None:
        """Return when the first message of an entity that is not scheduled expires."""
        return next((at for at, _ in self._timed(entity, _expiry)), None)

    def next_due(self, entity: int) -> int | None:
        """Return when the first scheduled message of an entity is due."""
        return next((at for at, _ in self._timed(entity, _due)), None)

    def _timed(self, entity: int, time_of: Callable[[Row], int | None]) -> list[tuple[int, Row]]:
        self._refuse_if_closed()
        times = ((time_of(row), row) for row in self._rows.get(entity, {}).values())
        return sorted((at, row) for at, row in times if at is not None)

    def session_states(self, entity: int) -> Iterable[tuple[str, bytes]]:
        """Return the stored session states of an entity."""
        self._refuse_if_closed()
        return sorted(self._session_states.get(entity, {}).items())

    def seen(self, entity: int, now: int) -> Iterable[tuple[str, int]]:
        """Return the message ids that an entity still remembers, and until when."""
        self._refuse_if_closed()
        return [(name, until) for name, until in self._seen.get(entity, {}).items() if until > now]

    def flush(self) -> None:
        """Take what has gathered, and call back by way of ``notify``."""
        self._refuse_if_closed()
        if not self.journal.is_empty():
            self._take()
            self._notify(self._settle)

    def close(self) -> None:
        """Take what has gathered, call back, and end."""
        while not self._closed and (self._taken or not self.journal.is_empty()):
            self._take()
            self._settle()
        self._closed = True

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError("the store in memory is closed")

    def _take(self) -> None:
        journal, self.journal = self.journal, Journal()
        self._carry_out(journal)
        self._taken.append(journal)

    def _settle(self) -> None:
        while self._taken:
            call_back(self._taken.popleft(), None)

    def _carry_out(self, journal: Journal) -> None:
        for entity in journal.entities:
            self._entities[entity.id] = entity
            self._next[entity.id] = max(entity.next_sequence, self._next.get(entity.id, 0))
        for row in journal.rows:
            self._put(row)
        for row, body in journal.copies:
            self._put(row)
            self._raise_sequence(body)
        for key, state in journal.states:
            self._change(key, state=state)
        for key, deliveries in journal.deliveries:
            self._change(key, deliveries=deliveries)
        for key in journal.removed:
            self._rows.get(entity_of(key), {}).pop(key, None)
        self._carry_out_the_rest(journal)

    def _carry_out_the_rest(self, journal: Journal) -> None:
        for entity, session, state in journal.session_states:
            if state is None:
                self._session_states.get(entity, {}).pop(session, None)
            else:
                self._session_states.setdefault(entity, {})[session] = state
        for entity, name, until in journal.seen:
            names = self._seen.setdefault(entity, {})
            names[name] = max(until, names.get(name, until))
        for entity, time in journal.forgotten:
            self._seen[entity] = {name: until for name, until in self._seen.get(entity, {}).items() if until > time}
        for entity in journal.dropped:
            self._entities.pop(entity, None)
            self._next.pop(entity, None)
            self._rows.pop(entity, None)
            self._session_states.pop(entity, None)
            self._seen.pop(entity, None)

    def _put(self, row: Row) -> None:
        self._rows.setdefault(entity_of(row.key), {})[row.key] = row
        self._raise_sequence(row.key)

    def _raise_sequence(self, key: int) -> None:
        entity = entity_of(key)
        known = self._next.get(entity)
        if known is not None and sequence_of(key) >= known:
            self._next[entity] = sequence_of(key) + 1

    def _change(self, key: int, **values: int) -> None:
        rows = self._rows.get(entity_of(key), {})
        if key in rows:
            rows[key] = rows[key]._replace(**values)


def _expiry(row: Row) -> int | None:
    return None if row.state == RowState.SCHEDULED else row.expires


def _due(row: Row) -> int | None:
    return row.due if row.state == RowState.SCHEDULED else None
