"""Drains the backlog round by round (Y1 to Y6); an engine runs the workers, in this process or as Spark tasks.

A round looks at how deep the queues are, shares the work out, and has it done. To drain **once**, there are rounds
until all that could be delivered was. To **keep** a backlog drained, one round lasts until a quota is used up, which
says that there is more to do than thought: an idle round is one long poll after another, held (Y2).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from pairbus.core.forecast import LONG_POLL
from pairbus.core.options import TransportName
from pairbus.core.routing import WaitReason
from pairbus.core.slots import SLOT_DEPTH, Share, pack, share_out
from pairbus.syphon.accounts import Accounts
from pairbus.syphon.survey import Depths
from pairbus.syphon.worker import Orders, pause, work

_LOGGER = logging.getLogger(__name__)

QUOTA: Final = 20_000
"""How many messages a share moves before the work is shared out again."""
IDLE_QUOTA: Final = 1_000
"""Likewise, when the backlog was found shallow."""
ONCE_WAIT: Final = 5.0
"""How long a receive waits, in seconds, before a queue that is drained once counts as empty."""
LOCK_PATIENCE: Final = 75.0
"""How long a drain waits for messages that another receiver holds, in seconds: locks last a minute."""
LOOK_AGAIN: Final = 60.0
"""How soon it is looked again whether there are backlog queues, or whether they can be reached, in seconds."""
ROUNDS_FAILED: Final = 3
"""How many rounds in a row may fail before a drain gives up."""

_LATER: Final = {WaitReason.BUSY, WaitReason.EARLIER, WaitReason.UNEXPECTED}
"""Why a message waits that may well be delivered in a moment."""


class Engine(Protocol):
    """Runs workers."""

    @property
    def parallelism(self) -> int:
        """How many workers can work at once."""
        ...

    async def run(self, tasks: Sequence[Sequence[Share]], orders: Orders, end: asyncio.Event) -> None:
        """Do a round, which ``end`` ends: bursts that are under way are finished first. Sets it for new shares."""
        ...


class Drain:
    """Drains the backlog queues of a pairing.

    :param stop: ends it in order: bursts that are under way are finished.
    :param metered: whether the records of all operations are wanted.
    :param long_poll: how long one receive waits while it keeps a backlog drained, in seconds (Y2).
    """

    def __init__(
        self,
        depths: Depths,
        engine: Engine,
        accounts: Accounts,
        *,
        stop: asyncio.Event,
        metered: bool = False,
        long_poll: float = LONG_POLL,
    ) -> None:
        self.depths: Mapping[str, int | None] = {}
        """How deep the queues were when it was last looked."""
        self._depths = depths
        self._engine = engine
        self._accounts = accounts
        self._stop = stop
        self._metered = metered
        self._long_poll = long_poll

    async def once(self) -> None:
        """Drain until all that can be delivered is.

        :raises Exception: the queues cannot be looked at, or the engine fails round after round.
        """
        loop = asyncio.get_running_loop()
        moved, moved_at, failed = 0, loop.time(), 0
        self.depths = await self._depths.look()
        while not self._stop.is_set():
            todo = {queue: depth for queue, depth in self.depths.items() if depth is None or depth > 0}
            if not todo:
                break
            shares = [share.once() for share in share_out(todo, self._engine.parallelism, quota=QUOTA)]
            try:
                await self._round(shares, Orders(once=True, wait=ONCE_WAIT, metered=self._metered))
                failed = 0
            except Exception:  # a task was lost, say: what it had is still in the backlog, and the next round has it
                failed += 1
                if failed == ROUNDS_FAILED:
                    raise
                _LOGGER.debug("a round has failed", exc_info=True)
            self.depths = await self._depths.look()
            self._accounts.note_depths(self.depths)
            done = self._accounts.total().counts
            if done.found - done.waiting.total() > moved:
                moved, moved_at = done.found - done.waiting.total(), loop.time()
                if None in todo.values() or any(self.depths.values()):
                    continue
            if not failed and (not self._can_go_soon() or loop.time() - moved_at > LOCK_PATIENCE):
                break
            await pause(1.0, self._stop)

    async def keep(self) -> None:
        """Keep the backlog drained until it is stopped."""
        while not self._stop.is_set():
            try:
                self.depths = await self._depths.look()
                if not self.depths:
                    await pause(LOOK_AGAIN, self._stop)
                    continue
                total = sum(depth or 0 for depth in self.depths.values())
                is_deep = total >= SLOT_DEPTH
                shares = share_out(self.depths, self._engine.parallelism, quota=QUOTA if is_deep else IDLE_QUOTA)
                await self._round(
                    shares,
                    Orders(once=False, wait=self._long_poll, metered=self._metered),
                    tasks=None if is_deep else 1,
                )
            except Exception as error:  # noqa: BLE001 (it goes on as long as it is not stopped)
                _LOGGER.warning("the backlog cannot be drained, and it is tried again: %r", error)
                await pause(LOOK_AGAIN, self._stop)

    async def _round(self, shares: Sequence[Share], orders: Orders, tasks: int | None = None) -> None:
        self._accounts.begin_round()
        end = asyncio.Event()
        ending = asyncio.create_task(_pass_on(self._stop, end))
        try:
            await self._engine.run(pack(shares, tasks or self._engine.parallelism), orders, end)
        finally:
            ending.cancel()

    def _can_go_soon(self) -> bool:
        total = self._accounts.total()
        return total.elsewhere > 0 or any(total.counts.waiting[reason] for reason in _LATER)


class LocalEngine:
    """Runs one worker, in this process.

    :param primary: connection string of the primary.
    :param secondary: connection string of the secondary.
    """

    def __init__(self, primary: str, secondary: str, accounts: Accounts, transport: TransportName = "native") -> None:
        self._primary = primary
        self._secondary = secondary
        self._accounts = accounts
        self._transport: TransportName = transport
        self._rounds = 0

    @property
    def parallelism(self) -> int:
        """One."""
        return 1

    async def run(self, tasks: Sequence[Sequence[Share]], orders: Orders, end: asyncio.Event) -> None:
        """Do a round."""
        self._rounds += 1
        name = f"local/{self._rounds}"
        shares = [share for task in tasks for share in task]
        account = LocalAccount(self._accounts, end)
        try:
            await work(
                name,
                shares,
                orders,
                account,
                end,
                primary=self._primary,
                secondary=self._secondary,
                transport=self._transport,
            )
        finally:
            self._accounts.close(name)


class LocalAccount:
    """Where the entries of a worker in this process go.

    :param end: set when the work should be shared out again.
    """

    def __init__(self, accounts: Accounts, end: asyncio.Event) -> None:
        self.enter = accounts.enter
        self._end = end

    async def ask_for_new_shares(self) -> None:
        """End the round."""
        self._end.set()


async def _pass_on(stop: asyncio.Event, end: asyncio.Event) -> None:
    await stop.wait()
    end.set()
