"""What the demo counts."""

from pairbus.cli.demo.tally import Tally

PLACES = {"orders": ("orders",), "events": ("events/billing", "events/shipping")}


def test_a_message_is_received_when_it_has_come_everywhere() -> None:
    tally = Tally(PLACES)
    tally.accepted("events", "1")
    tally.came("events/billing", "1", 7)
    assert (tally.sent, tally.received, tally.lost) == (1, 0, ["events/shipping: 1"])
    tally.came("events/shipping", "1", 9)
    assert (tally.sent, tally.received, tally.lost, tally.arrivals) == (1, 1, [], 2)


def test_delivered_again_is_not_twice_but_stored_twice_is() -> None:
    tally = Tally(PLACES)
    tally.accepted("orders", "1")
    tally.came("orders", "1", 7)
    tally.came("orders", "1", 7)
    assert tally.duplicates == 0
    tally.came("orders", "1", 8)
    assert tally.duplicates == 1


def test_a_send_that_failed_is_neither_sent_nor_lost() -> None:
    tally = Tally(PLACES)
    tally.refused("orders", "1")
    tally.came("orders", "1", 7)  # its answer was lost
    assert (tally.sent, tally.failed, tally.received, tally.lost) == (0, 1, 0, [])
