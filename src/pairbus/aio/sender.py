"""The sender that an application holds: the SDK's while unpaired, and one whose sends do not fail when paired."""

# ruff: noqa: ANN401, ASYNC109 (the SDK's own arguments are handed on)

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.aio.lane import AbandonedError, Submission, Work
from pairbus.aio.messages import MessageTypes, check, identified, outgoing, parked, raw, runs, too_large
from pairbus.aio.pairing import Pairing
from pairbus.aio.sdk import STANDARD_BATCH_BYTES, Message, SendTimedOutError, facts, new_batch
from pairbus.aio.sdk_links import Link
from pairbus.aio.watch import Seat, Watch
from pairbus.core.health import HEALTHY
from pairbus.core.ledger import Kind
from pairbus.core.sending import TAKEN, Done, Failed, Pause, Sending, ToBacklog, ToPrimary
from pairbus.core.verdict import Cause, ErrorFacts, Verdict
from pairbus.errors import CancelUnavailableError, FactoryEndedError, SendTimeoutError

if TYPE_CHECKING:
    from pairbus.aio.factory import MessagingFactory

_ENDED: Final = "The handler has already been shutdown. Please use ServiceBusClient to create a new instance."
"""The SDK's own words."""


_ONE: Final = (ServiceBusMessage, AmqpAnnotatedMessage, Mapping)
"""What is one message, and not many."""


class ParkedSchedule(list[int]):
    """What :meth:`MessageSender.schedule_messages` returns when the messages were parked (S9).

    A parked message keeps its schedule, but only the primary gives sequence numbers: the list is empty, and the
    messages cannot be cancelled by number.

    :ivar messages: how many were parked.
    """

    def __init__(self, messages: int) -> None:
        super().__init__()
        self.messages: Final = messages

    def __repr__(self) -> str:
        return f"ParkedSchedule(messages={self.messages})"


