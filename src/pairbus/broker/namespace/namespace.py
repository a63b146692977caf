"""A namespace: its entities, its policies, and what is due in it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pairbus.broker.access.access import AccessControl
from pairbus.broker.access.policies import Policies, Policy
from pairbus.broker.access.resources import Hosts
from pairbus.broker.faults.board import Faults
from pairbus.broker.meter.metering import Meter
from pairbus.broker.namespace.forwarding import Forwarding
from pairbus.broker.namespace.node import QueueNode
from pairbus.broker.namespace.queues import Queues
from pairbus.broker.namespace.records import EntityRecords
from pairbus.broker.namespace.registry import Registry
from pairbus.broker.namespace.topics import Topics
from pairbus.broker.refusals import Answer
from pairbus.broker.store.base import Store

__all__ = ["Namespace", "QueueNode"]


class Namespace:
    """One namespace on one store.

    :ivar entities: what it serves, by path.
    :ivar queues: its queues, to make, change and delete them.
    :ivar topics: its topics, with their subscriptions and rules.
    :ivar policies: its own policies; those of an entity are among the entity's settings.
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
        self.name = name
        self.store = store
        self.clock = clock
        self.policies: Policies = ()
        self.access = AccessControl(self, Hosts(name, address))
        self.access_clock = access_clock or clock
        self.faults = Faults()
        self.meter = Meter(name, clock)
        records = EntityRecords(store, clock)
        rows = records.recall()
        self.entities = Registry(records, tokens)
        self.queues = Queues(self.entities)
        self.topics = Topics(self.entities)
        Forwarding(self.entities)
        self.queues.recall(rows)
        self.topics.recall(rows)

    # --- access --------------------------------------------------------------------------------------------------

    def policies_of(self, path: str) -> Policies:
        """Return the policies of an entity, or its own (an empty path); none if there is no such entity."""
        if not path:
            return self.policies
        topic, node = self.topics.find(path), self.entities.find(path)
        if topic is not None:
            return topic.settings.authorization_rules
        return () if node is None else node.queue.settings.authorization_rules

    def entity_policies(self) -> Iterator[tuple[str, Policy]]:
        """Return the policies of all entities, each with its entity's path."""
        owners = [(node.queue.path, node.queue.settings.authorization_rules) for node in self.entities]
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
        settings = self.queues.get(path).queue.settings
        rules = change(settings.authorization_rules)
        self.queues.update(path, replace(settings, authorization_rules=rules), answer)

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        times = [node.wake_at for node in self.entities.in_use()]
        times += [topic.wake_at for topic in self.topics]
        return min((time for time in times if time is not None), default=None)

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock()
        self.meter.tick(now)
        self.topics.tick(now)
        self.queues.tick(now)
