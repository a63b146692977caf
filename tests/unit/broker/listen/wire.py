"""A transport without a socket, for protocols of the broker's that are handed bytes."""

import asyncio

from pairbus.broker.listen.pending import PendingClients


class Wire(asyncio.Transport):
    """Keeps what is written; a test looks at it, and says how much of it was not yet taken."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.untaken = 0
        self.protocol: asyncio.BaseProtocol | None = None
        self.closed = self.aborted = self.paused = self.half_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.half_closed
        if not self.is_closing():
            self.written += data

    def write_eof(self) -> None:
        self.half_closed = True

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_reading(self) -> bool:
        return not self.paused


def no_clients(patience: float = 60.0, limit: int = 100) -> PendingClients:
    return PendingClients(asyncio.get_running_loop(), patience=patience, limit=limit)


async def turns(count: int = 5) -> None:
    """Let what was planned have its turn."""
    for _ in range(count):
        await asyncio.sleep(0)
