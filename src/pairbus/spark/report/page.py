"""Writes the report as one page that loads nothing: text, tables and charts in a single HTML file."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from importlib import resources
from string import Template
from typing import Any, Final

from pairbus.core.charging import GB
from pairbus.spark.report.charts import cost_chart, drain_chart, outage_chart, timeline_chart
from pairbus.spark.report.summary import SHOWN_ENTITIES, SHOWN_OUTAGES, Facts

_NONE: Final = "-"
_WAYS: Final = {
    "direct": "straight to the primary",
    "backlog": "by way of the backlog",
    "upkeep": "upkeep of the pairing: pings, idle polls, set-up",
    "other": "applications' empty polls, looks and the like",
}


def render(facts: Facts, made_at: datetime) -> str:
    """Return the page."""
    template = Template(resources.files("pairbus.spark.report").joinpath("page.html").read_text(encoding="utf-8"))
    first, last = facts.days[0], facts.days[-1]
    plan = facts.plan
    return template.substitute(
        title="What pairing has done, and what it costs",
        period=f"{first:%d %B %Y}" if first == last else f"{first:%d %B %Y} to {last:%d %B %Y}, {len(facts.days)} days",
        figures="".join(f"<div><b>{value}</b><span>{escape(what)}</span></div>" for value, what in _figures(facts)),
        warnings="".join(f"<section>{text}</section>" for text in _warnings(facts)),
        charts="".join(_section(title, text, svg) for title, text, svg in _charts(facts)),
        tables="".join(_section(title, text, table) for title, text, table in _tables(facts)),
        footer=f"Made by pairbus on {made_at.astimezone(UTC):%d %B %Y at %H:%M}. Prices: plan {escape(plan.name)}, "
        f"{escape(plan.currency)}, as of {plan.as_of:%d %B %Y}; what failed and settlements cost nothing.",
    )


def percent(ratio: float | None) -> str:
    """Write an availability: never rounded up to all."""
    if ratio is None:
        return _NONE
    return "100 %" if ratio == 1 else f"{min(ratio * 100, 99.9999):.4f} %"


def duration(microseconds: int | None) -> str:
    """Write a duration in the two units that matter."""
    if microseconds is None:
        return _NONE
    seconds = microseconds / 1e6
    if seconds < 60:  # noqa: PLR2004 (a minute)
        return f"{seconds:.1f} s"
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    if whole.days:
        return f"{whole.days} d {hours} h"
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def gigabytes(size: int) -> str:
    """Write how much was transferred."""
    return f"{size / GB:,.{3 if size == 0 or size >= GB // 1000 else 6}f} GB"


def _figures(facts: Facts) -> Iterable[tuple[str, str]]:
    totals = facts.totals
    yield percent(totals["with_pairing"]), "of messages accepted, with pairing"
    yield percent(totals["without_pairing"]), "as it would have been without"
    yield f"{totals['parked']:,}", "messages parked, that would have been refused"
    yield f"{facts.left:,}", "still in the backlog"
    yield f"{facts.outage_count:,}", "outage" if facts.outage_count == 1 else "outages"
    yield f"{facts.charge_nanos / 1e9:,.4f} {escape(facts.plan.currency)}", "for operations, beyond the free quota"
    yield (
        f"{facts.bandwidth_nanos / 1e9:,.4f} {escape(facts.plan.currency)}",
        f"for {gigabytes(facts.bytes)} transferred",
    )
    yield f"{facts.base_nanos / 1e9:,.2f} {escape(facts.plan.currency)}", "base charge for these days"
    yield f"{facts.records:,}", "records in the ledger"


def _warnings(facts: Facts) -> Iterable[str]:
    if facts.malformed:
        lines = "".join(
            f"<li><code>{escape(file)}</code>: {escape(reason)}: <code>{escape(line[:160])}</code></li>"
            for file, reason, line in facts.malformed_lines
        )
        more = facts.malformed - len(facts.malformed_lines)
        yield (
            f'<span class="bad">{facts.malformed:,} lines are no records</span> and are kept apart in the table bronze.'
            f"<ul class='soft'>{lines}{f'<li>and {more:,} more</li>' if more else ''}</ul>"
        )
    if facts.dropped:
        yield f'<span class="bad">{facts.dropped:,} records found no room in the ledger</span> and are missing here.'
    if facts.left:
        yield f'<span class="bad">{facts.left:,} messages are still in the backlog</span>, for the syphon to deliver.'


def _charts(facts: Facts) -> Iterable[tuple[str, str, str]]:
    if facts.largest is not None:
        outage, curve = facts.largest
        ended = f"until {outage['ended']:%H:%M:%S}" if outage["ended"] else "and has not ended"
        text = (
            f"{_entity(outage)} stopped accepting messages on {outage['began']:%d %B at %H:%M:%S} {ended}; failover "
            f"was engaged after {duration(outage['failover_us'])}. {outage['parked']:,} messages were parked. Shaded: "
            "the outage, and darker the time of failover."
        )
        yield "The largest outage", text, outage_chart(outage, curve)
        drained = (
            f"It was empty {duration(outage['drain_us'])} after the outage's end."
            if outage["drained"]
            else "It is not empty."
        )
        yield "How its backlog drained", drained, drain_chart(outage, curve)
    if facts.outages:
        first = datetime.combine(facts.days[0], datetime.min.time())
        last = datetime.combine(facts.days[-1], datetime.min.time()) + timedelta(days=1)
        yield (
            "All outages",
            "Red: failover was engaged. Grey: an entity was suspect and recovered, or failover was not engaged yet.",
            timeline_chart(facts.outages, first, last),
        )
    yield (
        "Cost by stage",
        "Charged operations, and what they cost beyond the free quota; bytes of messages, and what they cost.",
        cost_chart(facts.stages, facts.plan.currency),
    )


def _tables(facts: Facts) -> Iterable[tuple[str, str, str]]:
    few = f" The {SHOWN_ENTITIES} least available." if len(facts.entities) == SHOWN_ENTITIES else ""
    text = "Messages accepted, of those that clients wanted to send. Without pairing, those parked would have failed."
    yield (
        "Availability",
        text + few,
        _table(
            ["entity", "wanted", "accepted", "parked", "failed", "with pairing", "without"],
            [
                [
                    _entity(row),
                    *(f"{row[name]:,}" for name in ("attempted", "direct", "parked", "failed")),
                    _good(row["with_pairing"]),
                    percent(row["without_pairing"]),
                ]
                for row in facts.entities
            ],
        ),
    )
    if facts.outages:
        few = f" The latest {SHOWN_OUTAGES} of {facts.outage_count:,}." if facts.outage_count > SHOWN_OUTAGES else ""
        yield (
            "Outages",
            f"As the clients saw them.{few}",
            _table(
                ["entity", "began", "to fail over", "to recover", "parked", "left", "to drain", "clients"],
                [_outage(row) for row in facts.outages],
            ),
        )
    yield (
        "What a message costs",
        "Operations that are charged, and bytes, by the way that messages went.",
        _table(
            ["way", "messages", "operations", "a message", facts.plan.currency, "transferred", facts.plan.currency],
            [
                [
                    escape(_WAYS[row["way"]]),
                    f"{row['messages']:,}",
                    f"{row['operations']:,}",
                    f"{row['operations'] / row['messages']:.2f}" if row["messages"] else _NONE,
                    f"{row['nanos'] / 1e9:,.4f}",
                    gigabytes(row["bytes"]),
                    f"{row['bandwidth_nanos'] / 1e9:,.4f}",
                ]
                for row in facts.ways
            ],
        ),
    )


def _outage(row: Mapping[str, Any]) -> list[str]:
    return [
        _entity(row),
        f"{row['began']:%Y-%m-%d %H:%M:%S}",
        duration(row["failover_us"]),
        duration(row["recovery_us"]) if row["ended"] else '<span class="bad">goes on</span>',
        f"{row['parked']:,}",
        f"{row['left']:,}",
        duration(row["drain_us"]),
        f"{row['clients']:,}",
    ]


def _entity(row: Mapping[str, Any]) -> str:
    return escape(f"{row['namespace']}/{row['entity']}")


def _good(ratio: float | None) -> str:
    return f'<span class="good">{percent(ratio)}</span>' if ratio == 1 else percent(ratio)


def _section(title: str, text: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p class='soft'>{text}</p>{body}</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th scope='col'>{escape(each)}</th>" for each in heads)
    body = "".join(
        f"<tr><td class='text'>{row[0]}</td>{''.join(f'<td>{each}</td>' for each in row[1:])}</tr>" for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
