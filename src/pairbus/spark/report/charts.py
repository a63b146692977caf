"""Draws the report's charts, as SVG that takes its colours from the page: right in light, in dark and in print."""

import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import matplotlib as mpl
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pairbus.core.charging import GB
from pairbus.spark.report.summary import Curve

# pyright: reportUnknownMemberType=false
# Matplotlib's types are numpy's, which are not known in full.

INK, FAINT = "#010101", "#020202"
DIRECT, PARKED, DELIVERED, TROUBLE = "#030303", "#040404", "#050505", "#060606"
_COLOURS: Final = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    DIRECT: "var(--direct)",
    PARKED: "var(--parked)",
    DELIVERED: "var(--delivered)",
    TROUBLE: "var(--trouble)",
}
"""What is drawn with a colour that nobody would use, and what the page makes of it."""
_WIDTH: Final = 5.2
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pairbus",
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
}
_MOST_ENTITIES: Final = 16
_LONGEST: Final = 22


def outage_chart(outage: Mapping[str, Any], curve: Curve) -> str:
    """Draw where messages went before, in and after an outage."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(2.7)
        for label, values, colour in (
            ("accepted by the primary", curve.direct, DIRECT),
            ("parked", curve.parked, PARKED),
            ("delivered from the backlog", curve.delivered, DELIVERED),
        ):
            axes.stairs(values, _edges(curve), color=colour, linewidth=1.4, label=label)
        axes.set_xlim(_edges(curve)[0], _edges(curve)[-1])
        _mark(axes, outage)
        axes.set_ylabel("messages a second" if curve.seconds == 1 else f"messages in {curve.seconds} s")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8)
        _times(axes)
        return _svg(figure)


def drain_chart(outage: Mapping[str, Any], curve: Curve) -> str:
    """Draw how deep the backlog was, and how old its oldest message."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.2), layout="constrained")
        deep, old = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        edges = _edges(curve)
        deep.stairs(curve.depth, edges, fill=True, color=PARKED, alpha=0.25, linewidth=0)
        deep.stairs(curve.depth, edges, color=PARKED, linewidth=1.4)
        deep.set_ylabel("messages waiting")
        deep.set_xlim(edges[0], edges[-1])
        old.stairs([each / 1e6 for each in curve.oldest_us], edges, color=TROUBLE, linewidth=1.4)
        old.set_ylabel("oldest, seconds")
        for axes in (deep, old):
            _mark(axes, outage)
            axes.set_ylim(bottom=0)
            axes.grid(axis="y")
        _times(old)
        return _svg(figure)


def timeline_chart(outages: Sequence[Mapping[str, Any]], first: datetime, last: datetime) -> str:
    """Draw all outages, a line for each entity: from the first failure on, and from failover on."""
    names = sorted({_name(each) for each in outages})[:_MOST_ENTITIES]
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(0.9 + 0.24 * len(names))
        least = (last - first) / 250  # so that the shortest can be seen
        for each in outages:
            if _name(each) in names:
                line = names.index(_name(each))
                for since, colour in (("began", FAINT), ("engaged", TROUBLE)):
                    if each[since] is not None:
                        width = max((each["ended"] or last) - each[since], least) / timedelta(days=1)
                        axes.barh(line, width, left=_number(each[since]), height=0.6, color=colour, linewidth=0)
        axes.set_yticks(range(len(names)), [f"…{name[-_LONGEST:]}" if len(name) > _LONGEST else name for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(_number(first), _number(last))
        axes.grid(axis="x")
        _times(axes)
        return _svg(figure)


def cost_chart(stages: Mapping[str, Mapping[str, int]], currency: str) -> str:
    """Draw operations by stage, with what they cost beside them, and what was transferred below."""
    names = sorted(stages, key=lambda name: stages[name]["charged"])
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(0.7 + 0.42 * len(names))
        values = [stages[name]["charged"] for name in names]
        bars = axes.barh(names, values, color=[_of_stage(name) for name in names], height=0.62)
        labels = [
            f"{stages[name]['charged']:,} · {stages[name]['nanos'] / 1e9:,.4f} {currency}\n"
            f"{stages[name]['bytes'] / GB:,.6f} GB · {stages[name]['bandwidth_nanos'] / 1e9:,.4f} {currency}"
            for name in names
        ]
        axes.bar_label(bars, labels, fontsize=8, color=INK, padding=3)
        axes.set_xlim(0, max(values, default=1) * 1.75 or 1)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        return _svg(figure)


def _of_stage(name: str) -> str:
    return {"direct": DIRECT, "park": PARKED, "syphon": DELIVERED, "ping": TROUBLE}.get(name, FAINT)


def _name(outage: Mapping[str, Any]) -> str:
    return f"{outage['namespace']}/{outage['entity']}"


def _mark(axes: Axes, outage: Mapping[str, Any]) -> None:
    """Shade an outage, and the time in which failover was engaged."""
    start, end = axes.get_xlim()
    for since, alpha in (("began", 0.10), ("engaged", 0.14)):
        if outage[since] is not None:
            until = end if outage["ended"] is None else _number(outage["ended"])
            axes.axvspan(_number(outage[since]), until, color=TROUBLE, alpha=alpha, linewidth=0)
    axes.set_xlim(start, end)


def _number(time: datetime) -> float:
    return float(cast("Any", dates).date2num(time))


def _edges(curve: Curve) -> list[float]:
    """Return where the spans begin, and where the last one ends."""
    return [_number(each) for each in (*curve.at, curve.at[-1] + timedelta(seconds=curve.seconds))]


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _times(axes: Axes) -> None:
    locator = dates.AutoDateLocator(minticks=3, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _svg(figure: Figure) -> str:
    """Return a figure as an element of the page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    svg = re.sub(r' id="[\w.]+_\d+"', "", svg)  # each chart has the same ones
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", svg)
    for drawn, meant in _COLOURS.items():
        svg = svg.replace(drawn, meant)
    return svg.replace("<svg ", '<svg role="img" ', 1)
