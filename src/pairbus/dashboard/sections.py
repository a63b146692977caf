"""The sections of the page that only show something, as HTML. Pure; every text that comes from outside is escaped."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Final

from pairbus.core.health import State
from pairbus.core.ledger import MeteredBy
from pairbus.dashboard.account import Costs, Rates
from pairbus.dashboard.drawing import SERIES, chart, timeline
from pairbus.dashboard.health import EntityHealth, Outage
from pairbus.dashboard.snapshot import Look, Queue
from pairbus.dashboard.view import Level, Notice, View
from pairbus.dashboard.words import amount, clock, count, lasting, names, plural, rate, stamp, volume

_STAGES: Final = {
    "direct": "the application's own traffic",
    "park": "sent to backlog queues",
    "ping": "asking whether the primary is back",
    "syphon": "carrying them home",
    "idle": "the syphon, waiting",
    "setup": "administration, and this page",
}
_WORTH_A_LIST: Final = 4


def title(given: Sequence[Notice]) -> str:
    """What the browser's tab says: what is the matter, for who looks at other tabs."""
    worst = next((notice for notice in given if notice.level in (Level.ALARM, Level.WARNING)), None)
    return "pairbus" if worst is None else f"({worst.level}) pairbus"


def notices(given: Sequence[Notice]) -> str:
    """What is the matter, and what to do."""
    return "".join(
        f'<div class="notice {notice.level}"><p><b>{_LEVELS[notice.level]}{escape(notice.text)}</b> '
        f"{escape(notice.advice)}</p></div>"
        for notice in given
    )


_LEVELS: Final = {
    Level.ALARM: '<span class="unseen">Alarm: </span>',
    Level.WARNING: '<span class="unseen">Warning: </span>',
    Level.NOTE: "",
    Level.CALM: "",
}


def namespaces(looks: Iterable[Look]) -> str:
    """Both namespaces, and whether they can be seen."""
    return "".join(
        f'<span class="namespace {_seen(look)}"><span class="role">{look.role}</span> <b>{escape(look.name)}</b> '
        f'<span class="how">{_SEEN[_seen(look)]}</span></span>'
        for look in looks
    )


def _seen(look: Look) -> str:
    if look.problem is not None:
        return "away"
    return "asked" if look.at is None else "there"


_SEEN: Final = {"away": "unreachable", "asked": "asking …", "there": "reachable"}


def figures(view: View) -> str:
    """The few numbers that tell most."""
    flow = view.flow
    oldest = "" if view.oldest_at is None else f"oldest {lasting(view.now - view.oldest_at)}"
    costs = view.costs
    spent = costs.nanos + costs.base_nanos
    shown = (
        ("sent", "Sent", f"{rate(flow.sent)}<small>/s</small>", "to the primary"),
        ("parked", "Parked", f"{rate(flow.parked)}<small>/s</small>", "in the secondary"),
        ("delivered", "Carried home", f"{rate(flow.delivered)}<small>/s</small>", "by the syphon"),
        ("", "Backlog", "—" if view.waiting is None else count(view.waiting), oldest or "messages waiting"),
        ("", "Dead letters", "—" if view.dead_letters is None else count(view.dead_letters), "wanting a decision"),
        (
            "",
            "This month",
            "—" if costs.by is None else f"{amount(spent)}<small> {escape(costs.plan.currency)}</small>",
            plural(costs.operations, "operation"),
        ),
    )
    return '<dl class="figures">' + "".join(
        f'<div class="figure {kind}"><dt>{title}</dt><dd>{value}</dd><dd class="note">{note}</dd></div>'
        for kind, title, value, note in shown
    ) + "</dl>"  # fmt: skip


def entities(given: Sequence[EntityHealth], now: datetime) -> str:
    """Every entity with its state machine's position."""
    if not given:
        return _empty(
            "No entity yet.",
            "A paired client that writes a ledger shows up here with its first message: "
            "Instrument([LedgerFile(directory)]).",
        )
    return f'<ul class="entities">{"".join(_entity(entity, now) for entity in given)}</ul>'


