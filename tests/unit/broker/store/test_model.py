"""Each store against plain dictionaries, through flushes, closings and openings."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pairbus.broker.store.base import EntityRow, IndexRow, Row, Store, StoreError, entity_of, key_of, sequence_of
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.sqlite import SqliteStore

ids = st.integers(1, 3)
keys = st.builds(key_of, ids, st.integers(0, 40))
times = st.none() | st.integers(0, 2**62)
rows = st.builds(
    Row, keys, st.integers(0, 2), st.integers(0, 2**62), times, times, st.none() | st.text(max_size=3),
    st.integers(0, 2**31), st.binary(max_size=30) | st.just(b"x" * 20_000),
)  # fmt: skip


def twenty_from(key: int) -> list[int]:
    return list(range(key, key + 20))


class Comparison(RuleBasedStateMachine):
    """The model is written to when the store's journal is, and compared once all is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.entities: dict[int, EntityRow] = {}
        self.rows: dict[int, Row] = {}
        self.states: dict[tuple[int, str], bytes] = {}
        self.settled = True
        self.store = self.open()

    def open(self) -> Store:
        raise NotImplementedError  # each kind of store has its own below

    def wait(self) -> None:
        outcome: list[StoreError | None] = []
        self.store.journal.durable.append(outcome.append)
        self.store.flush()
        while not outcome:
            self.inbox.get(timeout=30)()
        assert outcome == [None]
        self.settled = True

    # A journal is carried out field by field, so what must come in order is flushed in between.

    @rule(number=ids, path=st.text(max_size=5), next_sequence=st.integers(0, 50))
    def describe(self, number: int, path: str, next_sequence: int) -> None:
        self.wait()
        known = self.entities.get(number)
        at_least = known.next_sequence if known else 0
        self.store.journal.entities.append(EntityRow(number, path, "{}", next_sequence))
        self.entities[number] = EntityRow(number, path, "{}", max(next_sequence, at_least))
        self.settled = False

    @rule(new=st.lists(rows, max_size=120))
    def put(self, new: list[Row]) -> None:
        self.wait()
        self.store.journal.rows += new
        for row in new:
            self.rows[row.key] = row
            if known := self.entities.get(entity_of(row.key)):
                ahead = max(known.next_sequence, sequence_of(row.key) + 1)
                self.entities[known.id] = known._replace(next_sequence=ahead)
        self.settled = False

    @rule(changes=st.lists(st.tuples(keys, st.integers(0, 2)), max_size=60))
    def change(self, changes: list[tuple[int, int]]) -> None:
        self.store.journal.states += changes
        self.store.journal.deliveries += [(key, value + 1) for key, value in changes]
        self.wait()
        for key, value in changes:
            if key in self.rows:
                self.rows[key] = self.rows[key]._replace(state=value, deliveries=value + 1)

    @rule(gone=st.lists(keys, max_size=60) | st.builds(twenty_from, keys))
    def remove(self, gone: list[int]) -> None:
        self.store.journal.removed += gone
        for key in gone:
            self.rows.pop(key, None)
        self.settled = False

    @rule(number=ids, session=st.text(max_size=2), state=st.none() | st.binary(max_size=5))
    def set_session_state(self, number: int, session: str, state: bytes | None) -> None:
        self.store.journal.session_states.append((number, session, state))
        if state is None:
            self.states.pop((number, session), None)
        else:
            self.states[number, session] = state
        self.settled = False

    @rule(number=ids)
    def drop(self, number: int) -> None:
        self.store.journal.dropped.append(number)
        self.wait()
        self.entities.pop(number, None)
        self.rows = {key: row for key, row in self.rows.items() if entity_of(key) != number}
        self.states = {place: state for place, state in self.states.items() if place[0] != number}

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def settle(self) -> None:
        self.wait()

    @invariant()
    def is_like_the_model(self) -> None:
        if not self.settled:
            return
        assert list(self.store.entities()) == [self.entities[number] for number in sorted(self.entities)]
        for number in (1, 2, 3):
            mine = [self.rows[key] for key in sorted(self.rows) if entity_of(key) == number]
            assert list(self.store.index(number)) == [
                IndexRow(row.key, row.state, row.expires, row.due, row.session, len(row.payload)) for row in mine
            ]
            assert self.store.load([row.key for row in mine]) == mine
            states = sorted((place[1], state) for place, state in self.states.items() if place[0] == number)
            assert sorted(self.store.session_states(number)) == states

    def teardown(self) -> None:
        self.store.close()


class Memory(Comparison):
    def open(self) -> Store:
        return MemoryStore(self.inbox.put)


class Sqlite(Comparison):
    def open(self) -> Store:
        self.directory = tempfile.TemporaryDirectory()
        return SqliteStore(Path(self.directory.name) / "store.db", self.inbox.put)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(Path(self.directory.name) / "store.db", self.inbox.put)
        self.settled = True

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestMemory = Memory.TestCase
TestSqlite = Sqlite.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=25)
TestSqlite.settings = settings(max_examples=40, stateful_step_count=25)
