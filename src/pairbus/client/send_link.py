"""A sender's way to one entity: what waits for it, what is under way on it, and until when.

Theory of operation
-------------------
A caller hands in a :class:`Submission` and awaits its future. A submission *waits* until the link is open and free;
then it is part of a *transfer*, alone or with others: single messages that wait at the same time travel as one batch,
those of one session or partition key together. What came later does not overtake a list or a batch. Each caller gets
its own outcome: when a batch is refused because of one of its messages, they are sent again one by one.

How many transfers may be under way is the channel's to say (:class:`~pairbus.links.channel.Channel`). On the SDK's it
is one; whatever is handed in meanwhile waits, and travels together next. On the native one there is no limit: what is
handed in during one turn of the event loop travels together.

Callers give up, because their time is over or because they were cancelled. A submission that waits is withdrawn with
its caller. A transfer that has begun goes on until it is answered or until the *attempt's* deadline, whatever its
callers do: a broker that answers more slowly than one caller waits has not failed, and its link is kept. When a
transfer ends, or a link cannot be opened, and no caller is left to hear of it, ``unheard`` is told; otherwise callers
that are all more impatient than the attempt's deadline would never find out that the entity is away.

Deadlines are kept by one timer for the link, set to the earliest and left alone when a send ends before, as nearly all
do. When an attempt's deadline has passed and no caller counts on another transfer, the link is replaced: what is under
way on it is in doubt (S7).

The link is opened when it is first needed, and replaced when it has rested for long: the broker may have detached it,
and its word be on its way.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from pairbus.amqp.performatives import BATCH_FORMAT
from pairbus.client.submission import Submission, Transfer, Work, begin
from pairbus.core.ledger import Stage
from pairbus.core.sending import ABOUT_THE_MESSAGE
from pairbus.core.verdict import ErrorFacts
from pairbus.instrument.hooks import Instrument
from pairbus.links.channel import STALE_SECONDS, Channel, OpenChannel
from pairbus.links.deadlines import AbandonedError, BackgroundTasks, cancel, outcome_of
from pairbus.links.errors import facts, is_unsent
from pairbus.messages.encoding import batch_of, encoded
from pairbus.messages.sdk_batches import ENVELOPE_BYTES, IN_BATCH_BYTES
from pairbus.messages.sdk_messages import sized

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

Unheard: TypeAlias = Callable[[ErrorFacts | None, float], None]
"""Told how an attempt ended that no caller waits for any more (None: it was accepted), and when it had begun."""

AT_ONCE: Final = 50
"""This many messages are sent without waiting for more, so that the broker works on them while the next ones come."""
_TRACE_BYTES: Final = 512
"""More than a trace's context adds to a message."""


