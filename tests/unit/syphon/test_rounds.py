"""Leading a drain: when another round is worth it, and when all that could be delivered was."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.support.virtual import run

from pairbus.core.reconciliation import Counts, Reconciliation
from pairbus.core.routing import WaitReason
from pairbus.core.slots import Share
from pairbus.syphon.accounts import Accounts, Entry
from pairbus.syphon.rounds import IDLE_QUOTA, LOCK_PATIENCE, QUOTA, ROUNDS_FAILED, Drain
from pairbus.syphon.survey import Depths
from pairbus.syphon.worker import Orders


class Queues(Depths):
    """Backlog queues that are as deep as a test says."""

    def __init__(self, **depths: int | None) -> None:
        super().__init__("", "contoso", 1)
        self.depths: dict[str, int | None] = dict(depths)

    async def look(self) -> Mapping[str, int | None]:
        return dict(self.depths)


class Rounds:
    """An engine that does what a test says, round by round."""

    parallelism = 2

    def __init__(self, accounts: Accounts, *rounds: Callable[[], Counts | Exception]) -> None:
        self.accounts = accounts
        self.rounds = list(rounds)
        self.tasks: list[Sequence[Sequence[Share]]] = []
        self.orders: list[Orders] = []

    async def run(self, tasks: Sequence[Sequence[Share]], orders: Orders, end: asyncio.Event) -> None:
        self.tasks.append(tasks)
        self.orders.append(orders)
        await asyncio.sleep(1)
        if not orders.once and len(self.tasks) > len(self.rounds):
            await end.wait()
            return
        outcome = (self.rounds[len(self.tasks) - 1] if len(self.tasks) <= len(self.rounds) else self.rounds[-1])()
        if isinstance(outcome, Exception):
            raise outcome
        name = str(len(self.tasks))
        await self.accounts.enter(
            Entry(worker=name, queue="q", slot=0, reconciliation=Reconciliation({"orders": outcome}))
        )
        self.accounts.close(name)


def test_rounds_go_on_as_long_as_something_moves() -> None:
    queues, accounts = Queues(q=30, empty=0), Accounts()

    def moving() -> Counts:
        queues.depths["q"] = (queues.depths["q"] or 0) - 10
        return Counts(delivered=10)

    engine = Rounds(accounts, moving)
    run(Drain(queues, engine, accounts, stop=asyncio.Event()).once())
    assert len(engine.tasks) == 3
    assert engine.tasks[0] == [[Share("q", 0, 30, 30)]]
    assert accounts.total().found == 30


def test_an_outage_is_not_waited_for() -> None:
    queues, accounts = Queues(q=3), Accounts()
    engine = Rounds(accounts, lambda: Counts(waiting=Counter({WaitReason.OUTAGE: 3})))
    run(Drain(queues, engine, accounts, stop=asyncio.Event()).once())
    assert len(engine.tasks) == 1
    assert accounts.total().waiting == {"outage": 3}


@pytest.mark.parametrize("counts", [Counts(), Counts(waiting=Counter({WaitReason.EARLIER: 3}))])
def test_what_others_hold_is_waited_for_as_long_as_a_lock_lasts(counts: Counts) -> None:
    queues, accounts = Queues(q=3), Accounts()
    engine = Rounds(accounts, lambda: counts)
    run(Drain(queues, engine, accounts, stop=asyncio.Event()).once())
    assert LOCK_PATIENCE / 2 <= len(engine.tasks) <= LOCK_PATIENCE
    assert sum(accounts.total().waiting.values()) == 3


def test_unknown_depths_are_drained_until_nothing_comes() -> None:
    accounts = Accounts()
    engine = Rounds(accounts, lambda: Counts(delivered=5), Counts)
    run(Drain(Queues(q=None), engine, accounts, stop=asyncio.Event()).once())
    assert len(engine.tasks) == 2
    assert engine.tasks[0] == [[Share("q", 0, QUOTA)]]


def test_an_engine_that_fails_round_after_round_ends_it() -> None:
    accounts = Accounts()
    engine = Rounds(accounts, lambda: OSError("no executor"))
    with pytest.raises(OSError, match="no executor"):
        run(Drain(Queues(q=1), engine, accounts, stop=asyncio.Event()).once())
    assert len(engine.tasks) == ROUNDS_FAILED


def test_an_idle_backlog_is_held_by_one_task_and_a_deep_one_by_all() -> None:
    """Y2: idle, one task holds the long polls of all queues."""
    queues, accounts, stop = Queues(q=0, r=0), Accounts(), asyncio.Event()

    def more_came() -> Counts:
        queues.depths["q"] = 50_000
        return Counts()

    engine = Rounds(accounts, more_came)

    async def scenario() -> None:
        keeping = asyncio.create_task(Drain(queues, engine, accounts, stop=stop, long_poll=900.0).keep())
        await asyncio.sleep(3600)
        stop.set()
        await keeping

    run(scenario())
    assert [len(tasks) for tasks in engine.tasks] == [1, 2]
    assert {share.quota for share in engine.tasks[0][0]} == {IDLE_QUOTA}
    assert Counter(share.queue for task in engine.tasks[1] for share in task) == {"q": 2, "r": 1}
    assert all(orders.wait == 900.0 and not orders.once for orders in engine.orders)
