"""A message as filters see it: its system and its user properties, decoded only when somebody asks.

Names are compared without regard to case; callers hand them in lower case.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from pairbus.amqp.message import Message
from pairbus.amqp.performatives import Map
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.filters.values import Value, plain

PARTITION_KEY: Final = Symbol("x-opt-partition-key")
VIA_PARTITION_KEY: Final = Symbol("x-opt-via-partition-key")
SCHEDULED_TIME: Final = Symbol("x-opt-scheduled-enqueue-time")
DEAD_LETTER_SOURCE: Final = Symbol("x-opt-deadletter-source")
ENQUEUED_NUMBER: Final = Symbol("x-opt-enqueue-sequence-number")

MAX_UINT: Final = 0xFFFFFFFF
NO_PROPERTIES: Final = Properties()
_NO_HEADER: Final = Header()


class Facts:
    """What filters can know of a message that arrives at a topic.

    :param message: the message as it came.
    :param enqueued: when it came, in milliseconds since the epoch.
    :param sequence: the number that the topic has given it.
    :param new_id: what makes the values of ``newid()``.
    """

    __slots__ = ("_annotations", "_header", "_properties", "_user", "enqueued", "message", "new_id", "sequence")

    def __init__(
        self,
        message: Message,
        *,
        enqueued: int | None = None,
        sequence: int | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.message = message
        self.enqueued = enqueued
        self.sequence = sequence
        self.new_id = new_id
        self._header: Header | None = None
        self._annotations: Map | None = None
        self._properties: Properties | None = None
        self._user: dict[str, Value] | None = None

    @property
    def header(self) -> Header:
        """The message's header; not to be changed."""
        if self._header is None:
            self._header = self.message.header() or _NO_HEADER
        return self._header

    @property
    def annotations(self) -> Mapping[object, Value]:
        """The message's annotations."""
        if self._annotations is None:
            self._annotations = self.message.message_annotations()
        return self._annotations

    @property
    def properties(self) -> Properties:
        """The message's standard properties; not to be changed."""
        if self._properties is None:
            self._properties = self.message.properties() or NO_PROPERTIES
        return self._properties

    @property
    def user(self) -> Mapping[str, Value]:
        """The application's properties by their names in lower case; of two that differ in case only, the first."""
        if self._user is None:
            self._user = {}
            for name, value in self.message.application_properties().items():
                if isinstance(name, str):
                    self._user.setdefault(name.lower(), plain(value))
        return self._user


# --- system properties ----------------------------------------------------------------------------------------------


def _text(value: object) -> str | None:
    """Return an id, which AMQP lets be a number, a guid or binary, as the text that it is to Service Bus."""
    if value is None or type(value) is str:
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _time_to_live(facts: Facts) -> dt.timedelta | None:
    lives, properties = facts.header.ttl, facts.properties if facts.header.ttl == MAX_UINT else NO_PROPERTIES
    if properties.absolute_expiry_time is not None and properties.creation_time is not None:
        lives = properties.absolute_expiry_time - properties.creation_time  # longer than a header can say
    return None if lives is None else dt.timedelta(milliseconds=lives)


def _time(milliseconds: int | None) -> Timestamp | None:
    return None if milliseconds is None else Timestamp(milliseconds)


def _expires(facts: Facts) -> Timestamp | None:
    lives = _time_to_live(facts)
    if facts.enqueued is None or lives is None:
        return None
    return Timestamp(facts.enqueued + lives // dt.timedelta(milliseconds=1))


def _annotation(name: Symbol) -> Callable[[Facts], Value]:
    return lambda facts: plain(facts.annotations.get(name))


SYSTEM: Final[dict[str, Callable[[Facts], Value]]] = {
    "contenttype": lambda facts: _text(facts.properties.content_type),
    "correlationid": lambda facts: _text(facts.properties.correlation_id),
    "deadlettersource": _annotation(DEAD_LETTER_SOURCE),
    "deliverycount": lambda facts: facts.header.delivery_count or 0,
    "enqueuedsequencenumber": _annotation(ENQUEUED_NUMBER),
    "enqueuedtimeutc": lambda facts: _time(facts.enqueued),
    "expiresatutc": _expires,
    "forcepersistence": lambda _facts: False,
    "label": lambda facts: facts.properties.subject,
    "lockeduntilutc": lambda _facts: None,
    "locktoken": lambda _facts: None,
    "messageid": lambda facts: _text(facts.properties.message_id),
    "partitionkey": _annotation(PARTITION_KEY),
    "replyto": lambda facts: facts.properties.reply_to,
    "replytosessionid": lambda facts: facts.properties.reply_to_group_id,
    "scheduledenqueuetimeutc": _annotation(SCHEDULED_TIME),
    "sequencenumber": lambda facts: facts.sequence,
    "sessionid": lambda facts: facts.properties.group_id,
    "size": lambda facts: len(facts.message.data),
    "state": lambda _facts: "Active",
    "subject": lambda facts: facts.properties.subject,
    "timetolive": _time_to_live,
    "to": lambda facts: facts.properties.to,
    "transactionpartitionkey": _annotation(VIA_PARTITION_KEY),
    "viapartitionkey": _annotation(VIA_PARTITION_KEY),
}
"""How each system property is read; a message that arrives has no lock yet."""
