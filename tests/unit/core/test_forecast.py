"""What a pairing will cost: K2, K3, Y2."""

import math
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.charging import Direction
from pairbus.core.forecast import PING_BYTES, Forecast, Scenario, forecast
from pairbus.core.ledger import Kind, Stage
from pairbus.core.pricing import BandwidthPrice, Plan, Tier
from pairbus.errors import OptionError

PLAN = Plan(
    "standard",
    "USD",
    date(2025, 1, 1),
    13_500_000,
    (Tier(13_000_000, 0), Tier(100_000_000, 800_000_000), Tier(None, 500_000_000)),
    (BandwidthPrice(Direction.SEND, Stage.PARK, 20_000_000), BandwidthPrice(Direction.RECEIVE, Stage.SYPHON, 10**9)),
)
A_DAY = 86_400


def of(**fields: Any) -> Forecast:  # noqa: ANN401 (the fields of a scenario)
    return forecast(Scenario(**fields), PLAN)


def counted(made: Forecast) -> dict[Stage, dict[Kind, int]]:
    return {stage: dict(cost.operations) for stage, cost in made.stages.items()}


def test_a_scenario_is_by_default_the_defaults_of_a_pairing_for_a_month_without_traffic() -> None:
    assert Scenario() == Scenario(
        days=30,
        backlog_queues=10,
        clients=1,
        entities=1,
        subscriptions=1,
        syphons=1,
        messages_per_day=0,
        message_bytes=1_024,
        outages_per_month=0,
        outage_seconds=0,
        failover_interval=60,
        ping_interval=60,
    )


def test_y2_ten_idle_queues_cost_28_800_receives_in_30_days() -> None:
    made = of(backlog_queues=10, days=30)
    assert made.idle_receives == 28_800
    assert made.operations == 28_800
    assert counted(made)[Stage.IDLE] == {Kind.EMPTY_RECEIVE: 28_800}


@pytest.mark.parametrize(
    ("scenario", "receives"),
    [
        ({}, 28_800),
        ({"days": 1}, 960),
        ({"days": 1, "backlog_queues": 1}, 96),
        ({"days": 1, "syphons": 3}, 2_880),
        ({"syphons": 0}, 0),
    ],
)
def test_y2_idle_receives_by_queue_day_and_syphon(scenario: dict[str, int], receives: int) -> None:
    assert of(**scenario).idle_receives == receives


def test_k2_a_direct_message_costs_two_operations() -> None:
    made = of(days=1, messages_per_day=1_000, syphons=0)
    assert counted(made)[Stage.DIRECT] == {Kind.SEND: 1_000, Kind.RECEIVE: 1_000}
    assert (made.operations, made.parked_messages) == (2_000, 0)


def test_k2_a_message_by_way_of_the_backlog_costs_four_operations() -> None:
    """K2: sent to the backlog, received from it, sent to the primary, received from the primary."""
    made = of(
        days=30,
        messages_per_day=1_000,
        outages_per_month=1,
        outage_seconds=30 * A_DAY,
        failover_interval=0,
        ping_interval=30 * A_DAY,
    )
    assert made.parked_messages == 30_000
    assert counted(made) == {
        Stage.DIRECT: {Kind.SEND: 0, Kind.RECEIVE: 30_000},
        Stage.PARK: {Kind.SEND: 30_000},
        Stage.SYPHON: {Kind.RECEIVE: 30_000, Kind.SEND: 30_000},
        Stage.PING: {Kind.PING: 1},
        Stage.IDLE: {Kind.EMPTY_RECEIVE: 28_800},
    }
    assert made.operations - made.idle_receives - 1 == 4 * 30_000


@pytest.mark.parametrize(("size", "each"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (200_000, 4)])
def test_k2_size_counts_in_steps_of_64_kb(size: int, each: int) -> None:
    made = of(days=1, messages_per_day=10, message_bytes=size)
    assert counted(made)[Stage.DIRECT] == {Kind.SEND: 10 * each, Kind.RECEIVE: 10 * each}


def test_k2_the_steps_of_a_large_message_count_at_every_stage() -> None:
    made = of(messages_per_day=A_DAY, message_bytes=131_073, outages_per_month=1, outage_seconds=600, ping_interval=270)
    assert made.parked_messages == 600
    assert counted(made) == {
        Stage.DIRECT: {Kind.SEND: 3 * (30 * A_DAY - 600), Kind.RECEIVE: 3 * 30 * A_DAY},
        Stage.PARK: {Kind.SEND: 1_800},
        Stage.SYPHON: {Kind.RECEIVE: 1_800, Kind.SEND: 1_800},
        Stage.PING: {Kind.PING: 2},
        Stage.IDLE: {Kind.EMPTY_RECEIVE: 28_800},
    }


