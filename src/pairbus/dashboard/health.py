"""Where the health of each entity stands, from what the clients' ledgers say of it. Pure: it is told the time.

Every process that sends has a state machine of its own for each entity (S1), and writes down each turn of it. The page
shows one state per entity: the worst that a process says which is still heard from.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from pairbus.core.health import State
from pairbus.core.ledger import Kind, MeteredBy, Outcome, Record, Stage
from pairbus.core.naming import entity_key

SILENT_AFTER: Final = timedelta(minutes=5)
"""A process in trouble that has written nothing for so long may be gone: what it said last is no longer the state."""

_KEPT: Final = 64
"""Spells that are kept of one entity and one process."""
_SENDS: Final = frozenset({Kind.SEND, Kind.SCHEDULE})
_RANK: Final = {State.HEALTHY: 0, State.SUSPECT: 1, State.ENGAGED: 2}


@dataclass(frozen=True, slots=True)
class Heard:
    """A record, and which process wrote it."""

    writer: str
    record: Record


@dataclass(frozen=True, slots=True)
class Spell:
    """A state that was not healthy, from when to when; ``end`` None: it lasts."""

    state: State
    start: datetime
    end: datetime | None = None
    parked: int = 0


@dataclass(slots=True)
class Voice:
    """What one process says of one entity."""

    client: str
    namespace: str
    entity: str
    first_heard: datetime
    heard: datetime
    alive: datetime
    """When the process has written anything at all for the last time."""
    state: State = State.HEALTHY
    since: datetime | None = None
    parked: int = 0
    """Messages parked since the state began."""
    pings: int = 0
    """Pings that were not accepted since the state began."""
    problem: str | None = None
    """The error of the last attempt or ping that failed in this state."""
    spells: deque[Spell] = field(default_factory=lambda: deque[Spell](maxlen=_KEPT))

    def turn(self, state: State, at: datetime, parked: int) -> None:
        """Take note of a turn; the record says how many were parked in the state that ends."""
        if self.state is not State.HEALTHY and self.since is not None:
            self.spells.append(Spell(self.state, self.since, at, parked))
        self.state, self.since = state, at
        self.parked = self.pings = 0
        if state is not State.ENGAGED:  # what has engaged failover is still of interest
            self.problem = None

    def is_silent(self, now: datetime) -> bool:
        """Tell whether it said last that there is trouble, and has said nothing since."""
        return self.state is not State.HEALTHY and now - self.alive > SILENT_AFTER

    def told(self, now: datetime) -> Iterator[Spell]:
        """Give its spells, the one that lasts as well; of a silent process up to its last sign of life."""
        yield from self.spells
        if self.state is not State.HEALTHY and self.since is not None:
            yield Spell(self.state, self.since, self.alive if self.is_silent(now) else None, self.parked)


@dataclass(frozen=True, slots=True)
class EntityHealth:
    """The health of one entity, as all its clients together have it.

    :ivar since: when the state began; None: it was never anything but healthy.
    :ivar heard: when something was written of it for the last time; if it is silent, anything by who said so.
    :ivar silent: nobody who said so has written anything for a while.
    :ivar clients: those who say so, or, of a healthy entity, all.
    """

    namespace: str
    entity: str
    state: State
    since: datetime | None
    first_heard: datetime
    heard: datetime
    silent: bool
    clients: tuple[str, ...]
    all_clients: int
    parked: int
    pings: int
    problem: str | None
    spells: tuple[Spell, ...]


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which messages for an entity were parked; ``end`` None: it lasts.

    :ivar failover: how long the entity was suspect before messages were parked.
    """

    entity: str
    start: datetime
    end: datetime | None
    failover: timedelta
    parked: int


