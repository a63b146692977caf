"""A namespace: its queues and topics as they are made, changed and deleted, and the time they live in."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pairbus.broker.access.access import AccessControl
from pairbus.broker.access.policies import Policies, Policy
from pairbus.broker.access.resources import Hosts
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.faults.board import Faults
from pairbus.broker.meter.metering import Meter
from pairbus.broker.namespace.registry import (
    DEAD_LETTER,
    DEAD_LETTER_PATH,
    TRANSFER_DEAD_LETTER,
    QueueNode,
    Registry,
    dead_settings,
)
from pairbus.broker.namespace.topics import Topics
from pairbus.broker.refusals import Answer, RefusedError, not_found
from pairbus.broker.store.base import EntityKind, Store
from pairbus.errors import OptionError

__all__ = ["Namespace", "QueueNode"]


class Namespace(Registry):
    """One namespace on one store.

    :ivar topics: its topics, with their subscriptions and rules.
    :param clock: tells the time, in milliseconds since the epoch.
    :param tokens: makes lock tokens, 16 random bytes each.
    :param access_clock: tells the time by which access tokens expire, if that is another.
    :param address: where it is served.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        clock: Callable[[], int],
        tokens: Callable[[], bytes],
        access_clock: Callable[[], int] | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        super().__init__(store, clock=clock, tokens=tokens)
        self.name = name
        self.policies: Policies = ()
        """Its own policies; those of an entity are among the entity's settings."""
        self.access = AccessControl(self, Hosts(name, address))
        self.access_clock = access_clock or clock
        self.faults = Faults()
        self.meter = Meter(name, clock)
        self.topics = Topics(self)
        rows = {row.path.lower(): row for row in store.entities()}
        for path, row in rows.items():
            self.note_id(row.id)
            if row.kind == EntityKind.QUEUE and not path.endswith(DEAD_LETTER) and path + DEAD_LETTER in rows:
                settings = QueueSettings.from_json(row.description)
                self.open_queue(row, settings, rows[path + DEAD_LETTER], rows.get(path + TRANSFER_DEAD_LETTER))
        self.topics.recall(rows)

    # --- queues --------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[QueueNode]:
        """The queues, by name; those of subscriptions and the dead-letter queues are not among them."""
        found = [node for node in self if node.row.kind == EntityKind.QUEUE and node.queue.dead is not None]
        return sorted(found, key=lambda node: node.queue.path.lower())

    def get_queue(self, path: str) -> QueueNode:
        """Return a queue, or refuse."""
        node = self.find(path)
        if node is None or node.row.kind != EntityKind.QUEUE or node.queue.dead is None:
            raise not_found(path)
        return node

    def create_queue(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Make a queue, with its dead-letter queue; it gets a transfer dead-letter queue when it needs one."""
        self.check_path("queue", path)
        row = self.new_row(path, settings.to_json(), EntityKind.QUEUE)
        dead_row = self.new_row(path + DEAD_LETTER_PATH, dead_settings(settings).to_json(), EntityKind.QUEUE)
        node = self.open_queue(row, settings, dead_row)
        self.when_durable(path, answer, lambda: self.close_queue(node, is_stored=False))

    def update_queue(self, path: str, settings: QueueSettings, answer: Answer) -> None:
        """Give a queue other settings; those who may not receive any more are sent away."""
        node = self.get_queue(path)
        for name in ("requires_session", "requires_duplicate_detection"):
            if getattr(settings, name) != getattr(node.queue.settings, name):
                raise OptionError(name, getattr(settings, name), "what it was when the queue was made")
        self.change_queue(node, settings.to_json(), settings)

        def undo() -> None:
            if node.queue.settings is settings and not node.queue.is_deleted:  # else it has changed again, or is gone
                self.take_back_change(node)
                self.set_settings(node, QueueSettings.from_json(node.row.description))

        self.when_durable(path, answer, undo)

    def delete_queue(self, path: str, answer: Answer) -> None:
        """Delete a queue with its dead-letter queues and all their messages."""
        self.close_queue(self.get_queue(path))
        self.when_durable(path, answer)

    # --- access --------------------------------------------------------------------------------------------------

    def policies_of(self, path: str) -> Policies:
        """Return the policies of an entity, or its own (an empty path); none if there is no such entity."""
        if not path:
            return self.policies
        topic, node = self.topics.find(path), self.find(path)
        if topic is not None:
            return topic.settings.authorization_rules
        return () if node is None else node.queue.settings.authorization_rules

    def entity_policies(self) -> Iterator[tuple[str, Policy]]:
        """Return the policies of all entities, each with its entity's path."""
        owners = [(node.queue.path, node.queue.settings.authorization_rules) for node in self]
        owners += [(topic.path, topic.settings.authorization_rules) for topic in self.topics]
        for path, policies in owners:
            for policy in policies:
                yield path, policy

    def change_policies(self, path: str, change: Callable[[Policies], Policies], answer: Answer) -> None:
        """Give a queue or a topic other policies."""
        topic = self.topics.find(path)
        if topic is not None:
            rules = change(topic.settings.authorization_rules)
            self.topics.update(path, replace(topic.settings, authorization_rules=rules), answer)
            return
        settings = self.get_queue(path).queue.settings
        rules = change(settings.authorization_rules)
        self.update_queue(path, replace(settings, authorization_rules=rules), answer)

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        times = [node.wake_at for node in self.stirred()]
        times += [topic.wake_at for topic in self.topics]
        return min((time for time in times if time is not None), default=None)

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock()
        self.meter.tick(now)
        self.topics.tick(now)
        for node in self.stirred():
            node.queue.tick(now)
            node.consumers.tick(now)
            if node.forward_to is not None:
                self.forward(node)
            self.note_access(node)
            self.let_rest(node)
            idle = node.queue.settings.auto_delete_on_idle
            if idle is None or node.row.kind != EntityKind.QUEUE or node.queue.is_deleted:
                continue
            if now - self.last_use(node, now) >= idle:
                self.delete_queue(node.queue.path, _nobody)


def _nobody(_refused: RefusedError | None) -> None:
    """Nobody waits for the answer."""
