"""The way to one entity by the native client: any number of sends under way, each with an outcome of its own.

It does for paired senders what :class:`pairbus.links.sdk.lane.Lane` does with the SDK. Single messages that are handed
in during one turn of the event loop travel as one batch, those of one session or partition key together; the next
ones leave before the answer has come. A caller that gives up harms no other: what it has sent is waited for until the
attempt's deadline all the same, and ``unheard`` is told how it ended.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pairbus.amqp.performatives import BATCH_FORMAT
from pairbus.core.ledger import Stage
from pairbus.core.sending import ABOUT_THE_MESSAGE
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import AbandonedError, Chores, cancel, outcome_of
from pairbus.links.errors import facts
from pairbus.links.native.client import NativeClient
from pairbus.links.native.errors import is_unsent, unsent
from pairbus.links.native.sender import NativeSender, batch_of, encoded
from pairbus.links.submission import STALE_SECONDS, Begun, Submission, Unheard, begin
from pairbus.messages.sdk_messages import sized

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

IN_BATCH: Final = 16
"""More than a batch adds to each message, and its envelope's share."""
AT_ONCE: Final = 50
"""So many messages are sent without waiting for more, so that the broker works on them while the next ones come."""
ENVELOPE: Final = 1024
"""More than the envelope of a batch takes."""


