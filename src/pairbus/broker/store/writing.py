"""Carrying out a journal on an open database.

Each statement that Python's sqlite3 runs gives up the interpreter's lock and waits to get it back, from a busy event
loop for milliseconds. So what is alike is written with few statements: many rows at once, ranges and lists of keys.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from time import time_ns
from zlib import crc32

from pairbus.broker.store.base import SEQUENCE_BITS, EntityKind, Journal, Row, entity_of, key_of, sequence_of
from pairbus.broker.store.checksums import content_crc, entity_sum, record_sum, state_sum
from pairbus.broker.store.commits import Commit
from pairbus.broker.store.queries import QUERIES, with_keys, with_rows

ROWS_AT_ONCE = 50
KEYS_AT_ONCE = 64
RANGE_FROM = 8
"""So many neighbours or more are a range; fewer go on a list with others."""
PURGED_AT_ONCE = 500
"""So many bodies of a dropped entity are removed between two commits; a million would hold up all for seconds."""
# Python's sqlite3 takes exact int, str and bytearray as they are, and looks for an adapter of every None, bytes and
# enum, which takes a quarter of the time. So there is none of these; the query makes NULL of what stands for None.
NO_TIME = ""
NO_SESSION = 0
_ALL = (1 << SEQUENCE_BITS) - 1


def range_of(entity: int) -> tuple[int, int]:
    """Return the first and last possible key of an entity."""
    return key_of(entity, 0), key_of(entity, _ALL)


def runs(keys: Iterable[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Split keys into ranges without gaps, first and last, and the keys that are too scattered for that."""
    ordered = sorted(set(keys))
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        return ([(ordered[0], ordered[-1])], []) if len(ordered) >= RANGE_FROM else ([], ordered)
    ranges: list[tuple[int, int]] = []
    scattered: list[int] = []
    start = 0
    for end in range(1, len(ordered) + 1):
        if end == len(ordered) or ordered[end] != ordered[end - 1] + 1:
            if end - start >= RANGE_FROM:
                ranges.append((ordered[start], ordered[end - 1]))
            else:
                scattered += ordered[start:end]
            start = end
    return ranges, scattered


