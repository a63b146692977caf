"""Which faults are switched on, and what is refused for them."""

import pytest

from pairbus.amqp.conditions import RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS
from pairbus.broker.faults.board import Fault, FaultKind, Faults, is_under
from pairbus.broker.refusals import ENTITY_DISABLED, SERVER_BUSY, RefusedError
from pairbus.errors import OptionError


def board(*faults: Fault) -> Faults:
    made = Faults()
    for fault in faults:
        made.put(fault)
    return made


@pytest.mark.parametrize(
    ("path", "entity", "so"),
    [
        ("orders", "orders", True),
        ("/Orders/", "ORDERS", True),
        ("orders/$DeadLetterQueue", "orders", True),
        ("orders/Subscriptions/all", "orders", True),
        ("orders2", "orders", False),
        ("orders", "orders/Subscriptions/all", False),
        ("", "orders", False),
    ],
)
def test_a_path_is_under_an_entity(path: str, entity: str, so: bool) -> None:  # noqa: FBT001
    assert is_under(path, entity) is so


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        (FaultKind.BUSY, SERVER_BUSY),
        (FaultKind.DISABLED, ENTITY_DISABLED),
        (FaultKind.DENY, UNAUTHORIZED_ACCESS),
        (FaultKind.FULL, RESOURCE_LIMIT_EXCEEDED),
    ],
)
def test_what_is_refused(kind: FaultKind, condition: str) -> None:
    faults = board(Fault(kind=kind, entity="Orders"))
    with pytest.raises(RefusedError) as raised:
        faults.check("orders/$DeadLetterQueue", sends=True)
    assert raised.value.condition == condition
    faults.check("other", sends=True)


def test_a_full_entity_still_gives() -> None:
    board(Fault(kind=FaultKind.FULL)).check("orders")


def test_a_board_without_faults_is_false_and_refuses_nothing() -> None:
    faults = board()
    assert not faults
    assert faults.refusal("orders", sends=True) is None
    assert faults.wake_at is None


def test_faults_end_in_their_time() -> None:
    faults = board(
        Fault(kind=FaultKind.BUSY, until=100), Fault(kind=FaultKind.FULL, until=50), Fault(kind=FaultKind.DENY)
    )
    assert faults.wake_at == 50
    assert faults.take_ended(49) == []
    assert [fault.kind for fault in faults.take_ended(100)] == [FaultKind.BUSY, FaultKind.FULL]
    assert [fault.kind for fault in faults] == [FaultKind.DENY]


def test_a_fault_takes_the_place_of_one_of_its_kind() -> None:
    faults = board(Fault(kind=FaultKind.BUSY, entity="a", until=1), Fault(kind=FaultKind.BUSY, entity="A"))
    assert [fault.until for fault in faults] == [None]


def test_clearing_is_for_one_entity_one_kind_or_all() -> None:
    faults = board(
        Fault(kind=FaultKind.BUSY),
        Fault(kind=FaultKind.BUSY, entity="a"),
        Fault(kind=FaultKind.FULL, entity="a/Subscriptions/b"),
        Fault(kind=FaultKind.FULL, entity="c"),
    )
    assert len(faults.clear(entity="A")) == 2
    assert len(faults.clear(FaultKind.FULL)) == 1
    assert len(faults.clear()) == 1
    assert not faults


@pytest.mark.parametrize(
    "options",
    [
        {"kind": FaultKind.DOWN, "entity": "orders"},
        {"kind": FaultKind.CUT, "until": 5},
        {"kind": FaultKind.EXPIRE_TOKENS, "until": 5},
        {"kind": FaultKind.SLOW},
        {"kind": FaultKind.SLOW, "rate": 0},
        {"kind": FaultKind.BUSY, "latency": 5},
        {"kind": FaultKind.BUSY, "rate": 5},
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        Fault(**options)  # type: ignore[arg-type]
