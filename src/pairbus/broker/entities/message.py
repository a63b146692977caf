"""A message in the broker: what is read of it when it comes, and what is added when it goes."""

import os
import struct
import uuid
from dataclasses import dataclass
from typing import Final

from pairbus.amqp.conditions import AmqpError
from pairbus.amqp.encoder import encode_map, encode_symbol
from pairbus.amqp.message import (
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Message,
    build_message,
    encode_data_section,
    encode_header,
    encode_map_section,
)
from pairbus.amqp.performatives import Map
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.refusals import RefusedError, bad_argument
from pairbus.broker.store.base import Row, sequence_of

SEQUENCE_NUMBER: Final = Symbol("x-opt-sequence-number")
ENQUEUED_TIME: Final = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL: Final = Symbol("x-opt-locked-until")
ENQUEUED_NUMBER: Final = Symbol("x-opt-enqueue-sequence-number")
SCHEDULED_TIME: Final = Symbol("x-opt-scheduled-enqueue-time")
DEAD_LETTER_SOURCE: Final = Symbol("x-opt-deadletter-source")
HOPS: Final = Symbol("x-opt-forwarding-hops")
"""How often a message was forwarded. It is stored with the message, and no receiver sees it."""
MESSAGE_STATE: Final = Symbol("x-opt-message-state")
DAMAGED: Final = "MessageDamaged"
LOCK_TOKEN: Final = Symbol("x-opt-lock-token")
DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"

PING: Final = "application/vnd.ms-servicebus-ping"

MAX_ID: Final = 128
ID_BYTES: Final = 16
"""Random bytes of the id of a message that has none of its own; it has twice as many hexadecimal digits."""
OVERHEAD: Final = 160
"""Bytes, at most, that the entities before have added to a message that is forwarded: an id, its first number, hops."""
BEGINNING_OF_TIME: Final = -62_135_596_800_000
"""The year 1, in milliseconds."""
END_OF_TIME: Final = 253_402_300_800_000
"""The year 10000, in milliseconds: what expires then never does, and nothing can be scheduled for it."""
_MAX_UINT: Final = 0xFFFFFFFF
_SEQUENCE: Final = sequence_of(-1)
"""The bits of a key that are the sequence number: there is one of these for each message in memory."""
_OURS: Final = (SEQUENCE_NUMBER, ENQUEUED_TIME, LOCKED_UNTIL, MESSAGE_STATE, HOPS)


@dataclass(slots=True)
class Incoming:
    """A message that was sent, and what the broker acts on.

    :ivar message_id: its sender's, None: it had none, and the payload has one of the broker's.
    :ivar time_to_live: milliseconds, None: none was given.
    :ivar due: when it is to become active, None: at once.
    :ivar is_forwarded: whether another entity has sent it on, and its first number is known.
    :ivar hops: how often it was forwarded, this time included.
    :ivar added: bytes of the payload that are the broker's, and do not count towards the largest size.
    """

    payload: bytes
    message_id: str | None = None
    session_id: str | None = None
    time_to_live: int | None = None
    due: int | None = None
    is_ping: bool = False
    is_forwarded: bool = False
    hops: int = 0
    added: int = 0


def read_incoming(payload: bytes) -> Incoming:
    """Read what the broker acts on; malformed bytes raise :class:`~pairbus.amqp.conditions.AmqpError`.

    Header and annotations are put before the bare message if they were not there. All but data is looked into: what
    is malformed would break its receivers, one after the other. A message without an id gets one, as in the cloud:
    there are clients that cannot do without. No duplicate detection remembers it, for no other message has it.
    """
    message = Message(payload)
    message.check_unread()
    if not (message.is_in_order and message.is_spelled_short):
        payload = message.rewritten()
        message = Message(payload)
    incoming = Incoming(payload)
    properties = message.properties()
    _read_marks(incoming, message, properties)
    if incoming.message_id is None and not incoming.is_ping:
        incoming.payload = message.with_message_id(os.urandom(ID_BYTES).hex())
        incoming.added = len(incoming.payload) - len(payload)
    return incoming


def _read_marks(incoming: Incoming, message: Message, properties: Properties | None) -> None:
    header = message.header()
    if header is not None:
        incoming.time_to_live = header.ttl
    if properties is not None:
        if properties.message_id is not None:
            incoming.message_id = str(properties.message_id)
            _check_length("message id", incoming.message_id)
        if properties.group_id is not None:
            incoming.session_id = properties.group_id
            _check_length("session id", incoming.session_id)
        if properties.content_type == PING:
            incoming.is_ping = True
        ends, begins = properties.absolute_expiry_time, properties.creation_time
        if incoming.time_to_live == _MAX_UINT and ends is not None and begins is not None:
            incoming.time_to_live = ends - begins  # longer than a header can say
    if message.has(MESSAGE_ANNOTATIONS):
        due = message.message_annotations().get(SCHEDULED_TIME)
        if isinstance(due, int):
            incoming.due = int(due)
            if not BEGINNING_OF_TIME <= incoming.due < END_OF_TIME:
                raise bad_argument("A message can only be scheduled for a time in the years 1 to 9999.")


