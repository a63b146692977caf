"""Clients that have connected and not yet been admitted: a bound on how many there are, and how long each may take.

A client is pending until its TLS handshake, its AMQP open or its HTTP request is complete. Any host that can open a
socket can be pending, so neither their number nor their time may grow without bound.
"""

import asyncio
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 20.0
"""Seconds that a client has for all that comes first: its TLS handshake, its AMQP open, its HTTP request."""
MAX_PENDING: Final = 1024
"""How many clients may be pending at once; an honest one is admitted in a fraction of a second."""
_AT_ONCE: Final = 64
"""How many are cut at a time, before the event loop serves other clients."""


class PendingClient:
    """A client that is pending; ``cut`` ends its connection, by the means that fit how far it has come."""

    __slots__ = ("cut", "until")

    def __init__(self, cut: Callable[[], object], until: float) -> None:
        self.cut = cut
        self.until = until


class PendingClients:
    """Cuts a client that is pending too long, and the one that is pending longest when there are too many.

    All have the same time, so they time out in the order in which they came: one timer serves them all.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, patience: float = PATIENCE, limit: int = MAX_PENDING
    ) -> None:
        self.patience = patience
        self._loop = loop
        self._limit = limit
        self._clients: dict[PendingClient, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._clients)

    def enter(self, cut: Callable[[], object]) -> PendingClient:
        """Add a client; ``cut`` ends its connection."""
        if len(self._clients) >= self._limit:
            self.cut_longest()
        client = PendingClient(cut, self._loop.time() + self.patience)
        self._clients[client] = None
        if self._timer is None:
            self._timer = self._loop.call_at(client.until, self._cut_late)
        return client

    def leave(self, client: PendingClient) -> None:
        """Remove a client that is admitted or gone; it may have been removed already."""
        self._clients.pop(client, None)

    def cut_longest(self) -> bool:
        """Cut the client that is pending longest; tell whether there was one."""
        client = next(iter(self._clients), None)
        if client is None:
            return False
        del self._clients[client]
        client.cut()
        return True

    def close(self) -> None:
        """Cut all."""
        while self.cut_longest():
            pass
        if self._timer is not None:
            self._timer.cancel()

    def _cut_late(self) -> None:
        now = self._loop.time()
        for _ in range(_AT_ONCE):
            first = next(iter(self._clients), None)
            if first is None or first.until > now:
                break
            self.cut_longest()
        first = next(iter(self._clients), None)
        self._timer = None if first is None else self._loop.call_at(first.until, self._cut_late)
