"""Moves parked messages from one backlog queue to where they belong (Y1 to Y5).

A burst is received under lock, its locks are kept, its messages are unparked, sent in batches per destination,
accounted for, and only then completed. The rules are those of :mod:`pairbus.core.burst`; this drives them, and knows
neither who drives it (the application's pumps, a Spark task) nor what carries the messages.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final, Literal

from pairbus.core.burst import Decided, Lane, Parked, RememberedMessages, Shelf, keeps_order, plan
from pairbus.core.envelope import PATH, Label, Properties
from pairbus.core.forecast import LONG_POLL
from pairbus.core.ledger import Kind, Stage
from pairbus.core.routing import DeadLetter, Deliver, Destinations, Wait, WaitReason, route
from pairbus.instrument.hooks import Instrument, Operation
from pairbus.links.deadlines import cancel
from pairbus.links.transport import Outgoing, Received, Settlement, Transport
from pairbus.syphon.reconciliation import Report

_LOGGER = logging.getLogger(__name__)

BURST: Final = 200
BATCH_BYTES: Final = 240 * 1024
"""The most that is sent at once: the least of the tiers takes 256 KB, and a batch adds a few bytes to each message."""
LONGEST_RENEWAL: Final = 20.0
SHORTEST_RENEWAL: Final = 1.0

_sequence_number = attrgetter("sequence_number")
_size = attrgetter("size")
_unparked = attrgetter("unparked")
_locked_until = attrgetter("locked_until")
_enqueued_at = attrgetter("enqueued_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much a mover does at once.

    :ivar burst: how many messages are received at once, which bounds its memory.
    :ivar batch_bytes: how large a batch may be.
    :ivar room: how many messages may wait under lock while those behind them are looked at.
    :ivar retry_interval: how long, in seconds, a burst waits that could not be looked at.
    """

    burst: int = BURST
    batch_bytes: int = BATCH_BYTES
    room: int = 2 * BURST
    retry_interval: float = 1.0


