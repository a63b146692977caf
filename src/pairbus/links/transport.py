"""What carries messages for the mover: a small port, so that a faster client can take the SDK's place.

A transport stands for one namespace. It opens its links when they are first needed and keeps them open, gives every
call a deadline, and raises the exception types of the SDK. Messages are carried as the bytes they came in; only the
sections that the rules change are ever decoded (:mod:`pairbus.messages.encoded_labels`), the body never.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from pairbus.amqp import AmqpError
from pairbus.amqp.message import Message
from pairbus.core.burst import LockedMessage, Parked
from pairbus.core.envelope import Label
from pairbus.core.moving import Settlement
from pairbus.core.verdict import ErrorFacts
from pairbus.messages.encoded_labels import relabelled

LONG_WAIT: Final = 300.0
"""A receiver that lost its link after so many seconds of waiting was idle, which is no failure."""
PAGE: Final = 250
"""How many messages one look at a queue shows."""


@dataclass(slots=True, eq=False, kw_only=True)
class Received(LockedMessage):
    """A message of a backlog queue, under a lock of the transport that received it, which knows more about it.

    :ivar payload: the message, encoded as it came.
    """

    payload: bytes

    @property
    def message_id(self) -> object:
        """The id that its sender gave it, read from the payload each time; None: it has none that can be read."""
        try:
            properties = Message(self.payload).properties()
        except AmqpError:
            return None
        return None if properties is None else properties.message_id

    def restored(self, label: Label, now: datetime) -> bytes:
        """Encode it with the label that it had before it was parked, as its sender would send it now."""
        return relabelled(Message(self.payload), label, now)


@dataclass(slots=True)
class Outgoing:
    """Messages to send as one batch: encoded, and what they have in common that a broker wants to know."""

    payloads: Sequence[bytes]
    session_id: str | None = None
    partition_key: str | None = None


Answers: TypeAlias = Sequence[Exception | None]
"""How an operation ended for each of its messages; None: well."""


class Transport(Protocol):
    """Sends to and receives from one namespace.

    A call that is cancelled, or runs into its deadline, leaves the transport usable. Calls may be made by any
    number of tasks at once; those on one queue wait for each other.
    """

    @property
    def namespace(self) -> str:
        """The first label of the namespace's host name."""
        ...

    def facts(self, error: Exception) -> ErrorFacts:
        """Tell what the rules need to know about an error that it has raised."""
        ...

    async def receive(self, queue: str, most: int, wait: float) -> Sequence[Received]:
        """Receive up to so many messages under lock; none when none came within ``wait`` seconds."""
        ...

    async def browse(self, queue: str, up_to: int) -> Sequence[Parked]:
        """Look at all messages of a queue up to this sequence number, those under lock too."""
        ...

    async def send(self, destination: str, batch: Outgoing) -> None:
        """Send messages, all or none, to a queue or topic."""
        ...

    async def settle(self, queue: str, messages: Sequence[Received], settlement: Settlement) -> Answers:
        """End with messages that were received from a queue."""
        ...

    async def renew(self, queue: str, messages: Sequence[Received]) -> Answers:
        """Renew the locks of messages."""
        ...

    async def close(self) -> None:
        """Close all links."""
        ...
