"""The way to one entity: one link, used by one at a time, on which what waits travels together.

While one transfer is under way, the single messages that wait for the link are put in one batch, those of one session
or partition key together; each caller gets its own outcome.

A caller may give up, because its time is over or because it was cancelled. If its message still waits, the message is
withdrawn. If the transfer has begun, it goes on until it is answered or until the *attempt's* deadline, whatever the
caller's was: a broker that answers more slowly than one caller waits has not failed, and its link is kept. When the
attempt ends, or a link cannot be opened, and no caller is left to hear of it, ``unheard`` is told. Otherwise callers
that are all more impatient than the attempt's deadline would never find out that the entity is away.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.core.ledger import Stage
from pairbus.core.sending import ABOUT_THE_MESSAGE
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import AbandonedError, Chores, cancel, outcome_of
from pairbus.links.errors import facts
from pairbus.links.sdk.internals import add_to
from pairbus.links.sdk.links import EntityLink
from pairbus.links.submission import STALE_SECONDS, Begun, Submission, Unheard, Work, begin
from pairbus.messages.sdk_messages import sized

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)


class Lane:
    """One link, and who waits for it.

    :param make: makes a sender of the SDK, not yet open.
    :param open_timeout: how long opening the link may take, in seconds.
    :param unheard: told what no caller hears, in a turn of the event loop of its own.
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
        unheard: Unheard,
    ) -> None:
        self.entity: Final = entity
        self.used_at = 0.0
        self._make = make
        self._namespace = namespace
        self._stage = stage
        self._open_timeout = open_timeout
        self._chores = chores
        self._instrument = instrument
        self._unheard = unheard
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Submission[Any], None] = {}
        self._link: EntityLink | None = None
        self._opening: asyncio.Task[EntityLink] | None = None
        self._opening_began = 0.0
        self._openers = 0
        """How many wait for the link that is being opened."""
        self._carrier: asyncio.Task[None] | None = None
        self._load: list[Submission[Any]] = []
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
        if self._carrier is None:
            self._drop_if_stale()
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
        self._drop(in_doubt=True, keep_open_link=not load)

    def withdraw(self, why: str) -> None:
        """End what waits and has not begun; what is under way is answered."""
        waiting, self._waiting = self._waiting, {}
        for submission in waiting:
            self._settle(submission, error=AbandonedError(why))

    @property
    def is_unheard(self) -> bool:
        """Whether something is under way that no caller waits for."""
        callers = any(not one.future.done() for one in (*self._load, *self._waiting))
        return not callers and (bool(self._load) or self._opening is not None)

    async def finish(self) -> None:
        """Take nothing more, and let what callers wait for end: all of it has its deadline."""
        self._closed = True
        while heard := [one.future for one in (*self._load, *self._waiting) if not one.future.done()]:
            await asyncio.wait(heard)

    async def end(self) -> None:
        """Let what no caller waits for end, too, and close the link."""
        while tasks := {task for task in (self._carrier, self._opening) if task is not None}:
            await asyncio.wait(tasks)
        self._drop(in_doubt=False)

    async def close(self) -> None:
        """Let what callers wait for end, then close the link. It never hangs."""
        await self.finish()
        carrier, self._carrier, load, self._load = self._carrier, None, self._load, []
        if carrier is not None:
            cancel(carrier)
        self._drop(in_doubt=bool(load))

    async def _prepare_quietly(self) -> None:
        try:
            await self.prepare()
        except Exception as error:  # noqa: BLE001 (judged by the rules)
            _LOGGER.debug("the link to %r cannot be opened ahead: %r", self.entity, error)
            self._not_opened(error)

    def _carry_on(self) -> None:
        if self._carrier is None:
            self._carrier = self._chores.start(self._carry(), f"carrier of {self.entity}")

    async def _carry(self) -> None:
        """Do what waits, load by load, until nothing is left."""
        me = asyncio.current_task()
        try:
            while self._waiting and self._carrier is me:
                try:
                    self._drop_if_stale()
                    link = self._link or await self._opened(retries=any(one.retries for one in self._waiting))
                    load, work = await self._next_load(link)
                except Exception as error:  # noqa: BLE001 (handed to all who waited for the link)
                    self._all_failed(error)
                    self._drop(in_doubt=True)
                else:
                    if load:
                        await self._carry_load(link, load, work)
        finally:
            if self._carrier is me:
                self._carrier = None

    async def _carry_load(self, link: EntityLink, load: list[Submission[Any]], work: Work[Any]) -> None:
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
            self._tell(load, None)
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
        self._tell(load, error)
        for submission in load:
            self._settle(submission, error=error)

    async def _next_load(self, link: EntityLink) -> tuple[list[Submission[Any]], Work[Any]]:
        """Take the first one that waits, with all that may travel with it and fit in one batch.

        All of them may have been withdrawn in the meantime: then there is no load.
        """
        first = next(iter(self._waiting), None)
        if first is not None and first.joins and len(self._waiting) > 1:
            batch = await link.sender.create_message_batch()
            load = self._fill(batch, first.group)
            if len(load) > 1:
                return load, lambda link: link.sender.send_messages(batch)
            first = load[0] if load else next(iter(self._waiting), None)
        if first is None:
            return [], _nothing
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
        if not waiting:
            self._not_opened(error)
        for submission in waiting:
            self._settle(submission, error=error)

    def _expire(self, submission: Submission[Any]) -> None:
        """The attempt's time is over; if it was the last of its transfer, that is given up too."""
        submission.timer = None
        self._waiting.pop(submission, None)
        error = TimeoutError(f"{self.entity!r} did not answer in time")
        if submission in self._load and all(other.timer is None for other in self._load):
            self._tell(self._load, error)
            carrier, self._carrier, self._load = self._carrier, None, []
            if carrier is not None:
                cancel(carrier)
            self._drop(in_doubt=True)
            if self._waiting:
                self._carry_on()
        if not submission.future.done():
            submission.future.set_exception(error)

    def _tell(self, load: Sequence[Submission[Any]], error: Exception | None) -> None:
        """Tell how a transfer ended, if no caller is left to hear of it."""
        if all(submission.future.cancelled() for submission in load):
            messages = [message for submission in load for message in submission.messages]
            known = None if error is None else sized(facts(error), messages)
            self._loop.call_soon(self._unheard, known, self.used_at)

    def _not_opened(self, error: BaseException) -> None:
        """Tell that the link could not be opened, since no caller is left to hear of it."""
        if not isinstance(error, AbandonedError):
            self._loop.call_soon(self._unheard, facts(error, begun=False), self._opening_began)

    async def _opened(self, *, retries: bool) -> EntityLink:
        if self._link is not None:
            return self._link
        if self._opening is None:
            self._opening_began = self._loop.time()
            self._opening = self._chores.start(self._open(retries=retries), f"opening of {self.entity}")
            self._opening.add_done_callback(self._opening_ended)
        self._openers += 1
        try:
            return await outcome_of(self._opening, f"opening the link to {self.entity!r}")
        finally:
            self._openers -= 1

    def _opening_ended(self, opening: "asyncio.Task[EntityLink]") -> None:
        error = None if opening.cancelled() else opening.exception()
        if error is not None and not self._openers:
            self._not_opened(error)

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

    def _drop_if_stale(self) -> None:
        """Let go of a link that has rested for long: the broker may have detached it, and its word be on its way."""
        if self._link is not None and self._loop.time() - self.used_at > STALE_SECONDS:
            self._drop(in_doubt=False)

    def _drop(self, *, in_doubt: bool, keep_open_link: bool = False) -> None:
        """Let go of the link, and of one that is being opened: the next one who needs it gets a new one."""
        opening, self._opening = self._opening, None
        if opening is not None:
            cancel(opening)
        if self._link is not None and not keep_open_link:
            link, self._link = self._link, None
            self._chores.start(link.close(in_doubt=in_doubt), f"closing of {self.entity}")


async def _nothing(_link: object) -> None:
    """Do nothing: a load that was withdrawn."""
