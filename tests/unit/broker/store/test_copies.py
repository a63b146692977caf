"""Copies of one message in many subscriptions: one stored body, for as long as some copy is there."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.broker.store.conftest import Owner, entity, row

from pairbus.broker.store import writing
from pairbus.broker.store.base import EntityKind, EntityRow, Row, Store, StoreError, entity_of, key_of
from pairbus.broker.store.memory import MemoryStore
from pairbus.broker.store.queries import MIGRATIONS
from pairbus.broker.store.sqlite import SqliteStore

TOPIC = 1
SUBSCRIPTIONS = (2, 3, 4)


def subscription(number: int) -> EntityRow:
    return EntityRow(number, f"topic/Subscriptions/{number}", "{}", 1, EntityKind.SUBSCRIPTION, 5, 6, 7)


def topic() -> EntityRow:
    return EntityRow(TOPIC, "topic", "{}", 1, EntityKind.TOPIC)


def bodies(path: Path) -> dict[int, bytes]:
    with closing(sqlite3.connect(path)) as plain:
        return dict(plain.execute("SELECT key, body FROM payload"))


def publish(store: Store, number: int, *to: int, payload: bytes = b"body") -> list[int]:
    """Write copies of a message of the topic to subscriptions, and return their keys."""
    rows = [row(number, each, payload) for each in to]
    store.journal.copies += [(each, key_of(TOPIC, number)) for each in rows]
    return [each.key for each in rows]


@pytest.fixture
def with_topic(store: Store, owner: Owner) -> Store:
    store.journal.entities += [topic(), *map(subscription, SUBSCRIPTIONS)]
    assert owner.settle(store) is None
    return store


def test_copies_are_messages_like_others(with_topic: Store, owner: Owner) -> None:
    keys = publish(with_topic, 7, 2, 3, payload=b"shared")
    assert owner.settle(with_topic) is None
    assert with_topic.load(keys) == [row(7, 2, b"shared"), row(7, 3, b"shared")]
    assert with_topic.browse(2, 0, 10) == [row(7, 2, b"shared")]
    assert [found.size for found in with_topic.index(3)] == [6]
    assert [each.next_sequence for each in with_topic.entities()] == [8, 8, 8, 1]


def test_a_copy_goes_without_the_others(with_topic: Store, owner: Owner) -> None:
    first, second = publish(with_topic, 1, 2, 3)
    owner.settle(with_topic)
    with_topic.journal.removed.append(first)
    owner.settle(with_topic)
    assert with_topic.load([first, second]) == [row(1, 3, b"body")]


def test_a_copy_that_is_changed_gets_a_body_of_its_own(with_topic: Store, owner: Owner) -> None:
    keys = publish(with_topic, 1, 2, 3)
    owner.settle(with_topic)
    with_topic.journal.rows.append(row(1, 2, b"other"))
    owner.settle(with_topic)
    assert [each.payload for each in with_topic.load(keys)] == [b"other", b"body"]


def test_in_memory_bytes_are_shared(owner: Owner) -> None:
    store = owner.memory()
    payload = b"x" * 1000
    keys = publish(store, 1, 2, 3, payload=payload)
    owner.settle(store)
    assert all(each.payload is payload for each in store.load(keys))


def test_one_body_is_stored_until_the_last_copy_is_gone(owner: Owner) -> None:
    store = owner.sqlite()
    store.journal.entities += [topic(), *map(subscription, SUBSCRIPTIONS)]
    keys = [publish(store, number, *SUBSCRIPTIONS) for number in range(1, 101)]
    owner.settle(store)
    assert list(bodies(owner.path)) == [key_of(TOPIC, number) for number in range(1, 101)]
    store.close()
    store = owner.sqlite()  # what was stored before is known after a restart
    store.journal.removed += [key for copies in keys for key in copies[:2]]
    owner.settle(store)
    assert len(bodies(owner.path)) == 100
    store.journal.removed += [copies[2] for copies in keys[:99]]
    owner.settle(store)
    assert list(bodies(owner.path)) == [key_of(TOPIC, 100)]


def test_what_is_gone_before_it_is_written_leaves_nothing(owner: Owner) -> None:
    store = owner.sqlite()
    store.journal.entities += [topic(), *map(subscription, SUBSCRIPTIONS)]
    store.journal.removed += publish(store, 1, *SUBSCRIPTIONS)
    left = publish(store, 2, *SUBSCRIPTIONS)
    store.journal.removed += left[1:]
    owner.settle(store)
    assert list(bodies(owner.path)) == [key_of(TOPIC, 2)]
    assert store.load(left) == [row(2, 2, b"body")]


def test_a_body_goes_when_the_last_copy_gets_one_of_its_own(owner: Owner) -> None:
    store = owner.sqlite()
    store.journal.entities += [topic(), *map(subscription, SUBSCRIPTIONS)]
    first, second = publish(store, 1, 2, 3)
    owner.settle(store)
    store.journal.rows += [row(1, 2, b"one"), row(1, 3, b"two")]
    owner.settle(store)
    assert bodies(owner.path) == {first: b"one", second: b"two"}
    store.journal.removed += [first, second]
    owner.settle(store)
    assert bodies(owner.path) == {}


def test_a_subscription_takes_what_is_its_own_with_it(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PURGED_AT_ONCE", 3)
    store = owner.sqlite()
    store.journal.entities += [topic(), *map(subscription, SUBSCRIPTIONS)]
    for number in range(1, 11):
        publish(store, number, 2, *([3] if number % 2 else []))
    store.journal.rows.append(row(50, 2, b"own"))
    owner.settle(store)
    store.journal.dropped.append(2)
    purge(store, owner)
    assert sorted(bodies(owner.path)) == [key_of(TOPIC, number) for number in range(1, 11, 2)]
    assert len(store.load([key_of(3, number) for number in range(1, 11)])) == 5
    store.journal.dropped += [TOPIC, 3]
    purge(store, owner)
    assert bodies(owner.path) == {}


def purge(store: Store, owner: Owner) -> None:
    """Commit until nothing is left of what was dropped: some of it is removed after each commit."""
    owner.settle(store)
    while in_file(owner.path, "SELECT count(*) FROM dropped"):
        owner.settle(store)


def in_file(path: Path, query: str) -> int:
    with closing(sqlite3.connect(path)) as plain:
        return int(plain.execute(query).fetchone()[0])


def test_a_store_from_before_topics_is_migrated(owner: Owner) -> None:
    script = (MIGRATIONS / "0001.sql").read_text(encoding="utf-8")
    owner.path.parent.mkdir()
    with closing(sqlite3.connect(owner.path)) as plain:
        plain.executescript(script)
        plain.execute("PRAGMA application_id = 0x50425553")
        plain.execute("PRAGMA user_version = 1")
        plain.execute("INSERT INTO entity VALUES (1, 'orders', '{}', 9)")
        plain.execute("INSERT INTO meta VALUES (?, 0, 1008, NULL, NULL, NULL, 0, 6)", (key_of(1, 8),))
        plain.execute("INSERT INTO payload VALUES (?, ?)", (key_of(1, 8), b"body 8"))
        plain.commit()
    store = owner.sqlite()
    assert store.entities() == [entity(next_sequence=9)]
    assert store.load([key_of(1, 8)]) == [row(8)]
    store.journal.entities += [topic()._replace(id=2), subscription(3)]
    store.journal.copies.append((row(1, 3, b"shared"), key_of(2, 1)))
    store.journal.removed.append(key_of(1, 8))
    assert owner.settle(store) is None
    assert bodies(owner.path) == {key_of(2, 1): b"shared"}


# --- against a model -------------------------------------------------------------------------------------------------

some = st.sets(st.sampled_from(SUBSCRIPTIONS), min_size=1)


class Copies(RuleBasedStateMachine):
    """The model is a dictionary of messages; of the file it is known which bodies it must have."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.rows: dict[int, Row] = {}
        self.body: dict[int, int] = {}
        """Where the payload of each message is."""
        self.last = 0
        self.open()
        self.store.journal.entities += [topic(), *map(subscription, SUBSCRIPTIONS)]
        self.wait()

    def open(self) -> None:
        self.store: Store = MemoryStore(self.inbox.put)

    def wait(self) -> None:
        outcome: list[StoreError | None] = []
        self.store.journal.durable.append(outcome.append)
        self.store.flush()
        while not outcome:
            self.inbox.get(timeout=30)()
        assert outcome == [None]

    @rule(to=some, payload=st.binary(max_size=20), gone=st.sets(st.sampled_from(SUBSCRIPTIONS)))
    def publish(self, to: set[int], payload: bytes, gone: set[int]) -> None:
        self.last += 1
        keys = publish(self.store, self.last, *sorted(to), payload=payload)
        self.store.journal.removed += [key for key in keys if entity_of(key) in gone]
        for key in keys:
            if entity_of(key) not in gone:
                self.rows[key] = row(self.last, entity_of(key), payload)
                self.body[key] = key_of(TOPIC, self.last)
        self.wait()

    @rule(choice=st.randoms(use_true_random=False), payload=st.binary(max_size=20))
    def change(self, choice: Random, payload: bytes) -> None:
        for key in self.choose(choice):
            self.rows[key] = self.rows[key]._replace(payload=payload)
            self.body[key] = key
            self.store.journal.rows.append(self.rows[key])
        self.wait()

    @rule(choice=st.randoms(use_true_random=False))
    def remove(self, choice: Random) -> None:
        for key in self.choose(choice):
            self.store.journal.removed.append(key)
            del self.rows[key]
        self.wait()

    def choose(self, choice: Random) -> list[int]:
        known = sorted(self.rows)
        return choice.sample(known, choice.randint(0, len(known)))

    @rule(number=st.sampled_from(SUBSCRIPTIONS))
    def drop_and_make_anew(self, number: int) -> None:
        self.store.journal.dropped.append(number)
        self.wait()
        self.rows = {key: each for key, each in self.rows.items() if entity_of(key) != number}
        self.store.journal.entities.append(subscription(number))
        self.wait()

    @invariant()
    def is_like_the_model(self) -> None:
        for number in SUBSCRIPTIONS:
            mine = [self.rows[key] for key in sorted(self.rows) if entity_of(key) == number]
            assert self.store.browse(number, 0, 1000) == mine

    def teardown(self) -> None:
        self.store.close()


class CopiesInFile(Copies):
    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "store.db"
        self.store = SqliteStore(self.path, self.inbox.put)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.path, self.inbox.put)

    @invariant()
    def has_each_body_once(self) -> None:
        assert set(bodies(self.path)) == {self.body[key] for key in self.rows}

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestCopies = Copies.TestCase
TestCopiesInFile = CopiesInFile.TestCase
TestCopies.settings = settings(max_examples=30, stateful_step_count=20)
TestCopiesInFile.settings = settings(max_examples=30, stateful_step_count=20)
