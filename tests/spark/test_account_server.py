"""The line between the driver and its tasks."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pairbus.core.reconciliation import Counts, Reconciliation
from pairbus.errors import LedgerError
from pairbus.instrument.ledger import LedgerFile
from pairbus.spark.syphon.account_server import AccountClient, AccountServer, DriverLostError
from pairbus.syphon.accounts import Accounts, Entry


def entry(delivered: int, completing: int = 0) -> Entry:
    return Entry(
        worker="task/1",
        queue="q",
        slot=0,
        reconciliation=Reconciliation({"orders": Counts(delivered)}),
        completing={"orders": completing} if completing else {},
    )


def play(scenario: Callable[[AccountServer, Accounts], Awaitable[None]], accounts: Accounts | None = None) -> None:
    async def run() -> None:
        books = accounts or Accounts()
        async with asyncio.timeout(30), AccountServer(books, bind="127.0.0.1", host="127.0.0.1") as account_server:
            await scenario(account_server, books)

    asyncio.run(run())


def test_an_entry_is_in_the_books_when_it_is_answered() -> None:
    async def scenario(account_server: AccountServer, accounts: Accounts) -> None:
        async with account_server.round(asyncio.Event()), AccountClient(account_server.address) as line:
            await line.enter(entry(3))
            assert accounts.total().counts.delivered == 3
            assert not line.end.is_set()

    play(scenario)


def test_the_end_of_a_round_reaches_its_tasks_and_a_quota_the_driver() -> None:
    async def scenario(account_server: AccountServer, _accounts: Accounts) -> None:
        end = asyncio.Event()
        async with (
            account_server.round(end),
            AccountClient(account_server.address) as one,
            AccountClient(account_server.address) as other,
        ):
            await one.ask_for_new_shares()
            await end.wait()
            await one.end.wait()
            await other.end.wait()
            async with AccountClient(account_server.address) as late:
                await late.end.wait()

    play(scenario)


def test_of_a_task_that_dies_what_it_was_about_to_complete_is_suspected() -> None:
    async def scenario(account_server: AccountServer, accounts: Accounts) -> None:
        async with account_server.round(asyncio.Event()), AccountClient(account_server.address) as line:
            await line.enter(entry(5, completing=2))
        assert accounts.total().counts.duplicates_suspected == 2

    play(scenario)


def test_a_task_that_loses_its_driver_completes_nothing_more() -> None:
    async def scenario(account_server: AccountServer, _accounts: Accounts) -> None:
        async with AccountClient(account_server.address) as line:
            async with account_server.round(asyncio.Event()):
                await line.enter(entry(1))
            await account_server.__aexit__(None, None, None)
            await line.end.wait()
            with pytest.raises(DriverLostError):
                await line.enter(entry(2))

    play(scenario)


def test_who_does_not_know_the_token_is_not_heard() -> None:
    async def scenario(account_server: AccountServer, accounts: Accounts) -> None:
        async with (
            account_server.round(asyncio.Event()),
            AccountClient(replace(account_server.address, token="guess")) as stranger,  # noqa: S106
        ):
            with pytest.raises(DriverLostError):
                await stranger.enter(entry(3))
        assert accounts.total().found == 0
        assert account_server.address.token not in repr(account_server.address)

    play(scenario)


def test_a_ledger_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = LedgerFile(tmp_path)

    async def refuse(_entry: Entry) -> None:
        raise LedgerError("the disk is full")

    async def scenario(account_server: AccountServer, accounts: Accounts) -> None:
        monkeypatch.setattr(accounts, "enter", refuse)
        async with account_server.round(asyncio.Event()), AccountClient(account_server.address) as line:
            with pytest.raises(LedgerError, match="the disk is full"):
                await line.enter(entry(3))

    play(scenario, Accounts(ledger))
    ledger.close()
