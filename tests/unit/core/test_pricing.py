"""Operations to money: K3."""

import itertools
import tomllib
from datetime import date
from fractions import Fraction
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.charging import Direction
from pairbus.core.ledger import Kind, Stage
from pairbus.core.pricing import BandwidthPrice, Plan, Tier, parse_prices, share
from pairbus.errors import PricesError

SHIPPED = resources.files("pairbus.core").joinpath("prices.toml").read_text(encoding="utf-8")

STANDARD = Plan(
    "standard",
    "USD",
    date(2025, 1, 1),
    13_500_000,
    (
        Tier(13_000_000, 0),
        Tier(100_000_000, 800_000_000),
        Tier(2_500_000_000, 500_000_000),
        Tier(None, 200_000_000),
    ),
    (
        BandwidthPrice(Direction.SEND, Stage.DIRECT, 0),
        BandwidthPrice(Direction.SEND, Stage.PING, 0),
        BandwidthPrice(Direction.SEND, Stage.PARK, 20_000_000),
        BandwidthPrice(Direction.SEND, Stage.SYPHON, 0),
        BandwidthPrice(Direction.RECEIVE, Stage.DIRECT, 0),
        BandwidthPrice(Direction.RECEIVE, Stage.SYPHON, 20_000_000),
    ),
)

GOOD = """
[plans.mine]
currency = "EUR"
as_of = 2026-01-31
base_per_hour = "0.01"
tiers = [{ up_to = 100, per_million = "0" }, { up_to = 200, per_million = "1.5" }, { per_million = "0.000000001" }]
"""


def plan_of(bounds: set[int], prices: list[int]) -> Plan:
    return Plan("any", "EUR", date(2026, 1, 31), 0, tuple(map(Tier, [*sorted(bounds), None], prices)))


plans = st.builds(
    plan_of,
    st.sets(st.integers(1, 10**10), min_size=3, max_size=3),
    st.lists(st.integers(0, 10**10), min_size=4, max_size=4),
)
amounts = st.integers(0, 2 * 10**10)


def test_k3_the_shipped_prices_can_be_read() -> None:
    prices = parse_prices(SHIPPED)
    assert prices.keys() == {"standard", "basic", "premium"}
    assert prices["standard"] == STANDARD
    assert prices["basic"].tiers == (Tier(None, 50_000_000),)
    assert prices["premium"].tiers == (Tier(None, 0),)
    assert prices["premium"].base_nanos_per_hour == 927_500_000


def test_k3_prices_are_data_that_the_user_can_replace() -> None:
    assert parse_prices(GOOD) == {
        "mine": Plan(
            "mine",
            "EUR",
            date(2026, 1, 31),
            10_000_000,
            (Tier(100, 0), Tier(200, 1_500_000_000), Tier(None, 1)),
        )
    }


def test_k3_a_plan_may_have_no_base_charge() -> None:
    assert parse_prices(GOOD.replace('base_per_hour = "0.01"', ""))["mine"].base_nanos_per_hour == 0


@pytest.mark.parametrize(
    ("operations", "nanos"),
    [
        (0, 0),
        (12_999_999, 0),
        (13_000_000, 0),
        (13_000_001, 800),
        (14_000_000, 800_000_000),
        (100_000_000, 69_600_000_000),
        (100_000_001, 69_600_000_500),
        (2_500_000_000, 1_269_600_000_000),
        (2_500_000_001, 1_269_600_000_200),
        (3_500_000_000, 1_469_600_000_000),
    ],
)
def test_k3_tiers_are_filled_one_after_the_other(operations: int, nanos: int) -> None:
    assert STANDARD.charge(operations) == nanos


def test_k3_without_a_free_quota_the_first_operation_is_charged() -> None:
    basic = parse_prices(SHIPPED)["basic"]
    assert [basic.charge(operations) for operations in (0, 1, 2, 1_000_000)] == [0, 50, 100, 50_000_000]


def test_k3_a_piece_is_priced_where_it_lies_in_the_month() -> None:
    assert STANDARD.charge_between(0, 13_000_000) == 0
    assert STANDARD.charge_between(12_999_999, 13_000_001) == 800
    assert STANDARD.charge_between(99_999_999, 100_000_001) == 1_300
    assert STANDARD.charge_between(5, 5) == 0


def test_k3_what_is_less_than_a_nano_unit_is_carried_on() -> None:
    cheap = Plan("cheap", "EUR", date(2026, 1, 31), 0, (Tier(None, 1),))
    assert [cheap.charge(operations) for operations in (999_999, 1_000_000, 1_999_999)] == [0, 1, 1]
    assert [cheap.charge_between(before, before + 400_000) for before in (0, 400_000, 800_000)] == [0, 0, 1]


@given(plans, st.lists(amounts, max_size=8))
def test_k3_pieces_of_a_month_add_up_to_the_month(plan: Plan, cuts: list[int]) -> None:
    hours = [0, *sorted(cuts)]
    pieces = [plan.charge_between(before, after) for before, after in itertools.pairwise(hours)]
    assert sum(pieces) == plan.charge(hours[-1])
    assert all(piece >= 0 for piece in pieces)


