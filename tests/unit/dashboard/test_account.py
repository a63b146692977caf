"""Rates and money, from the ledger."""

from dataclasses import replace
from datetime import timedelta

from tests.support.records import NOON, at, heard, park, turn

from pairbus.core.charging import Direction
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Stage
from pairbus.core.pricing import BandwidthPrice, parse_prices
from pairbus.dashboard.account import WINDOWS, Account, Flow, latest, month_start
from pairbus.dashboard.health import Heard

(PLAN,) = parse_prices(
    '[plans.mine]\ncurrency = "EUR"\nas_of = 2026-01-31\nbase_per_hour = "1"\ntiers = [{ per_million = "1000000" }]\n'
).values()


def account(*records: Heard) -> Account:
    made = Account(PLAN)
    made.take(records)
    return made


def test_messages_per_second_sent_parked_and_delivered() -> None:
    made = account(
        heard(Kind.SEND, 0, messages=6),
        heard(Kind.SEND, 1, messages=9, outcome=Outcome.FAILED),
        heard(Kind.RECEIVE, 1, messages=9),
        park(2, 3),
        heard(Kind.SEND, 3, messages=30, stage=Stage.SYPHON),
        turn("engaged", 3),
    )
    rates = made.rates(at(6.5), WINDOWS[0])
    assert rates.end == at(6)
    assert rates.steps[-2:] == (Flow(2, 1, 0), Flow(0, 0, 10))
    assert sum(flow.sent for flow in rates.steps) == 2
    assert latest(rates, 6) == Flow(1, 0.5, 5)


def test_every_window_ends_now_and_old_steps_are_forgotten() -> None:
    made = account(heard(Kind.SEND, 0))
    for window in WINDOWS:
        later = at(window.seconds / 2)
        assert sum(flow.sent for flow in made.rates(later, window).steps) > 0
        assert len(made.rates(later, window).steps) == window.steps
    made.forget(at(2 * 86400))
    assert not any(any(flow) for window in WINDOWS for flow in made.rates(at(10), window).steps)


def test_k1_a_record_that_was_written_twice_counts_once() -> None:
    sent = heard(Kind.SEND, 0)
    assert account(sent, sent).records == 1


def test_records_that_found_no_room_are_counted_and_are_no_operation() -> None:
    made = account(heard(Kind.DROPPED, 0, messages=7, entity=""))
    assert (made.dropped, made.costs(at(1)).operations) == (7, 0)


def test_k3_operations_and_money_of_the_month_by_stage() -> None:
    made = account(
        heard(Kind.SEND, -40 * 86400, operations=500),  # another month
        heard(Kind.SEND, 0, operations=3),
        park(1, operations=1),
        turn("engaged", 1),
        heard(Kind.SEND, 2, operations=70, outcome=Outcome.FAILED),
        heard(Kind.COMPLETE, 2, operations=70),
    )
    costs = made.costs(at(3600))
    assert [(stage.stage, stage.operations, stage.nanos) for stage in costs.stages] == [
        (Stage.DIRECT, 3, 3 * 10**9),
        (Stage.PARK, 1, 10**9),
    ]
    assert (costs.operations, costs.nanos, costs.by, costs.namespaces) == (4, 4 * 10**9, MeteredBy.CLIENT, 2)
    hours = (at(3600) - month_start(NOON)) / timedelta(hours=1)
    assert costs.base_nanos == 2 * round(hours * 10**9)


def test_k2_bytes_and_their_money_by_stage() -> None:
    made = Account(replace(PLAN, bandwidth=(BandwidthPrice(Direction.SEND, Stage.PARK, 20_000_000),)))
    made.take([
        heard(Kind.SEND, -40 * 86400, bytes=500),  # another month
        heard(Kind.SEND, 0, bytes=1_000_000),
        heard(Kind.COMPLETE, 0, bytes=1_000_000),
        heard(Kind.SEND, 2, bytes=70, outcome=Outcome.FAILED),
        park(1, bytes=50_000_000),
        heard(Kind.PING, 2, stage=Stage.PING, bytes=150),
        heard(Kind.RECEIVE, 3, stage=Stage.SYPHON, bytes=50_000_000),
        heard(Kind.SEND, 3, stage=Stage.SYPHON, bytes=50_000_000),
    ])  # fmt: skip
    costs = made.costs(at(3600))
    assert {stage.stage: (stage.bytes, stage.bandwidth_nanos) for stage in costs.stages} == {
        Stage.DIRECT: (1_000_000, 0),
        Stage.PARK: (50_000_000, 1_000_000),
        Stage.PING: (150, 0),
        Stage.SYPHON: (100_000_000, 0),
    }
    assert (costs.bytes, costs.bandwidth_nanos) == (151_000_150, 1_000_000)
    assert costs.nanos == 5 * 10**9 + 1_000_000


def test_k2_bytes_are_those_of_the_side_that_has_counted_the_operations() -> None:
    made = account(heard(Kind.SEND, 0, bytes=10), heard(Kind.SEND, 0, bytes=17, metered_by=MeteredBy.BROKER))
    assert made.costs(at(3)).bytes == 17


def test_what_both_ends_have_counted_is_counted_once() -> None:
    """Rates by the clients, who know the stage; money by the brokers, who see everybody."""
    made = account(
        heard(Kind.SEND, 0),
        heard(Kind.SEND, 0, metered_by=MeteredBy.BROKER),
        heard(Kind.RECEIVE, 0, metered_by=MeteredBy.BROKER),
    )
    assert sum(flow.sent for flow in made.rates(at(3), WINDOWS[0]).steps) * WINDOWS[0].step == 1
    assert (made.costs(at(3)).by, made.costs(at(3)).operations) == (MeteredBy.BROKER, 2)
    of_broker = account(heard(Kind.SEND, 0, metered_by=MeteredBy.BROKER))
    assert sum(flow.sent for flow in of_broker.rates(at(3), WINDOWS[0]).steps) > 0


def test_without_records_nothing_is_known() -> None:
    costs = account().costs(NOON)
    assert (costs.by, costs.operations, costs.bytes, costs.base_nanos) == (None, 0, 0, 0)