def _check_length(what: str, text: str) -> None:
    if len(text) > MAX_ID:
        raise bad_argument(f"The {what} has {len(text)} characters; {MAX_ID} at most.")


class Held:
    """A message in memory: on its way out, under lock, or just come in."""

    __slots__ = (
        "damage",
        "deliveries",
        "enqueued",
        "expires",
        "is_unstored",
        "payload",
        "sequence",
        "session",
        "state",
        "token",
        "until",
    )

    def __init__(self, row: Row) -> None:
        key, self.state, self.enqueued, self.expires, _due, self.session, self.deliveries, self.payload = row
        self.damage = row.damage
        self.sequence = key & _SEQUENCE
        self.token: bytes | None = None
        self.until = 0
        """Until when it is locked."""
        self.is_unstored = False
        """Whether the store has refused a change of it: then it must stay in memory."""


_pack_long: Final = struct.Struct(">q").pack
_SEQUENCE_KEY: Final = encode_symbol(SEQUENCE_NUMBER) + b"\x81"
_ENQUEUED_KEY: Final = encode_symbol(ENQUEUED_TIME) + b"\x83"
_LOCKED_KEY: Final = encode_symbol(LOCKED_UNTIL) + b"\x83"
_THREE_SIZE: Final = 1 + len(_SEQUENCE_KEY) + len(_ENQUEUED_KEY) + len(_LOCKED_KEY) + 3 * 8
_ANNOTATIONS: Final = b"\x00\x53\x72\xc1"
_THREE: Final = _ANNOTATIONS + bytes((_THREE_SIZE, 6)) + _SEQUENCE_KEY
"""The annotations of a message that has none of its own: where they begin."""
_LOCK_KEY: Final = encode_symbol(LOCK_TOKEN) + b"\x98"
_LOCK: Final = b"\x00\x53\x71\xc1" + bytes((1 + len(_LOCK_KEY) + 16, 2)) + _LOCK_KEY
"""The delivery annotations of a message under lock that has none of its own: where they begin. The token follows."""
_unpack_token: Final = struct.Struct("<IHH8s").unpack
"""A token is a uuid's bytes_le; AMQP writes a uuid the other way round."""
_pack_lock: Final = struct.Struct(f">{len(_LOCK)}sIHH8s").pack
_pack_three: Final = struct.Struct(f">{len(_THREE)}sq{len(_ENQUEUED_KEY)}sq{len(_LOCKED_KEY)}sq").pack
_pack_lock_and_three: Final = struct.Struct(
    f">{len(_LOCK)}sIHH8s{len(_THREE)}sq{len(_ENQUEUED_KEY)}sq{len(_LOCKED_KEY)}sq"
).pack
_NUMBER_KEY: Final = encode_symbol(ENQUEUED_NUMBER) + b"\x81"
_STAMP: Final = _ANNOTATIONS + bytes((1 + len(_NUMBER_KEY) + 8, 2)) + _NUMBER_KEY
"""The annotations of a message of a topic that has none but its number there, which follows."""
_STAMP_END: Final = len(_STAMP) + 8
_THREE_AT: Final = len(_ANNOTATIONS) + 2
_FOUR: Final = _ANNOTATIONS + bytes((_THREE_SIZE + len(_NUMBER_KEY) + 8, 8)) + _NUMBER_KEY


_SHORT_DESCRIPTOR: Final = b"\x00\x53"
_PLAIN_HEADS: Final = tuple(encode_header(Header(delivery_count=count)) for count in range(16))
"""The headers of messages that have none of their own, by how often they were delivered before."""


def outgoing(held: Held, *, extra: Map | None = None) -> bytes:
    """Return a message as a receiver gets it: bare as it came, with the broker's header and annotations."""
    if held.token is None or extra is not None:
        return _outgoing(held, extra)
    front, rest = outgoing_parts(held)
    return front + rest


def outgoing_parts(held: Held) -> tuple[bytes, bytes]:
    """Return a message under lock as a receiver gets it: what the broker says of it, and the rest."""
    payload, token = held.payload, held.token
    if token is not None and held.expires is None and 0 < held.deliveries <= len(_PLAIN_HEADS):
        if payload[:2] == _SHORT_DESCRIPTOR and payload[2] >= PROPERTIES:  # neither header nor annotations before it
            return _PLAIN_HEADS[held.deliveries - 1] + _pack_lock_and_three(
                _LOCK,
                *_unpack_token(token),
                _THREE,
                held.sequence,
                _ENQUEUED_KEY,
                held.enqueued,
                _LOCKED_KEY,
                held.until,
            ), payload
        if payload.startswith(_STAMP) and _is_bare(payload, _STAMP_END):
            number = payload[len(_STAMP) : _STAMP_END]
            lock, three = _pack_lock(_LOCK, *_unpack_token(token)), _three_annotations(held)[_THREE_AT:]
            return _PLAIN_HEADS[held.deliveries - 1] + lock + _FOUR + number + three, payload[_STAMP_END:]
    return b"", _outgoing(held, None)


