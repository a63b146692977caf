"""Where faults are switched on and off for one namespace that is being served."""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, Protocol

from pairbus.amqp.conditions import UNAUTHORIZED_ACCESS
from pairbus.broker.faults.board import ON_THE_WIRE, ONCE, SEVERS, Fault, FaultKind, Faults
from pairbus.broker.listen.web import Request, Response
from pairbus.broker.refusals import RefusedError

ALWAYS_ANSWERED: Final = ("/$health", "/$ready", "/$metrics")
"""Who looks after the broker wants to know of it, not of the outage that it plays."""


class Disturbable(Protocol):
    """A client's connection."""

    @property
    def paths(self) -> frozenset[str]:
        """The entities to which it has links."""
        ...

    def disturb(self, fault: Fault) -> None:
        """Have what goes over the wire disturbed."""
        ...

    def recover(self) -> None:
        """Have it disturbed no longer."""
        ...

    def reset(self) -> None:
        """End, without a word."""
        ...

    def sever(self, fault: Fault, refused: RefusedError) -> None:
        """End the links that a fault concerns."""
        ...

    def expire_tokens(self) -> None:
        """Take the tokens that were given as expired."""
        ...


class Entrance(Protocol):
    """Where connections come in."""

    def shut(self) -> None:
        """Refuse connections, and end those that have not come to anything yet."""
        ...

    def unshut(self) -> None:
        """Take connections again."""
        ...


class FaultInjector:
    """Switches faults on and off."""

    def __init__(
        self,
        faults: Faults,
        connections: Callable[[], Iterable[Disturbable]],
        entrance: Entrance,
        clock: Callable[[], int],
    ) -> None:
        self._faults = faults
        self._connections = connections
        self._entrance = entrance
        self._clock = clock
        self._changed = asyncio.Event()

    def begin(self, fault: Fault) -> None:
        """Switch a fault on. One that happens once is over when this returns."""
        concerned = [each for each in self._connections() if _concerns(fault, each)]
        if fault.kind not in ONCE:
            self._faults.put(fault)
        for connection in concerned:
            if fault.kind in ON_THE_WIRE:
                connection.disturb(fault)
            elif fault.kind in SEVERS:
                refused = self._faults.refusal(fault.entity or "")
                if refused is not None:
                    connection.sever(fault, refused)
            elif fault.kind is FaultKind.EXPIRE_TOKENS:
                connection.expire_tokens()
            elif fault.kind in (FaultKind.CUT, FaultKind.DOWN):
                connection.reset()
        if fault.kind is FaultKind.DOWN:
            self._entrance.shut()
        self._notify()

    def clear(self, kind: FaultKind | None = None, entity: str | None = None) -> int:
        """Switch faults off, of one kind or all, of one entity or all; return how many there were."""
        return self._end(self._faults.clear(kind, entity))

    def tick(self) -> None:
        """Switch off those whose time is over."""
        if self._faults:
            self._end(self._faults.take_ended(self._clock()))

    def _end(self, ended: list[Fault]) -> int:
        if any(fault.kind is FaultKind.DOWN for fault in ended):
            self._entrance.unshut()
        if any(fault.kind in ON_THE_WIRE for fault in ended):
            for connection in list(self._connections()):
                still = self.on_the_wire(connection.paths)
                if still is None:
                    connection.recover()
                else:
                    connection.disturb(still)
        if ended:
            self._notify()
        return len(ended)

    def on_the_wire(self, paths: Iterable[str]) -> Fault | None:
        """Return the fault that disturbs a connection with links to these entities, if one does."""
        faults = [fault for fault in self._faults if fault.kind in ON_THE_WIRE]
        return next(
            (fault for fault in faults if fault.entity is None or any(fault.covers(path) for path in paths)), None
        )

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def gate(self, request: Request) -> Response | None:
        """Hold or refuse a request of HTTP as the faults have it; None: let it pass."""
        if request.path.lower().startswith(ALWAYS_ANSWERED):
            return None
        while (fault := self.on_the_wire([request.path])) is not None:
            if fault.kind is FaultKind.SLOW:
                await asyncio.sleep(fault.latency / 1000)
                break
            await self._changed.wait()
        refused = self._faults.refusal(request.path.strip("/"))
        if refused is None:
            return None
        denied = refused.condition == UNAUTHORIZED_ACCESS
        status = HTTPStatus.UNAUTHORIZED if denied else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, refused.description.encode())


def _concerns(fault: Fault, connection: Disturbable) -> bool:
    return fault.entity is None or any(fault.covers(path) for path in connection.paths)
