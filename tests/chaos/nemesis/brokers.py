"""The nemesis: two brokers as processes, what is done to them, and a log of when each of them took messages."""

# ruff: noqa: ANN401 (the options of a fault are handed on)

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.ports import free_port

from pairbus.testing import EmbeddedBroker, QueueSettings

SideName = Literal["primary", "secondary"]

LOSES_ANSWERS = frozenset(
    {"kill", "restart", "freeze", "down", "cut", "silent", "stall", "lose-answers", "disabled", "expire-tokens"}
)
"""After these an answer may be missing although the broker has carried out what it was asked for."""


@dataclass(eq=False)
class Trouble:
    """One fault, from before it begins until after it has ended.

    :ivar entity: whom it concerns; None: the whole namespace.
    :ivar blocks: whether the namespace, or the entity, takes no messages meanwhile.
    """

    side: SideName
    kind: str
    entity: str | None
    blocks: bool
    began: float
    ended: float | None = None

    @property
    def loses_answers(self) -> bool:
        return self.kind in LOSES_ANSWERS

    def overlaps(self, began: float, ended: float) -> bool:
        return self.began <= ended and (self.ended is None or self.ended >= began)

    def __str__(self) -> str:
        ended = "until the end" if self.ended is None else f"for {self.ended - self.began:.2f} s"
        return f"{self.side} {self.kind}{f' of {self.entity}' if self.entity else ''} {ended}"


class Troubles(list[Trouble]):
    """The log of the nemesis."""

    def neither_took(self, entity: str, began: float, ended: float, *, notice: float) -> bool:
        """Tell whether there was an instant in a period at which neither namespace took messages for an entity.

        :param notice: how long after its return a sender may go without noticing that the primary is back.
        """
        away = [each for each in self if each.blocks and each.overlaps(began - notice, ended)]
        primary = [each for each in away if each.side == "primary" and each.entity in (None, entity)]
        secondary = [each for each in away if each.side == "secondary" and each.entity is None]
        for one in primary:
            back = ended if one.ended is None else one.ended + notice
            for other in secondary:
                gone_from = max(one.began, other.began, began)
                gone_until = min(back, ended if other.ended is None else other.ended, ended)
                if gone_from <= gone_until:
                    return True
        return False

    def doubt_in(self, began: float, ended: float) -> list[Trouble]:
        """Return what may have lost an answer in a period."""
        return [each for each in self if each.loses_answers and each.overlaps(began, ended)]

    def around(self, began: float, ended: float) -> list[Trouble]:
        return [each for each in self if each.overlaps(began, ended)]


@dataclass(eq=False)
class Side:
    """One namespace: a durable broker in a process of its own, at an address that it keeps."""

    name: SideName
    troubles: Troubles
    data: Path
    queues: Mapping[str, QueueSettings] = field(default_factory=dict[str, QueueSettings])

    def __post_init__(self) -> None:
        self.broker = EmbeddedBroker(
            namespaces=[f"localhost:{free_port()}"], queues=self.queues, process=True, data=self.data
        )
        self._changing = asyncio.Lock()

    @property
    def connection_string(self) -> str:
        return self.broker.connection_string

    @property
    def pid(self) -> int:
        """The broker's process."""
        broker: Any = self.broker
        return broker._running._process.pid

    @asynccontextmanager
    async def trouble(self, kind: str, entity: str | None = None, *, blocks: bool = True) -> AsyncGenerator[Trouble]:
        """Log a fault for as long as the block runs."""
        one = Trouble(self.name, kind, entity, blocks, time.monotonic())
        self.troubles.append(one)
        try:
            yield one
        finally:
            one.ended = time.monotonic()

    @asynccontextmanager
    async def killed(self) -> AsyncGenerator[None]:
        """Have the broker's process killed with -9, and start it again at the end."""
        async with self.trouble("kill"):
            await asyncio.to_thread(self.broker.kill)
            try:
                yield
            finally:
                await asyncio.to_thread(self.broker.start)

    @asynccontextmanager
    async def stopped(self) -> AsyncGenerator[None]:
        """Have the broker stopped in order, and start it again at the end."""
        async with self.trouble("restart"):
            await asyncio.to_thread(self.broker.stop)
            try:
                yield
            finally:
                await asyncio.to_thread(self.broker.start)

    @asynccontextmanager
    async def frozen(self) -> AsyncGenerator[None]:
        """Have the broker's process stopped by SIGSTOP: it holds its connections and says nothing."""
        async with self.trouble("freeze"):
            os.kill(self.pid, signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(self.pid, signal.SIGCONT)

    @asynccontextmanager
    async def fault(
        self, kind: str, entity: str | None = None, *, blocks: bool = True, **options: Any
    ) -> AsyncGenerator[None]:
        """Have the broker fail on command; what concerns the same place is cleared at the end."""
        where = "localhost" if entity is None else f"localhost/{entity}"
        async with self.trouble(kind, entity, blocks=blocks):
            await asyncio.to_thread(self.broker.fault, where, kind, **options)
            try:
                yield
            finally:
                await asyncio.to_thread(self.broker.fault, where, "clear")
