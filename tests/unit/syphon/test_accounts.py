"""The books of a drain (Y6)."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.core.reconciliation import Counts, Reconciliation
from pairbus.core.routing import DeadLetterReason, WaitReason
from pairbus.errors import LedgerError
from pairbus.instrument.ledger import LedgerFile, read_ledger
from pairbus.syphon.accounts import Accounts, Entry

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def entry(worker: str, delivered: int, **more: int) -> Entry:
    counts = Counts(
        delivered,
        Counter({DeadLetterReason.DESTINATION_GONE: more.get("dead", 0)}),
        Counter({WaitReason.OUTAGE: more.get("waiting", 0)}),
        oldest_at=NOON,
    )
    completing = {"orders": more["completing"]} if "completing" in more else {}
    return Entry(
        worker=worker, queue="q", slot=0, reconciliation=Reconciliation({"orders": counts}), completing=completing
    )


def record() -> Record:
    return Record(
        id="1",
        at=NOON,
        client="c",
        namespace="contoso",
        entity="orders",
        kind=Kind.SEND,
        stage=Stage.SYPHON,
        outcome=Outcome.DONE,
    )


def test_found_is_delivered_dead_lettered_and_still_there() -> None:
    """Y6: parked = delivered + dead-lettered + still there."""
    accounts = Accounts()
    asyncio.run(accounts.enter(entry("one", 5, dead=1, waiting=2)))
    accounts.close("one")
    accounts.note_depths({"q": 9, "other": 0})
    rows = accounts.rows()
    assert [(row.destination, row.found, row.waiting) for row in rows] == [
        ("orders", 8, {"outage": 2}),
        ("", 7, {"elsewhere": 7}),
    ]
    assert accounts.total().found == 15


def test_the_latest_entry_counts_and_what_waited_is_told_anew_each_round() -> None:
    accounts = Accounts()
    asyncio.run(accounts.enter(entry("one", 5, waiting=3)))
    asyncio.run(accounts.enter(entry("one", 7, waiting=2)))
    accounts.close("one")
    accounts.begin_round()
    asyncio.run(accounts.enter(entry("two", 2, waiting=0)))
    assert accounts.total().counts.delivered == 9
    assert accounts.total().waiting == {}


def test_of_a_worker_that_died_what_it_was_about_to_complete_is_suspected() -> None:
    accounts = Accounts()
    asyncio.run(accounts.enter(entry("one", 5, completing=3)))
    assert accounts.total().counts.duplicates_suspected == 0
    accounts.close("one")
    assert accounts.total().counts.duplicates_suspected == 3
    asyncio.run(accounts.enter(entry("two", 5, completing=3)))
    asyncio.run(accounts.enter(entry("two", 5)))
    accounts.close("two")
    assert accounts.total().counts.duplicates_suspected == 3


def test_an_entry_is_answered_when_its_records_are_in_the_ledger(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path)
    accounts = Accounts(ledger)
    made = Entry(worker="one", queue="q", slot=0, reconciliation=Reconciliation(), records=[record()])
    asyncio.run(accounts.enter(Entry.from_document(made.to_document())))
    assert list(read_ledger(tmp_path)) == [record()]
    ledger.close()


def test_a_ledger_that_cannot_be_written_to_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = LedgerFile(tmp_path)
    monkeypatch.setattr(ledger, "flush", lambda: False)
    made = Entry(worker="one", queue="q", slot=0, reconciliation=Reconciliation(), records=[record()])
    with pytest.raises(LedgerError, match="nothing is completed before it can"):
        asyncio.run(Accounts(ledger).enter(made))
    monkeypatch.undo()
    ledger.close()


def test_a_problem_is_known_until_the_queue_works_again() -> None:
    accounts = Accounts()
    broken = Entry(worker="one", queue="q", slot=0, reconciliation=Reconciliation(), problem="down")
    asyncio.run(accounts.enter(Entry.from_document(broken.to_document())))
    assert accounts.problems == {"q": "down"}
    asyncio.run(accounts.enter(entry("one", 1)))
    assert accounts.problems == {}
