"""2,000 clients that say nothing, or one byte a second, of what could become AMQP, HTTP or TLS.

``python slow_clients.py PORT COUNT`` prints "there" when all have connected and, when the broker has cut all of them,
how many seconds each has lived, as JSON.
"""

import asyncio
import json
import random
import sys
from itertools import chain, repeat

DRIPS = (
    b"",
    b"AMQP\x03\x01\x00\x00\x00\x00\x01\x00\x02\x01\x00\x00",  # and a frame of 256 bytes that never comes
    b"GET /$health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a handshake of 512 bytes
)


class Slow(asyncio.Protocol):
    """One of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, drip: bytes) -> None:
        self._loop = loop
        self._bytes = chain(drip, repeat(ord("a"))) if drip else iter(())
        self._transport: asyncio.Transport | None = None
        self._began = loop.time()
        self.lived: asyncio.Future[float] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop.call_later(random.random(), self._say)

    def _say(self) -> None:
        byte = next(self._bytes, None)
        if byte is not None and self._transport is not None:
            self._transport.write(bytes((byte,)))
            self._loop.call_later(1, self._say)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self.lived.set_result(self._loop.time() - self._began)


async def main(port: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    clients: list[Slow] = []
    for number in range(count):
        drip = DRIPS[number % len(DRIPS)]
        _, client = await loop.create_connection(lambda drip=drip: Slow(loop, drip), "127.0.0.1", port)
        clients.append(client)
    print("there", flush=True)
    print(json.dumps(await asyncio.gather(*(client.lived for client in clients))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
