"""Subscriptions and their rules, as they are administered."""

from collections.abc import Sequence
from dataclasses import replace

from pairbus.broker.admin.collection import AdminContext, Collection
from pairbus.broker.admin.descriptions import SUBSCRIPTION
from pairbus.broker.admin.documents import Entry, description
from pairbus.broker.admin.problems import ProblemError, exists_below, not_found_below
from pairbus.broker.admin.rule_descriptions import RULE, read_rule, write_rule
from pairbus.broker.admin.validation import check_name
from pairbus.broker.admin.values import time_text
from pairbus.broker.admin.xml import Element
from pairbus.broker.entities.settings import SubscriptionSettings
from pairbus.broker.entities.subscription import StoredRule, Subscription

DEFAULT_RULE = "DefaultRuleDescription"


class SubscriptionCollection(Collection[Subscription]):
    """The subscriptions of a topic."""

    element = SUBSCRIPTION.element

    def __init__(self, context: AdminContext, topic: str) -> None:
        super().__init__(context)
        self.owner = self.namespace.topics.find(topic)
        self._topic = topic if self.owner is None else self.owner.path

    def all(self) -> Sequence[Subscription]:
        """Return all of them, by name."""
        if self.owner is None:
            raise not_found_below(f"{self.namespace.name}:Topic:{self._topic}")
        return self.owner.subscriptions

    def find(self, name: str) -> Subscription | None:
        """Return one of them."""
        return None if self.owner is None else self.owner.find_subscription(name)

    def entry(self, item: Subscription) -> Entry:
        """Tell what one of them is like."""
        runtime = self.namespace.topics.subscription_runtime(item)
        told = self.told(runtime, IsClientAffine="false")
        return Entry(
            item.name,
            self.context.uri(f"{self._topic}/subscriptions/{item.name}"),
            SUBSCRIPTION.write(item.settings, told, host=self.context.host, version=self.context.version),
            runtime.updated_at,
            runtime.created_at,
        )

    async def create(self, name: str, description: Element) -> None:
        """Make one, with the rule that comes with it, or with one for every message."""
        if self.owner is None:
            raise not_found_below(f"{self.namespace.name}:Topic:{self._topic}")
        check_name("subscription", name, self.context.uri(f"{self._topic}/subscriptions/{name}"))
        settings = SubscriptionSettings(**self.settings(SUBSCRIPTION, description))
        first = description.find(DEFAULT_RULE)
        rule = None if first is None else read_rule(first)
        await self.context.carry_out(
            lambda answer: self.namespace.topics.create_subscription(self._topic, name, settings, answer, rule)
        )

    async def update(self, item: Subscription, description: Element) -> None:
        """Change one."""
        settings = replace(item.settings, **self.settings(SUBSCRIPTION, description, item.settings))
        await self.context.carry_out(
            lambda answer: self.namespace.topics.update_subscription(self._topic, item.name, settings, answer)
        )

    async def delete(self, item: Subscription) -> None:
        """Delete one."""
        await self.context.carry_out(
            lambda answer: self.namespace.topics.delete_subscription(self._topic, item.name, answer)
        )

    def exists(self, name: str) -> ProblemError:
        """Return what is said to one who makes what is there already."""
        return exists_below(f"{self.namespace.name}:Topic:{self._topic}|{name}")

    def missing(self, name: str, *, to_update: bool = False) -> ProblemError:
        """Return what is said to one who changes or deletes what is not there."""
        del to_update
        return not_found_below(f"{self.namespace.name}:Topic:{self._topic}|{name}")


class RuleCollection(Collection[StoredRule]):
    """The rules of a subscription."""

    element = RULE

    def __init__(self, context: AdminContext, topic: str, subscription: str) -> None:
        super().__init__(context)
        self._subscriptions = SubscriptionCollection(context, topic)
        self._owner = self._subscriptions.find(subscription)
        self._topic, self._subscription = topic, subscription

    def all(self) -> Sequence[StoredRule]:
        """Return all of them, by name."""
        rules = self._there().rules
        return [rules[name] for name in sorted(rules)]

    def find(self, name: str) -> StoredRule | None:
        """Return one of them."""
        return None if self._owner is None else self._owner.rules.get(name.lower())

    def entry(self, item: StoredRule) -> Entry:
        """Tell what one of them is like."""
        row, rule = item.row, item.rule
        return Entry(
            rule.name,
            self.context.uri(f"{self._topic}/subscriptions/{self._subscription}/rules/{rule.name}"),
            description(RULE, write_rule(rule, time_text(row.created))),
            row.updated,
            row.created,
        )

    async def create(self, name: str, description: Element) -> None:
        """Make one."""
        owner = self._there()
        check_name("rule", name, self.context.uri(f"{self._topic}/subscriptions/{owner.name}/rules/{name}"))
        rule = read_rule(description, name)
        await self.context.carry_out(
            lambda answer: self.namespace.topics.create_rule(self._topic, owner.name, rule, answer)
        )

    async def update(self, item: StoredRule, description: Element) -> None:
        """Change one."""
        rule = read_rule(description, item.rule.name)
        await self.context.carry_out(
            lambda answer: self.namespace.topics.update_rule(self._topic, self._subscription, rule, answer)
        )

    async def delete(self, item: StoredRule) -> None:
        """Delete one."""
        await self.context.carry_out(
            lambda answer: self.namespace.topics.delete_rule(self._topic, self._subscription, item.rule.name, answer)
        )

    def exists(self, name: str) -> ProblemError:
        """Return what is said to one who makes what is there already."""
        return exists_below(f"{self.namespace.name}:Topic:{self._topic}|{self._subscription}|{name}")

    def missing(self, name: str, *, to_update: bool = False) -> ProblemError:
        """Return what is said to one who changes or deletes what is not there."""
        del to_update
        return not_found_below(f"{self.namespace.name}:Topic:{self._topic}|{self._subscription}|{name}")

    def _there(self) -> Subscription:
        if self._owner is None:
            raise self._subscriptions.missing(self._subscription)
        return self._owner
