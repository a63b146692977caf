"""The queues of a namespace, as they are made, changed and deleted."""

from collections.abc import Iterator

from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.namespace.node import DEAD_LETTER, DEAD_LETTER_PATH, TRANSFER_DEAD_LETTER, QueueNode, dead_settings
from pairbus.broker.namespace.registry import Registry
from pairbus.broker.refusals import Answer, no_answer, not_found
from pairbus.broker.store.base import EntityKind, EntityRow
from pairbus.errors import OptionError


class Queues:
    """The queues of one namespace, without those of subscriptions and without dead-letter queues."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._records = registry.records

    def recall(self, rows: dict[str, EntityRow]) -> None:
        """Serve the queues that are stored, by their paths in lower case."""
        for path, row in rows.items():
            if row.kind == EntityKind.QUEUE and not path.endswith(DEAD_LETTER) and path + DEAD_LETTER in rows:
                settings = QueueSettings.from_json(row.description)
                dead, transfer_dead = rows[path + DEAD_LETTER], rows.get(path + TRANSFER_DEAD_LETTER)
                self._registry.open_queue(row, settings, dead, transfer_dead)

    def __iter__(self) -> Iterator[QueueNode]:
        """Return the queues by name."""
        queues = [node for node in self._registry if node.is_queue]
        return iter(sorted(queues, key=lambda node: node.queue.path.lower()))

    def find(self, path: str) -> QueueNode | None:
        """Return a queue; None: there is none."""
        node = self._registry.find(path)
        return node if node is not None and node.is_queue else None

    def get(self, path: str) -> QueueNode:
        """Return a queue, or refuse."""
        node = self.find(path)
        if node is None:
            raise not_found(path)
        return node

    def create(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Make a queue, with its dead-letter queue; it gets a transfer dead-letter queue when it needs one."""
        self._registry.check_path("queue", path)
        row = self._records.add(path, settings.to_json(), EntityKind.QUEUE)
        dead_row = self._records.add(path + DEAD_LETTER_PATH, dead_settings(settings).to_json(), EntityKind.QUEUE)
        node = self._registry.open_queue(row, settings, dead_row)
        self._records.when_durable(path, answer, lambda: self._registry.close_queue(node, is_stored=False))

    def update(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Give a queue other settings; consumers that may not receive any more are detached."""
        node = self.get(path)
        for name in ("requires_session", "requires_duplicate_detection"):
            if getattr(settings, name) != getattr(node.queue.settings, name):
                raise OptionError(name, getattr(settings, name), "what it was when the queue was made")
        self._registry.change_queue(node, settings.to_json(), settings)

        def undo() -> None:
            if node.queue.settings is settings and not node.queue.is_deleted:  # else it has changed again, or is gone
                self._registry.take_back_change(node)
                self._registry.set_settings(node, QueueSettings.from_json(node.row.description))

        self._records.when_durable(path, answer, undo)

    def delete(self, path: str, answer: Answer) -> None:
        """Delete a queue with its dead-letter queues and all their messages."""
        self._registry.close_queue(self.get(path))
        self._records.when_durable(path, answer)

    def tick(self, now: int) -> None:
        """Do what is due in all queues, those of subscriptions too, and delete queues that are idle for too long."""
        registry = self._registry
        for node in registry.in_use():
            node.queue.tick(now)
            node.consumers.tick(now)
            if node.forward_to is not None:
                registry.forward(node)
            registry.note_access(node)
            registry.let_rest(node)
            idle = node.queue.settings.auto_delete_on_idle
            if idle is None or node.row.kind != EntityKind.QUEUE or node.queue.is_deleted:
                continue
            if now - registry.last_use(node, now) >= idle:
                self.delete(node.queue.path, no_answer)
