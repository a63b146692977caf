"""A queue with its dead-letter queue on a store in memory that can refuse, and a clock that is moved by hand."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pairbus.amqp.message import Message, build_message, encode_data_section
from pairbus.amqp.performatives import Map
from pairbus.broker.entities.message import Held, Incoming
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.refusals import RefusedError
from pairbus.broker.store.base import EntityRow, Journal, Row, RowState, StoreFullError, sequence_of
from pairbus.broker.store.callbacks import call_back
from pairbus.broker.store.memory import MemoryStore

START = 1_700_000_000_000
LOCK = 60_000
QUEUE, DEAD = 1, 2


class RefusingStore(MemoryStore):
    """Loses what it is given as long as it is full, and says so, as a store on a disk does."""

    def __init__(self, notify: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(notify)
        self.full = False

    def flush(self) -> None:
        if self.journal.is_empty():
            return
        journal, self.journal = self.journal, Journal()
        if not self.full:
            self._carry_out(journal)
        error = StoreFullError("no room") if self.full else None
        self._notify(lambda: call_back(journal, error))

    def rows(self, entity: int = QUEUE) -> list[Row]:
        return self.browse(entity, 0, 1_000_000)


def payload(name: str, **sections: Any) -> bytes:  # noqa: ANN401
    return build_message(encode_data_section(name.encode()), **sections)


def message(name: str, **facts: Any) -> Incoming:  # noqa: ANN401
    return Incoming(payload(name), **facts)


def name_of(held: Held | Row) -> str:
    return Message(held.payload).data_sections()[0].decode()


def names(messages: Sequence[Held]) -> list[str]:
    return [name_of(held) for held in messages]


def properties_of(held: Held | Row) -> Map:
    return Message(held.payload).application_properties()


class World:
    """All that a test needs; every step is committed unless it says otherwise."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        self.now = START
        self.settings = QueueSettings(**settings)
        self.inbox: deque[Callable[[], None]] = deque()
        self.store = RefusingStore(self.inbox.append)
        self.answers: list[RefusedError | None] = []
        self.announced: list[str | None] = []
        self._tokens = count(1)
        rows = (EntityRow(QUEUE, "orders", "{}", 1), EntityRow(DEAD, "orders/$DeadLetterQueue", "{}", 1))
        self.store.journal.entities.extend(rows)
        self.commit()
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not durable."""
        self.inbox.clear()
        self.store.journal = Journal()
        row, dead_row = self.store.entities()
        self.queue = Queue(row, self.settings, self.store, self._token)
        self.dead = self.queue.dead = Queue(dead_row, QueueSettings(), self.store, self._token)
        self.queue.on_available = self.announced.append
        self.sessions = Sessions(self.queue, self.store.session_states(QUEUE))

    def _token(self) -> bytes:
        return next(self._tokens).to_bytes(16)

    def answer(self, refused: RefusedError | None) -> None:
        self.answers.append(refused)

    def commit(self, *, full: bool = False) -> None:
        """Carry out what has gathered, or lose it, and tell those who wait."""
        self.store.full = full
        self.store.flush()
        self.store.full = False
        while self.inbox:
            self.inbox.popleft()()

    def send(self, *these: str | Incoming, full: bool = False, **facts: Any) -> list[int]:  # noqa: ANN401
        messages = [message(each, **facts) if isinstance(each, str) else each for each in these]
        numbers = self.queue.send(messages, self.now, self.answer)
        self.commit(full=full)
        return numbers

    def take(self, most: int = 100, session: str | None = None, queue: Queue | None = None) -> list[Held]:
        taken = (queue or self.queue).take(most, self.now, session=session)
        self.commit()
        return taken

    def take_one(self, session: str | None = None, queue: Queue | None = None) -> Held:
        (held,) = self.take(1, session, queue)
        return held

    def settle(self, how: str, held: Held, *, full: bool = False, queue: Queue | None = None, **facts: Any) -> None:  # noqa: ANN401
        assert held.token is not None
        getattr(queue or self.queue, how)(held.token, self.now, self.answer, **facts)
        self.commit(full=full)

    def tick(self, passed: int = 0, *, full: bool = False) -> None:
        self.now += passed
        self.queue.tick(self.now)
        self.commit(full=full)

    def configure(self, **settings: Any) -> None:  # noqa: ANN401
        self.queue.change_settings(replace(self.queue.settings, **settings))

    def stored(self, entity: int = QUEUE) -> list[tuple[str, RowState]]:
        return [(name_of(row), RowState(row.state)) for row in self.store.rows(entity)]

    def is_balanced(self) -> bool:
        """Tell whether the counts are those of the store, once all is durable."""
        for queue in (self.queue, self.dead):
            rows = self.store.rows(queue.id)
            states = [row.state for row in rows]
            deferred = [sequence_of(row.key) for row in rows if row.state == RowState.DEFERRED]
            locked = {held.sequence for held in queue.locks if held.state == RowState.DEFERRED}
            if (
                queue.size != sum(len(row.payload) for row in rows)
                or queue.scheduled_count != states.count(RowState.SCHEDULED)
                or queue.deferred != set(deferred) - locked
                or queue.active_count != states.count(RowState.ACTIVE) + len(locked)
            ):
                return False
        return True


@pytest.fixture
def world() -> World:
    return World()
