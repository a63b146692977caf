"""The way to one entity: one link, used by one at a time, on which what waits travels together.

While one transfer is under way, the single messages that wait for the link are put in one batch, those of one session
or partition key together; each caller gets its own outcome. A caller that gives up, because its time is over or because
it was cancelled, leaves the transfer to go on for the others. Only when the time of all of a transfer's callers is over
is the transfer ended, its link dropped, and a new one opened.

A caller that finds the link open and nobody before it sends in its own task, which spares two turns of the event loop;
if it is cancelled, the link that it leaves in doubt is replaced.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.aio.attempt import RECANCEL_SECONDS, Chores, cancel
from pairbus.aio.messages import carrier_of, group_key, size_of
from pairbus.aio.sdk import Message, add_to, facts
from pairbus.aio.sdk_links import EntityLink
from pairbus.core.ledger import Kind, Stage
from pairbus.core.sending import ABOUT_THE_MESSAGE
from pairbus.instrument.hooks import Instrument

T = TypeVar("T")

Work: TypeAlias = Callable[[Any], Awaitable[T]]
"""Does something on an open link: the SDK's, or a native one, which has the methods that are used."""

STALE_SECONDS: Final = 240.0
"""A link that was idle for longer is opened anew when it is prepared: brokers detach idle ones after ten minutes."""

_LOGGER = logging.getLogger(__name__)


class AbandonedError(TimeoutError):
    """An attempt was given up before it was answered: failover has engaged, or the factory has ended."""


@dataclass(eq=False, slots=True)
class Submission(Generic[T]):
    """What one caller wants to have done on the link.

    :ivar work: does it on the open link; None: the one message is sent.
    :ivar joins: it is one message, which may travel with others of its group.
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
    given_up: TimeoutError | None = field(default=None, init=False)
    """Why it was ended, if it was sent in its caller's own task."""

    @property
    def group(self) -> object:
        """What messages that travel together have in common."""
        return self.destination, group_key(self.messages[0])

    def run(self, link: Any) -> Awaitable[Any]:  # noqa: ANN401 (the SDK's link, or a native one)
        """Do it."""
        return link.send_one(self.messages[0]) if self.work is None else self.work(link)