class NativeLane:
    """One link, and who uses it.

    :param open_timeout: how long opening the link may take, in seconds.
    :param unheard: told what no caller hears, in a turn of the event loop of its own.
    """

    def __init__(
        self,
        client: NativeClient,
        *,
        namespace: str,
        entity: str,
        stage: Stage,
        open_timeout: float,
        chores: Chores,
        instrument: Instrument,
        unheard: Unheard,
    ) -> None:
        self.entity: Final = entity
        self.used_at = 0.0
        self._client = client
        self._namespace = namespace
        self._stage = stage
        self._open_timeout = open_timeout
        self._chores = chores
        self._instrument = instrument
        self._unheard = unheard
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Submission[Any]] = []
        self._under_way: dict[Submission[Any], float] = {}
        """What is not answered yet, and when it was handed in."""
        self._given_up: dict[Submission[Any], float] = {}
        """Likewise, of what was sent and whose caller has gone."""
        self._sender: NativeSender | None = None
        self._opening: asyncio.Task[NativeSender] | None = None
        self._opening_began = 0.0
        self._openers = 0
        """How many wait for the link to be opened, with nothing to send yet."""
        self._dispatching = False
        self._starting = False
        """Whether a list or a batch is about to be sent, behind which others wait."""
        self._watchdog: asyncio.TimerHandle | None = None
        self._batch_bytes: int | None = None
        self._idle = asyncio.Event()
        self._closed = False

    @property
    def batch_bytes(self) -> int | None:
        """The largest batch that the broker takes; None: no link was open yet."""
        return self._batch_bytes

    async def submit(self, submission: Submission[T]) -> T:
        """Have something done, and return or raise how it ended, at the latest at its deadline."""
        if self._closed:
            raise AbandonedError(f"the link to {self.entity!r} is closed")
        submission.future = self._loop.create_future()
        now = self._loop.time()
        alone = not self._under_way  # then at once; those who come while it is under way travel together
        if alone:
            self._drop_if_stale()
        self._under_way[submission] = now
        if self._watchdog is None or self._watchdog.when() > submission.deadline:
            self._watch(submission.deadline)
        try:
            sender = self._open_sender() if alone and submission.joins else None
            if sender is not None:
                self.used_at = now
                self._send_alone(sender, submission)
                sender.link.connection.flush()
            else:
                self._gather(submission, alone=alone)
            return await submission.future
        except asyncio.CancelledError:
            if submission.begun and submission.future.cancelled():
                self._given_up[submission] = now
            raise
        finally:
            self._under_way.pop(submission, None)
            if not self._under_way:
                self._idle.set()

    def _gather(self, submission: Submission[Any], *, alone: bool) -> None:
        self._gathered.append(submission)
        if alone or len(self._gathered) >= AT_ONCE:
            self._dispatch()
        elif not self._dispatching:
            self._dispatching = True
            self._loop.call_soon(self._dispatch)

    async def prepare(self, *, retries: bool = True) -> None:
        """Open the link, if it is not open, so that the next one need not wait for it."""
        del retries  # whoever sends tries again by its own rules
        if not self._under_way:
            self._drop_if_stale()
        if self._open_sender() is None:
            self._openers += 1
            try:
                await outcome_of(self._start_opening(), f"opening the link to {self.entity!r}")
            finally:
                self._openers -= 1

    def prepare_soon(self) -> None:
        """Open the link in the background; if that fails, whoever needs it will see why."""
        self._chores.start(self._prepare_quietly(), f"opening of {self.entity}")

    async def _prepare_quietly(self) -> None:
        try:
            await self.prepare()
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            _LOGGER.debug("the link to %r cannot be opened ahead: %r", self.entity, error)
            self._not_opened(error)

    def abandon(self, why: str) -> None:
        """End all that waits or is under way, at once, and drop the link if it is in doubt."""
        under_way = list(self._under_way)
        is_in_use = bool(under_way or self._given_up or self._opening)
        self._gathered.clear()
        self._given_up.clear()
        for submission in under_way:
            _fail(submission, AbandonedError(why))
        if is_in_use:
            self._drop()

    def withdraw(self, why: str) -> None:
        """End what waits and has not begun; what is under way is answered."""
        self._gathered.clear()
        for submission in [each for each in self._under_way if not each.begun]:
            _fail(submission, AbandonedError(why))

    @property
    def is_unheard(self) -> bool:
        """Whether something is under way that no caller waits for."""
        return not self._under_way and (bool(self._given_up) or self._opening is not None)

    async def finish(self) -> None:
        """Take nothing more, and let what callers wait for end: all of it has its deadline."""
        self._closed = True
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()

    async def end(self) -> None:
        """Let what no caller waits for end, too, and close the link."""
        while self._given_up or self._opening is not None:
            self._idle.clear()
            await self._idle.wait()
        self._let_go()

    async def close(self) -> None:
        """Let what callers wait for end, then close the link. It never hangs."""
        await self.finish()
        self._given_up.clear()
        self._let_go()

    def _let_go(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._drop()

    # --- the link ------------------------------------------------------------------------------------------------

    def _open_sender(self) -> NativeSender | None:
        sender = self._sender
        return sender if sender is not None and sender.link.error is None else None

    def _start_opening(self) -> "asyncio.Task[NativeSender]":
        if self._opening is None:
            self._opening_began = self._loop.time()
            self._opening = self._chores.start(self._open(), f"opening of {self.entity}")
            self._opening.add_done_callback(self._opened)
        return self._opening

    async def _open(self) -> NativeSender:
        link = await self._client.sender(self.entity, self._open_timeout)
        return NativeSender(self._client, link, self._open_timeout)

    def _opened(self, opening: "asyncio.Task[NativeSender]") -> None:
        current, self._opening = self._opening is opening, None if self._opening is opening else self._opening
        self._idle.set()
        if opening.cancelled():
            return
        error = opening.exception()
        if error is None and (not current or self._closed):
            opening.result().link.close()
        elif error is None:
            sender = self._sender = opening.result()
            self._batch_bytes, self.used_at = sender.link.largest, self._loop.time()
            self._dispatch()
        elif current:
            waiting, self._gathered = self._gathered, []
            if not self._openers and all(submission.future.done() for submission in waiting):
                self._not_opened(error)
            for submission in waiting:
                _fail(submission, error)

    def _not_opened(self, error: BaseException) -> None:
        """Tell that the link could not be opened, since no caller is left to hear of it."""
        if not isinstance(error, AbandonedError):
            self._loop.call_soon(self._unheard, facts(error, begun=False), self._opening_began)

    def _drop_if_stale(self) -> None:
        """Let go of a link that has rested for long: the broker may have detached it, and its word be on its way."""
        if self._open_sender() is not None and self._loop.time() - self.used_at > STALE_SECONDS:
            self._drop()

    def _drop(self) -> None:
        """Let go of the link, and of one that is being opened: the next one who needs it gets a new one."""
        opening, self._opening = self._opening, None
        if opening is not None:
            cancel(opening)
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.link.close()

    # --- time ----------------------------------------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        """Look at the deadlines. One timer does for many, since most end long before."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watchdog = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._watchdog = None
        now = self._loop.time()
        late = [submission for submission in self._under_way if submission.deadline <= now]
        for submission in late:
            since = self._under_way.pop(submission)
            if submission in self._gathered:
                self._gathered.remove(submission)
            _fail(submission, self._late())
            if submission.begun:
                self._suspect(since)
        late += self._given_up_late(now)
        if late and not self._under_way:  # nobody else counts on the link, which did not answer
            self._drop()
            self._idle.set()
        deadlines = [submission.deadline for submission in (*self._under_way, *self._given_up)]
        if deadlines:
            self._watch(min(deadlines))

    def _late(self) -> TimeoutError:
        return TimeoutError(f"{self.entity!r} did not answer in time")

    def _given_up_late(self, now: float) -> list[Submission[Any]]:
        late = [submission for submission in self._given_up if submission.deadline <= now]
        for submission in late:
            since = self._given_up.pop(submission)
            self._suspect(since)
            self._tell((submission,), self._late(), since)
        return late

    def _suspect(self, since: float) -> None:
        if self._sender is not None:
            self._sender.link.connection.suspect(since)

    def _tell(self, submissions: Iterable[Submission[Any]], error: BaseException | None, began: float) -> None:
        """Tell how a transfer ended that no caller waits for."""
        messages = [message for submission in submissions for message in submission.messages]
        known = None if error is None else sized(facts(error, begun=not is_unsent(error)), messages)
        self._loop.call_soon(self._unheard, known, began)

    def _ended_unheard(self, submissions: Sequence[Submission[Any]], error: BaseException | None) -> None:
        """Tell how a transfer ended, if no caller is left to hear of it."""
        began = [self._given_up.pop(submission) for submission in submissions if submission in self._given_up]
        if not began:
            return
        self._idle.set()
        if all(submission.future.cancelled() for submission in submissions):
            self._tell(submissions, error, min(began))

    # --- sending -------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Send what was handed in during this turn."""
        self._dispatching = False
        if not self._gathered or self._starting:
            return
        sender = self._open_sender()
        if sender is None:
            self._start_opening()
            return
        self.used_at = self._loop.time()
        gathered, self._gathered = self._gathered, []
        try:
            while gathered:
                gathered = self._send_first(sender, gathered)
        finally:
            sender.link.connection.flush()

    def _send_first(self, sender: NativeSender, gathered: list[Submission[Any]]) -> list[Submission[Any]]:
        """Send the first, with all that may travel with it, and return the others."""
        first = gathered[0]
        if first.future.done():
            return gathered[1:]
        if not first.joins:
            # It sends in the next turn of the loop; what came later does not overtake it.
            self._starting = self._dispatching = True
            self._chores.start(self._work(sender, first), f"sending to {self.entity}")
            self._loop.call_soon(self._dispatch)
            self._gathered = [*gathered[1:], *self._gathered]
            return []
        if len(gathered) == 1:
            self._send_alone(sender, first)
            return []
        group = first.group
        load: list[Submission[Any]] = []
        others: list[Submission[Any]] = []
        for index, submission in enumerate(gathered):
            if not submission.joins:  # what came later does not overtake it
                others += gathered[index:]
                break
            if submission.future.done():
                continue
            (load if submission.group == group else others).append(submission)
        self._send(sender, load)
        return others

    async def _work(self, sender: NativeSender, submission: Submission[Any]) -> None:
        """Do what is no single message: a list, a batch, a schedule. What it sends it sends before it first waits."""
        self._starting = False
        if submission.future.done():
            return  # its caller has given up
        operation = self._begin((submission,))
        if operation is None:
            return
        submission.begun = True
        try:
            result = await submission.run(sender)
        except Exception as error:  # noqa: BLE001 (handed to the caller)
            _failed(operation, error)
            self._ended_unheard((submission,), error)
            _fail(submission, error)
        else:
            operation.done()
            self._ended_unheard((submission,), None)
            if not submission.future.done():
                submission.future.set_result(result)

    def _send(self, sender: NativeSender, load: Sequence[Submission[Any]]) -> None:
        """Send single messages, in as few batches as they fit in."""
        room = sender.link.largest - ENVELOPE
        run: list[tuple[Submission[Any], bytes]] = []
        size = 0
        for submission in load:
            if self._instrument.traces:  # which adds to the message
                self._flush(sender, run)
                run, size = [], 0
                self._send_alone(sender, submission)
                continue
            try:
                payload = encoded(submission.messages[0])
            except Exception as error:  # noqa: BLE001 (its caller's alone)
                _fail(submission, error)
                continue
            if run and size + len(payload) + IN_BATCH > room:
                self._flush(sender, run)
                run, size = [], 0
            run.append((submission, payload))
            size += len(payload) + IN_BATCH
        self._flush(sender, run)

    def _send_alone(self, sender: NativeSender, submission: Submission[Any]) -> None:
        operation = self._begin((submission,))  # which may add a trace's context to the message
        if operation is None:
            return
        try:
            payload = encoded(submission.messages[0])
        except Exception as error:  # noqa: BLE001 (its caller's alone)
            _failed(operation, error)
            _fail(submission, error)
            return
        self._transfer(sender, [(submission, payload)], operation)

    def _flush(self, sender: NativeSender, run: Sequence[tuple[Submission[Any], bytes]]) -> None:
        operation = self._begin([submission for submission, _ in run]) if run else None
        if operation is not None:
            self._transfer(sender, run, operation)

    def _transfer(self, sender: NativeSender, run: Sequence[tuple[Submission[Any], bytes]], operation: Begun) -> None:
        for submission, _ in run:
            submission.begun = True
        answered = partial(self._answered, sender, run, operation)
        try:
            if len(run) == 1:
                sender.link.send(run[0][1], 0, answered)
            else:
                payloads = [payload for _, payload in run]
                sender.link.send(batch_of(payloads, run[0][0].messages[0]), BATCH_FORMAT, answered)
        except Exception as error:  # noqa: BLE001 (handed to the callers)
            answered(unsent(error))

    def _answered(
        self,
        sender: NativeSender,
        run: Sequence[tuple[Submission[Any], bytes]],
        operation: Begun,
        error: BaseException | None,
    ) -> None:
        if self._given_up:
            self._ended_unheard([submission for submission, _ in run], error)
        if error is None:
            operation.done()
            for submission, _ in run:
                if not submission.future.done():
                    submission.future.set_result(None)
            return
        known = _failed(operation, error)
        if len(run) > 1 and known and sender.link.error is None:
            # One of them is at fault and nothing was taken: one by one, each gets its own outcome.
            for each in run:
                if not each[0].future.done():
                    self._flush(sender, [each])
            sender.link.connection.flush_soon()
            return
        for submission, _ in run:
            submission.begun = not is_unsent(error)
            _fail(submission, error)

    def _begin(self, load: Sequence[Submission[Any]]) -> Begun | None:
        """Begin the operation that carries a load; None: a message is such that not even its size can be told."""
        try:
            return begin(self._instrument, self._namespace, self.entity, self._stage, load)
        except Exception as error:  # noqa: BLE001 (handed to the callers)
            for submission in load:
                _fail(submission, error)
            return None


def _failed(operation: Begun, error: BaseException) -> bool:
    """Record a failure, and tell whether it is about a message."""
    known = facts(error)
    operation.failed(error, in_doubt=known.in_doubt)
    return known.cause in ABOUT_THE_MESSAGE


def _fail(submission: Submission[Any], error: BaseException) -> None:
    if not submission.future.done():
        submission.future.set_exception(error)
