"""A namespace: its entities by their paths, and the time they live in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pairbus.broker.entities.queue import Answer, Queue
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import MAX_PATH, QueueSettings
from pairbus.broker.nodes.consumers import Consumers
from pairbus.broker.refusals import not_found
from pairbus.broker.store.base import EntityRow, Store
from pairbus.errors import OptionError

DEAD_LETTER = "/$deadletterqueue"
DEAD_LETTER_PATH = "/$DeadLetterQueue"


@dataclass(slots=True)
class QueueNode:
    """A queue with those who wait for its messages, and its sessions if it has any."""

    queue: Queue
    consumers: Consumers
    sessions: Sessions | None


class Namespace:
    """One namespace on one store.

    :param clock: tells the time, in milliseconds since the epoch.
    :param tokens: makes lock tokens, 16 random bytes each.
    """

    def __init__(self, name: str, store: Store, *, clock: Callable[[], int], tokens: Callable[[], bytes]) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self._tokens = tokens
        self._nodes: dict[str, QueueNode] = {}
        self._last_id = 0
        self._recall()

    def _recall(self) -> None:
        rows = {row.path.lower(): row for row in self.store.entities()}
        self._last_id = max((row.id for row in rows.values()), default=0)
        for path, row in rows.items():
            if not path.endswith(DEAD_LETTER):
                self._open(row, rows[path + DEAD_LETTER])

    def _open(self, row: EntityRow, dead_row: EntityRow) -> None:
        queue = Queue(row, QueueSettings.from_json(row.description), self.store, self._tokens)
        dead = Queue(dead_row, QueueSettings.from_json(dead_row.description), self.store, self._tokens)
        queue.dead = dead
        for each in (queue, dead):
            sessions = None
            if each.settings.requires_session:
                sessions = Sessions(each, self.store.session_states(each.id))
            self._nodes[each.path.lower()] = QueueNode(each, Consumers(each, sessions, self.clock), sessions)

    def create_queue(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Make a queue, with its dead-letter queue."""
        if not path or len(path) > MAX_PATH or path.strip("/") != path or "//" in path:
            raise OptionError("queue", path, f"a path of 1 to {MAX_PATH} characters, without a slash at its ends")
        if path.lower() in self._nodes:
            raise OptionError("queue", path, "there is a queue of this name already")
        dead = QueueSettings(
            lock_duration=settings.lock_duration,
            max_delivery_count=2**31 - 1,
            max_size_in_megabytes=settings.max_size_in_megabytes,
            max_message_size_in_kilobytes=settings.max_message_size_in_kilobytes,
        )
        row = EntityRow(self._last_id + 1, path, settings.to_json(), 1)
        dead_row = EntityRow(self._last_id + 2, path + DEAD_LETTER_PATH, dead.to_json(), 1)
        self._last_id += 2
        self.store.journal.entities.extend((row, dead_row))
        self.store.journal.durable.append(lambda _error: answer(None))
        self._open(row, dead_row)

    def find(self, path: str) -> QueueNode | None:
        """Return an entity by its path; names are compared case-insensitively."""
        return self._nodes.get(path.strip("/").lower())

    def get(self, path: str) -> QueueNode:
        """Return an entity by its path, or refuse."""
        node = self.find(path)
        if node is None:
            raise not_found(path)
        return node

    def __iter__(self) -> Iterator[QueueNode]:
        return iter(self._nodes.values())

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        times = [node.queue.wake_at for node in self._nodes.values()]
        times += [node.sessions.wake_at for node in self._nodes.values() if node.sessions is not None]
        times += [node.consumers.wake_at for node in self._nodes.values()]
        return min((time for time in times if time is not None), default=None)

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock()
        for node in self._nodes.values():
            node.queue.tick(now)
            node.consumers.tick(now)