class Lane:
    """One link, and who waits for it.

    :param make: makes a sender of the SDK, not yet open.
    :param open_timeout: how long opening the link may take, in seconds.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        *,
        namespace: str,
        entity: str,
        stage: Stage,
        open_timeout: float,
        chores: Chores,
        instrument: Instrument,
    ) -> None:
        self.entity: Final = entity
        self.used_at = 0.0
        self._make = make
        self._namespace = namespace
        self._stage = stage
        self._open_timeout = open_timeout
        self._chores = chores
        self._instrument = instrument
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Submission[Any], None] = {}
        self._link: EntityLink | None = None
        self._opening: asyncio.Task[EntityLink] | None = None
        self._carrier: asyncio.Task[None] | None = None
        self._load: list[Submission[Any]] = []
        self._straight: tuple[Submission[Any], asyncio.Task[Any]] | None = None
        self._straight_ended: asyncio.Event | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._batch_bytes: int | None = None
        self._closed = False

    @property
    def batch_bytes(self) -> int | None:
        """The largest batch that the broker takes; None: no link was open yet."""
        return self._batch_bytes

    async def submit(self, submission: Submission[T]) -> T:
        """Have something done, and return or raise how it ended, at the latest at its deadline."""
        if self._closed:
            raise AbandonedError(f"the link to {self.entity!r} is closed")
        if self._straight is None and self._carrier is None and self._link is not None and not self._waiting:
            return await self._go_straight(submission, self._link)
        submission.future = self._loop.create_future()
        self._waiting[submission] = None
        submission.timer = self._loop.call_at(submission.deadline, self._expire, submission)
        self._carry_on()
        try:
            return await submission.future
        except asyncio.CancelledError:
            if submission in self._waiting:  # else its deadline goes on to bound the transfer
                del self._waiting[submission]
                submission.timer.cancel()
            raise

    async def prepare(self, *, retries: bool = True) -> None:
        """Open the link, if it is not open, so that the next one need not wait for it."""
        is_idle = self._carrier is None and self._straight is None
        if is_idle and self._link is not None and self._loop.time() - self.used_at > STALE_SECONDS:
            self._drop(in_doubt=False)
        await self._opened(retries=retries)

    def prepare_soon(self) -> None:
        """Open the link in the background; if that fails, whoever needs it will see why."""
        self._chores.start(self._prepare_quietly(), f"opening of {self.entity}")

    def abandon(self, why: str) -> None:
        """End all that waits or is under way, at once, and drop the link if it is in doubt."""
        carrier, self._carrier = self._carrier, None
        load, self._load = self._load, []
        given_up = [*load, *self._waiting]
        self._waiting.clear()
        for submission in given_up:
            self._settle(submission, error=AbandonedError(why))
        if carrier is not None:
            cancel(carrier)
        if self._straight is not None:
            self._end_straight(self._straight[0], AbandonedError(why))
        self._drop(in_doubt=True, keep_open_link=not load)

    async def close(self) -> None:
        """Let what is under way end, then close the link. It never hangs."""
        self._closed = True
        while self._straight is not None or self._carrier is not None:  # which end: all have their deadlines
            if self._straight is not None:
                self._straight_ended = self._straight_ended or asyncio.Event()
                await self._straight_ended.wait()
            elif self._carrier is not None:
                await asyncio.wait({self._carrier})
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._drop(in_doubt=False)

    async def _prepare_quietly(self) -> None:
        try:
            await self.prepare()
        except Exception as error:  # noqa: BLE001 (told to the one who needs the link)
            _LOGGER.debug("the link to %r cannot be opened ahead: %r", self.entity, error)

    async def _go_straight(self, submission: Submission[T], link: EntityLink) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (a coroutine runs in a task)
        operation = self._begin((submission,))
        self._straight = submission, task
        if self._watchdog is None or self._watchdog.when() > submission.deadline:
            self._watch(submission.deadline)
        submission.begun = True
        try:
            result = await submission.run(link)
        except asyncio.CancelledError:
            self._drop_if(link)
            given_up = submission.given_up
            operation.failed(given_up or AbandonedError("cancelled"), in_doubt=True)
            if given_up is None or task.uncancel() > 0:
                raise  # the caller was cancelled, by somebody else
            raise given_up from None
        except Exception as error:
            known = facts(error)
            operation.failed(error, in_doubt=known.in_doubt)
            if known.in_doubt:
                self._drop_if(link)
            raise
        else:
            operation.done()
            if submission.given_up is not None:
                task.uncancel()  # it came too late: the answer is there
            return result
        finally:
            self._straight = None
            self.used_at = self._loop.time()
            if self._straight_ended is not None:
                self._straight_ended.set()
            if self._waiting:
                self._carry_on()

    def _watch(self, deadline: float) -> None:
        """Look at the deadline of what goes straight. One timer does for many, since most end long before."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watchdog = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._watchdog = None
        if self._straight is None:
            return
        submission = self._straight[0]
        if submission.deadline > self._loop.time():
            self._watch(submission.deadline)
        else:
            self._end_straight(submission, TimeoutError(f"{self.entity!r} did not answer in time"))

    def _end_straight(self, submission: Submission[Any], why: TimeoutError) -> None:
        """Cancel what a caller does in its own task, until it has ended."""
        if self._straight is None or self._straight[0] is not submission:
            return
        if submission.given_up is None:
            submission.given_up = why
            self._straight[1].cancel()
        elif self._straight[1].cancelling() <= 1:  # the SDK has missed it
            self._straight[1].uncancel()
            self._straight[1].cancel()
        self._loop.call_later(RECANCEL_SECONDS, self._end_straight, submission, why)

    def _drop_if(self, link: EntityLink) -> None:
        if self._link is link:
            self._drop(in_doubt=True)

    def _carry_on(self) -> None:
        if self._carrier is None and self._straight is None:
            self._carrier = self._chores.start(self._carry(), f"carrier of {self.entity}")

    async def _carry(self) -> None:
        """Do what waits, load by load, until nothing is left."""
        me = asyncio.current_task()
        while self._waiting and self._carrier is me:
            retries = any(submission.retries for submission in self._waiting)
            try:
                link = self._link or await self._opened(retries=retries)
            except Exception as error:  # noqa: BLE001 (handed to all who waited for the link)
                self._all_failed(error)
                break
            if self._carrier is me and self._waiting:
                await self._carry_load(link)
        if self._carrier is me:
            self._carrier = None

    async def _carry_load(self, link: EntityLink) -> None:
        load, work = await self._next_load(link)
        try:
            operation = self._begin(load)
        except Exception as error:  # noqa: BLE001 (a message is such that not even its size can be told)
            for submission in load:
                self._settle(submission, error=error)
            return
        self._load = load
        for submission in load:
            submission.begun = True
        self.used_at = self._loop.time()
        try:
            result = await work(link)
        except asyncio.CancelledError:
            operation.failed(AbandonedError("given up"), in_doubt=True)
            raise
        except Exception as error:  # noqa: BLE001 (handed to the callers)
            self._load_failed(load, operation, error)
        else:
            operation.done()
            for submission in load:
                self._settle(submission, result=result)
        if self._load is load:
            self._load = []

    def _load_failed(self, load: list[Submission[Any]], operation: "Begun", error: Exception) -> None:
        known = facts(error)
        operation.failed(error, in_doubt=known.in_doubt)
        if known.in_doubt and self._load is load:
            self._drop(in_doubt=True)
        if len(load) > 1 and known.cause in ABOUT_THE_MESSAGE:
            # One of them is at fault and nothing was taken: one by one, each gets its own outcome.
            for submission in load:
                submission.joins = False
                submission.begun = False
            self._waiting = dict.fromkeys(one for one in load if not one.future.done()) | self._waiting
            return
        for submission in load:
            self._settle(submission, error=error)

    async def _next_load(self, link: EntityLink) -> tuple[list[Submission[Any]], Work[Any]]:
        """Take the first one that waits, with all that may travel with it and fit in one batch."""
        first = next(iter(self._waiting))
        if first.joins and len(self._waiting) > 1:
            batch = await link.sender.create_message_batch()
            load = self._fill(batch, first.group)
            if len(load) > 1:
                return load, lambda link: link.sender.send_messages(batch)
            first = load[0] if load else next(iter(self._waiting))
        self._waiting.pop(first, None)
        return [first], first.run

    def _fill(self, batch: ServiceBusMessageBatch, group: object) -> list[Submission[Any]]:
        load: list[Submission[Any]] = []
        for submission in list(self._waiting):
            if not submission.joins:
                break  # what came later does not overtake it
            if submission.group != group:
                continue
            try:
                add_to(batch, submission.messages[0])
            except MessageSizeExceededError:
                break
            except Exception:  # noqa: BLE001 (it cannot be encoded: it goes alone, and its caller gets the SDK's error)
                submission.joins = False
                break
            load.append(submission)
        for submission in load:
            del self._waiting[submission]
        return load

    def _begin(self, load: Sequence[Submission[Any]]) -> "Begun":
        return begin(self._instrument, self._namespace, self.entity, self._stage, load)

    def _settle(self, submission: Submission[Any], *, result: object = None, error: Exception | None = None) -> None:
        if submission.timer is not None:
            submission.timer.cancel()
        if submission.future.done():
            return
        if error is None:
            submission.future.set_result(result)
        else:
            submission.future.set_exception(error)

    def _all_failed(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for submission in waiting:
            self._settle(submission, error=error)

    def _expire(self, submission: Submission[Any]) -> None:
        """The caller's time is over; if it was the last of its transfer, that is given up too."""
        submission.timer = None
        self._waiting.pop(submission, None)
        if not submission.future.done():
            submission.future.set_exception(TimeoutError(f"{self.entity!r} did not answer in time"))
        if submission in self._load and all(other.timer is None for other in self._load):
            carrier, self._carrier, self._load = self._carrier, None, []
            if carrier is not None:
                cancel(carrier)
            self._drop(in_doubt=True)
            if self._waiting:
                self._carry_on()

    async def _opened(self, *, retries: bool) -> EntityLink:
        if self._link is not None:
            return self._link
        if self._opening is None:
            self._opening = self._chores.start(self._open(retries=retries), f"opening of {self.entity}")
        return await asyncio.shield(self._opening)  # who gives up leaves it to those who come after

    async def _open(self, *, retries: bool) -> EntityLink:
        link = EntityLink(self._make())
        try:
            await link.open(self._open_timeout, retries=retries)
        except BaseException:
            self._chores.start(link.close(in_doubt=True), f"closing of {self.entity}")
            raise
        finally:
            mine = self._opening is asyncio.current_task()
            if mine:
                self._opening = None
        if mine and not self._closed:
            self._link, self._batch_bytes, self.used_at = link, link.max_batch_bytes, self._loop.time()
        else:
            self._chores.start(link.close(), f"closing of {self.entity}")
            if self._closed:
                raise AbandonedError(f"the link to {self.entity!r} is closed")
        return link

    def _drop(self, *, in_doubt: bool, keep_open_link: bool = False) -> None:
        """Let go of the link, and of one that is being opened: the next one who needs it gets a new one."""
        opening, self._opening = self._opening, None
        if opening is not None:
            cancel(opening)
        if self._link is not None and not keep_open_link:
            link, self._link = self._link, None
            self._chores.start(link.close(in_doubt=in_doubt), f"closing of {self.entity}")


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
