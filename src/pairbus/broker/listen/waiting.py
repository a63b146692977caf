"""Those who have to say something soon: clients that have connected and not yet shown what they want."""

import asyncio
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 20.0
"""Seconds that a client has for all that comes first: its TLS handshake, its AMQP open, its HTTP request."""
SEATS: Final = 1024
"""How many clients may be that far at once; a good one is through in a fraction of a second."""
_AT_ONCE: Final = 64
"""How many are cut before those who are served have their turn."""


class Ticket:
    """One that waits; ``cut`` ends its connection, by the means that fit how far it has come."""

    __slots__ = ("cut", "until")

    def __init__(self, cut: Callable[[], object], until: float) -> None:
        self.cut = cut
        self.until = until


class WaitingRoom:
    """Cuts whoever stays too long, and the one that has waited longest when there are too many.

    All have the same time, so they leave in the order in which they came: one timer serves them all.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, patience: float = PATIENCE, seats: int = SEATS) -> None:
        self.patience = patience
        self._loop = loop
        self._seats = seats
        self._tickets: dict[Ticket, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def enter(self, cut: Callable[[], object]) -> Ticket:
        """Wait from now on."""
        if len(self._tickets) >= self._seats:
            self.cut_longest()
        ticket = Ticket(cut, self._loop.time() + self.patience)
        self._tickets[ticket] = None
        if self._timer is None:
            self._timer = self._loop.call_at(ticket.until, self._cut_late)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Wait no more; no harm if it does not."""
        self._tickets.pop(ticket, None)

    def cut_longest(self) -> bool:
        """Cut the one that has waited longest; tell whether there was one."""
        ticket = next(iter(self._tickets), None)
        if ticket is None:
            return False
        del self._tickets[ticket]
        ticket.cut()
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
            first = next(iter(self._tickets), None)
            if first is None or first.until > now:
                break
            self.cut_longest()
        first = next(iter(self._tickets), None)
        self._timer = None if first is None else self._loop.call_at(first.until, self._cut_late)
