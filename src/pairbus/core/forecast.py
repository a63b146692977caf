"""What a pairing will cost, without a ledger: operations and money by stage (K2, K3)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from pairbus.core.ledger import Kind, Stage, operations
from pairbus.core.pricing import HOURS_PER_DAY, MONTH_DAYS, Plan, share
from pairbus.errors import OptionError

LONG_POLL = 15 * 60
"""How long one receive of an idle syphon lasts, in seconds (Y2)."""

_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is to be forecast. Durations are in seconds.

    :ivar clients: processes that send; each pings each entity that is failing over.
    :ivar entities: queues and topics that they send to.
    :ivar subscriptions: how often each message is received at its destination.
    :ivar syphons: processes that carry parked messages home; 0: parked messages stay where they are.
    """

    days: int = MONTH_DAYS
    backlog_queues: int = 10
    clients: int = 1
    entities: int = 1
    subscriptions: int = 1
    syphons: int = 1
    messages_per_day: int = 0
    message_bytes: int = 1024
    outages_per_month: float = 0.0
    outage_seconds: float = 0.0
    failover_interval: float = 60.0
    ping_interval: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in _AT_LEAST_ONE else 0
            whole = field.type is int
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise OptionError(field.name, value, f"a {'whole ' if whole else ''}number, at least {least}")
            if not least <= value < float("inf"):
                raise OptionError(field.name, value, f"at least {least}")


_AT_LEAST_ONE = frozenset({"days", "backlog_queues", "clients", "entities", "ping_interval"})


@dataclass(frozen=True, slots=True)
class StageCost:
    """Operations and money of one stage."""

    operations: Mapping[Kind, int]
    nanos: int

    @property
    def total(self) -> int:
        """All operations of the stage."""
        return sum(self.operations.values())


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a scenario costs.

    :ivar parked_messages: how many messages go by way of the backlog.
    :ivar base_nanos: the plan's base charge, once for the subscription.
    :ivar charge_nanos: what the operations cost beyond the free quota.
    """

    plan: Plan
    stages: Mapping[Stage, StageCost]
    parked_messages: int
    base_nanos: int
    charge_nanos: int

    @property
    def operations(self) -> int:
        """All operations."""
        return sum(stage.total for stage in self.stages.values())

    @property
    def total_nanos(self) -> int:
        """The base charge and the operations."""
        return self.base_nanos + self.charge_nanos

    @property
    def idle_receives(self) -> int:
        """Receives of the idle syphon (Y2)."""
        return self.stages[Stage.IDLE].operations[Kind.EMPTY_RECEIVE]


def forecast(scenario: Scenario, plan: Plan) -> Forecast:
    """Count a scenario's operations and price them, month by month."""
    counts, parked = _count(scenario)
    totals = [sum(kinds.values()) for kinds in counts.values()]
    charge = _charge(plan, sum(totals), scenario.days)
    nanos = share(charge, totals)
    return Forecast(
        plan,
        MappingProxyType(
            {
                stage: StageCost(MappingProxyType(kinds), cost)
                for (stage, kinds), cost in zip(counts.items(), nanos, strict=True)
            }
        ),
        parked,
        plan.base_charge(scenario.days),
        charge,
    )


def _count(scenario: Scenario) -> tuple[dict[Stage, dict[Kind, int]], int]:
    each = operations([scenario.message_bytes])
    messages = scenario.messages_per_day * scenario.days
    outages = scenario.outages_per_month * scenario.days / MONTH_DAYS
    engaged = max(0.0, scenario.outage_seconds - scenario.failover_interval)
    pings_per_outage = math.ceil(engaged / scenario.ping_interval)
    # What is sent from the first failure to the ping that is accepted goes by way of the backlog: held sends are
    # parked when failover engages.
    away = scenario.failover_interval + pings_per_outage * scenario.ping_interval if pings_per_outage else 0.0
    parked = min(messages, round(scenario.messages_per_day / (HOURS_PER_DAY * _HOUR) * away * outages))
    pings = round(outages * pings_per_outage) * scenario.clients * scenario.entities
    carried = parked if scenario.syphons else 0
    polls = scenario.days * HOURS_PER_DAY * _HOUR // LONG_POLL
    counts = {
        Stage.DIRECT: {
            Kind.SEND: (messages - parked) * each,
            Kind.RECEIVE: (messages - parked + carried) * each * scenario.subscriptions,
        },
        Stage.PARK: {Kind.SEND: parked * each},
        Stage.SYPHON: {Kind.RECEIVE: carried * each, Kind.SEND: carried * each},
        Stage.PING: {Kind.PING: pings},
        Stage.IDLE: {Kind.EMPTY_RECEIVE: polls * scenario.backlog_queues * scenario.syphons},
    }
    return counts, parked


def _charge(plan: Plan, total: int, days: int) -> int:
    """Charge the operations, which are spread evenly, by months, each of which begins with its free quota."""
    months = [min(MONTH_DAYS, days - first) for first in range(0, days, MONTH_DAYS)]
    return sum(plan.charge(operations) for operations in share(total, months))
