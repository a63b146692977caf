"""One task's shares of the backlog, carried home in virtual time."""

import asyncio
from collections.abc import Callable

from tests.support.namespaces import Line, Namespace
from tests.support.virtual import run

from pairbus.core.slots import Share
from pairbus.syphon.accounts import Accounts, Entry
from pairbus.syphon.worker import Orders, Worker


class ServiceBusConnectionError(Exception):
    pass


class Books(Accounts):
    """Books that tell of each entry before it is made."""

    def __init__(self, watch: Callable[[Entry], None] = lambda _entry: None) -> None:
        super().__init__()
        self._watch = watch

    async def enter(self, entry: Entry) -> None:
        self._watch(entry)
        await super().enter(entry)

    async def ask_for_new_shares(self) -> None:
        raise AssertionError("a carrier that works once has no more to do")


class Work:
    """Two namespaces, with a message in each of some queues."""

    def __init__(self) -> None:
        self.primary, self.secondary = Namespace("contoso"), Namespace("fabrikam")
        self.source, self.target = Line(self.secondary), Line(self.primary)

    def carry(self, books: Books, *queues: str) -> None:
        """Have a carrier work that has a share of each queue."""

        async def carry() -> None:
            for queue in queues:
                self.secondary.park(queue, queue)
            shares = [Share(queue, 0, 1, 1) for queue in queues]
            orders = Orders(once=True, wait=0.5, patience=0.0, retry_interval=30.0)
            carrier = Worker("1", shares, source=self.source, target=self.target, account=books, orders=orders)
            await carrier.run(asyncio.Event())

        run(carry())

    @property
    def left(self) -> int:
        return sum(map(len, self.secondary.queues.values()))


def test_y3_a_destination_that_failed_for_one_share_is_left_alone_by_the_others() -> None:
    work = Work()
    work.target.script = {"send orders": [ServiceBusConnectionError()]}
    work.source.script = {"receive b": [0.2]}  # when the other one has failed already
    work.carry(Books(), "a", "b")
    assert work.target.steps == ["send orders"]
    assert work.left == 2


def test_y8_what_is_delivered_is_entered_before_it_is_completed() -> None:
    work = Work()
    steps_at_entry: list[str] = []

    def watch(entry: Entry) -> None:
        if entry.completing:
            steps_at_entry.extend([*work.target.steps, *work.source.steps])

    work.carry(Books(watch), "a")
    assert work.left == 0
    assert "sent orders" in steps_at_entry
    assert "complete a" not in steps_at_entry


def test_y8_what_cannot_be_entered_stays_in_the_backlog() -> None:
    work = Work()

    def refuse(entry: Entry) -> None:
        if entry.completing:
            raise OSError("no books")

    books = Books(refuse)
    work.carry(books, "a")
    assert work.primary.ids("orders") == ["a"]
    assert work.left == 1
    assert "complete a" not in work.source.steps
    assert books.problems == {"a": "OSError: no books"}
