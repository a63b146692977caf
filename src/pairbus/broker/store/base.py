"""The port of storage.

Entities keep in memory only what they need to decide; messages lie in the store. Whatever changes is written to the
store's :class:`Journal`, and whoever must not be answered before it is durable leaves a callback there. What has
gathered is committed together: while one commit is under way the next one gathers.

Times are whole milliseconds since the epoch, UTC.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from pairbus.broker.store.timing import CommitTimes
from pairbus.errors import PairbusError

SEQUENCE_BITS = 40
"""A row's key is the id of its entity, shifted by so many bits, and its sequence number."""


class RowState(enum.IntEnum):
    """What a stored message waits for. A lock is not stored: it ends with the broker."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Row(NamedTuple):
    """A stored message.

    :ivar key: see :func:`key_of`.
    :ivar expires: when it expires, None: never.
    :ivar due: when a scheduled message becomes active.
    :ivar deliveries: how often it was delivered.
    :ivar payload: the encoded message, as it came.
    """

    key: int
    state: int
    enqueued: int
    expires: int | None
    due: int | None
    session: str | None
    deliveries: int
    payload: bytes

    @property
    def damage(self) -> str | None:
        """What is wrong with it, if it is not what was stored; see :class:`DamagedRow`."""
        return None


class DamagedRow(Row):
    """A message that was read, and is not what was stored: nothing of it but the key can be relied on."""

    _damage = "unknown"

    @classmethod
    def of(cls, row: Row, damage: str) -> "DamagedRow":
        """Return what was read, with what is wrong with it."""
        damaged = cls._make(row)
        damaged._damage = damage  # noqa: SLF001 of this very class
        return damaged

    @property
    def damage(self) -> str:
        """What is wrong with it."""
        return self._damage


class IndexRow(NamedTuple):
    """What an entity must know of a stored message when the broker starts.

    :ivar is_whole: False: the record is not what was stored, and nothing of it but the key can be relied on.
    """

    key: int
    state: int
    expires: int | None
    due: int | None
    session: str | None
    size: int
    is_whole: bool = True


class EntityKind(enum.StrEnum):
    """What an entity is. A dead-letter queue is a queue."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    RULE = "rule"


class EntityRow(NamedTuple):
    """An entity.

    :ivar description: its settings, JSON.
    :ivar next_sequence: no message of the entity has had this sequence number or a later one. The store raises it with
        every row that it takes, and never lowers it: an entity need not be journalled for each message.
    """

    id: int
    path: str
    description: str
    next_sequence: int
    kind: str = EntityKind.QUEUE
    created: int = 0
    updated: int = 0
    accessed: int = 0
    """When it was last used, now and then; 0: never."""


class StoreError(PairbusError):
    """The store cannot be used, or has not taken what was written to it."""


class StoreFullError(StoreError):
    """There is no room left; what was written is not stored, and later writes may succeed."""


Durable: TypeAlias = Callable[[StoreError | None], None]
"""Called once what was journalled before it is durable, with None, or is lost, with the error."""


class Journal:
    """What becomes durable together. It is carried out in the order of the attributes below."""

    __slots__ = (
        "copies", "deliveries", "dropped", "durable", "entities", "forgotten", "removed", "rows", "seen",
        "session_states", "states",
    )  # fmt: skip

    def __init__(self) -> None:
        self.entities: list[EntityRow] = []
        """Entities that are new or have changed."""
        self.rows: list[Row] = []
        """Messages that are new, or replace the one of the same key. Their entity is journalled before or with them."""
        self.copies: list[tuple[Row, int]] = []
        """Messages of subscriptions that are new, each with the key under which its payload is stored: once, however
        many copies name that key, and until the last of them is gone. The key is one of the topic's, and no message
        has it."""
        self.states: list[tuple[int, int]] = []
        """Key and new :class:`RowState`."""
        self.deliveries: list[tuple[int, int]] = []
        """Key and how often the message was delivered."""
        self.removed: list[int] = []
        """Keys of messages that are gone."""
        self.session_states: list[tuple[int, str, bytes | None]] = []
        """Entity, session and its state; None: it has none any more."""
        self.seen: list[tuple[int, str, int]] = []
        """Entity, message id and until when it is remembered, for duplicate detection. The latest time counts."""
        self.forgotten: list[tuple[int, int]] = []
        """Entity and time: the message ids that were remembered until then, or less long, need no room any more."""
        self.dropped: list[int] = []
        """Ids of entities that are gone, with all they had."""
        self.durable: list[Durable] = []
        """Who waits for all this."""

    def is_empty(self) -> bool:
        """Tell whether there is nothing to be made durable and nobody waits."""
        return not (
            self.durable
            or self.rows
            or self.copies
            or self.removed
            or self.deliveries
            or self.states
            or self.entities
            or self.session_states
            or self.seen
            or self.forgotten
            or self.dropped
        )


class Store(Protocol):
    """A store. All of it is called from one thread, and calls back on that thread."""

    journal: Journal
    """What gathers now. Look it up anew for each write: :meth:`flush` puts an empty one in its place."""
    commits: CommitTimes
    """How long it took to make things durable; a store that forgets everything has none."""

    def entities(self) -> Sequence[EntityRow]:
        """Return all entities, once, after opening."""
        ...

    def index(self, entity: int) -> Iterator[IndexRow]:
        """Return what is stored of an entity's messages, in the order of their sequence numbers."""
        ...

    def load(self, keys: Sequence[int]) -> list[Row]:
        """Return stored messages in the order of the keys; those that are gone are left out.

        What is journalled and not durable yet is not found here.
        """
        ...

    def browse(self, entity: int, first: int, most: int) -> list[Row]:
        """Return the stored messages of an entity from a sequence number on, in order."""
        ...

    def expired(self, entity: int, now: int, most: int) -> list[Row]:
        """Return stored messages of an entity that expire by ``now`` and are not scheduled, the earliest first.

        Served by an index, so that an entity need not remember when its messages expire.
        """
        ...

    def due(self, entity: int, now: int, most: int) -> list[Row]:
        """Return scheduled messages of an entity that are due by ``now``, the earliest first, by an index."""
        ...

    def next_expiry(self, entity: int) -> int | None:
        """Return when the first message of an entity that is not scheduled expires, by an index."""
        ...

    def next_due(self, entity: int) -> int | None:
        """Return when the first scheduled message of an entity is due, by an index."""
        ...

    def session_states(self, entity: int) -> Iterable[tuple[str, bytes]]:
        """Return the stored session states of an entity."""
        ...

    def seen(self, entity: int, now: int) -> Iterable[tuple[str, int]]:
        """Return the message ids that an entity still remembers, and until when."""
        ...

    def flush(self) -> None:
        """Begin to make durable what has gathered, or let it gather further while a commit is under way.

        Calls nobody back before it returns.
        """
        ...

    def close(self) -> None:
        """Make durable what has gathered, call back, and end. Blocks. Whatever is asked of it later is refused."""
        ...


def key_of(entity: int, sequence_number: int) -> int:
    """Return the key of a message."""
    return entity << SEQUENCE_BITS | sequence_number


def entity_of(key: int) -> int:
    """Return the id of the entity in a key."""
    return key >> SEQUENCE_BITS


def sequence_of(key: int) -> int:
    """Return the sequence number in a key."""
    return key & (1 << SEQUENCE_BITS) - 1
