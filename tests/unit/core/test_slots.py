"""Sharing out a backlog."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.slots import SLOT_DEPTH, Share, pack, share_out


def test_an_even_backlog_has_one_slot_per_queue() -> None:
    shares = share_out({f"q{number}": 4_000 for number in range(10)}, 2, quota=7)
    assert shares == [Share(f"q{number}", 0, 7, 4_000) for number in range(10)]
    assert [len(hand) for hand in pack(shares, 2)] == [5, 5]


def test_a_skewed_backlog_still_uses_every_worker() -> None:
    shares = share_out({"deep": 40_000, "shallow": 10, "unknown": None}, 4, quota=100)
    assert Counter(share.queue for share in shares) == {"deep": 4, "shallow": 1, "unknown": 1}
    hands = pack(shares, 4)
    assert all(sum(share.queue == "deep" for share in hand) == 1 for hand in hands)


def test_a_shallow_queue_is_not_worth_a_second_slot() -> None:
    assert len(share_out({"queue": SLOT_DEPTH}, 8, quota=1)) == 1


def test_to_drain_once_is_to_move_what_is_there() -> None:
    assert Share("queue", 0, 100, 7).once() == Share("queue", 0, 7, 7)
    assert Share("queue", 0, 5, 7).once() == Share("queue", 0, 5, 7)
    assert Share("queue", 0, 100, 0).once() == Share("queue", 0, 100, 0)


def test_no_task_is_made_for_nothing() -> None:
    assert pack(share_out({"one": 1}, 8, quota=1), 8) == [[Share("one", 0, 1, 1)]]
    assert pack([], 8) == []


@given(st.dictionaries(st.text(min_size=1), st.none() | st.integers(0, 10**7), max_size=20), st.integers(1, 64))
def test_every_queue_has_a_slot_and_every_share_a_task(depths: dict[str, int | None], workers: int) -> None:
    shares = share_out(depths, workers, quota=1)
    assert {share.queue for share in shares} == set(depths)
    dealt = [share for hand in pack(shares, workers) for share in hand]
    assert Counter(dealt) == Counter(shares)
    assert all(count == 1 for count in Counter((share.queue, share.slot) for share in shares).values())