def test_k2_bandwidth_is_forecast_in_all_stages() -> None:
    """A parked message is transferred four times; pings are charged for both."""
    made = of(messages_per_day=A_DAY, message_bytes=100_000, outages_per_month=1, outage_seconds=600, ping_interval=270)
    assert made.parked_messages == 600
    parked, sent = 600 * 100_000, 30 * A_DAY * 100_000
    assert {stage: dict(cost.bytes) for stage, cost in made.stages.items()} == {
        Stage.DIRECT: {Kind.SEND: sent - parked, Kind.RECEIVE: sent},
        Stage.PARK: {Kind.SEND: parked},
        Stage.SYPHON: {Kind.RECEIVE: parked, Kind.SEND: parked},
        Stage.PING: {Kind.PING: 2 * PING_BYTES},
        Stage.IDLE: {Kind.EMPTY_RECEIVE: 0},
    }
    assert made.stages[Stage.SYPHON].total_bytes == 2 * parked
    assert made.bytes == 2 * sent + 2 * parked + 2 * PING_BYTES
    assert {stage: cost.bandwidth_nanos for stage, cost in made.stages.items()} == {
        Stage.DIRECT: 0,
        Stage.PARK: 1_200_000,  # 0.06 GB at 0.02
        Stage.SYPHON: 60_000_000,  # 0.06 GB at 1, and the way to the primary is free
        Stage.PING: 0,
        Stage.IDLE: 0,
    }
    assert made.bandwidth_nanos == 61_200_000
    assert made.total_nanos == made.base_nanos + made.charge_nanos + 61_200_000


@pytest.mark.parametrize("subscriptions", [0, 1, 3])
def test_k3_each_subscription_receives_each_message(subscriptions: int) -> None:
    made = of(days=1, messages_per_day=10, subscriptions=subscriptions)
    assert counted(made)[Stage.DIRECT] == {Kind.SEND: 10, Kind.RECEIVE: 10 * subscriptions}


@pytest.mark.parametrize(
    ("scenario", "parked"),
    [
        ({"outage_seconds": 600}, 600),
        ({"outage_seconds": 600, "outages_per_month": 2}, 1_200),
        ({"outage_seconds": 600, "days": 15}, 300),
        ({"outage_seconds": 60}, 0),
        ({"outage_seconds": 61}, 120),  # G2: until the first ping that is accepted
        ({"outage_seconds": 600, "ping_interval": 1800}, 1_860),
        ({"outage_seconds": 60, "failover_interval": 0}, 60),
        ({"outage_seconds": 0, "failover_interval": 0}, 0),
        ({"outage_seconds": A_DAY, "outages_per_month": 99, "days": 1}, A_DAY),
    ],
)
def test_k3_the_messages_of_an_outage_that_outlasts_the_failover_interval_are_parked(
    scenario: dict[str, float], parked: int
) -> None:
    """S6: those held before failover engages are parked as well. One message a second."""
    made = of(**{"messages_per_day": A_DAY, "outages_per_month": 1, **scenario})
    assert made.parked_messages == parked
    assert counted(made)[Stage.PARK] == {Kind.SEND: parked}


@pytest.mark.parametrize(
    ("scenario", "pings"),
    [
        ({}, 9),
        ({"ping_interval": 50}, 11),
        ({"ping_interval": 3_600}, 1),
        ({"clients": 3, "entities": 2}, 54),
        ({"outages_per_month": 4}, 36),
        ({"outages_per_month": 4, "days": 15}, 18),
        ({"failover_interval": 0}, 10),
        ({"failover_interval": 600}, 0),
        ({"outages_per_month": 0}, 0),
    ],
)
def test_g1_pings_while_failover_is_engaged(scenario: dict[str, float], pings: int) -> None:
    """G1: every interval, the first after one interval, per entity per client, until one is accepted."""
    made = of(**{"outages_per_month": 1, "outage_seconds": 600, **scenario})
    assert counted(made)[Stage.PING] == {Kind.PING: pings}


def test_k3_a_month_in_money() -> None:
    made = of(messages_per_day=1_000_000)
    assert made.operations == 60_028_800
    assert made.charge_nanos == 37_623_040_000  # 47,028,800 beyond the free quota at 0.80 a million
    assert made.base_nanos == 9_720_000_000
    assert made.total_nanos == 47_343_040_000
    assert made.plan is PLAN


