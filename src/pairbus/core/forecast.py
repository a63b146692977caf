"""What a pairing will cost, without a ledger: operations, bytes and money by stage (K2, K3)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from pairbus.core.charging import charged_operations, transferred_bytes
from pairbus.core.ledger import Kind, Stage, operations
from pairbus.core.pricing import HOURS_PER_DAY, MONTH_DAYS, Plan, share
from pairbus.errors import OptionError

LONG_POLL = 15 * 60
"""How long one receive of an idle syphon lasts, in seconds (Y2)."""

PING_BYTES = 150
"""About how many bytes a ping has: an empty message with an id, a content type and a time to live."""

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
    """Operations, bytes and money of one stage.

    :ivar nanos: what the operations cost.
    :ivar bytes: how many bytes are transferred by operations of each kind.
    :ivar bandwidth_nanos: what these cost.
    """

    operations: Mapping[Kind, int]
    nanos: int
    bytes: Mapping[Kind, int]
    bandwidth_nanos: int

    @property
    def total(self) -> int:
        """All operations of the stage."""
        return sum(self.operations.values())

    @property
    def total_bytes(self) -> int:
        """All bytes of the stage."""
        return sum(self.bytes.values())


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a scenario costs.

    :ivar parked_messages: how many messages go by way of the backlog.
    :ivar base_nanos: the plan's base charge, once for the subscription.
    :ivar charge_nanos: what the operations cost beyond the free quota.
    :ivar bandwidth_nanos: what the bytes cost that leave a region.
    """

    plan: Plan
    stages: Mapping[Stage, StageCost]
    parked_messages: int
    base_nanos: int
    charge_nanos: int
    bandwidth_nanos: int

    @property
    def operations(self) -> int:
        """All operations."""
        return sum(stage.total for stage in self.stages.values())

    @property
    def bytes(self) -> int:
        """All bytes that are transferred."""
        return sum(stage.total_bytes for stage in self.stages.values())

    @property
    def total_nanos(self) -> int:
        """The base charge, the operations and the bandwidth."""
        return self.base_nanos + self.charge_nanos + self.bandwidth_nanos

    @property
    def idle_receives(self) -> int:
        """Receives of the idle syphon (Y2)."""
        return self.stages[Stage.IDLE].operations[Kind.EMPTY_RECEIVE]


def forecast(scenario: Scenario, plan: Plan) -> Forecast:
    """Count a scenario's operations and bytes and price them, month by month."""
    counts, parked = _count(scenario)
    operations_of = {
        stage: {kind: charged_operations(kind, count * _each(kind, scenario)) for kind, count in kinds.items()}
        for stage, kinds in counts.items()
    }
    bytes_of = {
        stage: {kind: transferred_bytes(kind, count * _size(kind, scenario)) for kind, count in kinds.items()}
        for stage, kinds in counts.items()
    }
    totals = [sum(kinds.values()) for kinds in operations_of.values()]
    charge = _charge(plan, sum(totals), scenario.days)
    stages = {
        stage: StageCost(
            MappingProxyType(operations_of[stage]),
            nanos,
            MappingProxyType(bytes_of[stage]),
            sum(plan.bandwidth_charge(stage, kind, size) for kind, size in bytes_of[stage].items()),
        )
        for stage, nanos in zip(counts, share(charge, totals), strict=True)
    }
    return Forecast(
        plan,
        MappingProxyType(stages),
        parked,
        plan.base_charge(scenario.days),
        charge,
        sum(cost.bandwidth_nanos for cost in stages.values()),
    )


def _each(kind: Kind, scenario: Scenario) -> int:
    """How many operations one of a kind is charged as."""
    return operations([_size(kind, scenario)])


def _size(kind: Kind, scenario: Scenario) -> int:
    return {Kind.PING: PING_BYTES, Kind.EMPTY_RECEIVE: 0}.get(kind, scenario.message_bytes)


def _count(scenario: Scenario) -> tuple[dict[Stage, dict[Kind, int]], int]:
    """Count messages, pings and empty receives, and tell how many messages are parked."""
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
            Kind.SEND: messages - parked,
            Kind.RECEIVE: (messages - parked + carried) * scenario.subscriptions,
        },
        Stage.PARK: {Kind.SEND: parked},
        Stage.SYPHON: {Kind.RECEIVE: carried, Kind.SEND: carried},
        Stage.PING: {Kind.PING: pings},
        Stage.IDLE: {Kind.EMPTY_RECEIVE: polls * scenario.backlog_queues * scenario.syphons},
    }
    return counts, parked


def _charge(plan: Plan, total: int, days: int) -> int:
    """Charge the operations, which are spread evenly, by months, each of which begins with its free quota."""
    months = [min(MONTH_DAYS, days - first) for first in range(0, days, MONTH_DAYS)]
    return sum(plan.charge(operations) for operations in share(total, months))