def _entity(entity: EntityHealth, now: datetime) -> str:
    track = "".join(
        f'<li class="{state.value}"{" aria-current=step" if state is entity.state else ""}>{state.value}</li>'
        for state in State
    )
    return (
        f'<li class="entity {"silent" if entity.silent else entity.state.value}">'
        f'<div class="title"><h3>{escape(entity.entity)}</h3><span>{escape(entity.namespace)}</span></div>'
        f'<ol class="track" aria-label="state machine of {escape(entity.entity)}">{track}</ol>'
        f"<p>{escape(' · '.join(_facts(entity, now)))}</p></li>"
    )


def _facts(entity: EntityHealth, now: datetime) -> Iterable[str]:
    if entity.since is not None:
        yield f"{entity.state.value} since {clock(entity.since)}, {lasting(now - entity.since)}"
    else:
        yield "healthy from the beginning"
    if entity.silent:
        yield f"not heard from for {lasting(now - entity.heard)}"
    if entity.state is State.HEALTHY:
        yield f"last heard {lasting(now - entity.heard)} ago"
        yield plural(entity.all_clients, "client")
        return
    some = len(entity.clients) < entity.all_clients
    yield f"said by {names(entity.clients)}" + (
        f", {len(entity.clients)} of {entity.all_clients} clients" if some else ""
    )
    if entity.state is State.ENGAGED:
        yield f"{count(entity.parked)} parked"
        if entity.pings:
            yield f"{plural(entity.pings, 'ping')} not accepted"
    if entity.problem:
        yield entity.problem


def activity(rates: Rates, given: Sequence[EntityHealth]) -> str:
    """Rates, and under them the states of the entities in the same time."""
    legend = "".join(f'<span class="{name}">{title}</span>' for name, title in SERIES)
    return (
        f'<div class="legend" aria-hidden="true">{legend}<em>messages per second</em></div>'
        f"{chart(rates)}{timeline(given, rates.window, rates.end)}"
        '<div class="legend states" aria-hidden="true"><span class="suspect">suspect</span>'
        '<span class="engaged">engaged</span><em>times are UTC</em></div>'
    )


def outages(given: Sequence[Outage], now: datetime) -> str:
    """The outages that there were, as a table."""
    if not given:
        return _empty("No outage this month.", "Each one will be listed with when it began, and what was parked.")
    rows = "".join(
        f"<tr><th scope=row>{escape(outage.entity)}</th><td>{stamp(outage.start)}</td>"
        f"<td>{lasting((outage.end or now) - outage.start)}{' and lasts' if outage.end is None else ''}</td>"
        f"<td>{lasting(outage.failover)}</td><td class=number>{count(outage.parked)}</td></tr>"
        for outage in given
    )
    return _table(("Entity", "Began (UTC)", "Lasted", "Failover after", "#Parked"), rows, "Outages")


def backlog(look: Look | None) -> str:
    """The backlog queues, as they were seen last."""
    if look is None:
        return _empty(
            "The secondary is not known.",
            "Name it with --secondary or PAIRBUS_SECONDARY_CONNECTION_STRING to see its backlog queues.",
        )
    if look.at is None:
        return _empty(f"The backlog queues of {look.name} are not known: it was not seen yet.", "")
    if not look.backlog:
        return _empty(f"{look.name} has no backlog queues.", "A client that pairs with it makes them.")
    most = max(queue.depth for queue in look.backlog)
    prefix = look.backlog[0].path.rpartition("/")[0] + "/"
    rows = "".join(_backlog_row(queue, prefix, most, look.at) for queue in look.backlog)
    stale = f'<p class="small">As it was at {clock(look.at)} UTC.</p>' if look.problem else ""
    heads = ("Queue", "#Waiting", "", "Oldest", "Destinations", "#Dead letters")
    return f'<p class="small">{escape(prefix)}</p>{stale}{_table(heads, rows, "Backlog queues")}'


