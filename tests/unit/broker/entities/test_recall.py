"""A queue on SQLite is after a restart what it was before, locks apart."""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from tests.unit.broker.entities.conftest import LOCK, START, message, names

from pairbus.broker.entities.message import Held
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.refusals import RefusedError
from pairbus.broker.store.base import EntityRow, StoreError
from pairbus.broker.store.sqlite import SqliteStore


class Broker:
    """A queue with its dead-letter queue on a file."""

    def __init__(self, file: Path, settings: QueueSettings) -> None:
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.store = SqliteStore(file, self.inbox.put)
        if not self.store.entities():
            self.store.journal.entities += [EntityRow(1, "q", "{}", 1), EntityRow(2, "q/dead", "{}", 1)]
            self.commit()
        row, dead = self.store.entities() or (EntityRow(1, "q", "{}", 1), EntityRow(2, "q/dead", "{}", 1))
        tokens = iter(range(1 << 20))
        self.queue = Queue(row, settings, self.store, lambda: next(tokens).to_bytes(16))
        self.dead = self.queue.dead = Queue(dead, QueueSettings(), self.store, lambda: next(tokens).to_bytes(16))
        self.sessions = Sessions(self.queue, self.store.session_states(1))

    def commit(self) -> None:
        outcome: list[StoreError | None] = []
        self.store.journal.durable.append(outcome.append)
        self.store.flush()
        while not outcome:
            self.inbox.get(timeout=30)()
        assert outcome == [None]

    def facts(self) -> tuple[object, ...]:
        queue = self.queue
        lines = {session: list(line.ahead(100)) for session, line in queue.contents.waiting.items()}
        return queue.size, queue.active_count, queue.scheduled_count, queue.deferred, lines, self.dead.size


def answered(refused: RefusedError | None) -> None:
    assert refused is None


def token_of(held: Held) -> bytes:
    assert held.token is not None
    return held.token


def test_indexes_counts_sizes_and_numbers_are_recalled(tmp_path: Path) -> None:
    settings = QueueSettings(requires_session=True, requires_duplicate_detection=True)
    broker = Broker(tmp_path / "store.db", settings)
    queue, now = broker.queue, START
    queue.send([message(name, session_id="s", message_id=name) for name in "abcdefg"], now, answered)
    queue.send([message("h", session_id="t", time_to_live=5000)], now, answered)
    queue.send([message("late", session_id="t", due=now + 9000)], now, answered)
    broker.commit()
    a, b, c, d = queue.take(4, now, session="s")
    queue.complete(token_of(a), now, answered)
    queue.defer(token_of(b), now, answered, {"why": "not yet"})
    queue.dead_letter(token_of(c), now, answered, reason="bad")
    queue.abandon(token_of(d), now, answered, {"tries": 1})
    broker.sessions.accept("s", broker, now)
    broker.sessions.set_state("s", b"half", now, answered)
    broker.commit()
    facts = broker.facts()
    broker.store.close()

    broker = Broker(tmp_path / "store.db", settings)
    queue = broker.queue
    assert broker.facts() == facts
    assert queue.wake_at == now + 5000
    assert broker.sessions.names(0, 9) == ["s", "t"]
    broker.sessions.accept("s", broker, now)
    assert broker.sessions.state("s", now) == b"half"
    taken = queue.take(9, now, session="s")
    assert (names(taken), taken[0].deliveries, taken[1].deliveries) == (["d", "e", "f", "g"], 2, 1)
    assert names(queue.take_deferred([2], now)) == ["b"]
    assert names(broker.dead.take(9, now)) == ["c"]
    assert queue.send([message("x", session_id="s", message_id="a")], now, answered) == [0]
    assert queue.send([message("y", session_id="s", message_id="y")], now, answered) == [10]
    broker.commit()
    broker.store.close()


def test_no_number_comes_twice_even_if_the_last_messages_are_gone(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        broker = Broker(tmp_path / "store.db", QueueSettings())
        (number,) = broker.queue.send([message("a", due=START + LOCK)], START, answered)
        assert number > last
        broker.commit()
        broker.queue.tick(START + LOCK)
        broker.commit()
        (held,) = broker.queue.take_away(1, START)
        last = held.sequence
        broker.commit()
        assert (broker.queue.size, broker.queue.active_count) == (0, 0)
        broker.store.close()
