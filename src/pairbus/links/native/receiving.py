"""A link that receives under lock: credit for what was asked for, settlements that the broker confirms."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final, Protocol, TypeAlias

from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp.client.settling import Group, Settlements, runs_of
from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import (
    ACCEPTED,
    SETTLE_SECOND,
    SETTLE_UNSETTLED,
    Accepted,
    DeliveryState,
    Map,
    Modified,
    Source,
)
from pairbus.amqp.types import Symbol, UInt
from pairbus.links.errors import again, timed_out, unsent
from pairbus.links.native import errors
from pairbus.links.native.connection import NativeConnection

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
_LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
_TIMEOUT: Final = Symbol("com.microsoft:timeout")
_TICKS_AT_EPOCH: Final = 621_355_968_000_000_000
_TICKS: Final = 10_000_000

FRESH_SECONDS: Final = 10.0
"""What nobody asks for within so many seconds is put back, and no more is fetched: its lock may end too soon."""
_WELL: Final = frozenset((Accepted, type(None)))
"""What a broker answers when it has settled as accepted: that, or nothing new."""
_delivery_id = attrgetter("delivery_id")
PUT_BACK: Final = Modified(delivery_failed=True, undeliverable_here=False)


_Answer: TypeAlias = "asyncio.Future[None]"


class Delivered(Protocol):
    """Whatever knows the number of the delivery that it came by."""

    @property
    def delivery_id(self) -> int:
        """The number, on its session."""
        ...


class AnySession:
    """The type of :data:`ANY_SESSION`."""


ANY_SESSION: Final = AnySession()
"""The next session that has messages."""


class ReceivingLink:
    """A receiver of one queue, under peek-lock. One task at a time receives; any number settle.

    :param session_id: the session to receive, for a queue that demands one; ``wait`` bounds how long the broker may
        look for one.
    :ivar session_id: the session that the broker has locked for it.
    """

    def __init__(
        self,
        connection: NativeConnection,
        entity: str,
        *,
        session_id: str | AnySession | None = None,
        wait: float | None = None,
    ) -> None:
        self.entity: Final = entity
        self.error: ServiceBusError | None = None
        self.session_id = None if isinstance(session_id, AnySession) else session_id
        self.session_locked_until: datetime | None = None
        self.connection: Final = connection
        self._loop = connection.loop
        self._arrived: list[Delivery] = []
        self._waiter: asyncio.Future[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._settlements = Settlements[_Answer]()
        self._attached: asyncio.Future[None] = connection.loop.create_future()
        filters: Map | None = None if session_id is None else {SESSION_FILTER: self.session_id}
        properties: Map | None = None if wait is None else {_TIMEOUT: UInt(int(wait * 1000))}
        self._session = connection.begin()
        self._session.context = self
        self._link = self._session.attach_receiver(
            f"pairbus-receiver-{id(self)}-{entity}",
            Source(connection.endpoint.address(entity), filter=filters),
            snd_settle_mode=SETTLE_UNSETTLED,
            rcv_settle_mode=connection.endpoint.settle_mode,
            properties=properties,
        )
        self._link.context = self
        connection.flush_soon()

    async def attached(self) -> None:
        """Wait until the broker has attached it."""
        await asyncio.shield(self._attached)

    @property
    def name(self) -> str:
        """The link's name, by which management requests refer to it."""
        return self._link.name

    @property
    def confirms(self) -> bool:
        """Whether the broker answers settlements."""
        remote = self._link.remote
        return remote is not None and remote.rcv_settle_mode == SETTLE_SECOND

    # --- receiving -----------------------------------------------------------------------------------------------

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        """Receive what is there, up to so many; else wait for the first, so many seconds; none came: nothing."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        try:
            if not self._arrived:
                if self.error is not None:
                    raise again(self.error)
                if self._link.credit < most:
                    self._link.grant(most)
                    self.connection.flush_soon()
                await self._arrival(wait)
                if len(self._arrived) < most:
                    await asyncio.sleep(0)  # what is there already comes with it
            taken = self._arrived[:most]
            del self._arrived[:most]
        finally:
            if self._arrived or self._link.credit > 0:
                self._rest_later()
        return taken

    async def _arrival(self, wait: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(wait, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        if self.error is not None and not self._arrived:
            raise again(self.error)

    def _rest_later(self) -> None:
        if self._resting is None:
            self._resting = self._loop.call_later(FRESH_SECONDS, self._rest)

    def _rest(self) -> None:
        """Fetch no more, and put back what nobody has asked for."""
        self._resting = None
        if self._link.credit > 0:
            self._link.grant(0)
        self._put_back()
        self.connection.flush_soon()

    def _put_back(self) -> None:
        arrived, self._arrived = self._arrived, []
        for delivery in arrived:
            self._link.settle(delivery, PUT_BACK, settled=not self.confirms)

    # --- settling ------------------------------------------------------------------------------------------------

    async def settle(
        self, deliveries: Sequence[Delivered], state: DeliveryState, seconds: float
    ) -> list[Exception | None]:
        """Settle deliveries of this link, by as few frames as it takes, and return how it ended for each."""
        if self.error is not None:
            return [unsent(again(self.error))] * len(deliveries)
        ids = list(map(_delivery_id, deliveries))
        runs = runs_of(ids)
        group = self._settlements.ask(runs, self._loop.create_future()) if self.confirms else None
        for first, last in runs:
            self._session.settle_run(first, last, state, settled=group is None)
        self.connection.flush_soon()
        if group is None:
            return [None] * len(deliveries)
        await self._answer(group, seconds)
        if state is ACCEPTED and not group.left and all(type(answer.state) in _WELL for answer in group.answers):
            return [None] * len(ids)  # as a rule
        return [self._judged(group, number, state, seconds) for number in ids]

    async def _answer(self, group: Group[_Answer], seconds: float) -> None:
        future = group.context
        timer = self._loop.call_later(seconds, _release, future)
        try:
            await future
        finally:
            timer.cancel()

    def _judged(self, group: Group[_Answer], number: int, wanted: DeliveryState, seconds: float) -> Exception | None:
        answer = group.answer(number)
        if answer is None:
            what = f"settling a message of {self.entity!r}"
            return timed_out(what, seconds) if self.error is None else again(self.error)
        state = answer.state
        if state is None:  # settled as it was asked for, and not said again
            return None
        if type(state) is type(wanted) and getattr(state, "error", None) is None:
            return None
        return errors.of_outcome(state, f"settling a message of {self.entity!r}")

    # --- what the connection tells -------------------------------------------------------------------------------

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Take messages."""
        self._arrived += deliveries
        if self._waiter is not None:
            _release(self._waiter)  # it goes on when all that came together is there
            self._waiter = None
        else:
            self._rest_later()  # it was on its way when the credit for it was withdrawn

    def on_settled(self, first: int, last: int, state: DeliveryState | None) -> None:
        """Take the broker's answer to settlements."""
        for group in self._settlements.answered(first, last, state):
            _release(group.context)

    def on_attached(self) -> None:
        """Take what the broker says about the session that it has locked."""
        remote = self._link.remote
        if remote is not None and isinstance(remote.source, Source) and remote.source.filter:
            name = remote.source.filter.get(SESSION_FILTER)
            self.session_id = name if isinstance(name, str) else getattr(name, "value", None)
            ticks = (remote.properties or {}).get(_LOCKED_UNTIL)
            if isinstance(ticks, int):
                self.session_locked_until = datetime.fromtimestamp((ticks - _TICKS_AT_EPOCH) / _TICKS, UTC)
        if not self._attached.done():
            self._attached.set_result(None)

    def on_flow(self) -> None:
        """Nothing is sent on it."""

    def on_ended(self, error: ServiceBusError) -> None:
        """End: settlements that were not answered are in doubt; what was not handed out comes again."""
        if self.error is not None:
            return
        self.error = error
        self._arrived.clear()
        if not self._attached.done():
            self._attached.set_exception(unsent(error))
            self._attached.exception()  # whoever has given up waiting does not look at it
        if self._waiter is not None:
            _release(self._waiter)
        for group in self._settlements.lost():
            _release(group.context)
        if self._resting is not None:
            self._resting.cancel()
        self._session.end()
        self.connection.flush_soon()

    def close(self) -> None:
        """Put back what was not handed out, and detach."""
        if self.error is None:
            self._put_back()
            self._link.detach()
            self.on_ended(errors.of_link(None, f"the link to {self.entity!r}"))


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
