"""What a look at a namespace has found, as plain values."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


class Role(enum.StrEnum):
    """Which namespace of the pair it is."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class Top:
    """What lies on top of a queue.

    :ivar oldest_at: when the oldest message was enqueued.
    :ivar destinations: how many of the messages that were looked at belong where; "" if they do not say.
    :ivar looked_at: how many messages were looked at.
    """

    oldest_at: datetime
    destinations: Mapping[str, int]
    looked_at: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue or subscription.

    :ivar path: its path, of a subscription ``topic/Subscriptions/name``.
    :ivar backlog: which backlog queue of the pairing it is; None: it is another queue.
    :ivar top: of a backlog queue that is not empty, if it could be looked at.
    """

    path: str
    depth: int
    dead_letters: int
    backlog: int | None = None
    top: Top | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A namespace as it was seen last.

    :ivar name: the first label of its host name.
    :ivar at: when it was seen; None: never yet.
    :ivar problem: why it cannot be seen now; None: it can.
    :ivar since: since when it cannot.
    :ivar partial: what else could not be looked at, though the namespace could.
    """

    role: Role
    name: str
    at: datetime | None = None
    problem: str | None = None
    since: datetime | None = None
    partial: str | None = None
    queues: tuple[Queue, ...] = field(default=())

    @property
    def backlog(self) -> tuple[Queue, ...]:
        """The backlog queues, in their order."""
        found = [(queue.backlog, queue) for queue in self.queues if queue.backlog is not None]
        return tuple(queue for _, queue in sorted(found, key=lambda each: (each[0], each[1].path)))

    @property
    def with_dead_letters(self) -> tuple[Queue, ...]:
        """The queues and subscriptions that have dead letters."""
        return tuple(queue for queue in self.queues if queue.dead_letters)
