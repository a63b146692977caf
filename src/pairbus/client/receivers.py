"""The SDK's receivers, metered (K1).

A receiver that a factory hands out is the one that the SDK's client has made, and behaves exactly so (P3). If the
factory has a ledger, the receiver's class is replaced by a subclass of it, which overrides nothing but the public
methods that are operations at a broker; each calls the SDK's own and makes a record of how that ended. Nothing private
of the SDK is used or changed. Without a ledger the receiver is left as it is.

What is recorded:

- a receive, also one that ended without a message, which is a poll; in a loop over the receiver each message is one;
- a peek, and a receive of deferred messages;
- a settlement, a renewal of a lock, a read or change of a session's state. :class:`AutoLockRenewer` of the SDK calls
  these methods as well.

An operation that was cancelled, or whose answer was lost, has an unknown outcome (S7). What is recorded is what the
application asked for: the SDK's own retries within one call are one operation. An error of the meter is logged once
and never reaches the caller.
"""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import aclosing, closing
from functools import wraps
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus import ServiceBusReceiver as SyncReceiver
from azure.servicebus import ServiceBusSession as SyncSession
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSession

from pairbus.core.ledger import Kind, Stage
from pairbus.core.naming import TRANSFER, namespace_label
from pairbus.instrument.hooks import Instrument, Operation
from pairbus.links.errors import facts
from pairbus.messages.sdk_messages import size_of

R = TypeVar("R", SyncReceiver, ServiceBusReceiver)
T = TypeVar("T")

RECEIVER_CALLS: Final = {
    "receive_messages": Kind.RECEIVE,
    "receive_deferred_messages": Kind.RECEIVE,
    "peek_messages": Kind.PEEK,
    "complete_message": Kind.COMPLETE,
    "abandon_message": Kind.ABANDON,
    "defer_message": Kind.DEFER,
    "dead_letter_message": Kind.DEAD_LETTER,
    "renew_message_lock": Kind.RENEW,
}
"""The methods of a receiver that are operations; beside these there is its iteration."""

SESSION_CALLS: Final = {"get_state": Kind.SESSION_STATE, "set_state": Kind.SESSION_STATE, "renew_lock": Kind.RENEW}
"""The methods of a receiver's session that are operations."""

_DEFERRED: Final = "receive_deferred_messages"
_METER: Final = "_pairbus_meter"
"""The attribute in which a metered receiver, and its session, has its meter."""

_LOGGER = logging.getLogger(__name__)


def metered(receiver: R, instrument: Instrument) -> R:
    """Have a receiver's operations recorded by an instrument, if that keeps records; return the receiver."""
    if not instrument.measures:
        return receiver
    is_sync = isinstance(receiver, SyncReceiver)
    where = namespace_label(receiver.fully_qualified_namespace), receiver.entity_path
    setattr(receiver, _METER, Meter(instrument, *where, otherwise=(0,)))
    cast("Any", receiver).__class__ = MeteredSyncReceiver if is_sync else MeteredReceiver
    session = cast("SyncSession | ServiceBusSession | None", receiver.session)
    if session is not None:
        setattr(session, _METER, Meter(instrument, *where, otherwise=()))
        cast("Any", session).__class__ = MeteredSyncSession if is_sync else MeteredSession
    return receiver


class Meter:
    """Makes the records of one receiver, or of its session, and never raises.

    :param otherwise: the sizes of an operation that brings no messages. One on a message, such as a settlement, has
        one message, of which nothing is transferred.
    """

    def __init__(self, instrument: Instrument, namespace: str, entity: str, *, otherwise: Sequence[int]) -> None:
        self._instrument = instrument
        self._namespace = namespace
        self._entity = entity
        # An application that reads a backlog queue does what a syphon does.
        self._stage = Stage.SYPHON if f"/{TRANSFER}/" in entity.lower() else Stage.DIRECT
        self._otherwise = otherwise
        self._has_complained = False

    def begin(self, kind: Kind) -> Operation | None:
        """Begin an operation; None: that failed."""
        try:
            return self._instrument.begin(self._namespace, self._entity, kind, self._stage)
        except Exception as error:  # noqa: BLE001 (the application's receive is never broken by its meter)
            self._complain(error)
            return None

    def done(self, operation: Operation, result: object) -> None:
        """Record that an operation ended well, with what it has returned."""
        try:
            messages = _messages_of(result)
            if messages is None:
                operation.done(self._otherwise)
            else:
                operation.done([size_of(message) for message in messages], oldest_at=_oldest(messages))
        except Exception as error:  # noqa: BLE001 (as above)
            self._complain(error)

    def failed(self, operation: Operation, error: BaseException) -> None:
        """Record that an operation failed."""
        try:
            in_doubt = facts(error).in_doubt if isinstance(error, Exception) else True
            operation.failed(error, in_doubt=in_doubt)
        except Exception as problem:  # noqa: BLE001 (as above)
            self._complain(problem)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            _LOGGER.warning(
                "operations of a receiver of %s are not recorded: %r; they go on, and this is said once",
                self._entity,
                error,
            )


