"""The sender that an application holds: the SDK's while unpaired, and one whose sends do not fail when paired."""

# ruff: noqa: ANN401, ASYNC109 (the SDK's own arguments are handed on)

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.client.entity_monitor import EntityMonitor, SenderState
from pairbus.client.pairing import Pairing
from pairbus.client.send_link import SendLink
from pairbus.client.send_outcomes import ParkedSchedule, explained, in_doubt
from pairbus.client.submission import Submission
from pairbus.core.ledger import Kind
from pairbus.core.lifecycle import OPEN
from pairbus.core.options import check_timeout
from pairbus.core.sending import (
    Done,
    Pause,
    Sending,
    ToBacklog,
    ToPrimary,
    note_primary_failure,
)
from pairbus.core.verdict import Cause, ErrorFacts, Verdict
from pairbus.errors import CancelUnavailableError, FactoryEndedError, SendTimeoutError
from pairbus.links.deadlines import AbandonedError
from pairbus.links.errors import SendTimedOutError, facts
from pairbus.links.sdk.links import Link
from pairbus.links.sdk.private import new_batch
from pairbus.messages.annotations import SCHEDULED_ENQUEUE_TIME
from pairbus.messages.sdk_batches import STANDARD_BATCH_BYTES, Message, encoded_in
from pairbus.messages.sdk_messages import (
    MessageTypes,
    check,
    identified,
    outgoing,
    parked,
    raw,
    runs,
    sized,
    too_large,
)

if TYPE_CHECKING:
    from pairbus.client.factory import MessagingFactory

T = TypeVar("T")

_ENDED: Final = "The handler has already been shutdown. Please use ServiceBusClient to create a new instance."
"""The SDK's own words."""


_ONE: Final = (ServiceBusMessage, AmqpAnnotatedMessage, Mapping)
"""What is one message, and not many."""


class _GaveUpError(Exception):
    """The caller's time ended before the attempt did."""


@dataclass(eq=False, slots=True)
class MessagesToSend:
    """What one call sends.

    :ivar payloads: the messages, encoded by their caller; None: they are not.
    :ivar schedule_at: when they are to be enqueued; None: at once.
    :ivar numbers: the sequence numbers of those that were scheduled.
    :ivar runs: what is still to be parked, one batch each.
    """

    messages: tuple[Message, ...]
    is_batch: bool = False
    payloads: Sequence[bytes] | None = None
    schedule_at: datetime | None = None
    numbers: list[int] | None = None
    runs: list[Sequence[Message]] | None = None

    def submission(self, deadline: float, first: int) -> Submission[Any]:
        """Return what is to be done at the primary by then, with the messages from the first that is missing on."""
        missing, at = self.messages[first:], self.schedule_at
        if at is not None:
            return Submission(Kind.SCHEDULE, missing, deadline, lambda channel: channel.schedule(missing, at))
        payloads = None if self.payloads is None else self.payloads[first:]
        return Submission(
            Kind.SEND, missing, deadline, joins=not self.is_batch, is_batch=self.is_batch, payloads=payloads
        )


