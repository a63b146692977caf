"""The chart of rates and the timeline of outages, as HTML and SVG. Pure.

Both have the same width and the same time below each other: what the entities were in is under what the messages did.
The drawing is stretched to the width that there is; words are not part of it, so that they keep their shape.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Final

from pairbus.dashboard.account import Flow, Rates, Window, latest
from pairbus.dashboard.health import EntityHealth, Spell
from pairbus.dashboard.words import clock, lasting, plural, rate, stamp

SERIES: Final = (("sent", "Sent to the primary"), ("parked", "Parked"), ("delivered", "Carried home"))

_HEIGHT: Final = 100
_LANES: Final = 12
_LABELS: Final = 5


def chart(rates: Rates) -> str:
    """Draw messages per second: a line for each series, and for each step what it was."""
    top = nice(max((max(flow) for flow in rates.steps), default=0))
    lines = "".join(_series(name, [getattr(flow, name) for flow in rates.steps], top) for name, _ in SERIES)
    steps = "".join(
        f'<rect x="{index}" y="0" width="1" height="{_HEIGHT}"><title>{_told(rates, index, flow)}</title></rect>'
        for index, flow in enumerate(rates.steps)
        if any(flow)
    )
    grid = "".join(f'<line x1="0" x2="{len(rates.steps)}" y1="{y}" y2="{y}"/>' for y in (0, 50, 100))
    return (
        f'<div class="plot" role="img" aria-label="{escape(summary(rates))}">'
        f'<div class="scale" aria-hidden="true"><span>{rate(top)}</span><span>{rate(top / 2)}</span>'
        "<span>0</span></div>"
        f'<svg viewBox="0 0 {len(rates.steps)} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<g class="grid">{grid}</g>{lines}<g class="steps">{steps}</g></svg></div>'
    )


def _series(name: str, values: Sequence[float], top: float) -> str:
    """Draw a line and the area under it; nothing where there is nothing, so that no line hides another at zero."""
    drawn = ""
    for first, last in _stretches(values):
        points = " L".join(
            f"{index + 0.5:g},{_HEIGHT - values[index] / top * _HEIGHT:.1f}" for index in range(first, last)
        )
        area = f"M{points} L{last - 0.5:g},{_HEIGHT} L{first + 0.5:g},{_HEIGHT} Z"
        drawn += f'<path class="area {name}" d="{area}"/><path class="line {name}" d="M{points}"/>'
    return drawn


def _stretches(values: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Give where values are not zero, from the zero before to the zero after, as ranges."""
    first: int | None = None
    for index, value in enumerate(values):
        if value and first is None:
            first = max(0, index - 1)
        elif not value and first is not None:
            yield first, index + 1
            first = None
    if first is not None:
        yield first, len(values)


def _told(rates: Rates, index: int, flow: Flow) -> str:
    start = rates.end - timedelta(seconds=rates.window.step * (len(rates.steps) - index))
    return f"{clock(start)} · sent {rate(flow.sent)}/s · parked {rate(flow.parked)}/s · home {rate(flow.delivered)}/s"


def summary(rates: Rates) -> str:
    """Say in words what the chart shows."""
    now = latest(rates)
    most = Flow(*(max(values) for values in zip(*rates.steps, strict=True)))
    return (
        f"Messages per second in the last {rates.window.title}. Now: {rate(now.sent)} sent, {rate(now.parked)} parked, "
        f"{rate(now.delivered)} carried home. At most: {rate(most.sent)} sent, {rate(most.parked)} parked, "
        f"{rate(most.delivered)} carried home."
    )


def timeline(entities: Iterable[EntityHealth], window: Window, end: datetime) -> str:
    """Draw a lane for each entity, with the times in which it was not healthy."""
    start = end - timedelta(seconds=window.seconds)
    listed = list(entities)
    lanes = "".join(_lane(entity, start, end) for entity in listed[:_LANES])
    if len(listed) > _LANES:
        lanes += f'<p class="more">{plural(len(listed) - _LANES, "more entity", "more entities")}</p>'
    return f'<div class="lanes" role="list">{lanes}</div>{_axis(start, end)}'


def _lane(entity: EntityHealth, start: datetime, end: datetime) -> str:
    shown = [spell for spell in entity.spells if (spell.end or end) > start and spell.start < end]
    whole = (end - start).total_seconds()
    known = max(0.0, (entity.first_heard - start).total_seconds() / whole)
    bars = [f'<i class="healthy" style="left:{known:.2%};right:0"></i>'] if known < 1 else []
    for spell in shown:
        left = max(0.0, (spell.start - start).total_seconds() / whole)
        right = min(1.0, ((spell.end or end) - start).total_seconds() / whole)
        bars.append(
            f'<i class="{spell.state.value}" style="left:{left:.2%};width:{max(right - left, 0.003):.2%}" '
            f'title="{escape(_spelled(spell, end))}"></i>'
        )
    told = "; ".join(_spelled(spell, end) for spell in shown) or "healthy"
    return (
        f'<div class="lane" role="listitem"><span class="name" title="{escape(entity.entity)}">'
        f'{escape(entity.entity)}</span><span class="bar" aria-hidden="true">{"".join(bars)}</span>'
        f'<span class="unseen">: {escape(told)}</span></div>'
    )


def _spelled(spell: Spell, now: datetime) -> str:
    until = "still so" if spell.end is None else f"until {stamp(spell.end)}"
    parked = f", {plural(spell.parked, 'message')} parked" if spell.parked else ""
    return f"{spell.state.value} from {stamp(spell.start)} {until}, {lasting((spell.end or now) - spell.start)}{parked}"


def _axis(start: datetime, end: datetime) -> str:
    marks = [start + (end - start) * index / (_LABELS - 1) for index in range(_LABELS)]
    form = "%H:%M" if end - start > timedelta(minutes=30) else "%H:%M:%S"
    return '<div class="axis" aria-hidden="true">' + "".join(f"<span>{mark:{form}}</span>" for mark in marks) + "</div>"


def nice(value: float) -> float:
    """Return a round number that is not less, for the top of a scale whose half is round too."""
    if value <= 1:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
