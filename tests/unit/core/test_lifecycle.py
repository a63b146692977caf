"""Open, closed, faulted, and the five-second rule: C1."""

import itertools

import pytest

from pairbus.core.lifecycle import ENDINGS, Ending, FactoryState, Lifecycle, SharedFate, Side
from pairbus.errors import FactoryClosedError, FactoryFaultedError

OPEN, CLOSED, FAULTED = FactoryState.OPEN, FactoryState.CLOSED, FactoryState.FAULTED


def faulted(cause: BaseException | str = "the disk is full") -> Lifecycle:
    life = Lifecycle()
    life.fault(cause)
    return life


def closed() -> Lifecycle:
    life = Lifecycle()
    life.close()
    return life


def test_c1_a_new_factory_is_open() -> None:
    life = Lifecycle()
    assert (life.state, life.cause) == (OPEN, "")
    life.check_open()


@pytest.mark.parametrize(
    ("state", "ending", "after"),
    [
        (OPEN, Ending.CLOSE, CLOSED),
        (OPEN, Ending.FAULT, FAULTED),
        (CLOSED, Ending.CLOSE, CLOSED),
        (CLOSED, Ending.FAULT, CLOSED),
        (FAULTED, Ending.CLOSE, CLOSED),
        (FAULTED, Ending.FAULT, FAULTED),
    ],
)
def test_c1_all_moves(state: FactoryState, ending: Ending, after: FactoryState) -> None:
    life = {OPEN: Lifecycle(), CLOSED: closed(), FAULTED: faulted()}[state]
    if ending is Ending.CLOSE:
        life.close()
    else:
        life.fault("another fault")
    assert life.state is after
    assert ENDINGS[state, ending] is after


def test_c1_every_state_knows_every_ending_and_none_leads_back() -> None:
    assert set(ENDINGS) == set(itertools.product(FactoryState, Ending))
    assert OPEN not in ENDINGS.values()


def test_c1_a_closed_factory_raises() -> None:
    with pytest.raises(FactoryClosedError):
        closed().check_open()


@pytest.mark.parametrize("cause", ["the disk is full", OSError("the disk is full")])
def test_c1_a_faulted_factory_raises_an_error_naming_the_cause(cause: BaseException | str) -> None:
    with pytest.raises(FactoryFaultedError, match="the disk is full") as caught:
        faulted(cause).check_open()
    assert caught.value.cause is cause


def test_c1_the_first_cause_is_kept() -> None:
    life = faulted("first")
    life.fault("second")
    assert life.cause == "first"
    with pytest.raises(FactoryFaultedError, match="first"):
        life.check_open()


def test_c1_a_closed_factory_has_no_cause_to_fault_any_more() -> None:
    life = closed()
    life.fault("too late")
    assert life.cause == ""
    with pytest.raises(FactoryClosedError):
        life.check_open()


def test_a_pair_has_two_sides() -> None:
    assert (Side.PRIMARY.other, Side.SECONDARY.other) == (Side.SECONDARY, Side.PRIMARY)


def test_c1_while_both_live_nothing_is_due() -> None:
    fate = SharedFate()
    assert fate.wake_at is None
    assert fate.overdue(1e9) is None


@pytest.mark.parametrize(("ended", "other"), [(Side.PRIMARY, Side.SECONDARY), (Side.SECONDARY, Side.PRIMARY)])
def test_c1_the_other_one_is_faulted_five_seconds_after_one_has_ended(ended: Side, other: Side) -> None:
    fate = SharedFate()
    fate.ended(ended, 100.0)
    assert fate.wake_at == 105.0
    assert fate.overdue(100.0) is None
    assert fate.overdue(104.999) is None
    assert fate.overdue(105.0) is other
    assert fate.overdue(200.0) is other


@pytest.mark.parametrize("first", Side)
def test_c1_what_ends_by_itself_within_five_seconds_is_left_alone(first: Side) -> None:
    fate = SharedFate()
    fate.ended(first, 100.0)
    fate.ended(first.other, 104.999)
    assert fate.wake_at is None
    assert fate.overdue(1e9) is None


def test_c1_the_five_seconds_run_from_the_first_end() -> None:
    fate = SharedFate()
    fate.ended(Side.PRIMARY, 100.0)
    fate.ended(Side.PRIMARY, 103.0)
    assert fate.wake_at == 105.0
    assert fate.overdue(105.0) is Side.SECONDARY


def test_c1_once_the_other_one_is_faulted_nothing_is_due_any_more() -> None:
    fate = SharedFate()
    fate.ended(Side.SECONDARY, 0.0)
    assert fate.overdue(7.0) is Side.PRIMARY
    fate.ended(Side.PRIMARY, 7.0)
    assert fate.wake_at is None
    assert fate.overdue(1e9) is None


def test_c1_each_pair_has_its_own_fate() -> None:
    SharedFate().ended(Side.PRIMARY, 0.0)
    assert SharedFate().wake_at is None
