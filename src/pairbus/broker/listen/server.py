"""The broker on a socket: one event loop, a port per namespace, a connection per client."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from pairbus.amqp.conditions import CONNECTION_FORCED
from pairbus.amqp.performatives import Error
from pairbus.broker.faults.injector import FaultInjector
from pairbus.broker.listen.connection import ServerConnection
from pairbus.broker.listen.pending import PATIENCE
from pairbus.broker.listen.port import PortListener
from pairbus.broker.listen.web import Request, Response, Routes
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.base import StoreError

_LOGGER = logging.getLogger(__name__)

READ_BYTES: Final = 256 * 1024
"""How much is read from a client at once."""
LOOK_AGAIN: Final = 0.02
"""Seconds after which it is worked out anew when to wake, if something has happened: not for each message."""
LAST_WORDS: Final = 2.0
"""Seconds that a client has to take what it is told when the broker stops."""


class NamespaceServer:
    """One namespace on one port.

    :ivar routes: who answers HTTP requests.
    :param tls: makes the port understand TLS too.
    :param patience: the seconds that a client has to show what it wants.
    """

    def __init__(
        self,
        namespace: Namespace,
        loop: asyncio.AbstractEventLoop,
        *,
        tls: ssl.SSLContext | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.namespace = namespace
        self.connections: set[ServerConnection] = set()
        self.opened: set[ServerConnection] = set()
        """Those of them that live by the clock: the others have not opened their connection yet."""
        self.stirred: set[ServerConnection] = set()
        """Those of them that may have something to say that they did not have before."""
        self.buffer = memoryview(bytearray(READ_BYTES))
        """What a connection reads, and takes out of it at once."""
        self.routes = Routes()
        self.port = 0
        self._loop = loop
        self._listener = PortListener(
            loop,
            lambda arrived: ServerConnection(self, arrived),
            self._answer,
            admits=self.routes.admits,
            tls=tls,
            patience=patience,
        )
        self.injector = FaultInjector(namespace.faults, lambda: list(self.connections), self._listener, namespace.clock)
        self._planned_flush: asyncio.Handle | None = None
        self._in_turn = False
        """Whether a client is being listened to, after which all that there is to do is done at once."""
        self._calls: list[Callable[[], None]] = []
        self._wake: asyncio.TimerHandle | None = None
        self._wake_is_right = False
        """Whether nothing has happened since it was worked out when to wake."""
        self._stopped = False
        self._deserted = asyncio.Event()
        """Set when it stops and the last client is gone."""

    def monotonic(self) -> float:
        """The loop's time."""
        return self._loop.time()

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0: any that is free."""
        self.port = await self._listener.open(host, port)
        self._look_for_wake()

    async def _answer(self, request: Request) -> Response:
        return await self.injector.gate(request) or await self.routes(request)

    def changed(self) -> None:
        """Have connections write what they have to say, and the store what has gathered, once, soon."""
        if self._planned_flush is None and not self._in_turn:
            self._planned_flush = self._loop.call_soon(self.flush)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have a store that need not wait for a disk call back, before the turn is over."""
        self._calls.append(call)
        self.changed()

    def begin_turn(self) -> None:
        """Listen to a client: what comes of it waits for :meth:`end_turn`, which costs no turn of the event loop."""
        self._in_turn = True

    def end_turn(self, connection: ServerConnection) -> None:
        """Do what came of listening to a client, and answer it; what others are to hear may gather until soon."""
        self._do_what_gathered()
        self.stirred.discard(connection)
        connection.flush()
        if self.stirred:
            self.changed()

    def _do_what_gathered(self) -> None:
        store = self.namespace.store
        self._in_turn = True
        try:
            store.flush()
            while self._calls:
                calls, self._calls = self._calls, []
                for call in calls:
                    call()
                store.flush()
        finally:
            self._in_turn = False
        if self._wake_is_right:
            self._wake_is_right = False
            self._wake_in(LOOK_AGAIN)

    def lost(self, connection: ServerConnection) -> None:
        """Take note that a client is gone."""
        self.connections.discard(connection)
        self.opened.discard(connection)
        if not self.connections:
            self._deserted.set()

    def flush(self) -> None:
        """Have connections write what they have to say, and the store what has gathered, now."""
        if self._planned_flush is not None:
            self._planned_flush.cancel()
            self._planned_flush = None
        if self._stopped:
            return
        self._do_what_gathered()
        stirred, self.stirred = self.stirred, set()
        for connection in stirred:
            connection.flush()

    def _look_for_wake(self) -> None:
        """Wake when the next lock, message, schedule or heartbeat is due."""
        self._wake_is_right = True
        times = [time for time in (self.namespace.wake_at, self.namespace.faults.wake_at) if time is not None]
        self._wake_in(min(1.0, (min(times) - self.namespace.clock()) / 1000) if times else 1.0)

    def _wake_in(self, seconds: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        look_only = not self._wake_is_right
        self._wake = self._loop.call_later(max(0.0, seconds), self._look_for_wake if look_only else self.wake)

    def wake(self) -> None:
        """Do what is due."""
        now = self.monotonic()
        for connection in list(self.opened):
            connection.tick(now)
        try:
            self.namespace.tick()
        except StoreError as error:  # what was due is still due the next time
            _LOGGER.error("%s: what is due cannot be done: %s", self.namespace.name, error)  # noqa: TRY400 (it says why)
        self.injector.tick()
        self.flush()
        self._look_for_wake()

    async def stop(self) -> None:
        """Take no more clients, tell those that are there, and make everything durable."""
        await self._listener.close(LAST_WORDS)
        self._deserted.clear()
        for connection in list(self.connections):
            connection.close(Error(CONNECTION_FORCED, "The broker is shutting down."))
        if self.connections:
            late = self._loop.call_later(LAST_WORDS, self._abort)
            await self._deserted.wait()
            late.cancel()
        self._stopped = True
        if self._wake is not None:
            self._wake.cancel()
        self.namespace.store.close()

    def _abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