def _is_bare(payload: bytes, start: int = 0) -> bool:
    """Tell whether neither header nor annotations come there, in a message that has them first if it has them."""
    return payload[start : start + 2] == _SHORT_DESCRIPTOR and payload[start + 2] >= PROPERTIES


def _three_annotations(held: Held) -> bytes:
    return _pack_three(_THREE, held.sequence, _ENQUEUED_KEY, held.enqueued, _LOCKED_KEY, held.until)


def _outgoing(held: Held, extra: Map | None) -> bytes:
    message = Message(held.payload)
    header = message.header()
    count = max(0, held.deliveries - 1)
    lives = None if held.expires is None else min(held.expires - held.enqueued, _MAX_UINT)
    if header is None:
        head = encode_header(Header(ttl=lives, delivery_count=count))
    else:
        ttl = header.ttl if lives is None else lives
        head = encode_header(Header(header.durable, header.priority, ttl, None, count))
    head += _delivery_annotations(message, held.token)
    if extra is None and held.token is not None and not message.has(MESSAGE_ANNOTATIONS):
        return head + _three_annotations(held) + message.bare
    values = {name: value for name, value in message.message_annotations().items() if name not in _OURS}
    values[SEQUENCE_NUMBER] = held.sequence
    values[ENQUEUED_TIME] = Timestamp(held.enqueued)
    if held.token is not None:
        values[LOCKED_UNTIL] = Timestamp(held.until)
    if extra:
        values.update(extra)
    return head + b"\x00\x53\x72" + encode_map(values) + message.bare


def _delivery_annotations(message: Message, token: bytes | None) -> bytes:
    """Return the annotations of a delivery: the producer's own, and the token of its lock, if it is under one.

    Clients that receive a message in an answer of ``$management``, which has no delivery tag, take the token from here.
    """
    values = message.delivery_annotations() if message.has(DELIVERY_ANNOTATIONS) else {}
    values.pop(LOCK_TOKEN, None)  # of a lock at another broker
    if token is not None:
        values[LOCK_TOKEN] = uuid.UUID(bytes_le=token)
    return encode_map_section(DELIVERY_ANNOTATIONS, values)


def with_properties(payload: bytes, changes: Map) -> bytes:
    """Return a message with some application properties set."""
    message = Message(payload)
    return message.rewritten(application_properties={**message.application_properties(), **changes})


def forwarded(held: Held, now: int) -> Incoming:
    """Return a message as the next entity gets it: with the number that the first one gave it, and what life is left.

    It is counted how often a message is forwarded: ``hops`` of what is returned says so, this time included.
    """
    message = Message(held.payload)
    annotations = {ENQUEUED_NUMBER: held.sequence, **message.message_annotations()}
    before = annotations.get(HOPS)
    hops = 1 + (min(before, _MAX_UINT) if isinstance(before, int) and before > 0 else 0)  # it may be a producer's
    annotations[HOPS] = hops
    incoming = read_incoming(message.rewritten(message_annotations=annotations))
    incoming.due = None
    incoming.is_forwarded = True
    incoming.hops = hops
    incoming.added = OVERHEAD
    if held.expires is not None:
        incoming.time_to_live = held.expires - now
    return incoming


def stamped(incoming: Incoming, number: int) -> bytes:
    """Return a message as a topic keeps it: with its number there, unless it had one before it was forwarded."""
    if _is_bare(incoming.payload):
        return _STAMP + _pack_long(number) + incoming.payload
    message = Message(incoming.payload)
    annotations = message.message_annotations()
    if incoming.is_forwarded and ENQUEUED_NUMBER in annotations:
        return incoming.payload
    return message.rewritten(message_annotations={**annotations, ENQUEUED_NUMBER: number})


def dead_lettered(payload: bytes, reason: str | None, description: str | None, source: str) -> bytes:
    """Return a message as a dead-letter queue keeps it: with why it is there and where it came from."""
    message = Message(payload)
    properties = dict(message.application_properties())
    if reason is not None:
        properties[DEAD_LETTER_REASON] = reason
    if description is not None:
        properties[DEAD_LETTER_DESCRIPTION] = description
    annotations = {**message.message_annotations(), DEAD_LETTER_SOURCE: source}
    return message.rewritten(message_annotations=annotations, application_properties=properties)


def damaged(payload: bytes, why: str, source: str, number: int) -> bytes:
    """Return a message that is not what was stored as a dead-letter queue keeps it.

    It is there as it was found, so that an operator can tell which one it was; bytes that are no message any more are
    the body of one.
    """
    try:
        read_incoming(payload)
        is_readable = bool(payload)
    except (AmqpError, RefusedError):
        is_readable = False
    if not is_readable:
        properties = Properties(message_id=f"damaged-{number}")
        payload = build_message(encode_data_section(payload), properties=properties)
    return dead_lettered(payload, DAMAGED, f"Message {number} was damaged on the disk: {why}.", source)
