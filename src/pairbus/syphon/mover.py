"""Moves parked messages from one backlog queue to where they belong (Y1 to Y5): the I/O.

:class:`~pairbus.core.moving.Moving` says which steps come next and what a failure means; the theory of operation is
there. A :class:`Mover` does each step over a transport, in a task of its own, makes the ledger's record of it, and
reports how it ended. It knows neither who runs it (the application's worker, a Spark task) nor which client carries the
messages.

Two things end a step before its time. A receive that waits is given up when the mover is to stop; messages that were on
their way come back when their locks end. A mover that is cancelled cancels all its steps, and remembers what it has
sent and not completed, so that it does not send it again if it goes on.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

from pairbus.core.burst import Parked
from pairbus.core.envelope import Label, Properties
from pairbus.core.ledger import Kind, Stage
from pairbus.core.moving import Account, Browse, Limits, Moving, Pace, Receive, Renew, Send, Settle, Step, oldest
from pairbus.core.routing import DeadLetter, Deliver, Destinations, route
from pairbus.instrument.hooks import Instrument, Operation
from pairbus.links.deadlines import cancel
from pairbus.links.transport import Answers, Outgoing, Received, Transport

_LOGGER = logging.getLogger(__name__)

_KINDS: Final = {"complete": Kind.COMPLETE, "abandon": Kind.ABANDON}
_size = attrgetter("size")
_unparked = attrgetter("unparked")


class Mover:
    """Moves the messages of one backlog queue. What it remembers may be lost at any time without harm.

    :param source: carries messages of the secondary, where the queue is.
    :param target: carries messages to the primary.
    :param destinations: what is known about the destinations, shared by all movers of a process.
    :param account: awaited before messages that were delivered are completed; if it raises, they are not.
    :param on_failure: told why the queue, or the accounts, failed. The mover tries again by itself.
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
        account: Callable[[], Awaitable[None]] | None = None,
        on_failure: Callable[[str, Exception], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.queue: Final = queue
        self.moving: Final = Moving[Received](destinations, pace or Pace())
        self._source = source
        self._target = target
        self._instrument = instrument or Instrument()
        self._account_for = account
        self._on_failure = on_failure or _log_failure
        self._monotonic = monotonic
        self._utc = utc
        self._source_name = source.namespace
        self._target_name = target.namespace
        self._receiving: Operation | None = None

    async def move(self, limits: Limits, stop: asyncio.Event) -> int:
        """Move messages, burst by burst, until a limit is reached, and return how many were received.

        :param stop: ends it; a burst that is under way is finished first.
        """
        moving = self.moving
        moving.begin(self._monotonic(), limits)
        stopping = asyncio.create_task(stop.wait())
        tasks: dict[asyncio.Task[Any], Step[Received]] = {}
        try:
            while True:
                if stop.is_set():
                    moving.stop()
                    self._give_up_receiving(tasks)
                now = self._monotonic()
                for step in moving.steps(now, self._utc()):
                    tasks[asyncio.create_task(self._do(step))] = step
                if not tasks and moving.ended:
                    return moving.received_count
                waits = tasks.keys() if stop.is_set() else {*tasks, stopping}
                seconds = None if moving.wake_at == math.inf else max(0.0, moving.wake_at - now)
                ended, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    if tasks.pop(task, None) is not None:
                        task.result()  # raises only what is a bug of these lines
        finally:
            stopping.cancel()
            if not moving.ended:
                moving.interrupt(self._monotonic())
            for task in tasks:
                cancel(task)
            if tasks:
                await asyncio.wait(tasks)

    async def release(self) -> None:
        """Put back what waits, so that other movers can have it at once: nothing is held any more."""
        put_back = self.moving.release(self._utc())
        if put_back is not None:
            await self._settle(put_back)

    def _give_up_receiving(self, tasks: dict[asyncio.Task[Any], Step[Received]]) -> None:
        for task, step in list(tasks.items()):
            if isinstance(step, Receive):
                del tasks[task]
                cancel(task)
                if self._receiving is not None:
                    self._receiving.done([])
                self.moving.received(step, (), self._monotonic(), self._utc())

    async def _do(self, step: Step[Received]) -> None:
        moving = self.moving
        try:
            match step:
                case Receive():
                    messages = await self._receive(step)
                    moving.received(step, messages, self._monotonic(), self._utc())
                case Browse():
                    moving.browsed(step, await self._browse(step), self._monotonic())
                case Send():
                    await self._send(step)
                case Account():
                    await self._account()
                    moving.accounted(step)
                case Settle():
                    answers = await self._settle(step)
                    moving.settled(step, answers, self._monotonic())
                case Renew():
                    await self._renew(step)
                    moving.renewed(step, self._monotonic())
        except Exception as error:  # noqa: BLE001 (what it means is decided there; a bug is told of as well)
            moving.failed(step, error, self._monotonic())
            if moving.problem is error:
                self._on_failure(self.queue, error)

    # --- steps ---------------------------------------------------------------------------------------------------

    async def _receive(self, step: Receive) -> Sequence[Received]:
        operation = self._receiving = self._begin(Kind.RECEIVE)
        try:
            messages = await self._source.receive(self.queue, step.most, step.wait)
        except Exception as error:
            operation.failed(error)
            raise
        operation.done(list(map(_size, messages)), oldest_at=oldest(messages))
        return messages

    async def _browse(self, step: Browse) -> Sequence[Parked]:
        operation = self._begin(Kind.PEEK)
        try:
            seen = await self._source.browse(self.queue, step.up_to)
        except Exception as error:
            _LOGGER.debug("%s cannot be browsed: %r", self.queue, error)
            operation.failed(error)
            raise
        operation.done(list(map(_size, seen)))
        return seen

    async def _send(self, step: Send[Received]) -> None:
        destination, messages = step.ordered.destination, step.messages
        labels, carriers = list(map(_unparked, messages)), ()
        if self._instrument.traces:  # which may add a trace's context to messages that have none
            labels = [_full_label(each) for each in messages]
            carriers = [dict(label.application_properties) for label in labels]
            labels = list(map(_with_properties, labels, carriers))
        operation = self._instrument.begin(
            self._target_name,
            destination,
            Kind.SEND,
            Stage.SYPHON,
            sizes=list(map(_size, messages)),
            destination=destination,
            carriers=carriers,
        )
        try:
            now = self._utc()
            payloads = [each.restored(label, now) for each, label in zip(messages, labels, strict=True)]
            operation.sizes = list(map(len, payloads))
            await self._target.send(destination, Outgoing(payloads, labels[0].session_id, messages[0].partition_key))
        except Exception as error:  # noqa: BLE001 (what becomes of the messages is decided there)
            facts = self._target.facts(error)
            operation.failed(error, in_doubt=facts.in_doubt)
            self.moving.send_failed(step, facts, self._monotonic())
        else:
            operation.done()
            self.moving.sent(step, self._monotonic())

    async def _account(self) -> None:
        if self._instrument.keeps:  # ADR 0004: what leaves the backlog has a record that a kill does not take
            await asyncio.to_thread(self._instrument.flush)
        if self._account_for is not None:
            await self._account_for()

    async def _settle(self, step: Settle[Received]) -> Answers:
        kind = Kind.DEAD_LETTER if isinstance(step.settlement, DeadLetter) else _KINDS[step.settlement]
        operation = self._begin(kind, step.destination)
        answers = await self._source.settle(self.queue, step.messages, step.settlement)
        self._record(operation, answers)
        return answers

    async def _renew(self, step: Renew[Received]) -> None:
        operation = self._begin(Kind.RENEW)
        self._record(operation, await self._source.renew(self.queue, step.messages))

    # --- the ledger ----------------------------------------------------------------------------------------------

    def _begin(self, kind: Kind, destination: str | None = None) -> Operation:
        return self._instrument.begin(self._source_name, self.queue, kind, Stage.SYPHON, destination=destination)

    def _record(self, operation: Operation, answers: Answers) -> None:
        """Record how an operation on several messages ended, those that failed apart."""
        failures = [error for error in answers if error is not None]
        if failures:
            failed = self._begin(operation.started.kind, operation.started.destination)
            failed.sizes = [0] * len(failures)
            failed.failed(failures[0], in_doubt=self._source.facts(failures[0]).in_doubt)
        if len(failures) < len(answers):
            operation.done([0] * (len(answers) - len(failures)))


def _log_failure(queue: str, error: Exception) -> None:
    _LOGGER.debug("%s fails and is tried again: %r", queue, error)


def _with_properties(label: Label, properties: Properties) -> Label:
    return replace(label, application_properties=properties)


def _full_label(message: Received) -> Label:
    """Return the label of a message with its application properties, which a transport need not have read."""
    routed = route(message.label)
    return routed.label if isinstance(routed, Deliver) else message.unparked