class Mover:
    """Moves the messages of one backlog queue. What it remembers may be lost at any time without harm.

    :param source: carries messages of the secondary, where the queue is.
    :param target: carries messages to the primary.
    :param destinations: what is known about the destinations, shared by all movers of a process.
    :param completing: entered with messages that were delivered, before they are completed, and left afterwards; if it
        raises, they are not completed.
    :param monotonic: a clock for pauses, in seconds.
    :param utc: the time.
    """

    def __init__(
        self,
        queue: str,
        source: Transport,
        target: Transport,
        *,
        destinations: Destinations,
        instrument: Instrument | None = None,
        pace: Pace | None = None,
        completing: Callable[[Sequence[Received]], AbstractAsyncContextManager[None]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.queue: Final = queue
        self._source = source
        self._target = target
        self._destinations = destinations
        self._instrument = instrument or Instrument()
        self._pace = pace or Pace()
        self._account_for = completing
        self._monotonic = monotonic
        self._utc = utc
        self._shelf = Shelf(self._pace.room)
        self._shelved: dict[int, tuple[Received, WaitReason]] = {}
        self._sent = RememberedMessages()
        """What was sent and could not be completed."""
        self._doubtful = RememberedMessages()
        """What may have arrived already: no answer came to a send, or it was sent and could not be completed."""
        self._done = Report()
        self._delivered: list[Received] = []
        self._completing = asyncio.Lock()

    def report(self) -> Report:
        """Tell what it has done so far, and what waits."""
        report = Report()
        report.add(self._done)
        for message, reason in self._shelved.values():
            tally = report.of(destination_of(message))
            tally.waiting[reason] += 1
            tally.note_age(message.enqueued_at)
        return report

    async def move(
        self,
        *,
        stop: asyncio.Event,
        quota: int | None = None,
        seconds: float | None = None,
        wait: float = LONG_POLL,
        until_empty: bool = False,
    ) -> int:
        """Move messages, burst by burst, and return how many were received.

        What cannot be received because the queue fails is raised as it is; the next call goes on where this one ended.

        :param stop: ends it; a burst that is under way is finished first.
        :param quota: ends it after so many messages.
        :param seconds: ends it after so long, and the burst that is then under way.
        :param wait: how long one receive waits for messages, in seconds (Y2).
        :param until_empty: ends it when no message comes that is not waiting already.
        """
        ends = math.inf if seconds is None else self._monotonic() + seconds
        received = 0
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set() and (quota is None or received < quota):
                now = self._monotonic()
                if now >= ends:
                    break
                await self._put_back(self._shelf.take_due(now))
                due = min(ends, math.inf if self._shelf.wake_at is None else self._shelf.wake_at) - now
                if self._shelf.full:
                    if until_empty:
                        break
                    await pause(due, stop)
                    continue
                most = self._pace.burst if quota is None else min(self._pace.burst, quota - received)
                burst = await self._receive(most, max(0.0, min(wait, due)), stopping)
                received += len(burst)
                if burst:
                    await self._carry(burst)
                elif until_empty:
                    break
        finally:
            cancel(stopping)
        return received

    async def release(self) -> None:
        """Put back what waits, so that others can have it at once: nothing is held any more."""
        await self._put_back(self._shelf.take_due(math.inf))

    # --- receiving -----------------------------------------------------------------------------------------------

    async def _receive(self, most: int, wait: float, stopping: "asyncio.Future[Literal[True]]") -> Sequence[Received]:
        operation = self._begin(Kind.RECEIVE)
        receiving = asyncio.ensure_future(self._source.receive(self.queue, most, wait))
        try:
            await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            burst = receiving.result() if receiving.done() else ()
        except Exception as error:
            operation.failed(error)
            raise
        finally:
            cancel(receiving)  # what was on its way goes back when its lock ends
        operation.done(list(map(_size, burst)), oldest_at=_oldest(burst))
        return burst

    async def _carry(self, received: Sequence[Received]) -> None:
        under_way = dict(zip(map(_sequence_number, received), received, strict=True))
        if self._shelved:  # one whose lock ran out there may be here again
            for each in received:
                self._shelf.forget(each.sequence_number)
                self._shelved.pop(each.sequence_number, None)
        period = self._renewal_period(received)
        ended = asyncio.Event()
        renewing: list[asyncio.Task[None]] = []

        def renew() -> None:
            renewing.append(asyncio.create_task(self._keep_locks(under_way, period, ended)))

        timer = asyncio.get_running_loop().call_later(period, renew)  # as a rule all is done by then
        try:
            await self._carry_out(under_way)
        finally:
            timer.cancel()
            ended.set()
            self._sent.add(self._delivered, self._monotonic())  # a burst that was given up in between
            self._delivered = []
            for task in renewing:
                await task

    async def _carry_out(self, under_way: dict[int, Received]) -> None:
        burst = list(under_way.values())
        others: Sequence[Parked] = ()
        if keeps_order(burst):
            try:
                others = await self._browse(max(under_way))
            except Exception as error:  # noqa: BLE001 (without it nobody knows which may go: all wait, Y5)
                _LOGGER.debug("%s cannot be browsed: %r", self.queue, error)
                again = Wait(WaitReason.UNEXPECTED, self._monotonic() + self._pace.retry_interval)
                await self._decide([Decided(parked, again) for parked in burst], under_way)
                return
        planned = plan(
            burst,
            others=others,
            sent_before=self._sent,
            destinations=self._destinations,
            batch_limit=self._pace.batch_bytes,
            now=self._monotonic(),
        )
        work = [self._deliver(lane, under_way) for lane in planned.lanes]
        if planned.sent_before:
            work.append(self._complete(planned.sent_before, under_way))
        if planned.decided:
            work.append(self._decide(planned.decided, under_way))
        if len(work) == 1:
            await work[0]
            return
        # A bug in one lane must not leave the others to themselves.
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _browse(self, up_to: int) -> Sequence[Parked]:
        operation = self._begin(Kind.PEEK)
        try:
            seen = await self._source.browse(self.queue, up_to)
        except Exception as error:
            operation.failed(error)
            raise
        operation.done(list(map(_size, seen)))
        return seen

    def _renewal_period(self, messages: Iterable[Received]) -> float:
        """Return how often locks are to be renewed, in seconds."""
        third = (min(map(_locked_until, messages)) - self._utc()).total_seconds() / 3
        return min(LONGEST_RENEWAL, max(SHORTEST_RENEWAL, third))

    async def _keep_locks(self, under_way: Mapping[int, Received], period: float, ended: asyncio.Event) -> None:
        while not ended.is_set():
            messages = list(under_way.values())
            if messages:
                operation = self._begin(Kind.RENEW)
                self._tell(operation, await self._source.renew(self.queue, messages))
            await pause(period, ended)

    # --- sending -------------------------------------------------------------------------------------------------

    async def _deliver(self, lane: Lane[Received], under_way: dict[int, Received]) -> None:
        while batch := lane.next_batch():
            error = await self._send(lane.destination, batch)
            if error is None:
                lane.accepted(batch, self._destinations)
                self._note_delivered(lane.destination, batch)
                await self._complete(batch, under_way)
                continue
            facts = self._target.facts(error)
            if facts.in_doubt:
                self._doubtful.add(batch, self._monotonic())
            decided = lane.failed(batch, facts, self._destinations, self._monotonic())
            await self._decide(decided, under_way)

    async def _send(self, destination: str, batch: Sequence[Received]) -> Exception | None:
        labels, carriers = list(map(_unparked, batch)), ()
        if self._instrument.traces:  # which may add a trace's context to messages that have none
            labels = [_full_label(each) for each in batch]
            carriers = [dict(label.application_properties) for label in labels]
            labels = list(map(_with_properties, labels, carriers))
        operation = self._instrument.begin(
            self._target.namespace,
            destination,
            Kind.SEND,
            Stage.SYPHON,
            sizes=list(map(_size, batch)),
            destination=destination,
            carriers=carriers,
        )
        try:
            now = self._utc()
            payloads = [each.restored(label, now) for each, label in zip(batch, labels, strict=True)]
            operation.sizes = list(map(len, payloads))
            await self._target.send(destination, Outgoing(payloads, labels[0].session_id, batch[0].partition_key))
        except Exception as error:  # noqa: BLE001 (the rules say what becomes of the messages)
            operation.failed(error, in_doubt=self._target.facts(error).in_doubt)
            return error
        operation.done()
        return None

    def _note_delivered(self, destination: str, messages: Sequence[Received]) -> None:
        tally = self._done.of(destination)
        tally.delivered += len(messages)
        tally.note_age(_oldest(messages))
        if self._doubtful:
            now = self._monotonic()
            for message in messages:
                if self._doubtful.has(message, now):
                    self._doubtful.discard(message)
                    tally.duplicates_suspected += 1

    # --- settling ------------------------------------------------------------------------------------------------

    async def _complete(self, messages: Sequence[Received], under_way: dict[int, Received]) -> None:
        """Complete messages that were sent, together with those that others have sent in the meantime."""
        self._delivered.extend(messages)
        async with self._completing:
            ready, self._delivered = self._delivered, []
            if not ready:
                return
            left = ready
            try:
                if self._instrument.keeps:  # ADR 0004: what leaves the backlog has a record that a kill does not take
                    await asyncio.to_thread(self._instrument.flush)
                async with contextlib.nullcontext() if self._account_for is None else self._account_for(ready):
                    answers = await self._settle(Kind.COMPLETE, ready, "complete")
                left = [message for message, error in zip(ready, answers, strict=True) if error is not None]
            finally:
                self._sent.add(left, self._monotonic())  # they come again, and are not sent again
            for number in map(_sequence_number, ready):
                under_way.pop(number, None)
            if left or self._sent or self._doubtful:
                for message, error in zip(ready, answers, strict=True):
                    self._note_completed(message, error)

    def _note_completed(self, message: Received, error: Exception | None) -> None:
        if error is None:
            self._sent.discard(message)
            self._doubtful.discard(message)
        elif not self._doubtful.has(message, self._monotonic()):  # it may come to another syphon, which would send it
            self._doubtful.add([message], self._monotonic())
            self._done.of(destination_of(message)).duplicates_suspected += 1

    async def _decide(self, decided: Iterable[Decided[Received]], under_way: dict[int, Received]) -> None:
        """Let messages wait, or dead-letter them."""
        dead: dict[tuple[DeadLetter, str], list[Received]] = {}
        for each in decided:
            if isinstance(each.ruling, DeadLetter):
                dead.setdefault((each.ruling, destination_of(each.parked)), []).append(each.parked)
            else:
                self._put_on_shelf(each.parked, each.ruling, under_way)
        for (ruling, destination), messages in dead.items():
            answers = await self._settle(Kind.DEAD_LETTER, messages, ruling, destination or None)
            for message, error in zip(messages, answers, strict=True):
                if error is None:
                    under_way.pop(message.sequence_number, None)
                    tally = self._done.of(destination)
                    tally.dead_lettered[ruling.reason] += 1
                    tally.note_age(message.enqueued_at)
                else:
                    again = Wait(WaitReason.UNEXPECTED, self._monotonic() + self._pace.retry_interval)
                    self._put_on_shelf(message, again, under_way)

    def _put_on_shelf(self, message: Received, ruling: Wait, under_way: dict[int, Received]) -> None:
        under_way.pop(message.sequence_number, None)
        self._shelf.put(message.sequence_number, ruling.until)
        self._shelved[message.sequence_number] = message, ruling.reason

    async def _put_back(self, numbers: Iterable[int]) -> None:
        now = self._utc()
        messages = [self._shelved.pop(number)[0] for number in numbers]
        locked = [message for message in messages if message.locked_until > now]  # the others are back already
        if locked:
            await self._settle(Kind.ABANDON, locked, "abandon")

    async def _settle(
        self, kind: Kind, messages: Sequence[Received], settlement: Settlement, destination: str | None = None
    ) -> Sequence[Exception | None]:
        operation = self._begin(kind, destination)
        answers = await self._source.settle(self.queue, messages, settlement)
        self._tell(operation, answers)
        return answers

    # --- accounting ----------------------------------------------------------------------------------------------

    def _begin(self, kind: Kind, destination: str | None = None) -> Operation:
        namespace = self._source.namespace
        return self._instrument.begin(namespace, self.queue, kind, Stage.SYPHON, destination=destination)

    def _tell(self, operation: Operation, answers: Sequence[Exception | None]) -> None:
        """Record how an operation on several messages ended, those that failed apart."""
        failures = [error for error in answers if error is not None]
        if failures:
            failed = self._begin(operation.started.kind, operation.started.destination)
            failed.sizes = [0] * len(failures)
            failed.failed(failures[0], in_doubt=self._source.facts(failures[0]).in_doubt)
        if len(failures) < len(answers):
            operation.done([0] * (len(answers) - len(failures)))


async def pause(seconds: float, event: asyncio.Event) -> bool:
    """Wait so long, or until something has happened, and tell whether it has."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _oldest(messages: Iterable[Received]) -> datetime | None:
    """Return when the oldest of messages was parked, if any of them says so."""
    parked_at: Iterable[datetime] = filter(None, map(_enqueued_at, messages))
    return min(parked_at, default=None)


def _with_properties(label: Label, properties: Properties) -> Label:
    return replace(label, application_properties=properties)


def _full_label(message: Received) -> Label:
    """Return the label of a message with its application properties, which a transport need not have read."""
    routed = route(message.label)
    return routed.label if isinstance(routed, Deliver) else message.unparked


def destination_of(parked: Parked) -> str:
    """Return where a message belongs, or nothing if it does not say so."""
    routed = parked.routed
    if isinstance(routed, Deliver):
        return routed.destination
    named = parked.label.application_properties.get(PATH)
    return named if isinstance(named, str) else ""
