"""What movers count (Y6)."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from pairbus.core.reconciliation import Counts, Reconciliation
from pairbus.core.routing import DeadLetterReason, WaitReason

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def counts() -> Counts:
    return Counts(5, Counter({DeadLetterReason.REFUSED: 2}), Counter({WaitReason.BUSY: 3}), 1, NOON)


def test_y6_found_is_delivered_dead_lettered_and_waiting() -> None:
    total = Reconciliation({"orders": counts(), "bills": Counts(1)}).total()
    assert (total.found, total.delivered, total.duplicates_suspected, total.oldest_at) == (11, 6, 1, NOON)


def test_the_oldest_is_kept() -> None:
    both = counts()
    both.note_age(None)
    both.note_age(NOON + timedelta(seconds=1))
    assert both.oldest_at == NOON
    both.note_age(NOON - timedelta(seconds=1))
    assert both.oldest_at == NOON - timedelta(seconds=1)


def test_it_travels_as_json() -> None:
    told = Reconciliation({"orders": counts(), "": Counts()})
    assert Reconciliation.from_document(told.to_document()) == told
