"""Keeps what the page shows up to date: follows the ledger, looks at the namespaces, asks the switchboards."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pairbus.core.naming import namespace_label
from pairbus.core.pricing import Plan
from pairbus.dashboard.account import Account, month_start
from pairbus.dashboard.dead_letters import Piles
from pairbus.dashboard.faults import Board, boards, local_port
from pairbus.dashboard.follow import Follower
from pairbus.dashboard.look import Looker
from pairbus.dashboard.snapshot import Role
from pairbus.dashboard.view import Reading, View, view
from pairbus.errors import PairbusError
from pairbus.instrument.hooks import Instrument
from pairbus.instrument.ledger import LedgerFile

FOLLOW_SECONDS: Final = 0.5
SHOW_SECONDS: Final = 1.0
BOARDS_SECONDS: Final = 2.0
PILES_SECONDS: Final = 1.0

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a page is made of. The connection strings are secrets.

    :ivar every: seconds between two looks at a namespace.
    """

    plan: Plan
    ledger: Path | None = None
    primary: str | None = field(default=None, repr=False)
    secondary: str | None = field(default=None, repr=False)
    every: float = 5.0


class Monitor:
    """Knows what the page shows, as long as :meth:`running` is entered. One for all who look at it.

    Made within the event loop. What it does at the namespaces goes into the ledger that it reads (K1).

    :raises OptionError: the ledger's directory cannot be used.
    """

    def __init__(self, sources: Sources) -> None:
        now = datetime.now(UTC)
        self._sources = sources
        self._account = Account(sources.plan)
        self._follower = None if sources.ledger is None else Follower(sources.ledger, month_start(now))
        self._reading = Reading(None if sources.ledger is None else str(sources.ledger))
        given = [text for text in (sources.primary, sources.secondary) if text is not None]
        self._ports = [port for port in map(local_port, given) if port is not None]
        self._sink = None if sources.ledger is None else LedgerFile(sources.ledger)
        self._called: dict[str, str] = {}
        """Names of embedded namespaces, whose hosts are addresses that say little."""
        instrument = Instrument([] if self._sink is None else [self._sink], client="dashboard")
        self.lookers = _lookers(sources, instrument)
        self.piles = Piles(self.lookers)
        self.boards: list[Board] = []
        self.view: View = view(self._account, (), self._reading, now)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep everything up to date until the block ends."""
        work = [
            _again(SHOW_SECONDS, self._show),
            *(_again(self._sources.every, looker.again) for looker in self.lookers.values()),
            _again(PILES_SECONDS, self.piles.again),
        ]
        if self._follower is not None:
            work.append(_again(FOLLOW_SECONDS, self._follow))
        if self._ports:
            work.append(_again(BOARDS_SECONDS, self.ask_boards))
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for looker in self.lookers.values():
                await looker.close()
            if self._sink is not None:
                await asyncio.to_thread(self._sink.close)

    async def _show(self) -> None:
        now = datetime.now(UTC)
        self._account.forget(now)
        looks = [looker.look for looker in self.lookers.values()]
        self.view = view(self._account, looks, self._reading, now, self._called)

    async def _follow(self) -> None:
        follower = self._follower
        if follower is None:
            return
        while True:
            self._account.take(await asyncio.to_thread(follower.read))
            part = None if follower.caught_up or not follower.size else 1 - follower.behind / follower.size
            self._reading = Reading(str(follower.directory), part, follower.problem)
            if part is None:
                return

    async def ask_boards(self) -> None:
        """Ask the brokers of this machine which faults are switched on."""
        try:
            self.boards = await asyncio.to_thread(boards, self._ports)
            self._called |= {namespace_label(f"127.0.0.1:{board.port}"): board.namespace for board in self.boards}
            self._called |= {namespace_label(f"localhost:{board.port}"): board.namespace for board in self.boards}
        except PairbusError as error:
            _LOGGER.warning("the switchboards cannot be asked: %s", error)
            self.boards = []


def _lookers(sources: Sources, instrument: Instrument) -> dict[Role, Looker]:
    given = {Role.PRIMARY: sources.primary, Role.SECONDARY: sources.secondary}
    found: dict[Role, Looker] = {}
    for role, text in given.items():
        if text is not None:
            primary = found.get(Role.PRIMARY)
            host = None if primary is None else primary.client.fully_qualified_namespace
            found[role] = Looker(role, text, host, instrument)
    return found


async def _again(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do something again and again; what goes wrong with it is logged, and it is done again."""
    while True:
        try:
            await work()
        except Exception:  # the page goes on with what it knows
            _LOGGER.exception("the dashboard could not be brought up to date")
        await asyncio.sleep(seconds)