class _Call:
    """One operation, from its beginning to its end: a ``with`` block around the SDK's own method."""

    __slots__ = ("_meter", "_operation")

    def __init__(self, meter: Meter, kind: Kind) -> None:
        self._meter = meter
        self._operation = meter.begin(kind)

    def __enter__(self) -> Self:
        return self

    def returned(self, result: T) -> T:
        """Take note of what the method has returned, and return it."""
        if self._operation is not None:
            self._meter.done(self._operation, result)
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._operation is None:
            return
        if isinstance(error, StopIteration | StopAsyncIteration):  # nothing came for so long as the receiver waits
            self._meter.done(self._operation, ())
        else:
            self._meter.failed(self._operation, error)


def _of(owner: object, kind: Kind) -> _Call:
    return _Call(getattr(owner, _METER), kind)


def _messages_of(result: object) -> Sequence[ServiceBusReceivedMessage] | None:
    """Return the messages that an operation has brought; None: it is one that brings none."""
    if isinstance(result, ServiceBusReceivedMessage):
        return (result,)
    return cast("Sequence[ServiceBusReceivedMessage]", result) if isinstance(result, list | tuple) else None


def _oldest(messages: Iterable[ServiceBusReceivedMessage]) -> Any:
    return min((each.enqueued_time_utc for each in messages if each.enqueued_time_utc is not None), default=None)


def _asks_for_none(name: str, args: Sequence[Any], options: Any) -> bool:
    """Tell whether a call does nothing: for no sequence numbers the SDK asks no broker."""
    return name == _DEFERRED and (args[0] if args else options.get("sequence_numbers")) == []


def _awaited(name: str, kind: Kind, method: Callable[..., Coroutine[Any, Any, T]]) -> Any:
    @wraps(method)
    async def call(self: object, *args: Any, **options: Any) -> T:
        if _asks_for_none(name, args, options):
            return await method(self, *args, **options)
        with _of(self, kind) as operation:
            return operation.returned(await method(self, *args, **options))

    return call


def _called(name: str, kind: Kind, method: Callable[..., T]) -> Any:
    @wraps(method)
    def call(self: object, *args: Any, **options: Any) -> T:
        if _asks_for_none(name, args, options):
            return method(self, *args, **options)
        with _of(self, kind) as operation:
            return operation.returned(method(self, *args, **options))

    return call


class MeteredReceiver(ServiceBusReceiver):
    """The asynchronous SDK's receiver, which records what it does."""

    def __aiter__(self) -> AsyncGenerator[ServiceBusReceivedMessage]:
        return self._metered(cast("AsyncGenerator[ServiceBusReceivedMessage]", super().__aiter__()))

    async def _metered(
        self, messages: AsyncGenerator[ServiceBusReceivedMessage]
    ) -> AsyncGenerator[ServiceBusReceivedMessage]:
        async with aclosing(messages):
            while True:
                try:
                    with _of(self, Kind.RECEIVE) as operation:
                        message = operation.returned(await anext(messages))
                except StopAsyncIteration:
                    return
                yield message

    async def __anext__(self) -> ServiceBusReceivedMessage:
        with _of(self, Kind.RECEIVE) as operation:
            return operation.returned(await super().__anext__())


class MeteredSyncReceiver(SyncReceiver):
    """The synchronous SDK's receiver, which records what it does. Safe in as many threads as the SDK's own."""

    def __iter__(self) -> Generator[ServiceBusReceivedMessage]:
        return self._metered(cast("Generator[ServiceBusReceivedMessage]", super().__iter__()))

    def _metered(self, messages: Generator[ServiceBusReceivedMessage]) -> Generator[ServiceBusReceivedMessage]:
        with closing(messages):
            while True:
                try:
                    with _of(self, Kind.RECEIVE) as operation:
                        message = operation.returned(next(messages))
                except StopIteration:
                    return
                yield message

    def __next__(self) -> ServiceBusReceivedMessage:
        with _of(self, Kind.RECEIVE) as operation:
            return operation.returned(super().__next__())

    next = __next__


class MeteredSession(ServiceBusSession):
    """The asynchronous SDK's session, which records what it does."""


class MeteredSyncSession(SyncSession):
    """The synchronous SDK's session, which records what it does."""


for _name, _kind in RECEIVER_CALLS.items():
    setattr(MeteredReceiver, _name, _awaited(_name, _kind, getattr(ServiceBusReceiver, _name)))
    setattr(MeteredSyncReceiver, _name, _called(_name, _kind, getattr(SyncReceiver, _name)))
for _name, _kind in SESSION_CALLS.items():
    setattr(MeteredSession, _name, _awaited(_name, _kind, getattr(ServiceBusSession, _name)))
    setattr(MeteredSyncSession, _name, _called(_name, _kind, getattr(SyncSession, _name)))
