"""A queue as a namespace serves it: with its consumers, its sessions and its dead-letter queues."""

from dataclasses import dataclass
from typing import Final

from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.runtime import Runtime
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.nodes.consumers import Consumers
from pairbus.broker.store.base import EntityKind, EntityRow

DEAD_LETTER: Final = "/$deadletterqueue"
DEAD_LETTER_PATH: Final = "/$DeadLetterQueue"
TRANSFER_DEAD_LETTER: Final = "/$transfer/$deadletterqueue"
TRANSFER_DEAD_LETTER_PATH: Final = "/$Transfer/$DeadLetterQueue"


@dataclass(slots=True, eq=False)
class QueueNode:
    """A queue, a dead-letter queue or the queue of a subscription.

    :ivar row: the queue as it is stored; that of a subscription says what the subscription is.
    :ivar opened_at: when the broker has begun to serve it, which counts as a use.
    :ivar forward_to: the path of the entity to which all its messages go; None: they stay.
    :ivar forward_at: when it may forward again, after the store has refused.
    """

    queue: Queue
    consumers: Consumers
    sessions: Sessions | None
    row: EntityRow
    opened_at: int
    forward_to: str | None = None
    forward_at: int = 0

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue of its own, not a dead-letter queue or the queue of a subscription."""
        return self.row.kind == EntityKind.QUEUE and self.queue.dead is not None

    @property
    def wake_at(self) -> int | None:
        """When there is something to be done here; None: not before something else happens."""
        first = self.queue.wake_at
        if self.sessions is not None:
            first = _earlier(first, self.sessions.wake_at)
        return _earlier(first, self.consumers.wake_at)

    @property
    def runtime(self) -> Runtime:
        queue, dead = self.queue, self.queue.dead
        here = _received_or_deferred(queue)
        return Runtime(
            active_message_count=0 if self.forward_to is not None else here,
            dead_letter_message_count=_received_or_deferred(dead),
            scheduled_message_count=queue.scheduled_count,
            transfer_message_count=here if self.forward_to is not None else 0,
            transfer_dead_letter_message_count=_received_or_deferred(queue.transfer_dead),
            size_in_bytes=queue.full_size,
            created_at=self.row.created,
            updated_at=self.row.updated,
            accessed_at=max(queue.used_at, 0 if dead is None else dead.used_at, self.row.accessed),
        )


def parts_of(queue: Queue) -> list[Queue]:
    """Return a queue and the dead-letter queues that it has."""
    return [each for each in (queue, queue.dead, queue.transfer_dead) if each is not None]


def dead_settings(settings: QueueSettings) -> QueueSettings:
    """Return the settings of a queue's dead-letter queue."""
    return QueueSettings(
        lock_duration=settings.lock_duration,
        max_delivery_count=2**31 - 1,
        max_size_in_megabytes=settings.max_size_in_megabytes,
        max_message_size_in_kilobytes=settings.max_message_size_in_kilobytes,
    )


def _received_or_deferred(queue: Queue | None) -> int:
    return 0 if queue is None else queue.active_count + len(queue.deferred)


def _earlier(one: int | None, other: int | None) -> int | None:
    return one if other is None or (one is not None and one < other) else other