@pytest.mark.parametrize(("days", "nanos"), [(0, 0), (1, 324_000_000), (30, 9_720_000_000)])
def test_k3_the_base_charge_is_by_the_hour(days: int, nanos: int) -> None:
    assert STANDARD.base_charge(days) == nanos


@pytest.mark.parametrize(("name", "free"), [("standard", 13_000_000), ("basic", 0), ("premium", None)])
def test_k3_operations_that_the_base_charge_includes(name: str, free: int | None) -> None:
    assert parse_prices(SHIPPED)[name].included_operations == free


BANDWIDTH = """
[plans.mine.bandwidth_per_gb]
send = { park = "0.02", ping = "3" }
receive = { syphon = "0.000000001", direct = "0" }
"""


def test_k2_every_shipped_plan_has_a_price_for_each_transfer_of_a_message() -> None:
    for plan in parse_prices(SHIPPED).values():
        assert {(price.direction.value, price.stage.value) for price in plan.bandwidth} == {
            *(("send", stage) for stage in ("direct", "ping", "park", "syphon")),
            *(("receive", stage) for stage in ("direct", "syphon")),
        }


@pytest.mark.parametrize(
    ("stage", "kind", "size", "nanos"),
    [
        (Stage.PARK, Kind.SEND, 10**9, 20_000_000),  # a GB is 10^9 bytes
        (Stage.PARK, Kind.SCHEDULE, 2 * 10**9, 40_000_000),
        (Stage.PARK, Kind.SEND, 49, 0),
        (Stage.PARK, Kind.SEND, 50, 1),  # rounded down
        (Stage.PARK, Kind.SEND, 99, 1),
        (Stage.PING, Kind.PING, 1_000, 3_000),
        (Stage.SYPHON, Kind.RECEIVE, 10**9 - 1, 0),
        (Stage.SYPHON, Kind.PEEK, 10**9, 1),
        (Stage.DIRECT, Kind.RECEIVE, 10**15, 0),  # zero where the list says so
        (Stage.SYPHON, Kind.SEND, 10**15, 0),  # or says nothing
        (Stage.PARK, Kind.RECEIVE, 10**15, 0),
        (Stage.PARK, Kind.COMPLETE, 10**15, 0),  # which transfers no message
        (Stage.PARK, Kind.SEND, 0, 0),
    ],
)
def test_k2_bytes_are_priced_by_direction_and_stage(stage: Stage, kind: Kind, size: int, nanos: int) -> None:
    assert parse_prices(GOOD + BANDWIDTH)["mine"].bandwidth_charge(stage, kind, size) == nanos


def test_k2_without_prices_of_bandwidth_bytes_are_free() -> None:
    plan = parse_prices(GOOD)["mine"]
    assert plan.bandwidth == ()
    assert plan.bandwidth_charge(Stage.PARK, Kind.SEND, 10**15) == 0


@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        ("send = {", "out = {", "plans.mine.bandwidth_per_gb.out is not known; write one of send, receive"),
        ("park", "parked", "plans.mine.bandwidth_per_gb.send.parked is not known; write one of direct, park, "),
        ('"0.02"', "0.02", "plans.mine.bandwidth_per_gb.send.park is 0.02; write an amount as text"),
        (
            'send = { park = "0.02", ping = "3" }',
            'send = "1"',
            "plans.mine.bandwidth_per_gb.send is '1'; write a table",
        ),
    ],
)
def test_k2_wrong_prices_of_bandwidth_are_refused_by_name(old: str, new: str, entry: str) -> None:
    with pytest.raises(PricesError) as caught:
        parse_prices(GOOD + BANDWIDTH.replace(old, new))
    assert str(caught.value).startswith(entry)


def test_k2_prices_of_bandwidth_are_a_table() -> None:
    with pytest.raises(PricesError, match=r"^plans\.mine\.bandwidth_per_gb is 1; write a table$"):
        parse_prices(GOOD + "bandwidth_per_gb = 1\n")


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (10, [1, 1, 1], [3, 3, 4]),
        (100, [1, 3], [25, 75]),
        (7, [0, 5, 0], [0, 7, 0]),
        (0, [1, 2], [0, 0]),
        (5, [0, 0], [0, 0]),
        (5, [], []),
    ],
)
def test_k3_shares_by_weight(total: int, weights: list[int], shares: list[int]) -> None:
    assert share(total, weights) == shares


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**12), min_size=1).filter(any))
def test_k3_shares_add_up_exactly(total: int, weights: list[int]) -> None:
    shares = share(total, weights)
    assert sum(shares) == total
    for part, weight in zip(shares, weights, strict=True):
        assert abs(part - Fraction(total * weight, sum(weights))) < 1
        assert part == 0 or weight > 0


@pytest.mark.parametrize("text", ["", "title = 'no plans'", "plans = 1", "plans = []"])
def test_k3_a_price_file_without_plans_is_refused(text: str) -> None:
    plans_given = tomllib.loads(text).get("plans")
    with pytest.raises(PricesError) as caught:
        parse_prices(text)
    assert str(caught.value) == f"plans is {plans_given!r}; write a table"


