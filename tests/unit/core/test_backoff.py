"""Pauses that grow, capped, with jitter."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.backoff import Backoff

seconds = st.floats(0.001, 3600)


class Fixed(Random):
    """Randomness that always gives the same number."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_each_failure_doubles_the_pause_up_to_the_cap() -> None:
    backoff = Backoff(first=10, cap=300, jitter=0)
    assert [backoff.pause(failures, Random(1)) for failures in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


def test_a_cap_below_the_first_pause_holds_at_once() -> None:
    assert Backoff(first=10, cap=4, jitter=0).pause(1, Random(1)) == 4


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 40.0), (0.5, 36.0), (1.0, 32.0)])
def test_jitter_shortens_a_pause_by_a_fifth_of_itself_at_most(drawn: float, pause: float) -> None:
    assert Backoff(first=10, cap=300).pause(3, Fixed(drawn)) == pytest.approx(pause)


def test_jitter_applies_to_the_capped_pause_too() -> None:
    assert Backoff(first=10, cap=300, jitter=0.5).pause(50, Fixed(1.0)) == pytest.approx(150)


@pytest.mark.parametrize("failures", [33, 1_025, 10**9])
def test_any_number_of_failures_gives_the_cap(failures: int) -> None:
    assert Backoff(first=0.001, cap=3600, jitter=0).pause(failures, Random(1)) == 3600


def test_a_pause_depends_on_nothing_but_the_randomness_handed_in() -> None:
    backoff = Backoff(first=10, cap=300)
    assert backoff.pause(2, Random(7)) == backoff.pause(2, Random(7))
    assert len({backoff.pause(2, Random(seed)) for seed in range(20)}) == 20


@given(seconds, seconds, st.floats(0, 1), st.integers(1, 100), st.randoms(use_true_random=False))
def test_a_pause_is_within_its_bounds(first: float, cap: float, jitter: float, failures: int, random: Random) -> None:
    pause = Backoff(first, cap, jitter).pause(failures, random)
    assert 0 <= pause <= cap
    assert pause <= Backoff(first, cap, jitter=0).pause(failures, random)


@given(seconds, seconds, st.integers(1, 100))
def test_a_pause_never_shrinks_with_another_failure(first: float, cap: float, failures: int) -> None:
    backoff = Backoff(first, cap, jitter=0)
    assert backoff.pause(failures, Random(1)) <= backoff.pause(failures + 1, Random(1))
