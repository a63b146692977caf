"""Topics, as they are administered."""

from collections.abc import Sequence
from dataclasses import replace

from pairbus.broker.admin.collection import Collection
from pairbus.broker.admin.descriptions import TOPIC
from pairbus.broker.admin.documents import Entry
from pairbus.broker.admin.problems import ProblemError, exists, not_hosted, not_there_to_update
from pairbus.broker.admin.validation import check_path
from pairbus.broker.admin.xml import Element
from pairbus.broker.entities.settings import TopicSettings
from pairbus.broker.entities.topic import Topic
from pairbus.broker.filters import CorrelationFilter


class TopicCollection(Collection[Topic]):
    """The topics of a namespace."""

    element = TOPIC.element

    def all(self) -> Sequence[Topic]:
        """Return all of them, by name."""
        return sorted(self.namespace.topics, key=lambda topic: topic.path.lower())

    def find(self, name: str) -> Topic | None:
        """Return one of them."""
        return self.namespace.topics.find(name)

    def entry(self, item: Topic) -> Entry:
        """Tell what one of them is like."""
        runtime = self.namespace.topics.runtime(item)
        rules = [stored.rule for each in item.subscriptions for stored in each.rules.values()]
        correlated = sum(isinstance(rule.filter, CorrelationFilter) for rule in rules)
        told = self.told(
            runtime,
            SubscriptionCount=str(runtime.subscription_count),
            SqlFilterCount=str(len(rules) - correlated),
            CorrelationFilterCount=str(correlated),
            FilteringMessagesBeforePublishing="false",
            EnableSubscriptionPartitioning="false",
        )
        return Entry(
            item.path,
            self.context.uri(item.path),
            TOPIC.write(item.settings, told, host=self.context.host, version=self.context.version),
            runtime.updated_at,
            runtime.created_at,
            self.namespace.name,
        )

    async def create(self, name: str, description: Element) -> None:
        """Make one."""
        check_path(name, self.context.uri(name))
        settings = TopicSettings(**self.settings(TOPIC, description))
        await self.context.carry_out(lambda answer: self.namespace.topics.create(name, settings, answer))

    async def update(self, item: Topic, description: Element) -> None:
        """Change one."""
        settings = replace(item.settings, **self.settings(TOPIC, description, item.settings))
        await self.context.carry_out(lambda answer: self.namespace.topics.update(item.path, settings, answer))

    async def delete(self, item: Topic) -> None:
        """Delete one, with its subscriptions."""
        await self.context.carry_out(lambda answer: self.namespace.topics.delete(item.path, answer))

    def exists(self, name: str) -> ProblemError:
        """Return what is said to one who makes what is there already."""
        del name
        return exists()

    def missing(self, name: str, *, to_update: bool = False) -> ProblemError:
        """Return what is said to one who changes or deletes what is not there."""
        del name
        return not_there_to_update() if to_update else not_hosted()