def test_k3_a_price_file_with_an_empty_list_of_plans_is_refused() -> None:
    with pytest.raises(PricesError, match=r"^plans: none given; write at least one, such as \[plans\.standard\]$"):
        parse_prices("[plans]")


@pytest.mark.parametrize("text", ["[plans", "plans = ", "[plans.a]\n[plans.a]"])
def test_k3_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(PricesError, match=r"^not a TOML file: "):
        parse_prices(text)


@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        ('"EUR"', "978", "plans.mine.currency is 978;"),
        ('"EUR"', '""', "plans.mine.currency is '';"),
        ('currency = "EUR"', "", "plans.mine.currency is None;"),
        ("2026-01-31", '"2026-01-31"', "plans.mine.as_of is '2026-01-31';"),
        ("as_of = 2026-01-31", "", "plans.mine.as_of is None;"),
        ('"0.01"', "0.01", "plans.mine.base_per_hour is 0.01;"),
        ('"0.01"', '"-0.01"', "plans.mine.base_per_hour is '-0.01';"),
        ('"0.01"', '"free"', "plans.mine.base_per_hour is 'free';"),
        ('"0.01"', '""', "plans.mine.base_per_hour is '';"),
        ('"0.01"', '"NaN"', "plans.mine.base_per_hour is 'NaN';"),
        ('"0.01"', '"sNaN"', "plans.mine.base_per_hour is 'sNaN';"),
        ('"0.01"', '"Infinity"', "plans.mine.base_per_hour is 'Infinity';"),
        ('"0.01"', '"0.0000000001"', "plans.mine.base_per_hour is '0.0000000001';"),
        ('"1.5"', "1.5", "plans.mine.tiers[1].per_million is 1.5;"),
        ('per_million = "1.5"', 'price = "1.5"', "plans.mine.tiers[1].price is not known;"),
        ("up_to = 200, ", "", "plans.mine.tiers[1].up_to is None;"),
        ("up_to = 200", "up_to = 100", "plans.mine.tiers[1].up_to is 100; write a whole number above 100"),
        ("up_to = 200", "up_to = 99", "plans.mine.tiers[1].up_to is 99; write a whole number above 100"),
        ("up_to = 100", "up_to = 0", "plans.mine.tiers[0].up_to is 0; write a whole number above 0"),
        ("up_to = 100", "up_to = -1", "plans.mine.tiers[0].up_to is -1; write a whole number above 0"),
        ("up_to = 100", "up_to = 1e2", "plans.mine.tiers[0].up_to is 100.0; write a whole number above 0"),
        ("up_to = 100", "up_to = true", "plans.mine.tiers[0].up_to is True; write a whole number above 0"),
        ("up_to = 100", 'up_to = "100"', "plans.mine.tiers[0].up_to is '100'; write a whole number above 0"),
        ('{ per_million = "0.000000001" }', '{ up_to = 300, per_million = "1" }', "plans.mine.tiers[2].up_to is 300;"),
        ('{ per_million = "0.000000001" }', '"0.2"', "plans.mine.tiers[2] is '0.2'; write a table"),
    ],
)
def test_k3_a_bad_entry_is_named_with_its_value(old: str, new: str, entry: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(PricesError) as caught:
        parse_prices(GOOD.replace(old, new))
    assert str(caught.value).startswith(entry)


@pytest.mark.parametrize("tiers", ["", "tiers = []", 'tiers = "0.80"', "tiers = { per_million = '1' }"])
def test_k3_a_plan_without_tiers_is_refused(tiers: str) -> None:
    with pytest.raises(PricesError, match=r"^plans\.mine\.tiers is .*; write a list with at least one tier$"):
        parse_prices(f'[plans.mine]\ncurrency = "EUR"\nas_of = 2026-01-31\n{tiers}')


def test_k3_a_plan_that_is_no_table_is_named() -> None:
    with pytest.raises(PricesError, match=r"^plans\.mine is 'cheap'; write a table$"):
        parse_prices('[plans]\nmine = "cheap"')


@pytest.mark.parametrize("amount", ["1e9", "1_000", " 1 ", "\u0661", "1.0000000001", "-1", ".5", "1234567890123"])
def test_k3_amounts_are_written_in_one_way(amount: str) -> None:
    text = f'[plans.mine]\ncurrency = "EUR"\nas_of = 2026-01-31\ntiers = [{{ per_million = "{amount}" }}]\n'
    with pytest.raises(PricesError, match="write an amount as text"):
        parse_prices(text)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            'base_per_hours = "1"',
            "plans.mine.base_per_hours is not known; write one of currency, as_of, base_per_hour, tiers",
        ),
        ("as_of = 2026-01-31T00:00:00Z", "plans.mine.as_of is"),
    ],
)
def test_k3_a_slip_of_the_pen_is_named(line: str, says: str) -> None:
    as_of = "" if "as_of" in line else "as_of = 2026-01-31"
    text = f'[plans.mine]\ncurrency = "EUR"\n{as_of}\n{line}\ntiers = [{{ per_million = "1" }}]\n'
    with pytest.raises(PricesError) as caught:
        parse_prices(text)
    assert str(caught.value).startswith(says)
