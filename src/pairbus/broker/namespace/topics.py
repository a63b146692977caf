"""The topics of a namespace, their subscriptions and rules, as they are made, changed and deleted."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pairbus.broker.entities.runtime import Runtime
from pairbus.broker.entities.settings import MAX_NAME, MAX_PATH, SubscriptionSettings, TopicSettings
from pairbus.broker.entities.subscription import StoredRule, Subscription
from pairbus.broker.entities.topic import Topic
from pairbus.broker.filters import Rule
from pairbus.broker.namespace.node import DEAD_LETTER, DEAD_LETTER_PATH, TRANSFER_DEAD_LETTER, QueueNode, dead_settings
from pairbus.broker.namespace.registry import ACCESS_NOTED, Registry
from pairbus.broker.refusals import Answer, EntityExistsError, no_answer, not_found, too_many
from pairbus.broker.store.base import EntityKind, EntityRow
from pairbus.errors import OptionError

SUBSCRIPTIONS: Final = "/Subscriptions/"
RULES: Final = "/Rules/"
MAX_SUBSCRIPTIONS: Final = 2000

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class Topics:
    """The topics of one namespace. All names are compared case-insensitively."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._records = registry.records
        self._opened_at = registry.clock()

    def recall(self, rows: Mapping[str, EntityRow]) -> None:
        """Serve the topics that are stored, by their paths in lower case."""
        for row in rows.values():
            if row.kind == EntityKind.TOPIC:
                self._registry.open_topic(Topic(row, TopicSettings.from_json(row.description), self._records.store))
        for path, row in rows.items():
            if row.kind == EntityKind.SUBSCRIPTION:
                self._recall_subscription(row, rows[path + DEAD_LETTER], rows.get(path + TRANSFER_DEAD_LETTER))
        for row in sorted(rows.values()):  # in the order in which they were made
            if row.kind == EntityKind.RULE:
                path, _, _name = row.path.rpartition(RULES)
                topic, _, name = path.rpartition(SUBSCRIPTIONS)
                self._use_rule(self.get(topic), self.get_subscription(topic, name), row)

    def _recall_subscription(self, row: EntityRow, dead_row: EntityRow, transfer_row: EntityRow | None) -> None:
        path, _, name = row.path.rpartition(SUBSCRIPTIONS)
        self._open_subscription(self.get(path), name, row, dead_row, transfer_row)

    # --- topics --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._registry.all_topics())

    def find(self, path: str) -> Topic | None:
        """Return a topic; None: there is none."""
        return self._registry.find_topic(path)

    def get(self, path: str) -> Topic:
        """Return a topic, or refuse."""
        topic = self.find(path)
        if topic is None:
            raise not_found(path)
        return topic

    def create(self, path: str, settings: TopicSettings, answer: Answer) -> None:
        """Make a topic."""
        self._registry.check_path("topic", path)
        row = self._records.add(path, settings.to_json(), EntityKind.TOPIC)
        topic = Topic(row, settings, self._records.store)
        self._registry.open_topic(topic)
        self._records.when_durable(path, answer, lambda: self._withdraw(topic))

    def _withdraw(self, topic: Topic) -> None:
        """Forget a topic that the store has refused, and what was made of it since."""
        if not topic.is_deleted:
            for subscription in topic.subscriptions:
                self._drop_subscription(topic, subscription)
            self._registry.close_topic(topic, is_stored=False)

    def update(self, path: str, settings: TopicSettings, answer: Answer) -> None:
        """Give a topic other settings. Nothing can be received from the subscriptions of a disabled one."""
        topic = self.get(path)
        _check_unchanged(topic.settings, settings, "requires_duplicate_detection")
        topic.row = self._records.change(topic.row, settings.to_json())
        topic.used_at = self._registry.clock()
        self._use_settings(topic, settings)

        def undo() -> None:
            if topic.settings is settings and self.find(path) is topic:
                topic.row = self._records.stored(topic.row)
                self._use_settings(topic, TopicSettings.from_json(topic.row.description))

        self._records.when_durable(path, answer, undo)

    def _use_settings(self, topic: Topic, settings: TopicSettings) -> None:
        topic.change_settings(settings)
        for subscription in topic.subscriptions:
            self._registry.set_settings(self._node(subscription), subscription.settings.for_queue(settings))

    def delete(self, path: str, answer: Answer) -> None:
        """Delete a topic with its subscriptions and all their messages."""
        topic = self.get(path)
        for subscription in topic.subscriptions:
            self._drop_subscription(topic, subscription)
        self._registry.close_topic(topic)
        self._records.when_durable(path, answer)

    def runtime(self, topic: Topic) -> Runtime:
        """Return what is known of a topic now."""
        return Runtime(
            scheduled_message_count=topic.scheduled_count,
            subscription_count=topic.subscription_count,
            size_in_bytes=topic.size,
            created_at=topic.row.created,
            updated_at=topic.row.updated,
            accessed_at=max(topic.used_at, topic.row.accessed),
        )

    # --- subscriptions -------------------------------------------------------------------------------------------

    def get_subscription(self, topic: str, name: str) -> Subscription:
        """Return a subscription, or refuse."""
        found = self.get(topic).find_subscription(name)
        if found is None:
            raise not_found(f"{topic}{SUBSCRIPTIONS}{name}")
        return found

    def create_subscription(
        self, topic: str, name: str, settings: SubscriptionSettings, answer: Answer, rule: Rule | None = None
    ) -> None:
        """Make a subscription.

        :param rule: its first rule; None: ``$Default``, which selects every message.
        """
        owner = self.get(topic)
        path = f"{owner.path}{SUBSCRIPTIONS}{name}"
        if len(name) > MAX_NAME or len(path) > MAX_PATH or not _NAME.fullmatch(name):
            raise OptionError(
                "subscription",
                name,
                f"a name of 1 to {MAX_NAME} letters, digits, periods, hyphens and underscores, and a letter or a digit "
                "at both ends",
            )
        if owner.find_subscription(name) is not None:
            raise EntityExistsError("subscription", path)
        if owner.subscription_count >= MAX_SUBSCRIPTIONS:
            raise too_many(f"The topic '{owner.path}' has {MAX_SUBSCRIPTIONS} subscriptions, which is all it can have.")
        row = self._records.add(path, settings.to_json(), EntityKind.SUBSCRIPTION)
        dead = dead_settings(settings.for_queue(owner.settings)).to_json()
        dead_row = self._records.add(path + DEAD_LETTER_PATH, dead, EntityKind.QUEUE)
        subscription = self._open_subscription(owner, name, row, dead_row)
        owner.used_at = self._registry.clock()
        self._add_rule(owner, subscription, Rule() if rule is None else rule)
        self._records.when_durable(path, answer, lambda: self._drop_subscription(owner, subscription, is_stored=False))

    def update_subscription(self, topic: str, name: str, settings: SubscriptionSettings, answer: Answer) -> None:
        """Give a subscription other settings; consumers that may not receive any more are detached."""
        subscription = self.get_subscription(topic, name)
        _check_unchanged(subscription.settings, settings, "requires_session")
        subscription.settings = settings
        owner, node = self.get(topic), self._node(subscription)
        self._registry.change_queue(node, settings.to_json(), settings.for_queue(owner.settings))

        def undo() -> None:
            if subscription.settings is settings and not subscription.queue.is_deleted:
                self._registry.take_back_change(node)
                subscription.settings = SubscriptionSettings.from_json(node.row.description)
                self._registry.set_settings(node, subscription.settings.for_queue(owner.settings))

        self._records.when_durable(subscription.path, answer, undo)

    def delete_subscription(self, topic: str, name: str, answer: Answer) -> None:
        """Delete a subscription with its rules and messages."""
        subscription = self.get_subscription(topic, name)
        self._drop_subscription(self.get(topic), subscription)
        self._records.when_durable(subscription.path, answer)

    def subscription_runtime(self, subscription: Subscription) -> Runtime:
        """Return what is known of a subscription now."""
        return self._node(subscription).runtime

    def _node(self, subscription: Subscription) -> QueueNode:
        return self._registry.get(subscription.path)

    def _open_subscription(
        self, topic: Topic, name: str, row: EntityRow, dead_row: EntityRow, transfer_row: EntityRow | None = None
    ) -> Subscription:
        settings = SubscriptionSettings.from_json(row.description)
        node = self._registry.open_queue(row, settings.for_queue(topic.settings), dead_row, transfer_row)
        subscription = Subscription(name, settings, node.queue)
        topic.subscribe(subscription)
        return subscription

    def _drop_subscription(self, topic: Topic, subscription: Subscription, *, is_stored: bool = True) -> None:
        if subscription.queue.is_deleted:
            return
        node = self._node(subscription)
        topic.unsubscribe(subscription)
        if is_stored:
            self._records.drop(*(stored.row.id for stored in subscription.rules.values()))
        self._registry.close_queue(node, is_stored=is_stored)

    # --- rules ---------------------------------------------------------------------------------------------------

    def get_rule(self, topic: str, subscription: str, name: str) -> StoredRule:
        """Return a rule, or refuse."""
        owner = self.get_subscription(topic, subscription)
        found = owner.rules.get(name.lower())
        if found is None:
            raise not_found(f"{owner.path}{RULES}{name}")
        return found

    def create_rule(self, topic: str, subscription: str, rule: Rule, answer: Answer) -> None:
        """Give a subscription one more rule."""
        owner = self.get_subscription(topic, subscription)
        if rule.name.lower() in owner.rules:
            raise EntityExistsError("rule", f"{owner.path}{RULES}{rule.name}")
        stored = self._add_rule(self.get(topic), owner, rule)
        owner.queue.used_at = self._registry.clock()
        self._records.when_durable(owner.path, answer, lambda: self._withdraw_rule(topic, owner, stored))

    def _withdraw_rule(self, topic: str, owner: Subscription, stored: StoredRule) -> None:
        if not owner.queue.is_deleted and owner.rules.get(stored.rule.name.lower()) is stored:
            del owner.rules[stored.rule.name.lower()]
            self.get(topic).remove_rule(owner, stored.rule.name)

    def update_rule(self, topic: str, subscription: str, rule: Rule, answer: Answer) -> None:
        """Put a rule into the place of the one of the same name."""
        stored = self.get_rule(topic, subscription, rule.name)
        row = self._records.change(stored.row, rule.to_json())
        owner = self.get_subscription(topic, subscription)
        changed = self._use_rule(self.get(topic), owner, row)

        def undo() -> None:
            if not owner.queue.is_deleted and owner.rules.get(rule.name.lower()) is changed:
                self._use_rule(self.get(topic), owner, self._records.stored(row))

        self._records.when_durable(owner.path, answer, undo)

    def delete_rule(self, topic: str, subscription: str, name: str, answer: Answer) -> None:
        """Take a rule away from a subscription."""
        stored = self.get_rule(topic, subscription, name)
        owner = self.get_subscription(topic, subscription)
        del owner.rules[name.lower()]
        self.get(topic).remove_rule(owner, name)
        self._records.drop(stored.row.id)
        self._records.when_durable(owner.path, answer)

    def _add_rule(self, topic: Topic, subscription: Subscription, rule: Rule) -> StoredRule:
        path = f"{subscription.path}{RULES}{rule.name}"
        return self._use_rule(topic, subscription, self._records.add(path, rule.to_json(), EntityKind.RULE))

    def _use_rule(self, topic: Topic, subscription: Subscription, row: EntityRow) -> StoredRule:
        rule = Rule.from_json(row.description)
        stored = subscription.rules[rule.name.lower()] = StoredRule(row, rule)
        topic.put_rule(subscription, rule)
        return stored

    # --- time ----------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Publish what is due, store when topics were last used, and delete what has not been used for too long."""
        for topic in self:
            topic.tick(now)
            if topic.used_at - topic.row.accessed >= ACCESS_NOTED:
                topic.row = topic.row._replace(accessed=topic.used_at)
                self._records.store.journal.entities.append(topic.row)
            for subscription in topic.subscriptions:
                idle = subscription.settings.auto_delete_on_idle
                if idle is not None and now - self._last_use(subscription, now) >= idle:
                    self.delete_subscription(topic.path, subscription.name, no_answer)
            idle = topic.settings.auto_delete_on_idle
            if idle is not None and now - self._last_use_of_any(topic, now) >= idle:
                self.delete(topic.path, no_answer)

    def _last_use(self, subscription: Subscription, now: int) -> int:
        return self._registry.last_use(self._node(subscription), now)

    def _last_use_of_any(self, topic: Topic, now: int) -> int:
        """Return when a topic or one of its subscriptions was last used: now, if something is scheduled."""
        if topic.scheduled_count:
            return now
        times = [self._last_use(subscription, now) for subscription in topic.subscriptions]
        return max(topic.used_at, self._opened_at, topic.row.created, *times)


def _check_unchanged(
    before: TopicSettings | SubscriptionSettings, after: TopicSettings | SubscriptionSettings, name: str
) -> None:
    if getattr(before, name) != getattr(after, name):
        raise OptionError(name, getattr(after, name), "what it was when the entity was made")
