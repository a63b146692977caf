"""Which backlog queues are in play: S5."""

from random import Random
from typing import Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.backoff import Backoff
from pairbus.core.rotation import COOL_DOWN, Rotation

QUEUES = tuple(f"contoso/x-servicebus-transfer/{index}" for index in range(4))
A, B, C, D = QUEUES
STEADY = Backoff(first=10, cap=40, jitter=0)
COOL_DOWNS = (10.0, 20.0, 40.0)
"""What STEADY gives after the first, the second and every later failure in a row."""

Move: TypeAlias = Literal["choose", "fail", "accept"]

moves = st.lists(
    st.tuples(
        st.integers(0, 2),  # which sender
        st.sampled_from([0.0, 1.0, 9.0, 10.0, 25.0]),  # how much later
        st.sampled_from(["choose", "fail", "accept"]),
    ),
    max_size=60,
)


def rotation(seed: int = 1, queues: tuple[str, ...] = QUEUES) -> Rotation:
    return Rotation(queues, Random(seed), cool_down=STEADY)


def choices(of: Rotation, now: float) -> set[str | None]:
    return {of.choose(None, now) for _ in range(100)}


def pull_until_out(of: Rotation, queue: str, times: int) -> list[float]:
    """Pull a queue each time it is back, and tell for how long it was out each time."""
    now, pauses = 0.0, list[float]()
    for _ in range(times):
        of.pull(queue, now)
        until = of.pulled(now)[queue]
        pauses.append(until - now)
        now = until
    return pauses


def test_s5_senders_that_do_not_know_each_other_spread_out() -> None:
    assert {rotation(seed).choose(None, 0.0) for seed in range(100)} == set(QUEUES)


def test_s5_the_choice_depends_on_nothing_but_the_randomness_handed_in() -> None:
    def picks(seed: int) -> list[str | None]:
        of = rotation(seed)
        return [of.choose(None, 0.0) for _ in range(20)]

    assert picks(1) == picks(1) != picks(2)


@pytest.mark.parametrize("kept", QUEUES)
def test_s5_a_sender_keeps_its_queue(kept: str) -> None:
    of = rotation()
    of.pull(next(queue for queue in QUEUES if queue != kept), 0.0)
    assert {of.choose(kept, now) for now in (0.0, 5.0, 1e9)} == {kept}


def test_s5_keeping_a_queue_draws_no_randomness() -> None:
    random = Random(1)
    before = random.getstate()
    Rotation(QUEUES, random).choose(A, 0.0)
    assert random.getstate() == before


def test_s5_a_failed_queue_is_pulled_for_the_whole_factory_and_another_is_picked() -> None:
    of = rotation()
    of.pull(A, 100.0)
    assert choices(of, 100.0) == {B, C, D}
    assert of.choose(A, 100.0) in {B, C, D}


def test_s5_a_queue_that_is_not_of_the_rotation_is_not_kept() -> None:
    assert rotation(queues=(A,)).choose("contoso/x-servicebus-transfer/9", 0.0) == A


def test_s5_a_pulled_queue_is_tried_again_once_it_has_cooled_down() -> None:
    of = rotation()
    of.pull(A, 100.0)
    assert of.pulled(100.0) == {A: 110.0}
    assert A not in choices(of, 109.999)
    assert of.choose(A, 109.999) != A
    assert choices(of, 110.0) == set(QUEUES)
    assert of.choose(A, 110.0) == A
    assert of.pulled(110.0) == {}


def test_s5_the_cool_down_grows_and_is_capped() -> None:
    assert pull_until_out(rotation(), A, 5) == [10, 20, 40, 40, 40]


def test_s5_each_queue_grows_by_itself() -> None:
    of = rotation()
    pull_until_out(of, A, 3)
    of.pull(B, 1_000.0)
    assert of.pulled(1_000.0) == {B: 1_010.0}


def test_s5_by_default_a_queue_is_out_for_8_to_10_seconds_first_and_5_minutes_at_most() -> None:
    pauses = pull_until_out(Rotation(QUEUES, Random(1)), A, 8)
    assert (COOL_DOWN.first, COOL_DOWN.cap) == (10, 300)
    assert 8 <= pauses[0] <= 10
    assert all(240 <= pause <= 300 for pause in pauses[5:])


