"""What one caller wants to have done on a link, and the record of the operation that does it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pairbus.core.ledger import Kind, Stage
from pairbus.core.verdict import ErrorFacts
from pairbus.instrument.hooks import Instrument
from pairbus.messages.sdk_batches import Message
from pairbus.messages.sdk_messages import carrier_of, group_key, size_of

T = TypeVar("T")

Work: TypeAlias = Callable[[Any], Awaitable[T]]
"""Does something on an open link: the SDK's, or a native one, which has the methods that are used."""

Unheard: TypeAlias = Callable[[ErrorFacts | None, float], None]
"""Told how an attempt ended that no caller waits for any more (None: it was accepted), and when it had begun."""

STALE_SECONDS: Final = 240.0
"""A link that was idle for longer is replaced before it is used again: brokers detach idle ones after ten minutes."""


@dataclass(eq=False, slots=True)
class Submission(Generic[T]):
    """What one caller wants to have done on the link.

    :ivar work: does it on the open link; None: the one message is sent.
    :ivar joins: it is one message, which may travel with others of its group.
    :ivar deadline: of the attempt; the caller may give up earlier.
    :ivar retries: whether the SDK may try again by itself to open the link.
    :ivar destination: where the messages belong, if they are parked.
    :ivar begun: whether anything of it may have been sent.
    """

    kind: Kind
    messages: Sequence[Message]
    deadline: float
    work: Work[T] | None = None
    joins: bool = False
    retries: bool = True
    destination: str | None = None
    begun: bool = False
    future: "asyncio.Future[T]" = field(init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)

    @property
    def group(self) -> object:
        """What messages that travel together have in common."""
        return self.destination, group_key(self.messages[0])

    def run(self, link: Any) -> Awaitable[Any]:  # noqa: ANN401 (the SDK's link, or a native one)
        """Do it."""
        return link.send_one(self.messages[0]) if self.work is None else self.work(link)


class Begun(Protocol):
    """An operation that has begun, to be told how it ends."""

    def done(self) -> None:
        """Tell that it ended well."""
        ...

    def failed(self, error: BaseException, *, in_doubt: bool = False) -> None:
        """Tell that it failed, and whether it may have been carried out all the same."""
        ...


class _Unwatched:
    """An operation that nobody wants to know about."""

    def done(self) -> None:
        """Tell nobody."""

    def failed(self, error: BaseException, *, in_doubt: bool = False) -> None:
        """Tell nobody."""


_UNWATCHED: Final = _Unwatched()


def begin(instrument: Instrument, namespace: str, entity: str, stage: Stage, load: Sequence[Submission[Any]]) -> Begun:
    """Begin the operation that carries a load; a trace's context may be added to its messages."""
    first = load[0]
    if stage is Stage.DIRECT and not instrument.measures:
        return _UNWATCHED  # while parked messages are counted in any case
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
