"""Operations and bytes to money (K2, K3). Prices are data; money is whole nano-units of a currency."""

import itertools
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, cast

from pairbus.core.charging import GB, Direction, direction_of
from pairbus.core.ledger import Kind, Stage
from pairbus.errors import PricesError

NANOS = 1_000_000_000
"""Nano-units in one unit of a currency."""

MONTH_DAYS = 30
HOURS_PER_DAY = 24
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Tier:
    """A price that holds up to so many operations in a month; None: for all that follow."""

    up_to: int | None
    nanos_per_million: int


@dataclass(frozen=True, slots=True)
class BandwidthPrice:
    """What a GB costs that is transferred in one direction at one stage (K2)."""

    direction: Direction
    stage: Stage
    nanos_per_gb: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a namespace costs.

    :ivar bandwidth: prices of bytes that leave a region; directions and stages that are not in it cost nothing.
    """

    name: str
    currency: str
    as_of: date
    base_nanos_per_hour: int
    tiers: tuple[Tier, ...]
    bandwidth: tuple[BandwidthPrice, ...] = ()

    @property
    def included_operations(self) -> int | None:
        """How many operations a month are included in the base charge; None: all of them."""
        included: int | None = 0
        for tier in self.tiers:
            if tier.nanos_per_million:
                break
            included = tier.up_to
        return included

    def charge(self, operations: int) -> int:
        """Return what so many operations in one month cost, in nano-units, without the base charge."""
        return self.charge_between(0, operations)

    def charge_between(self, before: int, after: int) -> int:
        """Return what the operations after the first ``before`` of a month cost, up to ``after``.

        Pieces add up: charging a month's hours one after the other gives the month's charge.
        """
        return self._cumulative(after) - self._cumulative(before)

    def _cumulative(self, operations: int) -> int:
        nanos_times_million = start = 0
        for tier in self.tiers:
            end = operations if tier.up_to is None else min(operations, tier.up_to)
            nanos_times_million += max(0, end - start) * tier.nanos_per_million
            start = max(start, end)
        return nanos_times_million // _MILLION

    def nanos_per_gb(self, stage: Stage, kind: Kind) -> int:
        """Return the price of a GB that operations of this kind transfer at this stage; 0 if they transfer none."""
        direction = direction_of(kind)
        prices = (price for price in self.bandwidth if (price.direction, price.stage) == (direction, stage))
        return next((price.nanos_per_gb for price in prices), 0)

    def bandwidth_charge(self, stage: Stage, kind: Kind, size: int) -> int:
        """Return what so many bytes of operations of this kind cost at this stage, rounded down to a nano-unit."""
        return size * self.nanos_per_gb(stage, kind) // GB

    def base_charge(self, days: int) -> int:
        """Return the base charge for so many days, in nano-units."""
        return self.base_nanos_per_hour * HOURS_PER_DAY * days


def share(total: int, weights: Sequence[int]) -> list[int]:
    """Share ``total`` out by weight in whole numbers that add up to it exactly."""
    whole = sum(weights)
    if whole == 0:
        return [0 for _ in weights]
    bounds = [0]
    for weight in weights:
        bounds.append(bounds[-1] + weight)
    cuts = [total * bound // whole for bound in bounds]
    return [after - before for before, after in itertools.pairwise(cuts)]


def parse_prices(text: str) -> dict[str, Plan]:
    """Read a price file; see ``prices.toml`` beside this module for its form."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PricesError(f"not a TOML file: {error}") from None
    plans = _table(document.get("plans"), "plans")
    if not plans:
        raise PricesError("plans: none given; write at least one, such as [plans.standard]")
    return {name: _plan(name, _table(plan, f"plans.{name}")) for name, plan in plans.items()}


def _plan(name: str, plan: Mapping[str, Any]) -> Plan:
    where = f"plans.{name}"
    _check_keys(plan, where, ("currency", "as_of", "base_per_hour", "tiers", "bandwidth_per_gb"))
    currency, as_of, tiers = plan.get("currency"), plan.get("as_of"), plan.get("tiers")
    if not isinstance(currency, str) or not currency:
        raise PricesError(f'{where}.currency is {currency!r}; write a currency\'s name, such as "USD"')
    if not isinstance(as_of, date) or isinstance(as_of, datetime):
        raise PricesError(f"{where}.as_of is {as_of!r}; write the day on which the prices were read, as 2026-01-31")
    if not isinstance(tiers, list) or not tiers:
        raise PricesError(f"{where}.tiers is {tiers!r}; write a list with at least one tier")
    return Plan(
        name,
        currency,
        as_of,
        _nanos(plan.get("base_per_hour", "0"), f"{where}.base_per_hour"),
        _tiers(cast("Sequence[object]", tiers), f"{where}.tiers"),
        _bandwidth(_table(plan.get("bandwidth_per_gb", {}), f"{where}.bandwidth_per_gb"), f"{where}.bandwidth_per_gb"),
    )


def _tiers(entries: Sequence[object], where: str) -> tuple[Tier, ...]:
    tiers: list[Tier] = []
    reached = 0
    for index, entry in enumerate(entries):
        tier, here = _table(entry, f"{where}[{index}]"), f"{where}[{index}]"
        _check_keys(tier, here, ("up_to", "per_million"))
        up_to = tier.get("up_to")
        if (up_to is None) != (index == len(entries) - 1):
            raise PricesError(f"{here}.up_to is {up_to!r}; every tier but the last has one, and the last has none")
        if up_to is not None and (not isinstance(up_to, int) or isinstance(up_to, bool) or up_to <= reached):
            raise PricesError(f"{here}.up_to is {up_to!r}; write a whole number above {reached}")
        tiers.append(Tier(up_to, _nanos(tier.get("per_million"), f"{here}.per_million")))
        reached = up_to or reached
    return tuple(tiers)


def _bandwidth(directions: Mapping[str, Any], where: str) -> tuple[BandwidthPrice, ...]:
    _check_keys(directions, where, [direction.value for direction in Direction])
    prices: list[BandwidthPrice] = []
    for name, stages in directions.items():
        here = f"{where}.{name}"
        table = _table(stages, here)
        _check_keys(table, here, [stage.value for stage in Stage])
        prices += [
            BandwidthPrice(Direction(name), Stage(stage), _nanos(price, f"{here}.{stage}"))
            for stage, price in table.items()
        ]
    return tuple(prices)


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PricesError(f"{where} is {value!r}; write a table")
    return cast("Mapping[str, Any]", value)


def _nanos(value: object, where: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?", value) if isinstance(value, str) else None
    if match is None:
        raise PricesError(f'{where} is {value!r}; write an amount as text, such as "0.80", with 9 decimals at most')
    return int(match[1]) * NANOS + int((match[2] or "").ljust(9, "0"))


def _check_keys(table: Mapping[str, Any], where: str, known: Collection[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise PricesError(f"{where}.{unknown[0]} is not known; write one of {', '.join(known)}")
