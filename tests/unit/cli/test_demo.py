"""What the demo counts."""

from pairbus.cli.demo.order_counts import OrderCounts

PLACES = {"orders": ("orders",), "events": ("events/billing", "events/shipping")}


def test_a_message_is_received_when_it_has_come_everywhere() -> None:
    counts = OrderCounts(PLACES)
    counts.accepted("events", "1")
    counts.came("events/billing", "1", 7)
    assert (counts.sent, counts.received, counts.lost) == (1, 0, ["events/shipping: 1"])
    counts.came("events/shipping", "1", 9)
    assert (counts.sent, counts.received, counts.lost, counts.arrivals) == (1, 1, [], 2)


def test_delivered_again_is_not_twice_but_stored_twice_is() -> None:
    counts = OrderCounts(PLACES)
    counts.accepted("orders", "1")
    counts.came("orders", "1", 7)
    counts.came("orders", "1", 7)
    assert counts.duplicates == 0
    counts.came("orders", "1", 8)
    assert counts.duplicates == 1


def test_a_send_that_failed_is_neither_sent_nor_lost() -> None:
    counts = OrderCounts(PLACES)
    counts.refused("orders", "1")
    counts.came("orders", "1", 7)  # its answer was lost
    assert (counts.sent, counts.failed, counts.received, counts.lost) == (0, 1, 0, [])
