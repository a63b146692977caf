"""A connection that is disturbed: what stands between its transport and its protocol while a fault lasts."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from pairbus.broker.faults.board import Fault, FaultKind

_SECOND: Final = 1000


class DisturbedConnection(asyncio.Protocol, asyncio.Transport):
    """To the transport a protocol, to the protocol a transport.

    A connection that was silent or stalled is of no use afterwards, for part of what was said is lost: it is reset when
    the fault ends. A slow one goes on at full speed.
    """

    def __init__(self, fault: Fault, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._transport = transport
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._fault: Fault | None = None
        self._inbound = _Delayed(self._loop, protocol.data_received)
        self._outbound = _Delayed(self._loop, transport.write)
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

    # --- what the transport tells --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Pass on what came, as the fault has it."""
        fault = self._fault
        if fault is None or fault.kind is FaultKind.SLOW:
            self._inbound.pass_on(data, fault)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._inbound.stop()
        self._outbound.stop()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._protocol.resume_writing()

    # --- what the protocol asks for ------------------------------------------------------------------------------

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
        """End; who is silent does not say so."""
        if self._fault is None:
            self._transport.close()
        elif self._fault.kind is FaultKind.SLOW:
            self._outbound.then(self._transport.close)

    def abort(self) -> None:
        """End at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Pass it on."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Pass it on, unless nothing is to be read."""
        if self._fault is None or self._fault.kind is not FaultKind.STALL:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Pass it on."""
        return self._transport.get_extra_info(name, default)


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
        self._later(self._loop.time(), call)

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
