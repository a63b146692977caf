"""Parking and unparking: how a message travels by way of a backlog queue (section 4).

Only a message's :class:`Label` is ever rewritten; body, ids and all other properties stay untouched, and so
the rules need not know them. A parked message carries its origin in four application properties:

==================================  ==========================================================
``x-ms-path``                       the destination, always
``x-ms-sessionid``                  the session id, text
``x-ms-timetolive``                 the time to live, whole milliseconds as in AMQP's header
``x-ms-scheduledenqueuetimeutc``    the scheduled enqueue time, an AMQP timestamp
==================================  ==========================================================
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

from pairbus.errors import ParkedMessageTooLargeError, ReservedPropertyError

PATH = "x-ms-path"
SESSION_ID = "x-ms-sessionid"
TIME_TO_LIVE = "x-ms-timetolive"
SCHEDULED_ENQUEUE_TIME = "x-ms-scheduledenqueuetimeutc"
RESERVED = (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME)

PropertyValue: TypeAlias = str | bytes | bool | int | float | uuid.UUID | datetime | None
Properties: TypeAlias = Mapping[str | bytes, PropertyValue]

T = TypeVar("T")

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Label:
    """The part of a message that parking rewrites.

    Times have the precision of the wire, which is the millisecond; a time without a zone is UTC, as in the SDK.
    """

    session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled_enqueue_time_utc: datetime | None = None
    application_properties: Properties = field(default_factory=dict[str | bytes, PropertyValue])

    def __post_init__(self) -> None:
        if self.time_to_live is not None:
            object.__setattr__(self, "time_to_live", self.time_to_live // _MILLISECOND * _MILLISECOND)
        at = self.scheduled_enqueue_time_utc
        if at is not None:
            object.__setattr__(self, "scheduled_enqueue_time_utc", _from_millis(_to_millis(at)))


@dataclass(frozen=True, slots=True)
class Unparked:
    """What a parked message was before it was parked, and where it is to go."""

    destination: str
    label: Label


@dataclass(frozen=True, slots=True)
class NotParked:
    """Why a message in a backlog queue cannot be unparked."""

    property: str
    problem: str


def check_label(label: Label) -> None:
    """Refuse a message that uses one of our properties, before anything of it is sent (E3)."""
    names = tuple(name for name in RESERVED if _lookup(label.application_properties, name)[1])
    if names:
        raise ReservedPropertyError(names)


def park(label: Label, destination: str) -> Label:
    """Rewrite a message's label for a backlog queue, which must neither expire, delay nor group it (E1).

    What is ours comes first, the destination before all, so that it is found without a look at the others.
    """
    check_label(label)
    properties: dict[str | bytes, PropertyValue] = {PATH: destination}
    if label.session_id is not None:  # E2: only what was set is added
        properties[SESSION_ID] = label.session_id
    if label.time_to_live is not None:
        properties[TIME_TO_LIVE] = label.time_to_live // _MILLISECOND
    if label.scheduled_enqueue_time_utc is not None:
        properties[SCHEDULED_ENQUEUE_TIME] = label.scheduled_enqueue_time_utc
    properties.update(label.application_properties)
    return Label(application_properties=properties)


def unpark(label: Label) -> Unparked | NotParked:
    """Restore a message's label as it was before :func:`park`.

    What the backlog queue itself gave the message (a default time to live) is not the message's and is dropped.
    """
    properties = label.application_properties
    try:
        destination = _read(properties, PATH, _text)
        if not destination:
            return NotParked(PATH, "is missing or empty: where the message belongs is not known")
        restored = Label(
            session_id=_read(properties, SESSION_ID, _text),
            time_to_live=_read(properties, TIME_TO_LIVE, _duration),
            scheduled_enqueue_time_utc=_read(properties, SCHEDULED_ENQUEUE_TIME, _moment),
            application_properties={k: v for k, v in properties.items() if _name(k) not in RESERVED},
        )
    except _UnreadableError as error:
        return NotParked(error.name, error.problem)
    return Unparked(destination, restored)


def parked_size(size: int, label: Label, destination: str) -> int:
    """Return what a message of ``size`` encoded bytes may grow to when it is parked: an upper bound (S8)."""
    added = _text_size(PATH) + _text_size(destination)
    if label.session_id is not None:
        added += _text_size(SESSION_ID) + _text_size(label.session_id)
    for name, value in (
        (TIME_TO_LIVE, label.time_to_live),
        (SCHEDULED_ENQUEUE_TIME, label.scheduled_enqueue_time_utc),
    ):
        if value is not None:
            added += _text_size(name) + _FIXED_8_SIZE
    return size + _MAP_GROWTH + added


def split(sizes: Sequence[int], parked_sizes: Sequence[int], limit: int) -> list[range]:
    """Cut a batch whose messages have grown into runs that fit, keeping the order (S8).

    :param sizes: what each message was, for the error of one that no longer fits on its own.
    :param parked_sizes: what each message is now, with what a batch adds to it.
    """
    runs: list[range] = []
    start = total = 0
    for index, (size, parked) in enumerate(zip(sizes, parked_sizes, strict=True)):
        if parked > limit:
            raise ParkedMessageTooLargeError(size, parked, limit)
        if total + parked > limit:
            runs.append(range(start, index))
            start, total = index, 0
        total += parked
    if sizes:
        runs.append(range(start, len(sizes)))
    return runs


_FIXED_8_SIZE = 9
"""A long or a timestamp: constructor and eight bytes."""

_MAP_GROWTH = 3 + 9
"""The section's descriptor, where there was none, and the widest header of a map."""


def _text_size(text: str) -> int:
    return 5 + len(text.encode())  # the wider of the two encodings of a string


def _name(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _lookup(properties: Properties, name: str) -> tuple[PropertyValue, bool]:
    """Find a property whose name may be bytes, as the SDK gives it for a received message."""
    for key in (name, name.encode()):
        if key in properties:
            return properties[key], True
    return None, False


@dataclass(slots=True)
class _UnreadableError(Exception):
    name: str
    problem: str


def _read(properties: Properties, name: str, reader: Callable[[PropertyValue], T]) -> T | None:
    value, present = _lookup(properties, name)
    if not present:
        return None
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _UnreadableError(name, str(error)) from error


def _text(value: PropertyValue) -> str:
    if isinstance(value, bytes):  # the SDK may give text as bytes
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"is {type(value).__name__}, not text")
    return value


def _millis(value: PropertyValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"is {type(value).__name__}, not a whole number of milliseconds")
    return value


def _duration(value: PropertyValue) -> timedelta:
    millis = _millis(value)
    if millis < 0:
        raise ValueError(f"is {millis}, less than nothing")
    return timedelta(milliseconds=millis)


def _moment(value: PropertyValue) -> datetime:
    return value if isinstance(value, datetime) else _from_millis(_millis(value))  # the SDK gives a number


def _to_millis(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def _from_millis(millis: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=millis)
