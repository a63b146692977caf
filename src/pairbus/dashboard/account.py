"""What the ledger adds up to: messages per second, and operations, bytes and money of the month. Pure.

A ledger may have been written by clients, by brokers, or by both, which then tell of the same operations twice. Clients
know at which stage of its way a message is, so rates are theirs if there are any; brokers see every client, those
without pairbus too, so money is theirs if there is any.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from pairbus.core.charging import charged_operations, transferred_bytes
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Record, Stage
from pairbus.core.pricing import Plan, share
from pairbus.dashboard.health import Heard, Voices

_REMEMBERED: Final = 50_000
"""Ids of records that are remembered, so that one which was written twice counts once."""
_SENDS: Final = frozenset({Kind.SEND, Kind.SCHEDULE})
_SYPHONS: Final = frozenset({Stage.SYPHON, Stage.IDLE})


@dataclass(frozen=True, slots=True)
class Window:
    """How much of the past is shown, in how many steps."""

    name: str
    title: str
    step: int
    """Seconds."""
    steps: int

    @property
    def seconds(self) -> int:
        """How long it is."""
        return self.step * self.steps


WINDOWS: Final = (
    Window("5m", "5 minutes", 3, 100),
    Window("1h", "1 hour", 30, 120),
    Window("24h", "24 hours", 900, 96),
)


class Flow(NamedTuple):
    """Messages: sent straight to the primary, parked, and carried home by the syphon."""

    sent: float = 0
    parked: float = 0
    delivered: float = 0

    def plus(self, other: "Flow") -> "Flow":
        """Add another."""
        return Flow(self.sent + other.sent, self.parked + other.parked, self.delivered + other.delivered)

    def per(self, seconds: float) -> "Flow":
        """Return it as messages per second."""
        return Flow(self.sent / seconds, self.parked / seconds, self.delivered / seconds)


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second in each step of a window, the oldest first; ``end`` is the end of the last step."""

    window: Window
    end: datetime
    steps: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class StageCost:
    """Operations, bytes and money of one stage.

    :ivar nanos: what the operations cost.
    :ivar bytes: what was transferred, and left a region where the plan has a price for it.
    """

    stage: Stage
    operations: int
    nanos: int
    bytes: int
    bandwidth_nanos: int


@dataclass(frozen=True, slots=True)
class Costs:
    """What this calendar month has cost so far.

    :ivar by: who has counted; None: nobody.
    :ivar base_nanos: the base charge of the namespaces since the month began.
    """

    plan: Plan
    by: MeteredBy | None
    stages: tuple[StageCost, ...]
    namespaces: int
    base_nanos: int

    @property
    def operations(self) -> int:
        """All of them."""
        return sum(stage.operations for stage in self.stages)

    @property
    def bytes(self) -> int:
        """All that was transferred."""
        return sum(stage.bytes for stage in self.stages)

    @property
    def bandwidth_nanos(self) -> int:
        """What these bytes cost."""
        return sum(stage.bandwidth_nanos for stage in self.stages)

    @property
    def nanos(self) -> int:
        """What the operations and the bytes cost."""
        return sum(stage.nanos for stage in self.stages) + self.bandwidth_nanos


