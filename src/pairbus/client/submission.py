"""What one caller wants to have done on a link, and what is under way on it together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pairbus.core.ledger import Kind, Stage
from pairbus.instrument.hooks import Instrument, Operation
from pairbus.links.channel import Channel
from pairbus.messages.sdk_batches import Message
from pairbus.messages.sdk_messages import carrier_of, group_key, size_of

T = TypeVar("T")

Work: TypeAlias = Callable[[Channel], Awaitable[T]]
"""Asks something of an entity on an open channel."""


@dataclass(eq=False, slots=True)
class Submission(Generic[T]):
    """What one caller wants to have done on the link.

    :ivar deadline: of the attempt; the caller may give up earlier.
    :ivar work: what to ask of the entity; None: the messages are sent.
    :ivar joins: it is one message, which may travel with others of its group.
    :ivar is_batch: the messages are sent as one batch, be it of one message.
    :ivar payloads: the messages, encoded; None: not yet.
    :ivar retries: whether the SDK may try again by itself to open the link.
    :ivar destination: where the messages belong, if they are parked.
    :ivar begun: whether anything of it may have been sent.
    """

    kind: Kind
    messages: Sequence[Message]
    deadline: float
    work: Work[T] | None = None
    joins: bool = False
    is_batch: bool = False
    payloads: Sequence[bytes] | None = None
    retries: bool = True
    destination: str | None = None
    begun: bool = False
    future: "asyncio.Future[T]" = field(init=False)

    @property
    def group(self) -> object:
        """What messages that travel together have in common."""
        return self.destination, group_key(self.messages[0])

    def fail(self, error: BaseException) -> None:
        """Tell its caller, if there is one."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(eq=False, slots=True)
class Transfer:
    """Submissions that are under way together.

    :ivar operation: its record; None: nobody wants one.
    :ivar task: does its work, if it is more than a transfer.
    """

    submissions: Sequence[Submission[Any]]
    operation: Operation | None
    began: float
    task: "asyncio.Task[None] | None" = None

    @property
    def is_heard(self) -> bool:
        """Whether a caller waits for it."""
        return any(not submission.future.done() for submission in self.submissions)

    def failed(self, error: BaseException, *, in_doubt: bool) -> None:
        """Record that it failed, and whether it may have been carried out all the same."""
        if self.operation is not None:
            self.operation.failed(error, in_doubt=in_doubt)


def begin(
    instrument: Instrument, namespace: str, entity: str, stage: Stage, load: Sequence[Submission[Any]]
) -> Operation:
    """Begin the operation that carries a load; a trace's context may be added to its messages."""
    first = load[0]
    messages = [message for submission in load for message in submission.messages]
    return instrument.begin(
        namespace,
        entity,
        first.kind,
        stage if first.kind is not Kind.PING else Stage.PING,
        carriers=[carrier_of(message) for message in messages] if instrument.traces else (),
        sizes=[size_of(message) for message in messages] if instrument.measures else [0] * len(messages),
        destination=first.destination,
    )
