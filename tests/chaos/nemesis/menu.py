"""What the nemesis does to a pair of brokers in a long run: one thing after the other at each of them, by a seed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from tests.chaos.nemesis.reader import FILLER, Found, found, peek
from tests.chaos.nemesis.run import Run

from pairbus.aio import NamespaceManager

Ended: TypeAlias = Callable[[], bool]

ROOM = 40 * 1024
"""What is left in the narrow queue when it is nearly full."""
FILLER_BYTES = 16 * 1024


class Nemesis:
    """Disturbs both brokers until it is told to end; then everything is in order again.

    :param narrow: a queue of the primary of 1 MB, which is made nearly full and emptied again.
    """

    def __init__(self, run: Run, random: Random, narrow: str, ended: Ended) -> None:
        self._run = run
        self._random = random
        self._narrow = narrow
        self._ended = ended
        self.consumed: dict[int, Found] = {}
        """What was taken from the narrow queue, by sequence number: what came again was not taken twice."""

    async def disturb_primary(self) -> None:
        """Kill, freeze, return, lose answers, be full, throttle: the primary is away for about half of the time."""
        primary, choose = self._run.primary, self._random
        entity = choose.choice
        names = list(self._run.queues)
        menu: list[tuple[int, Callable[[], AbstractAsyncContextManager[object]], float, float]] = [
            (4, primary.killed, 2, 12),
            (3, primary.frozen, 1, 10),
            (2, primary.stopped, 1, 4),
            (2, lambda: primary.fault("down"), 2, 8),
            (2, lambda: primary.fault("lose-answers"), 1, 4),
            (1, lambda: primary.fault("lose-answers", entity(names)), 1, 4),
            (1, lambda: primary.fault("silent"), 2, 8),
            (1, lambda: primary.fault("stall"), 2, 8),
            (2, lambda: primary.fault("full", entity(names)), 2, 10),
            (2, lambda: primary.fault("disabled", entity(names)), 2, 8),
            (2, lambda: primary.fault("busy", entity(names)), 1, 4),
            (1, lambda: primary.fault("slow", blocks=False, latency="200ms"), 2, 8),
            (1, lambda: self._once("primary", "cut"), 0, 1),
            (1, lambda: self._once("primary", "expire-tokens"), 0, 1),
        ]
        await self._loop(menu, pause=(1, 8))

    async def disturb_secondary(self) -> None:
        """Latency most of the time; restarts, short absences, one backlog queue that fails or is made again."""
        secondary, choose = self._run.secondary, self._random
        queue = lambda: choose.choice(self._run.backlog_queues)  # noqa: E731
        menu: list[tuple[int, Callable[[], AbstractAsyncContextManager[object]], float, float]] = [
            (6, lambda: secondary.fault("slow", blocks=False, latency=f"{choose.randrange(20, 400)}ms"), 4, 15),
            (3, secondary.stopped, 0, 2),
            (2, secondary.killed, 1, 8),
            (2, secondary.frozen, 1, 4),
            (1, lambda: secondary.fault("down"), 1, 6),
            (1, lambda: secondary.fault("lose-answers"), 1, 3),
            (2, lambda: secondary.fault("full", queue(), blocks=False), 2, 8),
            (2, lambda: secondary.fault("disabled", queue(), blocks=False), 2, 8),
            (2, lambda: secondary.fault("busy", queue(), blocks=False), 1, 5),
            (3, lambda: _Making(self._run, queue()), 0, 1),
            (1, lambda: self._once("secondary", "cut"), 0, 1),
        ]
        await self._loop(menu, pause=(2, 10))

    async def _loop(
        self,
        menu: list[tuple[int, Callable[[], AbstractAsyncContextManager[object]], float, float]],
        pause: tuple[float, float],
    ) -> None:
        weights = [weight for weight, *_ in menu]
        while not self._ended():
            await asyncio.sleep(self._random.uniform(*pause))
            _, begin, shortest, longest = self._random.choices(menu, weights)[0]
            async with begin():
                await asyncio.sleep(self._random.uniform(shortest, longest))

    def _once(self, side: str, kind: str) -> AbstractAsyncContextManager[object]:
        one = self._run.primary if side == "primary" else self._run.secondary
        return one.fault(kind, blocks=False)

    async def narrow(self) -> None:
        """Make the narrow queue nearly full, and empty it again, whenever the primary lets that be done."""
        while not self._ended():
            await self._try(self._fill)
            await asyncio.sleep(self._random.uniform(4, 12))
            await self._try(self._empty)
            await asyncio.sleep(self._random.uniform(2, 8))
        await self._try(self._empty)

    async def keep_narrow_empty(self) -> None:
        """Take everything from the narrow queue, until it is cancelled, so that the backlog finds room there."""
        while True:
            await self._try(self._empty)

    async def _try(self, work: Callable[[ServiceBusClient], Awaitable[None]]) -> None:
        for _ in range(3):
            try:
                async with asyncio.timeout(15):
                    async with ServiceBusClient.from_connection_string(
                        self._run.primary.connection_string, retry_total=0
                    ) as client:
                        await work(client)
            # The primary is away. A time-out is an OSError; the SDK stumbles over its own links when it settles
            except (ServiceBusError, OSError, AttributeError):
                await asyncio.sleep(2)
            else:
                return

    async def _fill(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender(self._narrow) as sender:
            for number in range((1024 * 1024 - ROOM) // FILLER_BYTES):
                await sender.send_messages(
                    ServiceBusMessage(b"x" * (FILLER_BYTES - 200), message_id=f"{FILLER}-{number}")
                )

    async def _empty(self, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver(self._narrow) as receiver:
            while got := await receiver.receive_messages(100, max_wait_time=1):
                for message in got:
                    if not str(message.message_id).startswith(FILLER):
                        self.consumed[message.sequence_number or 0] = found(message, "primary", self._narrow)
                await asyncio.gather(*(receiver.complete_message(message) for message in got))


class _Making(AbstractAsyncContextManager[None]):
    """A backlog queue is deleted by an operator, who makes it again.

    It takes no messages from before the operator looks at it, so that the log knows all that is deleted with it.
    """

    def __init__(self, run: Run, queue: str) -> None:
        self._run = run
        self._queue = queue
        self._trouble = run.secondary.trouble("delete", queue, blocks=False)

    async def __aenter__(self) -> None:
        await self._trouble.__aenter__()
        secondary, queue = self._run.secondary, self._queue
        where = f"localhost/{queue}"
        await asyncio.to_thread(secondary.broker.fault, where, "full")
        destroyed = {each.message_id for each in await peek(secondary.connection_string, queue)}
        async with NamespaceManager.from_connection_string(secondary.connection_string) as manager:
            settings = await manager.get_queue(queue)
            await manager.delete_queue(queue)
            self._run.destroyed |= destroyed
            await asyncio.sleep(1)
            await manager.create_queue(  # B2: what waits for long is put back often
                queue, lock_duration=settings.lock_duration, max_delivery_count=settings.max_delivery_count
            )
        await asyncio.to_thread(secondary.broker.fault, where, "clear")

    async def __aexit__(self, *error: object) -> None:
        await self._trouble.__aexit__(None, None, None)
