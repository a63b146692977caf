"""What is charged: K2."""

import pytest

from pairbus.core.charging import FREE, Direction, charged_operations, direction_of, transferred_bytes
from pairbus.core.ledger import Kind

SENT = {Kind.SEND, Kind.SCHEDULE, Kind.PING}
RECEIVED = {Kind.RECEIVE, Kind.PEEK}


@pytest.mark.parametrize("kind", Kind)
def test_k2_a_message_is_transferred_out_of_the_place_it_comes_from(kind: Kind) -> None:
    """Pings are ordinary messages; settlements, renewals, polls without a message and administration carry none."""
    expected = Direction.SEND if kind in SENT else Direction.RECEIVE if kind in RECEIVED else None
    assert direction_of(kind) is expected
    assert transferred_bytes(kind, 700) == (700 if expected else 0)


@pytest.mark.parametrize("kind", Kind)
def test_k2_settlements_and_renewals_are_not_charged(kind: Kind) -> None:
    free = kind.value in {"complete", "abandon", "defer", "dead-letter", "renew", "turn", "dropped"}
    assert (kind in FREE) is free
    assert charged_operations(kind, 3) == (0 if free else 3)
