"""A namespace: its entities by their paths, and the time they live in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import MAX_PATH, QueueSettings
from pairbus.broker.metering import Meter
from pairbus.broker.nodes.consumers import Consumers
from pairbus.broker.refusals import Answer, RefusedError, disabled, not_found, store_failed
from pairbus.broker.store.base import EntityRow, Store, StoreError
from pairbus.errors import OptionError

DEAD_LETTER = "/$deadletterqueue"
DEAD_LETTER_PATH = "/$DeadLetterQueue"
MAX_HOPS = 4
"""How often a message is forwarded, at most."""


@dataclass(slots=True)
class QueueNode:
    """A queue with those who wait for its messages, and its sessions if it has any.

    :ivar forward_to: the path of the queue to which all its messages go; None: they stay.
    """

    queue: Queue
    consumers: Consumers
    sessions: Sessions | None
    forward_to: str | None = None


class Namespace:
    """One namespace on one store.

    :param clock: tells the time, in milliseconds since the epoch.
    :param tokens: makes lock tokens, 16 random bytes each.
    """

    def __init__(self, name: str, store: Store, *, clock: Callable[[], int], tokens: Callable[[], bytes]) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self.meter = Meter(name, clock)
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
            each.used_at = self.clock()
            sessions = None
            if each.settings.requires_session:
                sessions = Sessions(each, self.store.session_states(each.id))
            self._nodes[each.path.lower()] = QueueNode(each, Consumers(each, sessions, self.clock), sessions)
        self._direct(queue)

    def create_queue(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Make a queue, with its dead-letter queue."""
        if not path or len(path) > MAX_PATH or path.strip("/") != path or "//" in path:
            raise OptionError("queue", path, f"a path of 1 to {MAX_PATH} characters, without a slash at its ends")
        if path.lower() in self._nodes:
            raise OptionError("queue", path, "there is a queue of this name already")
        dead = _dead_settings(settings)
        row = EntityRow(self._last_id + 1, path, settings.to_json(), 1)
        dead_row = EntityRow(self._last_id + 2, path + DEAD_LETTER_PATH, dead.to_json(), 1)
        self._last_id += 2
        self.store.journal.entities.extend((row, dead_row))
        self._when_durable(path, answer)
        self._open(row, dead_row)

    def update_queue(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Give a queue other settings; those who may not receive any more are sent away."""
        queue, dead = self._own(path)
        for name in ("requires_session", "requires_duplicate_detection"):
            if getattr(settings, name) != getattr(queue.settings, name):
                raise OptionError(name, getattr(settings, name), "what it was when the queue was made")
        queue.change_settings(settings)
        dead.change_settings(_dead_settings(settings))
        queue.used_at = self.clock()
        self.store.journal.entities.extend((queue.entity_row(), dead.entity_row()))
        self._when_durable(path, answer)
        self._direct(queue)
        node = self.get(path)
        if settings.status.gives_messages:
            node.consumers.serve()
        else:
            node.consumers.send_away(disabled(queue.path))

    def delete_queue(self, path: str, answer: Answer) -> None:
        """Delete a queue with its dead-letter queue and all their messages."""
        for queue in self._own(path):
            queue.is_deleted = True
            self._nodes.pop(queue.path.lower()).consumers.send_away(not_found(queue.path))
            self.store.journal.dropped.append(queue.id)
        self._when_durable(path, answer)

    def _own(self, path: str) -> tuple[Queue, Queue]:
        """Return a queue and its dead-letter queue, which is not one by itself."""
        queue = self.get(path).queue
        if queue.dead is None:
            raise not_found(path)
        return queue, queue.dead

    def _when_durable(self, path: str, answer: Answer) -> None:
        def durable(error: StoreError | None) -> None:
            answer(None if error is None else store_failed(path, error))

        self.store.journal.durable.append(durable)

    # --- forwarding ----------------------------------------------------------------------------------------------

    def _direct(self, queue: Queue) -> None:
        """Have messages go to those who wait, or to where they are forwarded."""
        targets = [(queue, queue.settings.forward_to)]
        if queue.dead is not None:
            targets.append((queue.dead, queue.settings.forward_dead_lettered_messages_to))
        for each, forward_to in targets:
            node = self._nodes[each.path.lower()]
            node.forward_to = forward_to
            each.on_available = node.consumers.message_came if forward_to is None else partial(self._forward, node)

    def _forward(self, node: QueueNode, _session: str | None = None) -> None:
        target = self.find(node.forward_to or "")
        if target is not None and self._ends_somewhere(node):
            node.queue.forward(target.queue, self.clock())

    def _ends_somewhere(self, node: QueueNode) -> bool:
        """Tell whether messages come to rest after as many hops as the cloud allows, and not go round for ever."""
        at: QueueNode | None = node
        for _ in range(MAX_HOPS + 1):
            if at is None or at.forward_to is None:
                return True
            at = self.find(at.forward_to)
        return False

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
        self.meter.tick(now)
        for node in list(self._nodes.values()):
            node.queue.tick(now)
            node.consumers.tick(now)
            if node.forward_to is not None:
                self._forward(node)
            if self._is_idle(node.queue, now):
                self.delete_queue(node.queue.path, _nobody)

    def _is_idle(self, queue: Queue, now: int) -> bool:
        idle = queue.settings.auto_delete_on_idle
        if idle is None or queue.dead is None or queue.is_deleted:
            return False
        both = (queue, queue.dead)
        if any(len(self._nodes[each.path.lower()].consumers) for each in both) or queue.scheduled_count:
            queue.used_at = now
        return now - max(each.used_at for each in both) >= idle


def _dead_settings(settings: QueueSettings) -> QueueSettings:
    """Return the settings of a queue's dead-letter queue."""
    return QueueSettings(
        lock_duration=settings.lock_duration,
        max_delivery_count=2**31 - 1,
        max_size_in_megabytes=settings.max_size_in_megabytes,
        max_message_size_in_kilobytes=settings.max_message_size_in_kilobytes,
    )


def _nobody(_refused: RefusedError | None) -> None:
    """Nobody waits for the answer."""
