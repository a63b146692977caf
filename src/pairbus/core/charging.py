"""What an operation is charged for (K2): operations, and the bytes that leave a region.

The forecast, the tables and the dashboard all ask here, so that they agree.

*Operations.* Every operation that reached a broker counts, a message once for each 64 KB. Settlements, and renewals of
locks, are metered and not charged (ADR 0012).

*Bandwidth.* A message that travels between a client and a broker leaves the place it comes from. So each transfer is
counted once, where the message goes out:

- a send (also a schedule and a ping) leaves the region in which the client runs;
- a receive (also a peek) leaves the region of the namespace.

What comes in is free. All stages count. A parked message is transferred four times: by the send to the backlog queue
(stage ``park``), the receive from it and the send to the primary (both ``syphon``), and the receive from the primary
(``direct``). Whether a transfer crosses from one region to another depends on where the application, the syphon and
both namespaces are; the ledger does not know it. The price list does: it has a price per GB for each direction and
stage, and zero for transfers within a region.

The bytes are those of the messages, as the ledger has them. Frames, tokens, settlements and administration are small
and not counted.
"""

import enum
from typing import Final

from pairbus.core.ledger import Kind

GB: Final = 1_000_000_000
"""Bytes in one GB, of which prices are per one: a power of ten."""

FREE: Final = frozenset(
    {Kind.COMPLETE, Kind.ABANDON, Kind.DEFER, Kind.DEAD_LETTER, Kind.RENEW, Kind.TURN, Kind.DROPPED}
)
"""Kinds that no operation is charged for: settlements and renewals (ADR 0012), and what is no operation."""


class Direction(enum.Enum):
    """Which way messages are transferred."""

    SEND = "send"
    """From the client to the broker: out of the region in which the client runs."""
    RECEIVE = "receive"
    """From the broker to the client: out of the region of the namespace."""


_DIRECTIONS: Final = {
    Kind.SEND: Direction.SEND,
    Kind.SCHEDULE: Direction.SEND,
    Kind.PING: Direction.SEND,
    Kind.RECEIVE: Direction.RECEIVE,
    Kind.PEEK: Direction.RECEIVE,
}


def direction_of(kind: Kind) -> Direction | None:
    """Return which way an operation of this kind transfers messages; None: it transfers none."""
    return _DIRECTIONS.get(kind)


def charged_operations(kind: Kind, operations: int) -> int:
    """Return how many of a record's operations are charged."""
    return 0 if kind in FREE else operations


def transferred_bytes(kind: Kind, size: int) -> int:
    """Return how many of a record's bytes were transferred."""
    return size if kind in _DIRECTIONS else 0
