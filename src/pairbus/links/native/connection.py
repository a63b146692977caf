"""One connection to a namespace: bytes, heartbeats, tokens, and any number of links."""

import asyncio
import uuid
from typing import Final, Protocol, Self, cast

from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp import Connection, ConnectionOptions, ConnectionState, Session, Side
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    Delivery,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkAttached,
    LinkDetached,
    Opened,
    WindowOpened,
)
from pairbus.amqp.performatives import RECEIVER, DeliveryState, Error, Received
from pairbus.links.deadlines import BackgroundTasks
from pairbus.links.errors import timed_out, unsent
from pairbus.links.native import errors
from pairbus.links.native.endpoint import Endpoint
from pairbus.links.native.wire import connect

IDLE_SECONDS: Final = 60.0
"""A peer that says nothing for so long is given up; it is asked to say something twice as often."""
CLOSE_SECONDS: Final = 3.0
LARGEST_MESSAGE: Final = 100 * 1024 * 1024
"""The largest message that the cloud's largest tier has."""
WINDOW: Final = 20_000
"""How many transfers may be on their way to us on one session; the credit of its link is the tighter bound."""


class LinkEnd(Protocol):
    """What a link's owner is told; it is the link's context."""

    def on_attached(self) -> None:
        """Take note that the peer has attached it."""
        ...

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Take messages."""
        ...

    def on_flow(self) -> None:
        """Take note that it may send more."""
        ...

    def on_settled(self, first: int, last: int, state: DeliveryState | None) -> None:
        """Take the peer's answer to settlements."""
        ...

    def on_ended(self, error: ServiceBusError) -> None:
        """Take note that the link has ended."""
        ...


class NativeConnection(asyncio.Protocol):
    """An open connection, made by :meth:`open`. Whatever is written in one turn of the event loop goes out as one.

    :ivar error: why it has ended; None: it has not.
    :ivar paused: the peer takes no more bytes for now.
    :ivar heard_at: when something was last received, by the loop's clock.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint: Final = endpoint
        self.loop: Final = asyncio.get_running_loop()
        self.error: ServiceBusError | None = None
        self.paused = False
        self.heard_at = self.loop.time()
        self.chores: Final = BackgroundTasks()
        options = ConnectionOptions(
            f"pairbus-{uuid.uuid4()}",
            endpoint.hostname,
            idle_timeout=IDLE_SECONDS,
            incoming_window=WINDOW,
            max_message_size=LARGEST_MESSAGE,
        )
        self.amqp: Final = Connection(Side.CLIENT, options, sasl=endpoint.sasl(), now=self.loop.time())
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._lost: asyncio.Future[None] = self.loop.create_future()
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, endpoint: Endpoint, seconds: float) -> Self:
        """Connect, say who we are, and open."""
        made = cls(endpoint)
        try:
            async with asyncio.timeout(seconds):
                await connect(endpoint, made)
                await made._opened
        except TimeoutError:
            made.abort()
            raise unsent(timed_out(f"connecting to {endpoint.hostname}", seconds)) from None
        except OSError as error:
            made.abort()
            raise unsent(errors.unreachable(endpoint.hostname, error)) from error
        except BaseException:
            made.abort()
            raise
        return made

    def begin(self) -> Session:
        """Begin a session: each link has its own, so that no link fills another's window."""
        if self.error is not None:
            raise self.error
        return self.amqp.begin()

    # --- bytes ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self.flush()
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        """Take what the peer says, all of it before anything is answered."""
        now = self.heard_at = self.loop.time()
        self._dispatch(self.amqp.receive_data(data, now))
        self.flush()

    def flush(self) -> None:
        """Write all there is."""
        self._flushing = False
        data = self.amqp.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def flush_soon(self) -> None:
        """Write at the end of this turn, together with what others have to say."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self.flush)

    def pause_writing(self) -> None:
        """Send no more messages: the peer does not keep up."""
        self.paused = True

    def resume_writing(self) -> None:
        """Send again."""
        self.paused = False
        for session in self.amqp.sessions.values():
            session.context.on_flow()
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: what was not answered never will be."""
        del exc  # a peer that is gone says nothing about what it did
        self._dispatch(self.amqp.connection_lost())
        self._end(None)
        if not self._lost.done():
            self._lost.set_result(None)

    # --- events --------------------------------------------------------------------------------------------------

    def _dispatch(self, events: list[Event]) -> None:
        for event in events:
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case DispositionReceived():
                _on_disposition(event)
            case DeliveriesReceived(link, deliveries):
                link.context.on_deliveries(deliveries)
            case FlowChanged(link):
                link.context.on_flow()
            case WindowOpened(session):
                session.context.on_flow()
            case LinkAttached(link):
                link.context.on_attached()
            case LinkDetached():
                self._on_detached(event)
            case Opened():
                self._set_timer()  # by now the peer has said how often it wants to hear from us
                if not self._opened.done():
                    self._opened.set_result(None)
            case Closed(error):
                self._end(error)
            case _:
                pass

    def _on_detached(self, event: LinkDetached) -> None:
        link = event.link
        if self.amqp.state is ConnectionState.CLOSED:
            error = errors.of_connection(event.error, self.endpoint.hostname)
        else:
            error = errors.of_link(event.error, f"link {link.name}")
        link.context.on_ended(error)

    def _end(self, error: Error | None) -> None:
        if self.error is None:
            self.error = errors.of_connection(error, self.endpoint.hostname)
        if not self._opened.done():
            self._opened.set_exception(unsent(self.error))
            self._opened.exception()  # whoever has given up waiting does not look at it
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self.flush()
            self._transport.close()

    # --- time ----------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wake_at = self.amqp.wake_at
        if wake_at is not None:
            self._timer = self.loop.call_at(wake_at, self._tick)

    def _tick(self) -> None:
        self._dispatch(self.amqp.tick(self.loop.time()))
        self.flush()
        if self.error is None:
            self._set_timer()

    # --- the end -------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """End now, without a word to the peer."""
        if self._transport is not None:
            self._transport.abort()
        self._dispatch(self.amqp.connection_lost())
        self._end(None)

    def suspect(self, since: float) -> None:
        """Give it up if nothing was heard since then, so that the next one who needs it gets another.

        If something was heard it is an entity that does not answer, and the others on the connection go on.
        """
        if self.heard_at < since:
            self.abort()

    async def close(self) -> None:
        """Close it, in order if that can be done in a few seconds; never hangs, never raises."""
        if self.error is None:
            self.amqp.close()
            self.flush()
            await asyncio.wait({self._lost}, timeout=CLOSE_SECONDS)
        self.abort()
        if self._transport is not None:
            await asyncio.wait({self._lost}, timeout=CLOSE_SECONDS)  # until the socket is closed
        await self.chores.end(CLOSE_SECONDS)


def _on_disposition(event: DispositionReceived) -> None:
    """Hand an outcome to whoever waits for it; a broker that waits for us to settle is not kept waiting."""
    if event.role is RECEIVER:
        for delivery in event.deliveries:
            if isinstance(event.state, Received):
                continue  # a part of it has arrived, which is no outcome
            delivery.context.on_outcome(event.state)
            if not event.settled:
                delivery.link.settle(delivery, event.state)
    elif event.settled:
        event.session.context.on_settled(event.first, event.last, event.state)
