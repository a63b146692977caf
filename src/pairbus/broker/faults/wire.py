"""A connection that is disturbed: what stands between it and its transport while a fault lasts."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from pairbus.broker.faults.board import Fault, FaultKind

_SECOND: Final = 1000


class DisturbedWire(asyncio.Transport):
    """Stands between a connection and its transport: it is the connection's transport, and is told what comes in.

    A connection that was silent or stalled is of no use afterwards, for part of what was said is lost: it is reset when
    the fault ends. A slow one goes on at full speed.

    :param take: takes what has come in.
    """

    def __init__(self, fault: Fault, transport: asyncio.Transport, take: Callable[[bytes], None]) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._transport = transport
        self._fault: Fault | None = None
        self._inbound = _Delayed(loop, take)
        self._outbound = _Delayed(loop, transport.write)
        self._has_stalled = False
        self.disturb(fault)

    def disturb(self, fault: Fault) -> None:
        """Begin, or go on in another way."""
        self._fault = fault
        if fault.kind is FaultKind.STALL:
            self._transport.pause_reading()

    def recover(self) -> None:
        """End the fault."""
        fault, self._fault = self._fault, None
        if fault is not None and fault.kind is not FaultKind.SLOW:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass on what came, as the fault has it."""
        fault = self._fault
        if fault is None or fault.kind is FaultKind.SLOW:
            self._inbound.pass_on(data, fault)

    def connection_lost(self) -> None:
        """Drop what waits."""
        self._inbound.stop()
        self._outbound.stop()

    # --- what a connection asks of its transport -------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, as the fault has it."""
        fault, octets = self._fault, bytes(data)
        if fault is None or fault.kind is FaultKind.SLOW:
            self._outbound.pass_on(octets, fault)
        elif fault.kind is FaultKind.STALL and not self._has_stalled:
            self._has_stalled = True
            self._transport.write(octets[: len(octets) // 2])

    def is_closing(self) -> bool:
        """Tell whether it ends."""
        return self._transport.is_closing()

    def close(self) -> None:
        """End after what waits; who is silent does not say so."""
        if self._fault is None or self._fault.kind is FaultKind.SLOW:
            self._outbound.then(self._transport.close)

    def abort(self) -> None:
        """End at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Read no more."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless nothing is to be read."""
        if self._fault is None or self._fault.kind is not FaultKind.STALL:
            self._transport.resume_reading()


class _Delayed:
    """Passes pieces on in their order, each when its time has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pass_on: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._pass_on = pass_on
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._free_at = 0.0
        """When the line has carried what it was given."""
        self._timer: asyncio.TimerHandle | None = None

    def pass_on(self, data: bytes, fault: Fault | None) -> None:
        """Pass a piece on, now or later."""
        if fault is None and not self._waiting:
            self._pass_on(data)
            return
        at = max(self._loop.time(), self._free_at)
        if fault is not None:
            at += 0 if fault.rate is None else len(data) / fault.rate
            self._free_at = at
            at += fault.latency / _SECOND
        self._later(at, lambda: self._pass_on(data))

    def then(self, call: Callable[[], None]) -> None:
        """Do something after all that waits."""
        if self._waiting:
            self._later(self._loop.time(), call)
        else:
            call()

    def _later(self, at: float, call: Callable[[], None]) -> None:
        if self._waiting:
            at = max(at, self._waiting[-1][0])
        self._waiting.append((at, call))
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._run)

    def _run(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= self._loop.time():
            self._waiting.popleft()[1]()
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._run)

    def stop(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