def test_s5_failures_of_attempts_that_were_under_way_count_once() -> None:
    of = rotation()
    for now in (0.0, 1.0, 9.0):
        of.pull(A, now, began=-1.0)
    assert of.pulled(9.0) == {A: 10.0}
    of.pull(A, 10.0)
    assert of.pulled(10.0) == {A: 30.0}


def test_s5_a_success_resets_the_growth() -> None:
    of = rotation()
    pull_until_out(of, A, 3)
    of.accepted(A, began=0.0)
    of.pull(A, 1_000.0)
    assert of.pulled(1_000.0) == {A: 1_010.0}


def test_s5_a_success_that_began_before_a_queue_was_pulled_does_not_bring_it_back() -> None:
    of = rotation()
    of.pull(A, 1.0)
    of.accepted(A, began=0.5)
    assert of.pulled(9.0) == {A: 11.0}
    assert A not in choices(of, 9.0)


def test_s13_a_queue_that_is_tried_while_it_is_out_and_takes_a_message_is_back() -> None:
    of = rotation()
    of.pull(A, 1.0)
    of.accepted(A, began=2.0)
    assert of.pulled(2.0) == {}
    assert choices(of, 2.0) == set(QUEUES)


def test_s13_the_queue_that_rests_longest_is_the_one_whose_last_failure_is_the_longest_ago() -> None:
    of = rotation()
    for now, queue in enumerate((C, A, D, B)):
        of.pull(queue, float(now))
    tried: list[str | None] = []
    for now in (4.0, 5.0, 6.0, 7.0, 8.0):
        queue = of.longest_resting()
        assert queue is not None
        tried.append(queue)
        of.pull(queue, now)
    assert tried == [C, A, D, B, C]
    assert rotation(queues=()).longest_resting() is None


def test_s13_a_queue_that_fails_while_it_is_out_stays_out_for_longer() -> None:
    of = rotation()
    of.pull(A, 0.0)
    of.pull(A, 5.0, began=4.0)
    assert of.pulled(5.0) == {A: 25.0}


def test_s5_what_a_queue_failed_with_is_kept() -> None:
    of, error = rotation(), RuntimeError("full")
    of.pull(A, 1.0, error=error)
    of.pull(A, 2.0, began=0.5, error=RuntimeError("late"))
    assert of.last_failure is error


def test_s5_a_success_of_a_queue_that_never_failed_changes_nothing() -> None:
    of = rotation()
    of.accepted(A, began=0.0)
    assert of.pulled(0.0) == {}
    assert choices(of, 0.0) == set(QUEUES)


def test_s5_none_left() -> None:
    of = rotation()
    for now, queue in enumerate(QUEUES):
        of.pull(queue, float(now))
    assert of.choose(None, 9.0) is None
    assert of.choose(A, 9.0) is None
    assert of.choose(None, 10.0) == A
    assert rotation(queues=()).choose(None, 0.0) is None


def test_the_queues_of_a_factory_can_be_read() -> None:
    assert rotation().queues == QUEUES


@given(st.integers(1, 4), st.integers(), moves)
def test_s5_whatever_happens_a_queue_is_chosen_only_while_it_is_in_play(
    count: int, seed: int, history: list[tuple[int, float, Move]]
) -> None:
    """Several senders of one factory, each with the queue it keeps; every attempt ends in the instant it begins."""
    queues = QUEUES[:count]
    of = rotation(seed, queues)
    kept: dict[int, str | None] = {}
    out_until = dict.fromkeys(queues, 0.0)
    pulled_at = dict.fromkeys(queues, -1.0)
    in_a_row = dict.fromkeys(queues, 0)
    now = 0.0
    for sender, later, move in history:
        now += later
        queue = kept.get(sender)
        in_play = {name for name in queues if now >= out_until[name]}
        if move == "choose":
            chosen = kept[sender] = of.choose(queue, now)
            assert chosen in in_play or (chosen is None and not in_play)
            assert chosen == queue or queue not in in_play
        elif queue is None:
            continue
        elif move == "accept":
            of.accepted(queue, began=now)
            in_a_row[queue] = 0
            out_until[queue] = 0.0
        else:
            of.pull(queue, now)
            if now > pulled_at[queue]:
                out_until[queue] = now + COOL_DOWNS[min(in_a_row[queue], 2)]
                pulled_at[queue] = now
                in_a_row[queue] += 1
        assert of.pulled(now) == {name: until for name, until in out_until.items() if now < until}
