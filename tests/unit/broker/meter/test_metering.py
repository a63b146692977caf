"""K1: what the broker counts, without a broker."""

from dataclasses import dataclass

import pytest

from pairbus.broker.meter.metering import REPEATED, Counter, Meter, Polls, Sends, charged
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage


class Clock:
    def __init__(self) -> None:
        self.now = 1_769_860_800_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Message:
    payload: bytes
    is_ping: bool = False


def seen(meter: Meter) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    meter.gather()
    return {
        (entity, kind.value, outcome.value): (sums.operations, sums.messages, sums.bytes)
        for (entity, kind, outcome), sums in meter.totals.items()
    }


def test_sends_count_by_steps_of_64_kb_and_pings_are_no_messages() -> None:
    """K2 and G3."""
    meter = Meter("contoso", Clock())
    sends = Sends(meter.attach("shop", "orders"))
    sends.ended([Message(b"x" * 10)], None)
    sends.ended([Message(b"x" * 10), Message(b"x" * 65_537)], None)
    sends.ended([Message(b"x" * 70_000)], ValueError())
    sends.ended([Message(b"p" * 5, is_ping=True)], None)
    sends.ended([Message(b"p" * 5, is_ping=True), Message(b"x")], None)
    sends.ended([], ValueError())  # it could not even be read
    assert seen(meter) == {
        ("orders", "send", "done"): (5, 4, 65_558),
        ("orders", "send", "failed"): (3, 1, 70_000),
        ("orders", "ping", "done"): (2, 0, 10),
    }


@pytest.mark.parametrize(("sizes", "count"), [([], 1), ([1], 1), ([65_536] * 3, 3), ([65_537, 1], 3)])
def test_charged_is_the_rule_of_the_ledger(sizes: list[int], count: int) -> None:
    assert charged(sizes) == count


def test_a_poll_is_empty_when_nothing_came_until_the_next() -> None:
    counter = Counter()
    polls = Polls(counter)
    polls.asked(0, 0)  # attached
    polls.asked(1, 1000)
    polls.asked(1, 1000 + REPEATED - 1)  # the SDK says it twice
    assert counter.done.operations == 0
    polls.asked(1, 2000)
    assert counter.done.operations == 1
    polls.given()
    polls.asked(1, 3000)
    assert counter.done.operations == 1
    polls.asked(0, 3001)  # the credit is taken back
    assert counter.done.operations == 2
    polls.asked(5, 4000)
    polls.ended()
    polls.ended()
    assert (counter.done.operations, counter.done.messages) == (3, 0)


def test_a_second_becomes_one_record_for_all_that_was_alike() -> None:
    clock = Clock()
    meter = Meter("contoso", clock)
    meter.keeps_records = True
    one, other, third = (meter.attach(client, "orders") for client in ("shop", "shop", "store"))
    for link in (one, other, third):
        link[Kind.SEND].ended(None, 1, 1, 10)
    one[Kind.COMPLETE].ended(ValueError(), 1, 1, 0)
    meter.count_management("curl", "orders", failed=True)
    records = meter.records()
    assert {
        (each.client, each.entity, each.kind, each.stage, each.outcome, each.operations, each.messages, each.bytes)
        for each in records
    } == {
        ("shop", "orders", Kind.SEND, Stage.DIRECT, Outcome.DONE, 2, 2, 20),
        ("store", "orders", Kind.SEND, Stage.DIRECT, Outcome.DONE, 1, 1, 10),
        ("shop", "orders", Kind.COMPLETE, Stage.DIRECT, Outcome.FAILED, 1, 1, 0),
        ("curl", "orders", Kind.MANAGEMENT, Stage.SETUP, Outcome.FAILED, 1, 0, 0),
    }
    assert {(each.metered_by, each.namespace, each.at.isoformat()) for each in records} == {
        (MeteredBy.BROKER, "contoso", "2026-01-31T12:00:00+00:00")
    }
    assert len({each.id for each in records}) == 4
    assert meter.records() == []


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        (Kind.SEND, Stage.PARK),
        (Kind.RECEIVE, Stage.SYPHON),
        (Kind.COMPLETE, Stage.SYPHON),
        (Kind.EMPTY_RECEIVE, Stage.IDLE),
        (Kind.PING, Stage.PING),
    ],
)
def test_the_stage_shows_in_the_backlog_queues(kind: Kind, stage: Stage) -> None:
    meter = Meter("fabrikam", Clock())
    meter.keeps_records = True
    meter.attach("shop", "contoso/X-ServiceBus-Transfer/0")[kind].ended(None, 1, 1, 1)
    assert [record.stage for record in meter.records()] == [stage]


def test_what_is_answered_after_a_link_has_gone_counts_and_then_the_link_is_forgotten() -> None:
    clock = Clock()
    meter = Meter("contoso", clock)
    link = meter.attach("shop", "orders")
    meter.detach(link)
    assert len(meter) == 0
    link[Kind.SEND].ended(None, 1, 1, 10)  # durable only now
    assert seen(meter) == {("orders", "send", "done"): (1, 1, 10)}
    clock.now += 60_000
    meter.tick(clock.now)
    assert meter.links == {}
    assert seen(meter) == {("orders", "send", "done"): (1, 1, 10)}
