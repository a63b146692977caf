"""The entities that a namespace serves, by their paths: what can be received from, and what can be sent to."""

from collections.abc import Callable, Iterator
from functools import partial

from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import MAX_PATH, MINUTE, QueueSettings
from pairbus.broker.entities.topic import Topic
from pairbus.broker.namespace.node import (
    DEAD_LETTER,
    TRANSFER_DEAD_LETTER,
    TRANSFER_DEAD_LETTER_PATH,
    QueueNode,
    dead_settings,
    parts_of,
)
from pairbus.broker.namespace.records import EntityRecords
from pairbus.broker.nodes.consumers import Consumers
from pairbus.broker.refusals import EntityExistsError, disabled, not_found
from pairbus.broker.store.base import EntityKind, EntityRow, Journal, StoreError
from pairbus.errors import OptionError

ACCESS_NOTED = MINUTE
"""How far behind the stored time of the last use may be, in milliseconds."""


class Registry:
    """What one namespace serves. Paths are compared case-insensitively.

    :ivar forward: forwards the messages of a queue; :class:`~pairbus.broker.namespace.forwarding.Forwarding` sets it.
    :ivar version: another number whenever there is another entity or another forwarding.
    :param tokens: makes lock tokens, 16 random bytes each.
    """

    forward: Callable[[QueueNode], None]

    def __init__(self, records: EntityRecords, tokens: Callable[[], bytes]) -> None:
        self.records = records
        self.clock = records.clock
        self.version = 0
        self._tokens = tokens
        self._topics: dict[str, Topic] = {}
        self._nodes: dict[str, QueueNode] = {}
        self._in_use: dict[QueueNode, None] = {}
        """Queues where something may have to be done in time; the others, maybe thousands, are at rest."""
        self._unstored: dict[int, Journal | None] = {}
        """By id: transfer dead-letter queues that are not stored yet, with the journal in which they are."""

    def check_path(self, kind: str, path: str) -> None:
        """Refuse a path that no entity can have, or that one has already."""
        if not path or len(path) > MAX_PATH or path.strip("/") != path or "//" in path:
            raise OptionError(kind, path, f"a path of 1 to {MAX_PATH} characters, without a slash at its ends")
        if path.lower().endswith(TRANSFER_DEAD_LETTER.removesuffix(DEAD_LETTER)):
            raise OptionError(kind, path, "another last part: $Transfer is where an entity has what it cannot forward")
        if path.lower() in self._nodes or path.lower() in self._topics:
            raise EntityExistsError(kind, path)

    # --- queues --------------------------------------------------------------------------------------------------

    def open_queue(
        self, row: EntityRow, settings: QueueSettings, dead_row: EntityRow, transfer_row: EntityRow | None = None
    ) -> QueueNode:
        """Serve a queue and its dead-letter queues.

        :param transfer_row: the transfer dead-letter queue as it is stored; None: the queue has not needed one yet.
        """
        queue = Queue(row, settings, self.records.store, self._tokens)
        node = self._serve(queue, row)
        queue.dead = self._serve_dead(dead_row)
        if transfer_row is not None:
            queue.transfer_dead = self._serve_dead(transfer_row)
        self._direct(queue)
        for each in parts_of(queue):
            each.dead_letter_damaged(self.clock())
        return node

    def _serve(self, queue: Queue, row: EntityRow) -> QueueNode:
        sessions = (
            Sessions(queue, self.records.store.session_states(queue.id)) if queue.settings.requires_session else None
        )
        node = QueueNode(queue, Consumers(queue, sessions, self.clock), sessions, row, self.clock())
        self._nodes[queue.path.lower()] = node
        self._in_use[node] = None
        queue.on_used = partial(self._in_use.setdefault, node)
        return node

    def _serve_dead(self, row: EntityRow) -> Queue:
        return self._serve(
            Queue(row, QueueSettings.from_json(row.description), self.records.store, self._tokens), row
        ).queue

    def change_queue(self, node: QueueNode, description: str, settings: QueueSettings) -> None:
        """Give a queue other settings, and journal them; consumers that may not receive any more are detached."""
        queue = node.queue
        queue.used_at = self.clock()
        node.row = self.records.change(node.row, description)
        for each in parts_of(queue)[1:]:
            dead = self._nodes[each.path.lower()]
            each.change_settings(dead_settings(settings))
            dead.row = self.records.change(dead.row, each.settings.to_json())
        self.set_settings(node, settings)

    def take_back_change(self, node: QueueNode) -> None:
        """Have a queue described as it is stored, and its dead-letter queues be so; the settings are the caller's."""
        node.row = self.records.stored(node.row)
        for each in parts_of(node.queue)[1:]:
            dead = self._nodes[each.path.lower()]
            if self.records.is_changed(dead.row):  # else it was made after the change
                dead.row = self.records.stored(dead.row)
                each.change_settings(QueueSettings.from_json(dead.row.description))

    def set_settings(self, node: QueueNode, settings: QueueSettings) -> None:
        """Use other settings from now on; the caller stores them."""
        node.queue.change_settings(settings)
        self._direct(node.queue)
        if settings.status.gives_messages:
            node.consumers.serve()
        else:
            node.consumers.send_away(disabled(node.queue.path))

    def close_queue(self, node: QueueNode, *, is_stored: bool = True) -> None:
        """Delete a queue with its dead-letter queues and all their messages, and journal that.

        :param is_stored: False: the store has refused it, and may have only what was sent to it since.
        """
        for queue in parts_of(node.queue):
            if not queue.is_deleted:
                queue.is_deleted = True
                self._unstored.pop(queue.id, None)
                closed = self._nodes.pop(queue.path.lower())
                closed.consumers.send_away(not_found(queue.path))
                for publisher in list(queue.publishers):
                    publisher.send_away(not_found(queue.path))
                self._in_use.pop(closed, None)
                if is_stored or queue.size:
                    self.records.drop(queue.id)
        self.version += 1

    def find(self, path: str) -> QueueNode | None:
        """Return what can be received from by its path; None: there is nothing."""
        return self._nodes.get(path.strip("/").lower())

    def get(self, path: str) -> QueueNode:
        """Return what can be received from by its path, or refuse."""
        node = self.find(path)
        if node is None and path.lower().endswith(TRANSFER_DEAD_LETTER):
            owner = self.find(path[: -len(TRANSFER_DEAD_LETTER)])
            if owner is not None and owner.queue.dead is not None:
                return self._nodes[self.transfer_dead(owner.queue).path.lower()]
        if node is None:
            raise not_found(path)
        return node

    def __iter__(self) -> Iterator[QueueNode]:
        return iter(self._nodes.values())

    def in_use(self) -> list[QueueNode]:
        """Return the queues where something may have to be done in time."""
        return list(self._in_use)

    def let_rest(self, node: QueueNode) -> None:
        """Leave a queue out of :meth:`in_use` until it is used, if nothing is to be done there until then."""
        if node.wake_at is None and node.forward_to is None and node.queue.settings.auto_delete_on_idle is None:
            self._in_use.pop(node, None)

    def last_use(self, node: QueueNode, now: int) -> int:
        """Return when a queue or a dead-letter queue of it was last used: now, if a receiver waits for messages."""
        parts = [self._nodes[each.path.lower()] for each in parts_of(node.queue)]
        if any(len(each.consumers) for each in parts) or node.queue.scheduled_count:
            node.queue.used_at = now
        return max(max(each.queue.used_at, each.opened_at) for each in parts)

    def note_access(self, node: QueueNode) -> None:
        """Store when a queue was last used, if what is stored is too far behind."""
        used_at = node.queue.used_at
        if used_at - node.row.accessed >= ACCESS_NOTED:
            node.row = node.row._replace(accessed=used_at)
            self.records.store.journal.entities.append(node.row)

    # --- destinations --------------------------------------------------------------------------------------------

    def find_destination(self, path: str) -> Queue | Topic | None:
        """Return a queue or a topic by its path; neither dead-letter queues nor subscriptions can be sent to."""
        path = path.strip("/").lower()
        node = self._nodes.get(path)
        if node is not None and node.is_queue:
            return node.queue
        return self._topics.get(path)

    def find_topic(self, path: str) -> Topic | None:
        """Return a topic by its path."""
        return self._topics.get(path.strip("/").lower())

    def all_topics(self) -> list[Topic]:
        """Return the topics, by name."""
        return [self._topics[path] for path in sorted(self._topics)]

    def get_destination(self, path: str) -> Queue | Topic:
        """Return what can be sent to by its path, or refuse."""
        found = self.find_destination(path)
        if found is None:
            raise not_found(path)
        return found

    def open_topic(self, topic: Topic) -> None:
        """Serve a topic."""
        self._topics[topic.path.lower()] = topic
        self.version += 1

    def close_topic(self, topic: Topic, *, is_stored: bool = True) -> None:
        """Delete a topic, which has no subscriptions any more, and journal that; see :meth:`close_queue`."""
        topic.is_deleted = True
        for publisher in list(topic.publishers):
            publisher.send_away(not_found(topic.path))
        del self._topics[topic.path.lower()]
        if is_stored or topic.size:
            self.records.drop(topic.id)
        self.version += 1

    def _direct(self, queue: Queue) -> None:
        """Have messages go to the consumers of a queue, or to where it forwards to."""
        targets = [(queue, queue.settings.forward_to)]
        if queue.dead is not None:
            targets.append((queue.dead, queue.settings.forward_dead_lettered_messages_to))
        for each, forward_to in targets:
            node = self._nodes[each.path.lower()]
            node.forward_to = forward_to
            self._in_use[node] = None
            each.on_available = node.consumers.message_came if forward_to is None else partial(self._forward, node)
        self.version += 1

    def _forward(self, node: QueueNode, _session: str | None) -> None:
        self.forward(node)

    def transfer_dead(self, queue: Queue, *, for_message: bool = False) -> Queue:
        """Return the transfer dead-letter queue of a queue or a subscription, which is made if there is none.

        It is stored with its first message: few entities ever need one.
        """
        found = queue.transfer_dead
        if found is None:
            description = dead_settings(queue.settings).to_json()
            row = self.records.make(queue.path + TRANSFER_DEAD_LETTER_PATH, description, EntityKind.QUEUE)
            found = queue.transfer_dead = self._serve_dead(row)
            self._unstored[row.id] = None
        journal = self.records.store.journal
        if for_message and self._unstored.get(found.id, journal) is not journal:
            self._journal_with_message(found)
        return found

    def _journal_with_message(self, queue: Queue) -> None:
        """Have a queue stored in the transaction of a message that it gets, in each until one succeeds."""

        def durable(error: StoreError | None) -> None:
            if error is None:
                self._unstored.pop(queue.id, None)

        journal = self._unstored[queue.id] = self.records.store.journal
        journal.entities.append(self._nodes[queue.path.lower()].row)
        journal.durable.append(durable)
