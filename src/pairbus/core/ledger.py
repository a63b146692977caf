"""The ledger's one record: an operation at a broker, or a turn of an entity's health (K1).

A record is one line of JSON. Whoever makes it hands in its id and its time, so that the rules stay pure.
"""

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Self, cast

from pairbus.errors import LedgerError

VERSION = 1

STEP_BYTES = 64 * 1024
"""A message counts as one operation for each step of this size, or part of one (K2)."""


class Kind(enum.Enum):
    """What was done."""

    SEND = "send"
    RECEIVE = "receive"
    EMPTY_RECEIVE = "empty-receive"
    """A long poll that ended without a message."""
    PEEK = "peek"
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RENEW = "renew"
    PING = "ping"
    SCHEDULE = "schedule"
    CANCEL = "cancel"
    SESSION_STATE = "session-state"
    MANAGEMENT = "management"
    TURN = "turn"
    """No operation: an entity's health changed; ``detail`` is the new state."""
    DROPPED = "dropped"
    """No operation: so many records, ``messages``, had no room in the ledger; ``detail`` says why."""


_NO_OPERATION: Final = frozenset({Kind.TURN, Kind.DROPPED})


class Stage(enum.Enum):
    """At which point of a message's way it was done."""

    DIRECT = "direct"
    """The application's own traffic with the primary."""
    PARK = "park"
    """To a backlog queue, during failover."""
    PING = "ping"
    SYPHON = "syphon"
    """From a backlog queue to the destination."""
    IDLE = "idle"
    """The syphon, waiting."""
    SETUP = "setup"
    """Making sure of the backlog queues, looking at the pairing."""


class Outcome(enum.Enum):
    """How it ended."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """No answer came: it may have been done (S7)."""


class MeteredBy(enum.Enum):
    """Which end of the connection wrote the record."""

    CLIENT = "client"
    BROKER = "broker"


def operations(sizes: Iterable[int]) -> int:
    """Return how many operations are charged for one call with messages of these sizes: at least one (K2)."""
    return max(1, sum(max(1, -(-size // STEP_BYTES)) for size in sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One operation, whole.

    :ivar id: unique among all ledgers, so that a record which was written twice is counted once.
    :ivar at: when it ended, UTC.
    :ivar client: who did it, as the application names itself.
    :ivar operations: how many it is charged as, see :func:`operations`; a turn of health and dropped records are none.
    :ivar bytes: encoded size of all its messages.
    :ivar duration_us: how long it took, in microseconds.
    :ivar destination: where a message of a backlog queue belongs.
    :ivar oldest_at: when the oldest of its messages was enqueued, where that is known.
    :ivar detail: the error's name, or the new state of a turn.
    """

    id: str
    at: datetime
    metered_by: MeteredBy = MeteredBy.CLIENT
    client: str
    namespace: str
    entity: str
    kind: Kind
    stage: Stage
    outcome: Outcome
    messages: int = 0
    operations: int = 1
    bytes: int = 0
    duration_us: int = 0
    destination: str | None = None
    oldest_at: datetime | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.at.tzinfo is None or (self.oldest_at is not None and self.oldest_at.tzinfo is None):
            self._refuse(("at", "oldest_at"), lambda moment: moment.tzinfo is None, "a time with its zone")
        if self.messages < 0 or self.operations < 0 or self.bytes < 0 or self.duration_us < 0:
            self._refuse(("messages", "operations", "bytes", "duration_us"), lambda count: count < 0, "0 or more")
        if self.kind in _NO_OPERATION:
            object.__setattr__(self, "operations", 0)

    def _refuse(self, names: Iterable[str], is_wrong: Callable[[Any], bool], expected: str) -> NoReturn:
        name = next(name for name in names if getattr(self, name) is not None and is_wrong(getattr(self, name)))
        raise LedgerError(f"field {name!r} is {getattr(self, name)!r}: expected {expected}")

    def to_json(self) -> str:
        """Return the record as one line, without its end."""
        values: dict[str, Any] = {
            "v": VERSION,
            "id": self.id,
            "at": _written(self.at),
            "metered_by": self.metered_by.value,
            "client": self.client,
            "namespace": self.namespace,
            "entity": self.entity,
            "kind": self.kind.value,
            "stage": self.stage.value,
            "outcome": self.outcome.value,
            "messages": self.messages,
            "operations": self.operations,
            "bytes": self.bytes,
            "duration_us": self.duration_us,
        }
        if self.destination is not None:
            values["destination"] = self.destination
        if self.oldest_at is not None:
            values["oldest_at"] = _written(self.oldest_at)
        if self.detail is not None:
            values["detail"] = self.detail
        return _encode(values)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a record back; fields that a newer version added are passed over."""
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"not a line of JSON: {error}") from None
        if not isinstance(values, dict):
            raise LedgerError(f"a record is a JSON object, not {type(values).__name__}")
        given = cast("Mapping[str, Any]", values)
        read: dict[str, Any] = {}
        for name, (parse, required) in _FIELDS.items():
            value = given.get(name)
            if value is None:
                if required:
                    raise LedgerError(f"field {name!r} is missing")
                continue
            try:
                read[name] = parse(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise LedgerError(f"field {name!r} is {value!r}: {error}") from None
        return cls(**read)


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _written(moment: datetime) -> str:
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError("expected a whole number, 0 or more")
    return value


def _time(value: object) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError("expected a time with its zone, such as 2026-01-31T12:00:00Z")
    return moment.astimezone(UTC)


_FIELDS = {
    "id": (_text, True),
    "at": (_time, True),
    "metered_by": (MeteredBy, False),
    "client": (_text, True),
    "namespace": (_text, True),
    "entity": (_text, True),
    "kind": (Kind, True),
    "stage": (Stage, True),
    "outcome": (Outcome, True),
    "messages": (_count, False),
    "operations": (_count, False),
    "bytes": (_count, False),
    "duration_us": (_count, False),
    "destination": (_text, False),
    "oldest_at": (_time, False),
    "detail": (_text, False),
}
