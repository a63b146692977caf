"""Who lives in a world and what goes wrong in it: made from a seed, or by hand."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random

from pairbus.core.envelope import PATH, SESSION_ID, Label, PropertyValue
from pairbus.core.options import OnOutage
from pairbus.simulate.brokers import EPOCH, Fault, FaultKind, Message

TROUBLE_ENDS = 600.0
"""Everything that goes wrong in a seed's world ends by then, in seconds."""


@dataclass(frozen=True, slots=True)
class SenderSetting:
    """One sender of one client: which messages it sends, one after the other.

    :ivar gap: mean time between two sends.
    :ivar timeout: what it gives each send, None: no bound.
    :ivar batch: how many messages it sends together.
    """

    client: str
    entity: str
    messages: tuple[Message, ...]
    gap: float
    timeout: float | None = None
    starts: float = 0.0
    batch: int = 1


@dataclass(frozen=True, slots=True)
class SyphonCrash:
    """A syphon that crashes at a time, or after so many steps of one of its movers, and comes back later."""

    syphon: int
    at: float
    back_after: float
    steps: int | None = None
    queue: int = 0


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A broker's wall clock that is set."""

    secondary: bool
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Recreation:
    """A backlog queue that is deleted as soon as it is empty, from a time on, and created again at once."""

    at: float
    queue: int


@dataclass(frozen=True, slots=True)
class Stranger:
    """A message that a stranger puts into a backlog queue, which can never be delivered."""

    at: float
    queue: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A world, before anything has happened in it. Durations in seconds."""

    seed: int = 0
    failover_interval: float = 60.0
    ping_interval: float = 60.0
    on_outage: OnOutage = "hold"
    backlog_queues: int = 10
    senders: tuple[SenderSetting, ...] = ()
    primary_faults: tuple[Fault, ...] = ()
    secondary_faults: tuple[Fault, ...] = ()
    client_crashes: tuple[tuple[str, float], ...] = ()
    syphons: int = 1
    syphon_crashes: tuple[SyphonCrash, ...] = ()
    clock_steps: tuple[ClockStep, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    recreations: tuple[Recreation, ...] = ()
    trouble_ends: float = TROUBLE_ENDS


def from_seed(seed: int) -> Setting:
    """Make up a world."""
    random = Random(seed)
    entities = [f"Entity{index}" for index in range(random.randint(1, 3))]
    with_sessions = {entity for entity in entities if random.random() < 0.5}
    clients = [f"client{index}" for index in range(random.randint(1, 3))]
    backlog_queues, syphons = random.randint(1, 3), random.randint(1, 2)
    return Setting(
        seed=seed,
        failover_interval=random.choice((0.0, 5.0, 20.0, 60.0)),
        ping_interval=random.choice((1.0, 10.0, 60.0)),
        on_outage="hold" if random.random() < 0.8 else "raise",
        backlog_queues=backlog_queues,
        senders=_senders(random, clients, entities, with_sessions),
        primary_faults=tuple(_fault(random, entities, _PRIMARY_KINDS) for _ in range(random.randint(0, 4))),
        secondary_faults=tuple(_fault(random, [], _SECONDARY_KINDS) for _ in range(random.choice((0, 0, 1, 1, 2)))),
        client_crashes=tuple((client, random.uniform(0, 400)) for client in clients if random.random() < 0.15),
        syphons=syphons,
        syphon_crashes=tuple(
            SyphonCrash(
                syphon=random.randrange(syphons),
                at=random.uniform(0, TROUBLE_ENDS - 100),
                back_after=random.uniform(0.1, 90),
                steps=random.randrange(60) if random.random() < 0.7 else None,
                queue=random.randrange(backlog_queues),
            )
            for _ in range(random.choice((0, 1, 2, 4)))
        ),
        clock_steps=tuple(
            ClockStep(random.random() < 0.7, random.uniform(0, TROUBLE_ENDS), random.uniform(-90, 90))
            for _ in range(random.choice((0, 0, 1, 2)))
        ),
        strangers=tuple(_stranger(random, index) for index in range(random.choice((0, 0, 0, 1, 2)))),
        recreations=tuple(
            Recreation(random.uniform(0, TROUBLE_ENDS), random.randrange(backlog_queues))
            for _ in range(random.choice((0, 0, 1, 2, 4)))
        ),
    )


_NETWORK_KINDS = (
    FaultKind.REFUSED,
    FaultKind.SILENT,
    FaultKind.CUT,
    FaultKind.ANSWERS_LOST,
    FaultKind.SLOW,
    FaultKind.BROKEN,
    FaultKind.BUSY,
    FaultKind.FULL,
    FaultKind.NEARLY_FULL,
    FaultKind.DISABLED,
)
_PRIMARY_KINDS = (*_NETWORK_KINDS, FaultKind.DENIED, FaultKind.GONE)
_SECONDARY_KINDS = (*_NETWORK_KINDS, FaultKind.SETTLEMENTS_LOST)


def _fault(random: Random, entities: list[str], kinds: tuple[FaultKind, ...]) -> Fault:
    entity = random.choice(entities).lower() if entities and random.random() < 0.5 else None
    begins = random.uniform(0, 400)
    return Fault(random.choice(kinds), entity, begins, min(TROUBLE_ENDS, begins + random.choice((2, 20, 90, 300))))


def _senders(
    random: Random, clients: list[str], entities: list[str], with_sessions: set[str]
) -> tuple[SenderSetting, ...]:
    senders: list[SenderSetting] = []
    for client in clients:
        for entity in entities:
            for _ in range(random.randint(1, 2)):
                first = sum(len(sender.messages) for sender in senders)
                count = random.randint(2, 10)
                senders.append(
                    SenderSetting(
                        client,
                        random.choice((entity, entity.upper())),  # S1: names are compared case-insensitively
                        tuple(
                            Message(f"m{first + index}", _label(random, in_session=entity in with_sessions))
                            for index in range(count)
                        ),
                        gap=random.choice((1.0, 10.0, 40.0)),
                        timeout=random.choice((None, None, 0.01, 0.5, 5.0, 40.0, 120.0)),
                        starts=random.uniform(0, 300),
                        batch=random.choice((1, 1, 1, 3)),
                    )
                )
    return tuple(senders)


def _label(random: Random, *, in_session: bool) -> Label:
    properties: dict[str | bytes, PropertyValue] = {}
    if random.random() < 0.3:
        properties["amount"] = random.choice((1, 1.5, "much", b"\x00", True, None))
    return Label(
        session_id=f"session{random.randrange(2)}" if in_session else None,
        time_to_live=timedelta(seconds=random.randrange(1, 10**6)) if random.random() < 0.2 else None,
        scheduled_enqueue_time_utc=EPOCH + timedelta(seconds=random.randrange(10**6))
        if random.random() < 0.2
        else None,
        application_properties=properties,
    )


def _stranger(random: Random, index: int) -> Stranger:
    bad: tuple[dict[str | bytes, PropertyValue], ...] = ({}, {PATH: 7}, {PATH: "Entity0", SESSION_ID: 7})
    label = Label(application_properties=random.choice(bad))
    return Stranger(random.uniform(0, TROUBLE_ENDS), random.randrange(10), Message(f"stranger{index}", label))
