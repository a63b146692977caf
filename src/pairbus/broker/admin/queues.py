"""Queues, as they are administered."""

from collections.abc import Sequence
from dataclasses import replace

from pairbus.broker.admin.collection import Collection
from pairbus.broker.admin.descriptions import QUEUE
from pairbus.broker.admin.documents import Entry
from pairbus.broker.admin.problems import ProblemError, exists, not_hosted, not_there_to_update
from pairbus.broker.admin.validation import check_path
from pairbus.broker.admin.values import truth_text
from pairbus.broker.admin.xml import Element
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.namespace.namespace import QueueNode


class QueueCollection(Collection[QueueNode]):
    """The queues of a namespace."""

    element = QUEUE.element

    def all(self) -> Sequence[QueueNode]:
        """Return all of them, by name."""
        return list(self.namespace.queues)

    def find(self, name: str) -> QueueNode | None:
        """Return one of them."""
        return self.namespace.queues.find(name)

    def entry(self, item: QueueNode) -> Entry:
        """Tell what one of them is like."""
        runtime, settings = item.runtime, item.queue.settings
        told = self.told(runtime, SupportOrdering=truth_text(not settings.enable_partitioning))
        return Entry(
            item.queue.path,
            self.context.uri(item.queue.path),
            QUEUE.write(settings, told, host=self.context.host, version=self.context.version),
            runtime.updated_at,
            runtime.created_at,
            self.namespace.name,
        )

    async def create(self, name: str, description: Element) -> None:
        """Make one."""
        check_path(name, self.context.uri(name))
        settings = QueueSettings(**self.settings(QUEUE, description))
        await self.context.carry_out(lambda answer: self.namespace.queues.create(name, settings, answer))

    async def update(self, item: QueueNode, description: Element) -> None:
        """Change one."""
        old = item.queue.settings
        settings = replace(old, **self.settings(QUEUE, description, old))
        await self.context.carry_out(lambda answer: self.namespace.queues.update(item.queue.path, settings, answer))

    async def delete(self, item: QueueNode) -> None:
        """Delete one."""
        await self.context.carry_out(lambda answer: self.namespace.queues.delete(item.queue.path, answer))

    def exists(self, name: str) -> ProblemError:
        """Return what is said to one who makes what is there already."""
        del name
        return exists()

    def missing(self, name: str, *, to_update: bool = False) -> ProblemError:
        """Return what is said to one who changes or deletes what is not there."""
        del name
        return not_there_to_update() if to_update else not_hosted()