def _chunks(keys: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[start : start + KEYS_AT_ONCE]


def _meta(row: Row, body_crc: int) -> tuple[object, ...]:
    key, state, enqueued, expires, due, session, deliveries, payload = row
    content = content_crc(session, body_crc)
    return (
        key,
        int(state),
        enqueued,
        NO_TIME if expires is None else expires,
        NO_TIME if due is None else due,
        NO_SESSION if session is None else session,
        deliveries,
        len(payload),
        content,
        record_sum(key, int(state), enqueued, expires, due, deliveries, len(payload), content),
    )


class JournalWriter:
    """Writes journals through one connection, each in a transaction.

    :ivar last: the last commit that is durable.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.last = Commit(*self._execute(QUERIES["last_commit"]).fetchone())
        self._last_seen: dict[int, int] = {}
        self._dropped = self._read_ids("dropped")
        self._subscriptions = self._read_ids("subscriptions")
        """Entities whose messages may have their bodies elsewhere; all others are spared looking for them."""
        self._may_purge = True

    def commit(self, journal: Journal) -> None:
        """Carry out a journal and make it durable, or leave everything as it was and raise."""
        last = self.last

        def carry_out_and_count() -> None:
            nonlocal last
            before = self._connection.total_changes
            self._carry_out(journal)
            if self._connection.total_changes != before:  # else there is nothing to flush to the disk, and so it stays
                last = Commit(last.store, last.number + 1, time_ns() // 1_000_000)
                self._execute(QUERIES["count_commit"], last[1:])

        self._transact(carry_out_and_count)
        self.last = last
        self._may_purge = True

    def has_to_purge(self) -> bool:
        """Tell whether there are bodies of dropped entities left, and nothing speaks against removing some now."""
        return self._may_purge and bool(self._dropped)

    def purge(self) -> None:
        """Remove some bodies of dropped entities. Nobody finds them any more; they only take room.

        If that fails, there is nothing to purge until a commit has succeeded again.
        """
        self._may_purge = False
        self._transact(lambda: self._purge(min(self._dropped), PURGED_AT_ONCE))
        self._may_purge = True

    def _transact(self, work: Callable[[], None]) -> None:
        self._execute("BEGIN IMMEDIATE")
        try:
            work()
            self._execute("COMMIT")
        except BaseException:
            # Some errors, such as a full disk, have ended the transaction already.
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            self._last_seen.clear()
            self._dropped = self._read_ids("dropped")
            self._subscriptions = self._read_ids("subscriptions")
            raise

    def _read_ids(self, query: str) -> set[int]:
        return {found for (found,) in self._execute(QUERIES[query])}

    def _carry_out(self, journal: Journal) -> None:
        for entity in journal.entities:
            if entity.id in self._dropped:
                self._purge(entity.id, None)
            checksum = entity_sum(entity.id, entity.next_sequence, entity.path, entity.kind, entity.description)
            self._execute(QUERIES["put_entity"], (*entity, checksum))
            if entity.kind == EntityKind.SUBSCRIPTION:
                self._subscriptions.add(entity.id)
        self._carry_out_messages(journal)
        for entity, session, state in journal.session_states:
            if state is None:
                self._execute(QUERIES["remove_session_state"], (entity, session))
            else:
                checksum = state_sum(entity, session.encode(), state)
                self._execute(QUERIES["put_session_state"], (entity, session, state, checksum))
        if journal.seen:
            self._put_seen(journal.seen)
        for entity, time in journal.forgotten:
            self._execute(QUERIES["forget_seen"], (*range_of(entity), time))
        for entity in journal.dropped:
            self._drop(entity)

    def _carry_out_messages(self, journal: Journal) -> None:
        gone = set(journal.removed)
        unnamed = self._bodies_to_be_replaced(journal.rows) if self._subscriptions else set[int]()
        if journal.rows:
            self._put_rows(journal.rows, gone)
            self._raise_sequences([row[0] for row in journal.rows])
        if journal.copies:
            self._put_copies(journal.copies, gone)
            self._raise_sequences([key for row, body in journal.copies for key in (row[0], body)])
        self._update("set_state", journal.states, gone)
        self._update("set_deliveries", journal.deliveries, gone)
        if gone and self._subscriptions:
            copies = {key for key in gone if entity_of(key) in self._subscriptions}
            gone -= copies
            unnamed |= self._remove_copies(copies)
        if gone:
            where = runs(gone)
            self._by_keys("remove_meta", where)
            self._by_keys("remove_payload", where)
        self._remove_bodies(unnamed)

    def _put_rows(self, rows: list[Row], gone: set[int]) -> None:
        # What is new and gone within one journal, a message that was received at once, is not written at all.
        kept = [row for row in rows if row[0] not in gone] if gone else rows
        for start in range(0, len(kept), ROWS_AT_ONCE):
            chunk = kept[start : start + ROWS_AT_ONCE]
            metas: list[object] = []
            bodies: list[object] = []
            for row in chunk:
                metas += _meta(row, crc32(row[7]))
                bodies += (row[0], bytearray(row[7]))
            self._execute(with_rows("put_meta", len(chunk)), metas)
            self._execute(with_rows("put_payload", len(chunk)), bodies)

    def _put_copies(self, copies: list[tuple[Row, int]], gone: set[int]) -> None:
        kept = [copy for copy in copies if copy[0][0] not in gone] if gone else copies
        bodies = {body: row[7] for row, body in kept}
        checksums = {body: crc32(payload) for body, payload in bodies.items()}
        for start in range(0, len(kept), ROWS_AT_ONCE):
            chunk = kept[start : start + ROWS_AT_ONCE]
            metas: list[object] = []
            for row, body in chunk:
                metas += (*_meta(row, checksums[body]), body)
            self._execute(with_rows("put_copy", len(chunk)), metas)
        payloads = list(bodies.items())
        for start in range(0, len(payloads), ROWS_AT_ONCE):
            some = payloads[start : start + ROWS_AT_ONCE]
            values = [value for key, payload in some for value in (key, bytearray(payload))]
            self._execute(with_rows("put_payload", len(some)), values)

    def _bodies_to_be_replaced(self, rows: list[Row]) -> set[int]:
        """Return the bodies elsewhere that messages name which get one of their own now."""
        changed = [row[0] for row in rows if entity_of(row[0]) in self._subscriptions]
        found: set[int] = set()
        for chunk in _chunks(changed):
            found.update(body for (body,) in self._execute(with_keys("body_keys", len(chunk)), chunk))
        return found

    def _remove_copies(self, keys: set[int]) -> set[int]:
        """Remove messages of subscriptions, with the bodies of their own, and return the others that they named."""
        ranges, scattered = runs(keys)
        removed: list[tuple[int, int | None]] = []
        for span in ranges:
            removed += self._execute(QUERIES["remove_copies_range"], span).fetchall()
        for chunk in _chunks(scattered):
            removed += self._execute(with_keys("remove_copies_keys", len(chunk)), chunk).fetchall()
        return self._remove_own_bodies(removed)

    def _remove_own_bodies(self, removed: list[tuple[int, int | None]]) -> set[int]:
        self._by_keys("remove_payload", runs([key for key, body in removed if body is None]))
        return {body for _, body in removed if body is not None}

    def _remove_bodies(self, keys: set[int]) -> None:
        for chunk in _chunks(sorted(keys)):
            self._execute(with_keys("remove_bodies_keys", len(chunk)), chunk)

    def _raise_sequences(self, keys: list[int]) -> None:
        highest = max(keys)
        if entity_of(min(keys)) == entity_of(highest):
            ends = {entity_of(highest): highest}
        else:
            ends = {entity_of(key): key for key in sorted(keys)}
        for entity, key in ends.items():
            self._execute(QUERIES["raise_sequence"], (sequence_of(key) + 1, entity))

    def _update(self, what: str, changes: list[tuple[int, int]], gone: set[int]) -> None:
        keys_by_value: dict[int, list[int]] = {}
        for key, value in dict(changes).items():
            if key not in gone:
                keys_by_value.setdefault(value, []).append(key)
        for value, keys in keys_by_value.items():
            self._by_keys(what, runs(keys), value)

    def _by_keys(self, what: str, where: tuple[list[tuple[int, int]], list[int]], *values: int) -> None:
        ranges, scattered = where
        for first, last in ranges:
            self._execute(QUERIES[f"{what}_range"], (*values, first, last))
        for chunk in _chunks(scattered):
            self._execute(with_keys(f"{what}_keys", len(chunk)), (*values, *chunk))

    def _put_seen(self, seen: list[tuple[int, str, int]]) -> None:
        for start in range(0, len(seen), ROWS_AT_ONCE):
            chunk = seen[start : start + ROWS_AT_ONCE]
            values: list[object] = []
            for entity, name, until in chunk:
                values += (self._next_seen(entity), until, name)
            self._execute(with_rows("put_seen", len(chunk)), values)

    def _next_seen(self, entity: int) -> int:
        last = self._last_seen.get(entity)
        if last is None:
            found = self._execute(QUERIES["last_seen"], range_of(entity)).fetchone()[0]
            last = key_of(entity, 0) if found is None else found
        self._last_seen[entity] = last + 1
        return last + 1

    def _drop(self, entity: int) -> None:
        every = range_of(entity)
        self._execute(QUERIES["drop_entity"], (entity,))
        if entity in self._subscriptions:
            self._subscriptions.discard(entity)  # its messages go with their bodies, which are not all its own
        else:
            self._execute(QUERIES["remove_meta_range"], every)
        self._execute(QUERIES["drop_session_states"], (entity,))
        self._execute(QUERIES["forget_seen"], (*every, (1 << 63) - 1))
        self._execute(QUERIES["put_dropped"], (entity,))
        self._dropped.add(entity)

    def _purge(self, entity: int, most: int | None) -> None:
        first, last = range_of(entity)
        limit = -1 if most is None else most
        copies = self._execute(QUERIES["remove_some_copies"], (first, last, limit)).fetchall()
        self._remove_bodies(self._remove_own_bodies(copies))
        if most is not None and len(copies) == most:
            return
        end = most and self._execute(QUERIES["body_after"], (first, last, most)).fetchone()
        if end:
            self._execute(QUERIES["remove_payload_range"], (first, end[0] - 1))
        else:
            self._execute(QUERIES["remove_payload_range"], (first, last))
            self._execute(QUERIES["remove_dropped"], (entity,))
            self._dropped.discard(entity)