def _backlog_row(queue: Queue, prefix: str, most: int, now: datetime) -> str:
    top = queue.top
    age = "—" if top is None or not queue.depth else lasting(now - top.oldest_at)
    width = queue.depth / most if most else 0
    return (
        f"<tr><th scope=row>{escape(queue.path.removeprefix(prefix))}</th><td class=number>{count(queue.depth)}</td>"
        f'<td class="depth" aria-hidden="true"><i style="width:{width:.0%}"></i></td>'
        f"<td>{age}</td><td>{escape(_destinations(queue))}</td><td class=number>{count(queue.dead_letters)}</td></tr>"
    )


def _destinations(queue: Queue) -> str:
    if queue.top is None or not queue.depth:
        return "—"
    found = sorted(queue.top.destinations.items(), key=lambda each: -each[1])
    text = ", ".join(f"{path or 'none given'} {count(number)}" for path, number in found[:_WORTH_A_LIST])
    more = len(found) - _WORTH_A_LIST
    text += f" and {more} more" if more > 0 else ""
    return text if queue.depth <= queue.top.looked_at else f"{text} (of the first {queue.top.looked_at})"


def costs(given: Costs) -> str:
    """Operations, bytes and money of the month."""
    if given.by is None:
        return _empty("Nothing was counted this month.", "Operations, bytes and money are added up from the ledger.")
    rows = "".join(
        f"<tr><th scope=row>{stage.stage.value} <small>{_STAGES[stage.stage.value]}</small></th>"
        f"<td class=number>{count(stage.operations)}</td><td class=number>{volume(stage.bytes)}</td>"
        f"<td class=number>{amount(stage.nanos + stage.bandwidth_nanos)}</td></tr>"
        for stage in given.stages
    )
    rows += (
        f"<tr><th scope=row>base <small>{plural(given.namespaces, 'namespace')}, plan {escape(given.plan.name)}</small>"
        f"</th><td></td><td></td><td class=number>{amount(given.base_nanos)}</td></tr>"
        f"<tr class=total><th scope=row>together</th><td class=number>{count(given.operations)}</td>"
        f"<td class=number>{volume(given.bytes)}</td>"
        f"<td class=number>{amount(given.nanos + given.base_nanos)}</td></tr>"
    )
    counted = {
        MeteredBy.BROKER: "Counted by the brokers, which see every client.",
        MeteredBy.CLIENT: "Counted by the clients that keep a ledger; what others do is not in it.",
    }[given.by]
    return _table(("Stage", "#Operations", "#GB", f"#{given.plan.currency}"), rows, "Operations and money") + (
        f'<p class="small">{counted} Settlements, and what has failed, are not charged. GB are those of messages that '
        f"were sent or received, and cost {amount(given.bandwidth_nanos)}: within a region nothing. "
        f"List prices as of {given.plan.as_of}.</p>"
    )


def _table(heads: Sequence[str], rows: str, caption: str) -> str:
    """Make a table; a head that begins with # is one of numbers."""
    cells = "".join(
        f"<th scope=col{' class=number' if head.startswith('#') else ''}>{escape(head.lstrip('#'))}</th>"
        if head
        else "<td class=depth aria-hidden=true></td>"
        for head in heads
    )
    return (
        f'<table><caption class="unseen">{escape(caption)}</caption><thead><tr>{cells}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _empty(text: str, hint: str) -> str:
    return f'<p class="empty"><b>{escape(text)}</b> {escape(hint)}</p>'


def clock_face(now: datetime) -> str:
    """The time of what is shown."""
    return f'<time datetime="{now.isoformat(timespec="seconds")}">{clock(now)} <small>UTC</small></time>'
