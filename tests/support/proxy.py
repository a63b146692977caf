"""A TCP proxy with the faults of a network: refused, reset, silent, stalled, answers lost."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Literal, Self, TypeAlias

Mode: TypeAlias = Literal["pass", "refused", "reset", "silent", "stalled", "answers lost"]

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Stands before a broker, in a thread of its own.

    ``refused``: nobody listens. ``reset``: connections are reset, those that are open too. ``silent``: connections are
    accepted, and nothing is ever said on the new ones; open ones end. ``stalled``: nothing passes any more in either
    direction, and connections stay open. ``answers lost``: what the client says arrives, what the broker says does not.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._mode: Mode = "pass"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter | None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_error: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, mode: Mode, *, target: int | None = None) -> None:
        """Have it behave so from now on; before another broker if that is named."""
        self._call(self._set(mode, self._target if target is None else target))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._passing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, mode: Mode, target: int) -> None:
        self._mode, self._target = mode, target
        if mode == "stalled":
            self._passing.clear()
        else:
            self._passing.set()
        if mode in ("refused", "reset", "silent"):
            self._drop_all()
        if mode == "refused":
            await self._stop_listening()
        elif self._server is None:
            await self._listen()

    async def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await server.wait_closed()

    async def _end(self) -> None:
        await self._stop_listening()
        self._passing.set()
        self._drop_all()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _drop_all(self) -> None:
        for client, broker in self._pairs:
            _reset(client)
            if broker is not None:
                broker.transport.abort()
        self._pairs.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._mode == "reset":
            _reset(writer)
            return
        if self._mode in ("silent", "stalled"):
            self._pairs.add((writer, None))
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the broker has gone
            _reset(writer)
            return
        pair = (writer, back)
        self._pairs.add(pair)
        await asyncio.gather(self._copy(reader, back, answers=False), self._copy(there, writer, answers=True))
        self._pairs.discard(pair)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await source.read(65536):
                await self._passing.wait()
                if not (answers and self._mode == "answers lost"):
                    sink.write(data)
                    await sink.drain()
        with contextlib.suppress(ConnectionError, OSError, RuntimeError):
            sink.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket | None = writer.transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