class Account:
    """Takes records, and tells what they add up to."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        self.voices: Final = Voices()
        self.records = 0
        self.dropped = 0
        """Records that found no room when the ledger was written: the figures are too low by them."""
        self.syphon_seen: datetime | None = None
        """When a syphon was at work for the last time, or waited."""
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._flows: dict[MeteredBy, dict[int, dict[int, Flow]]] = {
            side: {window.step: {} for window in WINDOWS} for side in MeteredBy
        }
        self._operations: defaultdict[tuple[MeteredBy, str, str], Counter[Stage]] = defaultdict(Counter)
        self._bytes: defaultdict[tuple[MeteredBy | None, str], Counter[tuple[Stage, Kind]]] = defaultdict(Counter)

    def take(self, heard: Iterable[Heard]) -> None:
        """Take records, in the order in which they were written."""
        for each in heard:
            record = each.record
            if record.id in self._seen:
                continue
            self._seen[record.id] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            self.records += 1
            if record.kind is Kind.DROPPED:
                self.dropped += record.messages
                continue
            self.voices.take(each)
            if record.stage in _SYPHONS and (self.syphon_seen is None or record.at > self.syphon_seen):
                self.syphon_seen = record.at
            if record.outcome is not Outcome.FAILED:
                self._charge(record)
            flow = _flow(record)
            if flow is not None:
                self._count(record, flow)

    def _charge(self, record: Record) -> None:
        month = _month(record.at)
        charged = charged_operations(record.kind, record.operations)
        if charged:
            self._operations[record.metered_by, month, record.namespace][record.stage] += charged
        size = transferred_bytes(record.kind, record.bytes)
        if size:
            self._bytes[record.metered_by, month][record.stage, record.kind] += size

    def _count(self, record: Record, flow: Flow) -> None:
        second = int(record.at.timestamp())
        for step, flows in self._flows[record.metered_by].items():
            index = second // step
            flows[index] = flows.get(index, Flow()).plus(flow)

    def forget(self, now: datetime) -> None:
        """Drop what no window reaches any more."""
        for flows in self._flows.values():
            for window in WINDOWS:
                first = int(now.timestamp()) // window.step - window.steps - 1
                kept = flows[window.step]
                for index in [index for index in kept if index < first]:
                    del kept[index]

    def rates(self, now: datetime, window: Window) -> Rates:
        """Return messages per second in the steps of a window that have ended."""
        end = int(now.timestamp()) // window.step
        flows = self._side(window.step)
        steps = [flows.get(index, Flow()).per(window.step) for index in range(end - window.steps, end)]
        return Rates(window, datetime.fromtimestamp(end * window.step, UTC), tuple(steps))

    def _side(self, step: int) -> dict[int, Flow]:
        told = self._flows[MeteredBy.CLIENT][step]
        return told or self._flows[MeteredBy.BROKER][step]

    def costs(self, now: datetime) -> Costs:
        """Return operations, bytes and money of this month by stage."""
        month = _month(now)
        of_month = {key: counts for key, counts in self._operations.items() if key[1] == month}
        sides = {side for side, _, _ in of_month}
        by = next((side for side in (MeteredBy.BROKER, MeteredBy.CLIENT) if side in sides), None)
        of_side = [counts for (side, _, _), counts in of_month.items() if side is by]
        operations = sum(of_side, Counter[Stage]())
        stages = [stage for stage in Stage if operations[stage]]
        weights = [operations[stage] for stage in stages]
        nanos = share(self.plan.charge(sum(weights)), weights)  # tiers are those of all namespaces together
        bandwidth: Counter[Stage] = Counter()
        transferred: Counter[Stage] = Counter()
        for (stage, kind), size in self._bytes.get((by, month), Counter[tuple[Stage, Kind]]()).items():
            transferred[stage] += size
            bandwidth[stage] += self.plan.bandwidth_charge(stage, kind, size)
        costs = [
            StageCost(stage, count, due, transferred[stage], bandwidth[stage])
            for stage, count, due in zip(stages, weights, nanos, strict=True)
        ]
        hours = (now - month_start(now)).total_seconds() / 3600
        base = round(self.plan.base_nanos_per_hour * hours) * len(of_side)
        return Costs(self.plan, by, tuple(costs), len(of_side), base)


def latest(rates: Rates, seconds: int = 9) -> Flow:
    """Return messages per second over the last few steps, so that one figure does not flicker."""
    last: Sequence[Flow] = rates.steps[-max(1, seconds // rates.window.step) :]
    total = Flow()
    for flow in last:
        total = total.plus(flow)
    return total.per(len(last))


def month_start(now: datetime) -> datetime:
    """Return when the calendar month began, UTC: by it operations are charged."""
    return now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _month(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m}"


def _flow(record: Record) -> Flow | None:
    if record.kind not in _SENDS or record.outcome is not Outcome.DONE:
        return None
    match record.stage:
        case Stage.DIRECT:
            return Flow(sent=record.messages)
        case Stage.PARK:
            return Flow(parked=record.messages)
        case Stage.SYPHON:
            return Flow(delivered=record.messages)
        case _:
            return None
