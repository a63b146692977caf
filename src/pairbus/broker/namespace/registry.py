"""The entities of a namespace by their paths: what receives, what can be sent to, and what forwards to what."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.runtime import Runtime
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import MAX_PATH, MINUTE, QueueSettings
from pairbus.broker.entities.topic import Topic
from pairbus.broker.nodes.consumers import Consumers
from pairbus.broker.refusals import Answer, EntityExistsError, disabled, goes_round, not_found, store_failed
from pairbus.broker.store.base import EntityKind, EntityRow, Journal, Store, StoreError
from pairbus.errors import OptionError

DEAD_LETTER = "/$deadletterqueue"
DEAD_LETTER_PATH = "/$DeadLetterQueue"
TRANSFER_DEAD_LETTER = "/$transfer/$deadletterqueue"
TRANSFER_DEAD_LETTER_PATH = "/$Transfer/$DeadLetterQueue"
SUBSCRIPTION_PATH = "/subscriptions/"
ACCESS_NOTED = MINUTE
"""How far behind the stored time of the last use may be, in milliseconds."""


@dataclass(slots=True, eq=False)
class QueueNode:
    """A queue with those who wait for its messages, and its sessions if it has any.

    :ivar row: the queue as it is stored; that of a subscription says what the subscription is.
    :ivar opened_at: when the broker has begun to serve it, which counts as a use.
    :ivar forward_to: the path of the entity to which all its messages go; None: they stay.
    """

    queue: Queue
    consumers: Consumers
    sessions: Sessions | None
    row: EntityRow
    opened_at: int
    forward_to: str | None = None

    @property
    def wake_at(self) -> int | None:
        """When there is something to be done here; None: not before something else happens."""
        first = self.queue.wake_at
        if self.sessions is not None:
            first = _earlier(first, self.sessions.wake_at)
        return _earlier(first, self.consumers.wake_at)

    @property
    def runtime(self) -> Runtime:
        """What is known of it now."""
        queue, dead, transfer_dead = self.queue, self.queue.dead, self.queue.transfer_dead
        here = queue.active_count + len(queue.deferred)
        return Runtime(
            active_message_count=0 if self.forward_to is not None else here,
            dead_letter_message_count=0 if dead is None else dead.active_count + len(dead.deferred),
            scheduled_message_count=queue.scheduled_count,
            transfer_message_count=here if self.forward_to is not None else 0,
            transfer_dead_letter_message_count=(
                0 if transfer_dead is None else transfer_dead.active_count + len(transfer_dead.deferred)
            ),
            size_in_bytes=queue.full_size,
            created_at=self.row.created,
            updated_at=self.row.updated,
            accessed_at=max(queue.used_at, 0 if dead is None else dead.used_at, self.row.accessed),
        )


class Registry:
    """What one namespace has.

    :param clock: tells the time, in milliseconds since the epoch.
    :param tokens: makes lock tokens, 16 random bytes each.
    """

    def __init__(self, store: Store, *, clock: Callable[[], int], tokens: Callable[[], bytes]) -> None:
        self.store = store
        self.clock = clock
        self._topics: dict[str, Topic] = {}
        self._tokens = tokens
        self._nodes: dict[str, QueueNode] = {}
        self._described: dict[int, EntityRow] = {}
        """By id: entities whose description was changed, with the last one that the store has taken."""
        self._stirred: dict[QueueNode, None] = {}
        """Where there may be something to be done in time; the others, of which there may be thousands, are at rest."""
        self._last_id = 0
        self._round: dict[str, bool] = {}
        """By the path of a subscription: whether what it forwards comes back to its topic, as far as it was asked."""
        self._unstored: dict[int, Journal | None] = {}
        """By id: transfer dead-letter queues that the store has not taken yet, with the journal in which they are."""

    def note_id(self, number: int) -> None:
        """Never give a new entity this id."""
        self._last_id = max(self._last_id, number)

    def new_row(self, path: str, description: str, kind: EntityKind) -> EntityRow:
        """Return a new entity, and journal it."""
        self._last_id += 1
        now = self.clock()
        row = EntityRow(self._last_id, path, description, 1, kind, now, now)
        self.store.journal.entities.append(row)
        return row

    def changed_row(self, row: EntityRow, description: str) -> EntityRow:
        """Return an entity with another description, and journal it."""
        self._described.setdefault(row.id, row)
        changed = row._replace(description=description, updated=self.clock())

        def durable(error: StoreError | None) -> None:
            if error is None and changed.id in self._described:
                self._described[changed.id] = changed

        self.store.journal.entities.append(changed)
        self.store.journal.durable.append(durable)
        return changed

    def drop(self, *ids: int) -> None:
        """Journal that entities are gone, with all they had."""
        self.store.journal.dropped.extend(ids)
        for number in ids:
            self._described.pop(number, None)

    def stored_row(self, row: EntityRow) -> EntityRow:
        """Return an entity with the description that the store has, which has refused another one.

        It is journalled: what was noted of the entity meanwhile is on its way with the description that was refused.
        """
        stored = self._described[row.id]
        row = row._replace(description=stored.description, updated=stored.updated)
        self.store.journal.entities.append(row)
        return row

    def check_path(self, kind: str, path: str) -> None:
        """Refuse a path that no entity can have, or that one has already."""
        if not path or len(path) > MAX_PATH or path.strip("/") != path or "//" in path:
            raise OptionError(kind, path, f"a path of 1 to {MAX_PATH} characters, without a slash at its ends")
        if path.lower().endswith(TRANSFER_DEAD_LETTER.removesuffix(DEAD_LETTER)):
            raise OptionError(kind, path, "another last part: $Transfer is where an entity has what it cannot forward")
        if path.lower() in self._nodes or path.lower() in self._topics:
            raise EntityExistsError(kind, path)

    def when_durable(self, path: str, answer: Answer, undo: Callable[[], None] | None = None) -> None:
        """Have somebody answered once what was journalled is durable.

        :param undo: takes back what was done in memory, if the store has refused it.
        """

        def durable(error: StoreError | None) -> None:
            try:
                if error is not None and undo is not None:
                    undo()
            finally:
                answer(None if error is None else store_failed(path))

        self.store.journal.durable.append(durable)

    # --- queues --------------------------------------------------------------------------------------------------

    def open_queue(
        self, row: EntityRow, settings: QueueSettings, dead_row: EntityRow, transfer_row: EntityRow | None = None
    ) -> QueueNode:
        """Serve a queue and its dead-letter queues.

        :param transfer_row: the transfer dead-letter queue as it is stored; None: the queue has not needed one yet.
        """
        queue = Queue(row, settings, self.store, self._tokens)
        node = self._serve(queue, row)
        queue.dead = self._serve_dead(dead_row)
        if transfer_row is not None:
            queue.transfer_dead = self._serve_dead(transfer_row)
        self._direct(queue)
        for each in _parts(queue):
            each.set_damaged_aside(self.clock())
        return node

    def _serve(self, queue: Queue, row: EntityRow) -> QueueNode:
        sessions = Sessions(queue, self.store.session_states(queue.id)) if queue.settings.requires_session else None
        node = QueueNode(queue, Consumers(queue, sessions, self.clock), sessions, row, self.clock())
        self._nodes[queue.path.lower()] = node
        self._stirred[node] = None
        queue.on_used = partial(self._stirred.setdefault, node)
        return node

    def _serve_dead(self, row: EntityRow) -> Queue:
        return self._serve(Queue(row, QueueSettings.from_json(row.description), self.store, self._tokens), row).queue

    def change_queue(self, node: QueueNode, description: str, settings: QueueSettings) -> None:
        """Give a queue other settings, and journal them; those who may not receive any more are sent away."""
        queue = node.queue
        queue.used_at = self.clock()
        node.row = self.changed_row(node.row, description)
        for each in _parts(queue)[1:]:
            dead = self._nodes[each.path.lower()]
            each.change_settings(dead_settings(settings))
            dead.row = self.changed_row(dead.row, each.settings.to_json())
        self.set_settings(node, settings)

    def take_back_change(self, node: QueueNode) -> None:
        """Have a queue described as it is stored, and its dead-letter queues be so; the settings are the caller's."""
        node.row = self.stored_row(node.row)
        for each in _parts(node.queue)[1:]:
            dead = self._nodes[each.path.lower()]
            if dead.row.id in self._described:  # else it was made after the change
                dead.row = self.stored_row(dead.row)
                each.change_settings(QueueSettings.from_json(dead.row.description))

    def set_settings(self, node: QueueNode, settings: QueueSettings) -> None:
        """Have other settings from now on, which follow from what is stored elsewhere."""
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
        for queue in _parts(node.queue):
            if not queue.is_deleted:
                queue.is_deleted = True
                self._unstored.pop(queue.id, None)
                closed = self._nodes.pop(queue.path.lower())
                closed.consumers.send_away(not_found(queue.path))
                self._stirred.pop(closed, None)
                if is_stored or queue.size:
                    self.drop(queue.id)
        self._round.clear()

    def find(self, path: str) -> QueueNode | None:
        """Return what can be received from by its path; names are compared case-insensitively."""
        return self._nodes.get(path.strip("/").lower())

    def get(self, path: str) -> QueueNode:
        """Return what can be received from by its path, or refuse."""
        node = self.find(path)
        if node is None and path.lower().endswith(TRANSFER_DEAD_LETTER):
            owner = self.find(path[: -len(TRANSFER_DEAD_LETTER)])
            if owner is not None and owner.queue.dead is not None:
                return self._nodes[self._transfer_dead(owner.queue).path.lower()]
        if node is None:
            raise not_found(path)
        return node

    def __iter__(self) -> Iterator[QueueNode]:
        return iter(self._nodes.values())

    def stirred(self) -> list[QueueNode]:
        """Return where there may be something to be done in time."""
        return list(self._stirred)

    def let_rest(self, node: QueueNode) -> None:
        """Look at a queue no more until it is used, if nothing is to be done there until then."""
        if node.wake_at is None and node.forward_to is None and node.queue.settings.auto_delete_on_idle is None:
            self._stirred.pop(node, None)

    def last_use(self, node: QueueNode, now: int) -> int:
        """Return when a queue or a dead-letter queue of it was last used: now, if a receiver waits for messages."""
        parts = [self._nodes[each.path.lower()] for each in _parts(node.queue)]
        if any(len(each.consumers) for each in parts) or node.queue.scheduled_count:
            node.queue.used_at = now
        return max(max(each.queue.used_at, each.opened_at) for each in parts)

    def note_access(self, node: QueueNode) -> None:
        """Store when a queue was last used, if what is stored is too far behind."""
        used_at = node.queue.used_at
        if used_at - node.row.accessed >= ACCESS_NOTED:
            node.row = node.row._replace(accessed=used_at)
            self.store.journal.entities.append(node.row)

    # --- sending and forwarding ----------------------------------------------------------------------------------

    def find_destination(self, path: str) -> Queue | Topic | None:
        """Return a queue or a topic by its path; neither dead-letter queues nor subscriptions can be sent to."""
        path = path.strip("/").lower()
        node = self._nodes.get(path)
        if node is not None and node.row.kind == EntityKind.QUEUE and node.queue.dead is not None:
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
        self._round.clear()

    def close_topic(self, topic: Topic, *, is_stored: bool = True) -> None:
        """Delete a topic, which has no subscriptions any more, and journal that; see :meth:`close_queue`."""
        topic.is_deleted = True
        del self._topics[topic.path.lower()]
        if is_stored or topic.size:
            self.drop(topic.id)
        self._round.clear()

    def _direct(self, queue: Queue) -> None:
        """Have messages go to those who wait, or to where they are forwarded."""
        targets = [(queue, queue.settings.forward_to)]
        if queue.dead is not None:
            targets.append((queue.dead, queue.settings.forward_dead_lettered_messages_to))
        for each, forward_to in targets:
            node = self._nodes[each.path.lower()]
            node.forward_to = forward_to
            self._stirred[node] = None
            each.on_available = node.consumers.message_came if forward_to is None else partial(self.forward, node)
        self._round.clear()

    def forward(self, node: QueueNode, _session: str | None = None) -> None:
        """Let the messages of a queue go to where they are forwarded."""
        owner = self._nodes[node.queue.path.lower().removesuffix(DEAD_LETTER)].queue
        node.queue.forward(
            partial(self._forwarding_target, node), self.clock(), partial(self._transfer_dead, owner, for_message=True)
        )

    def _forwarding_target(self, node: QueueNode) -> Queue | Topic:
        target = self.get_destination(node.forward_to or "")
        if node.row.kind == EntityKind.SUBSCRIPTION and self._goes_round(node.queue.path, target):
            raise goes_round(node.queue.path, target.path)
        return target

    def _goes_round(self, path: str, target: Queue | Topic) -> bool:
        """Tell whether what a subscription forwards comes back to its topic.

        Four hops would end that too, but each time round there are as many copies more as the topic has such
        subscriptions. A circle of queues does no such harm: there it is the hops that end it.
        """
        known = self._round.get(path)
        if known is None:
            topic = self.find_topic(path.lower().rpartition(SUBSCRIPTION_PATH)[0])
            reached: set[Queue | Topic] = set()
            found: set[Queue | Topic] = {target}
            while found:
                reached |= found
                found = {further for each in found for further in self._forwards_of(each)} - reached
            known = self._round[path] = topic in reached
        return known

    def _transfer_dead(self, queue: Queue, *, for_message: bool = False) -> Queue:
        """Return the transfer dead-letter queue of a queue or a subscription, which it has from now on.

        It is stored with its first message: few entities ever need one.
        """
        found = queue.transfer_dead
        if found is None:
            self._last_id += 1
            now = self.clock()
            description = dead_settings(queue.settings).to_json()
            row = EntityRow(
                self._last_id, queue.path + TRANSFER_DEAD_LETTER_PATH, description, 1, EntityKind.QUEUE, now, now
            )
            found = queue.transfer_dead = self._serve_dead(row)
            self._unstored[row.id] = None
        if for_message and self._unstored.get(found.id, self.store.journal) is not self.store.journal:
            self._journal_with_message(found)
        return found

    def _journal_with_message(self, queue: Queue) -> None:
        """Have a queue stored in the transaction of a message that it gets, in each until one succeeds."""

        def durable(error: StoreError | None) -> None:
            if error is None:
                self._unstored.pop(queue.id, None)

        journal = self._unstored[queue.id] = self.store.journal
        journal.entities.append(self._nodes[queue.path.lower()].row)
        journal.durable.append(durable)

    def _forwards_of(self, at: Queue | Topic) -> Iterator[Queue | Topic]:
        queues = [at] if isinstance(at, Queue) else [subscription.queue for subscription in at.subscriptions]
        for queue in queues:
            target = self.find_destination(queue.settings.forward_to or "")
            if target is not None:
                yield target


def _parts(queue: Queue) -> list[Queue]:
    """Return a queue and the dead-letter queues that it has."""
    return [each for each in (queue, queue.dead, queue.transfer_dead) if each is not None]


def _earlier(one: int | None, other: int | None) -> int | None:
    return one if other is None or (one is not None and one < other) else other


def dead_settings(settings: QueueSettings) -> QueueSettings:
    """Return the settings of a queue's dead-letter queue."""
    return QueueSettings(
        lock_duration=settings.lock_duration,
        max_delivery_count=2**31 - 1,
        max_size_in_megabytes=settings.max_size_in_megabytes,
        max_message_size_in_kilobytes=settings.max_message_size_in_kilobytes,
    )