@dataclass(eq=False, slots=True)
class Shipment:
    """What one call sends, and how much of it is parked already."""

    messages: tuple[Message, ...]
    kind: Kind = Kind.SEND
    work: Work[Any] | None = None
    """What is to be done at the primary; None: the one message is sent."""
    result: object = None
    runs: list[Sequence[Message]] | None = None
    """What is still to be parked, one batch each."""
    parked: int = 0

    def submission(self, deadline: float) -> Submission[Any]:
        """Return what is to be done at the primary by then."""
        return Submission(self.kind, self.messages, deadline, self.work, joins=self.work is None)


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
        self._seat: Seat | None = None
        self._watch: Watch | None = None
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
        watch, seat = self._take_seat(pairing)
        if not watch.health.engaged:
            try:
                await seat.lane.prepare()
            except Exception as error:
                if pairing.policy.classify(facts(error, begun=False)) is Verdict.CALLERS:
                    raise
                watch.act(watch.health.attempt_failed(pairing.time()))
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
        pairing, seat = self._factory.pairing, self._seat
        if pairing is not None and seat is not None:
            await pairing.leave_seat(self.entity_name, seat)
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
        ready = message if isinstance(message, ServiceBusMessageBatch) and identified(message) else None
        messages = outgoing(message)
        if not messages:
            return
        check(messages)  # E3
        if isinstance(message, _ONE):
            shipment = Shipment(messages)
        else:
            cargo = list(messages) if ready is None else ready
            shipment = Shipment(messages, work=lambda link: link.sender.send_messages(cargo))
        await self._ship(pairing, shipment, timeout)

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
        shipment = Shipment(
            scheduled, Kind.SCHEDULE, lambda link: link.sender.schedule_messages(list(scheduled), schedule_time_utc)
        )
        outcome = await self._ship(pairing, shipment, timeout)
        return ParkedSchedule(len(scheduled)) if outcome.parked_in is not None else cast("list[int]", shipment.result)

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
        watch, seat = self._take_seat(pairing)
        if watch.health.engaged:
            raise CancelUnavailableError(self.entity_name)
        bound = min(pairing.policy.attempt_timeout, timeout if timeout is not None else pairing.policy.attempt_timeout)
        await seat.lane.submit(
            Submission(
                Kind.CANCEL,
                (),
                pairing.time() + bound,
                lambda link: link.sender.cancel_scheduled_messages(sequence_numbers),
            )
        )

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make an empty batch, as large as the broker takes it. Paired, that works during an outage too.

        :param max_size_in_bytes: a smaller limit.
        """
        pairing = self._check()
        if pairing is None:
            return await self._unpaired(lambda sdk: sdk.create_message_batch(max_size_in_bytes))
        watch, seat = self._take_seat(pairing)
        if seat.lane.batch_bytes is None and not watch.health.engaged:
            await self.__aenter__()  # only an open link tells the limit
        limit = seat.lane.batch_bytes or STANDARD_BATCH_BYTES
        if max_size_in_bytes and max_size_in_bytes > limit:
            raise ValueError(  # the SDK's own words
                f"Max message size: {max_size_in_bytes} is too large, acceptable max batch size is: {limit} bytes."
            )
        return new_batch(self._sdk, max_size_in_bytes or limit)

    def _check(self, timeout: float | None = None, kwargs: dict[str, Any] | None = None) -> Pairing | None:
        """Check what the SDK checks, and return the pairing that the call is to use."""
        self._factory.check_open()
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=3)
        if self._closed:
            raise ValueError(_ENDED)
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        return self._factory.pairing

    async def _unpaired(self, work: Callable[[ServiceBusSender], Any]) -> Any:
        with self._factory.under_way:
            async with self._sdk_lock:  # the SDK's senders are not made to be shared by tasks
                return await work(self._sdk)

    def _take_seat(self, pairing: Pairing) -> tuple[Watch, Seat]:
        if self._watch is None or self._seat is None:
            self._watch = pairing.watch(self.entity_name)
            client = pairing.ends.primary_client
            self._seat = pairing.take_seat(self.entity_name, lambda: self._make(client))
        return self._watch, self._seat

    async def _ship(self, pairing: Pairing, shipment: Shipment, timeout: float | None) -> Done:
        """Send: while the entity is healthy there is nothing to decide, unless the first attempt fails."""
        watch, seat = self._take_seat(pairing)
        health, policy, started = watch.health, pairing.policy, pairing.time()
        with self._factory.under_way:
            failed = None
            if health.state is HEALTHY:
                failed = await self._to_primary(seat, shipment, policy.deadline(started, started, timeout))
                if failed is None:
                    if health.state is not HEALTHY:
                        watch.act(health.attempt_accepted())
                    return TAKEN
            sending = Sending(health, pairing.rotation, seat.choice, policy, pairing.random, started, timeout)
            if failed is not None:
                watch.act(sending.primary_failed(failed, pairing.time()))
            return await self._carry_out(pairing, sending, shipment)

    async def _carry_out(self, pairing: Pairing, sending: Sending, shipment: Shipment) -> Done:
        """Carry out the procedure of one send (:class:`~pairbus.core.sending.Sending`), step by step."""
        watch, seat = self._take_seat(pairing)
        time = pairing.time
        while True:
            step = sending.step(time())
            if isinstance(step, ToPrimary):
                failed = await self._to_primary(seat, shipment, step.deadline)
                watch.act(sending.primary_accepted() if failed is None else sending.primary_failed(failed, time()))
            elif isinstance(step, Done):
                return step
            elif isinstance(step, ToBacklog):
                await self._to_backlog(pairing, sending, shipment, step)
            elif isinstance(step, Pause):
                self._factory.check_open()  # C2: what is under way may end, but not wait
                if await watch.wait(step.until):
                    sending.health_changed()
            else:
                raise _with_note(step, shipment)

    async def _to_primary(self, seat: Seat, shipment: Shipment, deadline: float) -> ErrorFacts | None:
        """Try the primary, and return how it has failed, if it has."""
        submission = shipment.submission(deadline)
        try:
            shipment.result = await seat.lane.submit(submission)
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            self._check_given_up(error)
            return facts(error, begun=submission.begun)
        return None

    async def _to_backlog(self, pairing: Pairing, sending: Sending, shipment: Shipment, step: ToBacklog) -> None:
        lane = pairing.backlog(step.queue)
        begun = False
        try:
            pairing.ends.check_secondary()
            if shipment.runs is None:
                shipment.runs = self._rewrite(shipment.messages, lane.batch_bytes or STANDARD_BATCH_BYTES)
            while shipment.runs:
                submission = self._park(shipment.runs[0], step.deadline)
                try:
                    await lane.submit(submission)
                finally:
                    begun = submission.begun
                shipment.parked += len(shipment.runs.pop(0))
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            self._check_given_up(error)
            known = self._understood(facts(error, begun=begun), shipment, lane.batch_bytes)
            sending.backlog_failed(step.queue, known, pairing.time())
        else:
            sending.backlog_accepted(step.queue)

    def _check_given_up(self, error: Exception) -> None:
        """Tell an attempt that was given up because the sender or the factory has ended from a failure."""
        if isinstance(error, AbandonedError):
            self._factory.check_open()
            if self._closed:
                raise ValueError(_ENDED) from error

    def _rewrite(self, messages: tuple[Message, ...], limit: int) -> list[Sequence[Message]]:
        rewritten = [parked(message, self.entity_name) for message in messages]
        return [rewritten] if len(rewritten) == 1 else runs(messages, rewritten, limit)

    def _park(self, run: Sequence[Message], deadline: float) -> Submission[None]:
        one = len(run) == 1
        work: Work[None] | None = None if one else lambda link: link.sender.send_messages(list(run))
        return Submission(Kind.SEND, run, deadline, work, joins=one, destination=self.entity_name)

    @staticmethod
    def _understood(known: ErrorFacts, shipment: Shipment, limit: int | None) -> ErrorFacts:
        """Judge what is ours: a secondary that has ended, and a message that has grown too large (S8)."""
        if isinstance(known.error, FactoryEndedError):
            return ErrorFacts(Cause.CONNECTION, known.error, begun=False)
        if known.cause is not Cause.TOO_LARGE or not shipment.runs or len(shipment.runs[0]) != 1:
            return known
        index = shipment.parked
        error = too_large(shipment.messages[index], shipment.runs[0][0], limit or STANDARD_BATCH_BYTES)
        error.__cause__ = known.error
        return ErrorFacts(known.cause, error)


def _schedule(message: Message, at: datetime) -> None:
    if isinstance(message, ServiceBusMessage):
        message.scheduled_enqueue_time_utc = at
    else:
        amqp = raw(message)
        annotations = cast("dict[Any, Any]", amqp.annotations or {})
        annotations["x-opt-scheduled-enqueue-time"] = at
        amqp.annotations = annotations


def _with_note(failed: Failed, shipment: Shipment) -> BaseException:
    error = failed.error
    if isinstance(error, SendTimeoutError):
        error = SendTimedOutError(error)
    if shipment.parked:
        error.add_note(f"{shipment.parked} of {len(shipment.messages)} messages were parked before it failed")
    return error