class Voices:
    """What every process says of every entity that it sends to."""

    def __init__(self) -> None:
        self._voices: dict[tuple[str, str, str], Voice] = {}
        self._alive: dict[str, datetime] = {}

    def take(self, heard: Heard) -> None:
        """Take note of a record, if it tells of an entity's health."""
        record = heard.record
        self._alive[heard.writer] = max(record.at, self._alive.get(heard.writer, record.at))
        if record.metered_by is not MeteredBy.CLIENT:
            return
        if record.stage is Stage.PARK:
            self._parked(heard)
        elif record.kind is Kind.TURN:
            state = _state(record.detail)
            if state is not None:
                self._voice(heard).turn(state, record.at, record.messages)
        elif record.kind is Kind.PING or (record.stage is Stage.DIRECT and record.kind in _SENDS):
            voice = self._voice(heard)
            if record.outcome is not Outcome.DONE:
                voice.problem = record.detail or voice.problem
                voice.pings += record.kind is Kind.PING

    def _parked(self, heard: Heard) -> None:
        record = heard.record
        voice = self._voices.get((heard.writer, record.client, entity_key(record.destination or "")))
        if voice is not None:
            voice.heard = max(voice.heard, record.at)
            if record.outcome is Outcome.DONE:
                voice.parked += record.messages

    def _voice(self, heard: Heard) -> Voice:
        record = heard.record
        key = heard.writer, record.client, entity_key(record.entity)
        voice = self._voices.get(key)
        if voice is None:
            voice = self._voices[key] = Voice(
                record.client, record.namespace, record.entity, record.at, record.at, record.at
            )
        voice.heard = max(voice.heard, record.at)
        return voice

    def entities(self, now: datetime) -> list[EntityHealth]:
        """Return the health of each entity, those in trouble first."""
        grouped: defaultdict[tuple[str, str], list[Voice]] = defaultdict(list)
        for (writer, _, _), voice in self._voices.items():
            voice.alive = self._alive[writer]
            grouped[voice.namespace, entity_key(voice.entity)].append(voice)
        found = [_together(voices, now) for voices in grouped.values()]
        return sorted(found, key=lambda each: (each.silent, -_RANK[each.state], each.entity.lower()))


def _state(detail: str | None) -> State | None:
    """Return the state that a turn names; None: one that a later version knows."""
    return next((state for state in State if state.value == detail), None)


def _together(voices: Sequence[Voice], now: datetime) -> EntityHealth:
    heard_from = [voice for voice in voices if not voice.is_silent(now)]
    silent = not heard_from
    words = [max(voices, key=lambda voice: voice.alive)] if silent else heard_from
    state = max((voice.state for voice in words), key=_RANK.__getitem__)
    saying = [voice for voice in words if voice.state is state]
    sinces = [voice.since for voice in saying if voice.since is not None]
    latest = max(voices, key=lambda voice: voice.heard)
    return EntityHealth(
        latest.namespace,
        latest.entity,
        state,
        # In trouble since the first one said so; healthy since the last one did.
        (max(sinces) if state is State.HEALTHY else min(sinces)) if sinces else None,
        min(voice.first_heard for voice in voices),
        latest.alive if silent else latest.heard,
        silent,
        tuple(sorted({voice.client for voice in saying})),
        len({voice.client for voice in words}),
        sum(voice.parked for voice in saying),
        sum(voice.pings for voice in saying),
        next((voice.problem for voice in saying if voice.problem), None),
        tuple(merged(spell for voice in voices for spell in voice.told(now))),
    )


def merged(spells: Iterable[Spell]) -> list[Spell]:
    """Lay spells over each other: at every moment the worst state of them, in the order of time."""
    given = list(spells)
    moments = {moment for spell in given for moment in (spell.start, spell.end) if moment is not None}
    starting, ending = defaultdict[datetime, list[Spell]](list), defaultdict[datetime, list[Spell]](list)
    for spell in given:
        starting[spell.start].append(spell)
        if spell.end is not None:
            ending[spell.end].append(spell)
    found: list[Spell] = []
    under_way: Counter[State] = Counter()
    current: Spell | None = None
    for moment in sorted(moments):
        under_way.subtract(spell.state for spell in ending[moment])
        under_way.update(spell.state for spell in starting[moment])
        if current is not None:
            current = replace(current, parked=current.parked + sum(spell.parked for spell in ending[moment]))
        state = max((state for state, count in under_way.items() if count), key=_RANK.__getitem__, default=None)
        if current is not None and state is not current.state:
            found.append(replace(current, end=moment))
            current = None
        if current is None and state is not None:
            current = Spell(state, moment)
    if current is not None:
        found.append(replace(current, parked=current.parked + sum(s.parked for s in given if s.end is None)))
    return found


def outages(entities: Iterable[EntityHealth], now: datetime) -> list[Outage]:
    """Return the outages of all entities, the latest first."""
    found: list[Outage] = []
    for entity in entities:
        for run in _runs(entity.spells):
            engaged = [spell for spell in run if spell.state is State.ENGAGED]
            if engaged:
                parked = sum(spell.parked for spell in engaged)
                failover = engaged[0].start - run[0].start
                found.append(Outage(entity.entity, run[0].start, run[-1].end, failover, parked))
    return sorted(found, key=lambda outage: (outage.end or now, outage.start), reverse=True)


def _runs(spells: Sequence[Spell]) -> Iterator[list[Spell]]:
    """Give spells that follow each other without a healthy moment between them."""
    run: list[Spell] = []
    for spell in spells:
        if run and run[-1].end != spell.start:
            yield run
            run = []
        run.append(spell)
    if run:
        yield run
