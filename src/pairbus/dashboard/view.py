"""What the page says first: what is the matter, and what to do about it. Pure."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pairbus.core.health import State
from pairbus.dashboard.account import WINDOWS, Account, Costs, Flow, Rates, latest
from pairbus.dashboard.health import EntityHealth, Outage, outages
from pairbus.dashboard.snapshot import Look, Role
from pairbus.dashboard.words import clock, lasting, names, plural

SYPHON_GONE_AFTER: Final = timedelta(minutes=20)
"""A syphon that waits says so every 15 minutes (Y2): one that was not seen for longer does not run."""

_LISTED_OUTAGES: Final = 8


class Level(enum.StrEnum):
    """How much it matters."""

    ALARM = "alarm"
    WARNING = "warning"
    NOTE = "note"
    CALM = "calm"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that an operator should know, and what to do about it.

    :ivar about: what it is about, which stays the same while the figures in the text change.
    """

    level: Level
    about: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """How far the ledger is read.

    :ivar place: where it is; None: the page was given none.
    :ivar part: of it that is read, 0 to 1; None: all of it.
    """

    place: str | None = None
    part: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that the page shows, at one moment."""

    now: datetime
    looks: tuple[Look, ...]
    entities: tuple[EntityHealth, ...]
    outages: tuple[Outage, ...]
    rates: tuple[Rates, ...]
    costs: Costs
    reading: Reading
    records: int
    notices: tuple[Notice, ...]

    @property
    def flow(self) -> Flow:
        """Messages per second, now."""
        return latest(self.rates[0])

    def look(self, role: Role) -> Look | None:
        """One of the namespaces; None: the page was not told of it."""
        return next((look for look in self.looks if look.role is role), None)

    @property
    def waiting(self) -> int | None:
        """Messages in all backlog queues; None: nobody knows."""
        secondary = self.look(Role.SECONDARY)
        return None if secondary is None or secondary.at is None else _depth(secondary)

    @property
    def oldest_at(self) -> datetime | None:
        """When the oldest message of all backlog queues was parked."""
        secondary = self.look(Role.SECONDARY)
        tops = [queue.top.oldest_at for queue in secondary.backlog if queue.top] if secondary else []
        return min(tops, default=None)

    @property
    def dead_letters(self) -> int | None:
        """Dead letters of both namespaces; None: nobody knows."""
        seen = [look for look in self.looks if look.at is not None]
        return sum(queue.dead_letters for look in seen for queue in look.queues) if seen else None


def view(
    account: Account, looks: Sequence[Look], reading: Reading, now: datetime, called: Mapping[str, str] | None = None
) -> View:
    """Return what the page shows.

    :param called: the names of namespaces which have no host name of their own, by what stands for them in the ledger.
    """
    names_of = called or {}
    looks = [replace(look, name=names_of.get(look.name, look.name)) for look in looks]
    entities = tuple(
        replace(entity, namespace=names_of.get(entity.namespace, entity.namespace))
        for entity in account.voices.entities(now)
    )
    rates = tuple(account.rates(now, window) for window in WINDOWS)
    secondary = next((look for look in looks if look.role is Role.SECONDARY), None)
    notices = [
        *_of_entities(entities, now),
        *_of_backlog(account, entities, secondary, latest(rates[0]), now),
        *_of_namespaces(looks),
        *_of_dead_letters(looks),
        *_of_ledger(account, reading),
    ]
    order = list(Level)
    notices.sort(key=lambda notice: order.index(notice.level))
    if not any(notice.level in (Level.ALARM, Level.WARNING) for notice in notices):
        notices.insert(0, _all_is_well(entities))
    return View(
        now,
        tuple(looks),
        entities,
        tuple(outages(entities, now)[:_LISTED_OUTAGES]),
        rates,
        account.costs(now),
        reading,
        account.records,
        tuple(notices),
    )


def _all_is_well(entities: Sequence[EntityHealth]) -> Notice:
    healthy = [entity for entity in entities if entity.state is State.HEALTHY]
    if not healthy:
        return Notice(
            Level.CALM,
            "nothing",
            "Nothing to report yet.",
            "Entities appear here with the first message that a paired client sends and writes into its ledger.",
        )
    text = f"{healthy[0].entity} is healthy." if len(healthy) == 1 else f"All {len(healthy)} entities are healthy."
    return Notice(Level.CALM, "healthy", text, "Messages go straight to the primary.")


def _of_entities(entities: Sequence[EntityHealth], now: datetime) -> Iterator[Notice]:
    engaged = [entity for entity in entities if entity.state is State.ENGAGED and not entity.silent]
    suspect = [entity for entity in entities if entity.state is State.SUSPECT and not entity.silent]
    if engaged:
        since = min(entity.since or now for entity in engaged)
        parked = sum(entity.parked for entity in engaged)
        are = "is" if len(engaged) == 1 else "are"
        yield Notice(
            Level.ALARM,
            f"engaged {[entity.entity for entity in engaged]}",
            f"{names([entity.entity for entity in engaged])} {are} failing over, for {lasting(now - since)}.",
            f"No send fails: {plural(parked, 'message')} parked so far. See to the primary; "
            "as soon as it takes a ping, messages go there again.",
        )
    if suspect:
        do = "does" if len(suspect) == 1 else "do"
        yield Notice(
            Level.WARNING,
            f"suspect {[entity.entity for entity in suspect]}",
            f"{names([entity.entity for entity in suspect])} {do} not take messages.",
            "Sends are held. If none is accepted within the failover interval, messages are parked.",
        )
    for entity in entities:
        if entity.silent:
            yield Notice(
                Level.NOTE,
                f"silent {entity.entity}",
                f"{names(entity.clients)} said that {entity.entity} was {entity.state.value}, and is silent "
                f"for {lasting(now - entity.heard)}.",
                "If it was ended, nothing is wrong.",
            )


def _of_backlog(
    account: Account, entities: Sequence[EntityHealth], secondary: Look | None, flow: Flow, now: datetime
) -> Iterator[Notice]:
    if secondary is None:
        return
    if secondary.partial is not None:
        yield Notice(Level.NOTE, "backlog hidden", f"{secondary.name}: {secondary.partial}.")
    waiting = _depth(secondary)
    if not waiting or any(entity.state is not State.HEALTHY and not entity.silent for entity in entities):
        return
    oldest = min((queue.top.oldest_at for queue in secondary.backlog if queue.top), default=None)
    age = "" if oldest is None else f", the oldest for {lasting(now - oldest)}"
    text = f"{plural(waiting, 'parked message')} {'waits' if waiting == 1 else 'wait'} for the syphon{age}."
    if flow.delivered:
        eta = lasting(timedelta(seconds=waiting / flow.delivered))
        yield Notice(Level.NOTE, "draining", text, f"It carries them home: about {eta} at the present rate.")
    elif account.syphon_seen is not None and now - account.syphon_seen < SYPHON_GONE_AFTER:
        yield Notice(Level.NOTE, "waiting", text, "One is at work.")
    else:
        yield Notice(
            Level.WARNING,
            "no syphon",
            text,
            "Nothing is lost, but none is seen at work. See that one runs: in an application paired with "
            "enable_syphon=True, or as the Spark job, and that it writes its ledger here.",
        )


def _of_namespaces(looks: Sequence[Look]) -> Iterator[Notice]:
    for look in looks:
        if look.problem is None or look.since is None:
            continue
        known = "Nothing is known of it yet" if look.at is None else f"What is shown of it is from {clock(look.at)}"
        yield Notice(
            Level.WARNING,
            f"{look.role} away",
            f"The {look.role} namespace {look.name} cannot be seen since {clock(look.since)}: {look.problem}.",
            f"{known}; it is tried again and again.",
        )


def _of_dead_letters(looks: Sequence[Look]) -> Iterator[Notice]:
    dead = sum(queue.dead_letters for look in looks for queue in look.queues)
    if dead:
        yield Notice(
            Level.NOTE,
            "dead letters",
            f"{plural(dead, 'dead letter')} {'wants' if dead == 1 else 'want'} a decision.",
            "They are not delivered by themselves any more: resubmit them, or discard them.",
        )


def _of_ledger(account: Account, reading: Reading) -> Iterator[Notice]:
    if reading.problem is not None:
        yield Notice(
            Level.WARNING, "ledger problem", f"The ledger: {reading.problem}.", "What is shown may be too little."
        )
    if reading.part is not None:
        yield Notice(Level.NOTE, "reading", f"The ledger is being read: {reading.part:.0%}.", "Figures still grow.")
    if account.dropped:
        yield Notice(
            Level.NOTE,
            "dropped",
            f"{plural(account.dropped, 'record')} found no room when the ledger was written.",
            "Rates and costs are too low by that much; health is written down again with each turn.",
        )
    if reading.place is None:
        yield Notice(
            Level.NOTE,
            "no ledger",
            "No ledger was given: health, rates and costs are not known.",
            "Have the clients write one, and name its directory with --ledger.",
        )


def _depth(look: Look) -> int:
    return sum(queue.depth for queue in look.backlog)