class SendLink:
    """The link to one entity, and who waits for it.

    :param open_channel: opens what carries it.
    :param unheard: told what no caller hears, in a turn of the event loop of its own.
    """

    def __init__(
        self,
        open_channel: OpenChannel,
        *,
        namespace: str,
        entity: str,
        stage: Stage,
        chores: BackgroundTasks,
        instrument: Instrument,
        unheard: Unheard,
    ) -> None:
        self.entity: Final = entity
        self.used_at = 0.0
        self.batch_bytes: int | None = None
        """The largest batch that the broker takes; None: no link was open yet."""
        self._open_channel = open_channel
        self._namespace = namespace
        self._stage = stage
        self._chores = chores
        self._instrument = instrument
        self._traces = instrument.traces
        self._is_recorded = instrument.measures or stage is not Stage.DIRECT  # parked messages are counted in any case
        self._unheard = unheard
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._waiting: dict[Submission[Any], None] = {}
        self._under_way: dict[Transfer, None] = {}
        self._opening: asyncio.Task[Channel] | None = None
        self._opening_began = 0.0
        self._openers = 0
        """How many wait for the link to be opened, with nothing to send yet."""
        self._dispatches_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        """Set when a transfer or the opening has ended."""
        self._closed = False

    # --- what callers want ---------------------------------------------------------------------------------------

    def submit(self, submission: Submission[T]) -> "asyncio.Future[T]":
        """Have something done. The future ends as it does, at the latest at its deadline.

        A caller that cancels the future withdraws what has not begun.
        """
        if self._closed:
            raise AbandonedError(f"the link to {self.entity!r} is closed")
        submission.future = future = self._loop.create_future()
        if self._timer is None or self._timer.when() > submission.deadline:
            self._watch(submission.deadline)
        self._waiting[submission] = None
        if not self._under_way:
            self._drop_if_stale()
            self._dispatch()
        elif self._channel is not None and self._channel.carries_many:
            if len(self._waiting) >= AT_ONCE:
                self._dispatch()
            elif not self._dispatches_soon:
                self._dispatches_soon = True
                self._loop.call_soon(self._dispatch)
        return future

    async def prepare(self, *, retries: bool = True) -> None:
        """Open the link, if it is not open, so that the next one need not wait for it."""
        if not self._under_way:
            self._drop_if_stale()
        if self._usable_channel() is None:
            self._openers += 1
            try:
                await outcome_of(self._start_opening(retries=retries), f"opening the link to {self.entity!r}")
            finally:
                self._openers -= 1

    def prepare_soon(self) -> None:
        """Open the link in the background; if that fails, the next send sees why."""
        self._chores.start(self._prepare_quietly(), f"opening of {self.entity}")

    async def _prepare_quietly(self) -> None:
        try:
            await self.prepare()
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            _LOGGER.debug("the link to %r cannot be opened ahead: %r", self.entity, error)
            self._not_opened(error)

    # --- the end of it -------------------------------------------------------------------------------------------

    def abandon(self, why: str) -> None:
        """End all that waits or is under way, at once, and drop the link if it is in doubt."""
        self.withdraw(why)
        for transfer in self._under_way:
            for submission in transfer.submissions:
                submission.fail(AbandonedError(why))
        if self._under_way:
            self._drop(in_doubt=True)
        else:
            self._stop_opening()

    def withdraw(self, why: str) -> None:
        """End what waits and has not begun; what is under way is answered."""
        waiting, self._waiting = self._waiting, {}
        for submission in waiting:
            submission.fail(AbandonedError(why))

    @property
    def is_unheard(self) -> bool:
        """Whether something is under way that no caller waits for."""
        return not self._heard() and (bool(self._under_way) or self._opening is not None)

    def _heard(self) -> "list[asyncio.Future[Any]]":
        """What callers wait for."""
        begun = [submission for transfer in self._under_way for submission in transfer.submissions]
        return [submission.future for submission in (*begun, *self._waiting) if not submission.future.done()]

    async def finish(self) -> None:
        """Take nothing more, and let what callers wait for end: all of it has its deadline."""
        self._closed = True
        while heard := self._heard():
            await asyncio.wait(heard)

    async def end(self) -> None:
        """Let what no caller waits for end, too, and close the link."""
        while self._under_way or self._opening is not None:
            self._quiet.clear()
            await self._quiet.wait()
        self._let_go()

    async def close(self) -> None:
        """Let what callers wait for end, then close the link. It never hangs."""
        await self.finish()
        self._let_go()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._drop(in_doubt=bool(self._under_way))

    # --- the channel ---------------------------------------------------------------------------------------------

    def _usable_channel(self) -> Channel | None:
        channel = self._channel
        return channel if channel is not None and channel.is_open else None

    def _start_opening(self, *, retries: bool) -> "asyncio.Task[Channel]":
        if self._opening is None:
            self._opening_began = self._loop.time()
            self._opening = self._chores.start(self._open_channel(retries=retries), f"opening of {self.entity}")
            self._opening.add_done_callback(self._opened)
        return self._opening

    def _opened(self, opening: "asyncio.Task[Channel]") -> None:
        is_wanted = self._opening is opening
        if is_wanted:
            self._opening = None
        error = None if opening.cancelled() else opening.exception()
        if opening.cancelled():
            pass
        elif error is None and (not is_wanted or self._closed):
            opening.result().close(in_doubt=False)
        elif error is None:
            self._channel = opening.result()
            self.batch_bytes, self.used_at = self._channel.batch_bytes, self._loop.time()
            self._dispatch()
        elif is_wanted:
            waiting, self._waiting = self._waiting, {}
            if not self._openers and all(submission.future.done() for submission in waiting):
                self._not_opened(error)
            for submission in waiting:
                submission.fail(error)
        self._quiet.set()

    def _not_opened(self, error: BaseException) -> None:
        """Tell that the link could not be opened, since no caller is left to hear of it."""
        if not isinstance(error, AbandonedError):
            self._loop.call_soon(self._unheard, facts(error, begun=False), self._opening_began)

    def _drop_if_stale(self) -> None:
        if self._channel is not None and self._loop.time() - self.used_at > STALE_SECONDS:
            self._drop(in_doubt=False)

    def _drop(self, *, in_doubt: bool) -> None:
        """Let go of the link, and of one that is being opened: the next one who needs it gets a new one."""
        under_way, self._under_way = self._under_way, {}
        for transfer in under_way:
            transfer.failed(AbandonedError("given up"), in_doubt=True)
            if transfer.task is not None:
                cancel(transfer.task)
        self._stop_opening()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close(in_doubt=in_doubt)
        self._quiet.set()

    def _stop_opening(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            cancel(opening)

    # --- sending -------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Send what waits, as far as the channel takes it."""
        self._dispatches_soon = False
        channel = self._usable_channel()
        if channel is None:
            self._waiting = {submission: None for submission in self._waiting if not submission.future.done()}
            if self._waiting:
                self._start_opening(retries=any(submission.retries for submission in self._waiting))
            return
        self.used_at = self._loop.time()
        while self._waiting and (channel.carries_many or not self._under_way) and self._channel is channel:
            first = next(iter(self._waiting))
            if first.future.done():  # its caller has given up
                del self._waiting[first]
            elif first.joins and len(self._waiting) > 1:
                self._send(channel, self._load(channel.batch_bytes - ENVELOPE_BYTES, first.group))
            else:
                del self._waiting[first]
                self._send(channel, (first,))
        channel.flush()

    def _load(self, room: int, group: object) -> list[Submission[Any]]:
        """Take those that may travel together and fit in one batch. One that cannot be encoded fails alone."""
        load: list[Submission[Any]] = []
        own = IN_BATCH_BYTES + (_TRACE_BYTES if self._traces else 0)
        for submission in list(self._waiting):
            if not submission.joins:
                break  # what came later does not overtake it
            if submission.group != group or submission.future.done():
                continue
            try:
                if submission.payloads is None:
                    submission.payloads = (encoded(submission.messages[0]),)
            except Exception as error:  # noqa: BLE001 (its caller's alone)
                del self._waiting[submission]
                submission.fail(error)
                continue
            room -= len(submission.payloads[0]) + own
            if room < 0 and load:
                break
            load.append(submission)
            del self._waiting[submission]
        return load

    def _send(self, channel: Channel, load: Sequence[Submission[Any]]) -> None:
        if not load:
            return
        first = load[0]
        transfer = None
        try:
            transfer = Transfer(
                load,
                begin(self._instrument, self._namespace, self.entity, self._stage, load) if self._is_recorded else None,
                self.used_at,
            )
            if first.work is not None:
                first.begun = True
                self._under_way[transfer] = None
                transfer.task = self._chores.start(self._work(channel, transfer, first.work), f"work at {self.entity}")
                return
            payload = self._payload(load)
        except Exception as error:  # noqa: BLE001 (not even its size can be told, or it cannot be encoded)
            if transfer is not None:
                transfer.failed(error, in_doubt=False)
            for submission in load:
                submission.fail(error)
            return
        for submission in load:
            submission.begun = True
        self._under_way[transfer] = None
        is_batch = first.is_batch or len(load) > 1
        messages = first.messages if len(load) == 1 else [submission.messages[0] for submission in load]
        channel.send(
            messages, payload, BATCH_FORMAT if is_batch else 0, partial(self._answered, channel, transfer, None)
        )

    def _payload(self, load: Sequence[Submission[Any]]) -> bytes:
        """Encode a load. A trace adds to messages when its operation begins: those are encoded only now."""
        first = load[0]
        if not first.is_batch and len(load) == 1:
            if first.payloads is not None and not self._traces:
                return first.payloads[0]
            return encoded(first.messages[0])
        payloads: list[bytes] = []
        for submission in load:
            if submission.payloads is None or (self._traces and not submission.is_batch):
                payloads += map(encoded, submission.messages)
            else:
                payloads += submission.payloads
        return batch_of(payloads, first.messages[0])

    async def _work(self, channel: Channel, transfer: Transfer, work: Work[Any]) -> None:
        try:
            result = await work(channel)
        except Exception as error:  # noqa: BLE001 (handed to the caller)
            self._answered(channel, transfer, None, error)
        else:
            self._answered(channel, transfer, result, None)

    def _answered(self, channel: Channel, transfer: Transfer, result: object, error: Exception | None) -> None:
        if self._under_way.pop(transfer, self) is self:
            return  # the link was given up
        if error is not None:
            self._failed(channel, transfer, error)
        else:
            if transfer.operation is not None:
                transfer.operation.done()
            self._tell(transfer, None)
            for submission in transfer.submissions:
                if not submission.future.done():
                    submission.future.set_result(result)
        self._quiet.set()
        if self._waiting and not self._under_way:
            self._dispatch()

    def _failed(self, channel: Channel, transfer: Transfer, error: Exception) -> None:
        is_begun = not is_unsent(error)
        known = facts(error, begun=is_begun)
        transfer.failed(error, in_doubt=known.in_doubt)
        load = transfer.submissions
        if len(load) > 1 and known.cause in ABOUT_THE_MESSAGE and channel.is_open:
            # One of them is at fault and nothing was taken: one by one, each gets its own outcome.
            for submission in load:
                submission.joins = submission.begun = False
            self._waiting = dict.fromkeys(load) | self._waiting
            return
        if known.in_doubt and not channel.carries_many and self._channel is channel:
            self._drop(in_doubt=True)
        self._tell(transfer, error)
        for submission in load:
            submission.begun = is_begun
            submission.fail(error)

    def _tell(self, transfer: Transfer, error: BaseException | None) -> None:
        """Tell how a transfer ended, if no caller is left to hear of it."""
        load = transfer.submissions
        if not all(submission.future.cancelled() for submission in load):
            return
        messages = [message for submission in load for message in submission.messages]
        known = None if error is None else sized(facts(error, begun=not is_unsent(error)), messages)
        self._loop.call_soon(self._unheard, known, transfer.began)

    # --- time ----------------------------------------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        """End what is late, and look again at the next deadline."""
        self._timer = None
        now = self._loop.time()
        self._end_late(self._waiting, now)  # what has ended is passed over when its turn comes
        late = [each for each in self._under_way if any(one.deadline <= now for one in each.submissions)]
        for transfer in late:
            self._end_late(transfer.submissions, now)
            if all(submission.deadline <= now for submission in transfer.submissions):
                del self._under_way[transfer]
                transfer.failed(self._too_late(), in_doubt=True)
                self._tell(transfer, self._too_late())
        for transfer in late:
            if self._channel is not None:
                self._channel.suspect(transfer.began)
        if late and not any(transfer.is_heard for transfer in self._under_way):
            self._drop(in_doubt=True)  # no other send counts on the link, which did not answer
            self._dispatch()
        begun = [submission for transfer in self._under_way for submission in transfer.submissions]
        deadlines = [each.deadline for each in (*begun, *self._waiting) if each.deadline > now]
        if deadlines:
            self._watch(min(deadlines))

    def _end_late(self, submissions: Iterable[Submission[Any]], now: float) -> None:
        for submission in submissions:
            if submission.deadline <= now:
                submission.fail(self._too_late())

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"{self.entity!r} did not answer in time")