@pytest.mark.parametrize(
    ("days", "charge"),
    [
        (30, 37_623_040_000),
        (60, 75_246_080_000),
        (45, 51_234_560_000),  # 17,014,400 of the half month are beyond its free quota
        (1, 0),
    ],
)
def test_k3_each_month_begins_with_its_free_quota(days: int, charge: int) -> None:
    assert of(days=days, messages_per_day=1_000_000).charge_nanos == charge


def test_k3_stages_share_the_charge_by_their_operations() -> None:
    even = Plan("even", "EUR", date(2026, 1, 31), 0, (Tier(None, 1_000_000),))
    made = forecast(Scenario(messages_per_day=1_000), even)
    assert {stage: cost.nanos for stage, cost in made.stages.items()} == {
        Stage.DIRECT: 60_000,
        Stage.PARK: 0,
        Stage.SYPHON: 0,
        Stage.PING: 0,
        Stage.IDLE: 28_800,
    }
    assert made.stages[Stage.DIRECT].total == 60_000


@given(
    st.builds(
        Scenario,
        days=st.integers(1, 400),
        backlog_queues=st.integers(1, 50),
        clients=st.integers(1, 20),
        entities=st.integers(1, 20),
        subscriptions=st.integers(0, 5),
        syphons=st.integers(0, 3),
        messages_per_day=st.integers(0, 10**9),
        message_bytes=st.integers(0, 10**6),
        outages_per_month=st.floats(0, 100),
        outage_seconds=st.floats(0, 10**6),
        failover_interval=st.floats(0, 3600),
        ping_interval=st.floats(1, 1800),
    )
)
def test_k3_stages_add_up_to_the_whole(scenario: Scenario) -> None:
    made = forecast(scenario, PLAN)
    assert sum(cost.nanos for cost in made.stages.values()) == made.charge_nanos
    assert sum(cost.total for cost in made.stages.values()) == made.operations
    assert sum(cost.bandwidth_nanos for cost in made.stages.values()) == made.bandwidth_nanos
    assert made.total_nanos == made.base_nanos + made.charge_nanos + made.bandwidth_nanos
    assert 0 <= made.parked_messages <= scenario.messages_per_day * scenario.days
    assert all(count >= 0 for kinds in counted(made).values() for count in kinds.values())


@pytest.mark.parametrize(
    ("field", "least"),
    [
        *((field, 1) for field in ("days", "backlog_queues", "clients", "entities", "ping_interval")),
        *((field, 0) for field in ("subscriptions", "syphons", "messages_per_day", "message_bytes")),
        *((field, 0) for field in ("outages_per_month", "outage_seconds", "failover_interval")),
    ],
)
def test_k3_a_scenario_has_lower_bounds(field: str, least: int) -> None:
    of(**{field: least})
    for value in (least - 1, least - 0.001, math.nan, -math.inf):
        with pytest.raises(OptionError) as caught:
            of(**{field: value})
        assert (caught.value.option, caught.value.value) == (field, value)


@pytest.mark.parametrize(("field", "value", "least"), [("days", 0, 1), ("syphons", -1, 0), ("ping_interval", 0.5, 1)])
def test_k3_a_refusal_tells_the_bound(field: str, value: float, least: int) -> None:
    with pytest.raises(OptionError, match=f"^{field}={value} is not valid: at least {least}$"):
        of(**{field: value})


def test_k3_without_a_syphon_parked_messages_stay_where_they_are() -> None:
    made = of(days=1, messages_per_day=A_DAY, outages_per_month=30, outage_seconds=600, syphons=0)
    assert counted(made)[Stage.PARK] == {Kind.SEND: 600}
    assert counted(made)[Stage.SYPHON] == {Kind.RECEIVE: 0, Kind.SEND: 0}
    assert counted(made)[Stage.DIRECT] == {Kind.SEND: A_DAY - 600, Kind.RECEIVE: A_DAY - 600}


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        ("ping_interval", 0.5, "at least 1"),
        ("outage_seconds", float("inf"), "at least 0"),
        ("messages_per_day", 0.5, "a whole number, at least 0"),
        ("days", True, "a whole number, at least 1"),
        ("failover_interval", "1", "a number, at least 0"),
    ],
)
def test_k3_a_scenario_that_makes_no_sense_is_refused(option: str, value: object, valid: str) -> None:
    with pytest.raises(OptionError) as caught:
        Scenario(**{option: value})  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == f"{option}={value!r} is not valid: {valid}"