class SendsUnderWay:
    """Counts the sends that are under way."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def ended(self, seconds: float) -> bool:
        """Wait until none is under way, but not longer than so many seconds; tell whether it is so."""
        self._none.clear()
        if not self._count:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return False
        return True


class MessageSender:
    """Sends messages to one queue or topic; any number of tasks may share it.

    It has the methods of :class:`azure.servicebus.aio.ServiceBusSender`. Unpaired, they do what the SDK does. Once the
    factory is paired, a send that the primary cannot take is held until it can, or parked in the secondary.

    Get one from :meth:`~pairbus.aio.MessagingFactory.get_queue_sender` or ``get_topic_sender``.
    """

    def __init__(self, factory: "MessagingFactory", make: Callable[[ServiceBusClient], ServiceBusSender]) -> None:
        self._factory = factory
        self._make = make
        self._sdk = make(factory.client)
        self._link = Link(self._sdk)  # which keeps hold of the sockets that the SDK forgets
        factory.unpaired_links.add(self._link)
        self._sdk_lock = asyncio.Lock()
        self._state: SenderState | None = None
        self._monitor: EntityMonitor | None = None
        self._closed = False

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary namespace."""
        return self._sdk.fully_qualified_namespace

    @property
    def entity_name(self) -> str:
        """The queue or topic that it sends to."""
        return self._sdk.entity_name

    @property
    def client_identifier(self) -> str:
        """How the broker names this sender in its errors."""
        return self._sdk.client_identifier

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    async def __aenter__(self) -> Self:
        """Open the link. Paired, an outage is no error: the link is opened when the entity is back."""
        pairing = self._check()
        if pairing is None:
            async with self._sdk_lock:
                await self._sdk.__aenter__()
            return self
        monitor, sender_state = self._add_sender(pairing)
        if not monitor.health.engaged:
            try:
                await sender_state.link.prepare()
            except Exception as error:
                self._check_given_up(error)
                known = facts(error, begun=False)
                if pairing.policy.classify(known) is Verdict.CALLERS:
                    raise
                monitor.act(note_primary_failure(monitor.health, pairing.policy, known, pairing.time()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the link, after the sends that are under way."""
        if self._closed:
            return
        self._closed = True
        pairing, sender_state = self._factory.pairing, self._state
        if pairing is not None and sender_state is not None:
            await pairing.remove_sender(self.entity_name, sender_state)
        async with self._sdk_lock:
            try:
                await self._sdk.close()
            finally:
                self._link.cut()

    async def send_messages(
        self, message: MessageTypes | ServiceBusMessageBatch, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Send a message, several or a batch, and return when a broker has accepted them.

        Several messages and a batch travel as one, as with the SDK; parked, they may have to be split.

        :param timeout: bounds the whole, in seconds; None: as long as it takes. Paired, the time-out's error tells
            whether the message may have arrived, and is both the SDK's and ours.
        :raises pairbus.errors.MessageError: a message cannot be parked; nothing was sent.
        :raises pairbus.errors.BacklogUnavailableError: neither the primary nor any backlog queue took it.
        """
        pairing = self._check(timeout, kwargs)
        if pairing is None:
            await self._unpaired(lambda sdk: sdk.send_messages(cast("Any", message), timeout=timeout))
            return
        payloads = encoded_in(message) if isinstance(message, ServiceBusMessageBatch) and identified(message) else None
        messages = outgoing(message)
        if not messages:
            return
        check(messages)  # E3
        await self._ship(pairing, MessagesToSend(messages, not isinstance(message, _ONE), payloads), timeout)

    async def schedule_messages(
        self, messages: MessageTypes, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Send messages to be enqueued at a time, and return their sequence numbers.

        :return: a :class:`ParkedSchedule` when they were parked with their schedule: nobody can give numbers then (S9).
        """
        pairing = self._check(timeout, kwargs)
        if pairing is None:
            return await self._unpaired(
                lambda sdk: sdk.schedule_messages(cast("Any", messages), schedule_time_utc, timeout=timeout)
            )
        scheduled = outgoing(messages)
        if not scheduled:
            return []
        check(scheduled)
        for message in scheduled:
            _schedule(message, schedule_time_utc)
        to_send = MessagesToSend(scheduled, schedule_at=schedule_time_utc)
        outcome = await self._ship(pairing, to_send, timeout)
        numbers = to_send.numbers or []
        return ParkedSchedule(outcome.parked, numbers) if outcome.parked else numbers

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel messages that the primary has scheduled, by their sequence numbers.

        :raises pairbus.errors.CancelUnavailableError: failover is engaged, and the primary cannot be asked (S9).
        """
        pairing = self._check(timeout, kwargs)
        if pairing is None:
            await self._unpaired(lambda sdk: sdk.cancel_scheduled_messages(sequence_numbers, timeout=timeout))
            return
        monitor, sender_state = self._add_sender(pairing)
        if monitor.health.engaged:
            raise CancelUnavailableError(self.entity_name)
        began = pairing.time()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        submission: Submission[None] = Submission(
            Kind.CANCEL,
            (),
            began + pairing.policy.attempt_timeout,
            lambda channel: channel.cancel_scheduled(numbers),
        )
        try:
            await _attempt(sender_state.link, submission, None if timeout is None else began + timeout)
        except _GaveUpError:
            assert timeout is not None  # noqa: S101 (only a caller's time-out ends like this)
            late = SendTimeoutError(self.entity_name, timeout, None, maybe_sent=submission.begun)
            raise SendTimedOutError(late) from None

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make an empty batch, as large as the broker takes it. Paired, that works during an outage too.

        :param max_size_in_bytes: a smaller limit.
        """
        pairing = self._check()
        if pairing is None:
            return await self._unpaired(lambda sdk: sdk.create_message_batch(max_size_in_bytes))
        monitor, sender_state = self._add_sender(pairing)
        if sender_state.link.batch_bytes is None and not monitor.health.engaged:
            await self.__aenter__()  # only an open link tells the limit
        limit = sender_state.link.batch_bytes or STANDARD_BATCH_BYTES
        if max_size_in_bytes and max_size_in_bytes > limit:
            raise ValueError(  # the SDK's own words
                f"Max message size: {max_size_in_bytes} is too large, acceptable max batch size is: {limit} bytes."
            )
        return new_batch(self._sdk, max_size_in_bytes or limit)

    def _check(self, timeout: float | None = None, kwargs: dict[str, Any] | None = None) -> Pairing | None:
        """Check what the SDK checks, and return the pairing that the call is to use."""
        if self._factory.lifecycle.state is not OPEN:
            self._factory.check_open()
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=3)
        if self._closed:
            raise ValueError(_ENDED)
        if timeout is not None:
            check_timeout(timeout)
        return self._factory.pairing

    async def _unpaired(self, work: Callable[[ServiceBusSender], Any]) -> Any:
        with self._factory.under_way:
            async with self._sdk_lock:  # the SDK's senders are not made to be shared by tasks
                return await work(self._sdk)

    def _add_sender(self, pairing: Pairing) -> tuple[EntityMonitor, SenderState]:
        if self._monitor is None or self._state is None:
            self._monitor = pairing.monitor(self.entity_name)
            client = pairing.ends.primary_client
            self._state = pairing.add_sender(self.entity_name, lambda: self._make(client))
        return self._monitor, self._state

    async def _ship(self, pairing: Pairing, to_send: MessagesToSend, timeout: float | None) -> Done:
        """Carry out the procedure of one send (:class:`~pairbus.core.sending.Sending`), step by step."""
        monitor, sender_state = self._add_sender(pairing)
        sending = Sending(
            monitor.health,
            pairing.rotation,
            sender_state.choice,
            pairing.policy,
            pairing.random,
            pairing.time(),
            timeout,
            len(to_send.messages),
        )
        with self._factory.under_way:
            while True:
                step = sending.step(pairing.time())
                if isinstance(step, ToPrimary):
                    await self._to_primary(pairing, sending, to_send, step)
                elif isinstance(step, Done):
                    return step
                elif isinstance(step, ToBacklog):
                    await self._to_backlog(pairing, sending, to_send, step)
                elif isinstance(step, Pause):
                    self._check_open(sending)  # C2: what is under way may end, but not wait
                    if await monitor.wait(step.until):
                        sending.health_changed()
                else:
                    raise explained(step, to_send.messages)

    async def _to_primary(self, pairing: Pairing, sending: Sending, to_send: MessagesToSend, step: ToPrimary) -> None:
        monitor, sender_state = self._add_sender(pairing)
        submission = to_send.submission(step.deadline, step.first)
        try:
            to_send.numbers = await _attempt(sender_state.link, submission, sending.ends)
        except _GaveUpError:
            sending.gave_up(begun=submission.begun)
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            known = sized(facts(error, begun=submission.begun), submission.messages)
            self._check_given_up(error, sending, begun=known.in_doubt)
            monitor.act(sending.primary_failed(known, pairing.time()))
        else:
            actions = sending.primary_accepted()
            if actions:
                monitor.act(actions)

    async def _to_backlog(self, pairing: Pairing, sending: Sending, to_send: MessagesToSend, step: ToBacklog) -> None:
        link = pairing.backlog(step.queue)
        begun = False
        try:
            pairing.ends.check_secondary()
            if to_send.runs is None:
                to_send.runs = self._rewrite(to_send.messages, link.batch_bytes or STANDARD_BATCH_BYTES)
            run = to_send.runs[0]
            submission = self._park(run, step.deadline)
            try:
                await _attempt(link, submission, sending.ends)
            finally:
                begun = submission.begun
        except _GaveUpError:
            sending.gave_up(begun=begun)
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            known = facts(error, begun=begun)
            self._check_given_up(error, sending, begun=known.in_doubt)
            sending.backlog_failed(step.queue, self._understood(known, sending, to_send, link), pairing.time())
        else:
            del to_send.runs[0]
            sending.backlog_accepted(step.queue, len(run))

    def _check_given_up(self, error: Exception, sending: Sending | None = None, *, begun: bool = False) -> None:
        """Tell an attempt that was given up because the sender or the factory has ended from a failure."""
        if isinstance(error, AbandonedError):
            self._check_open(sending, begun=begun)
            if self._closed:
                raise in_doubt(ValueError(_ENDED), sending, begun=begun) from error

    def _check_open(self, sending: Sending | None, *, begun: bool = False) -> None:
        """Raise if the factory has ended, and tell whether what was sent until then may have arrived (S7)."""
        try:
            self._factory.check_open()
        except FactoryEndedError as error:
            raise in_doubt(error, sending, begun=begun) from None

    def _rewrite(self, messages: tuple[Message, ...], limit: int) -> list[Sequence[Message]]:
        rewritten = [parked(message, self.entity_name) for message in messages]
        return [rewritten] if len(rewritten) == 1 else runs(messages, rewritten, limit)

    def _park(self, run: Sequence[Message], deadline: float) -> Submission[None]:
        is_batch = len(run) > 1
        return Submission(Kind.SEND, run, deadline, joins=not is_batch, is_batch=is_batch, destination=self.entity_name)

    @staticmethod
    def _understood(known: ErrorFacts, sending: Sending, to_send: MessagesToSend, link: SendLink) -> ErrorFacts:
        """Judge what is ours: a secondary that has ended, and a message that has grown too large (S8)."""
        if isinstance(known.error, FactoryEndedError):
            return ErrorFacts(Cause.CONNECTION, known.error, begun=False)
        if known.cause is not Cause.TOO_LARGE or not to_send.runs or len(to_send.runs[0]) != 1:
            return known
        limit = link.batch_bytes or STANDARD_BATCH_BYTES
        error = too_large(to_send.messages[sending.parked], to_send.runs[0][0], limit)
        error.__cause__ = known.error
        return ErrorFacts(known.cause, error)


async def _attempt(link: SendLink, submission: Submission[T], ends: float | None) -> T:
    """Have something done, and wait for it until the caller's time ends.

    :raises _GaveUpError: the caller's time ended first. What was begun goes on; what was not is withdrawn.
    """
    if ends is None or ends >= submission.deadline:
        return await link.submit(submission)
    bound = asyncio.timeout_at(ends)
    try:
        async with bound:
            return await link.submit(submission)
    except TimeoutError:
        if not bound.expired():
            raise
        if submission.future.done() and not submission.future.cancelled():
            return submission.future.result()  # it was answered just in time
        raise _GaveUpError from None


def _schedule(message: Message, at: datetime) -> None:
    if isinstance(message, ServiceBusMessage):
        message.scheduled_enqueue_time_utc = at
    else:
        amqp = raw(message)
        annotations = cast("dict[Any, Any]", amqp.annotations or {})
        annotations[SCHEDULED_ENQUEUE_TIME] = at
        amqp.annotations = annotations
