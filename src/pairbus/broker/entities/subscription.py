"""A subscription: a queue that a topic fills, and the rules that say with what."""

from dataclasses import dataclass

from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.settings import SubscriptionSettings
from pairbus.broker.filters import Rule
from pairbus.broker.store.base import EntityRow


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule, and the entity as which it is stored."""

    row: EntityRow
    rule: Rule


class Subscription:
    """One subscription of a topic.

    :ivar rules: by name, in lower case, in the order in which they were made.
    """

    def __init__(self, name: str, settings: SubscriptionSettings, queue: Queue) -> None:
        self.name = name
        self.settings = settings
        self.queue = queue
        self.rules: dict[str, StoredRule] = {}

    @property
    def path(self) -> str:
        """Where its messages are received."""
        return self.queue.path

    @property
    def size(self) -> int:
        """Bytes of all its messages, the dead-lettered ones too."""
        return self.queue.full_size
