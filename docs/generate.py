"""Draws the generated parts of the documentation from the code that they describe.

``python docs/generate.py`` writes them; with ``--check`` it only says, with exit code 1, which are stale.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from pairbus.core.health import TRANSITIONS, State
from pairbus.spark.schemas import TABLES

DOCS = Path(__file__).parent
END = "<!-- end of the generated part -->\n"


def diagram() -> Iterator[str]:
    """Draw the moves from one state to another; what leaves a state as it is stands in the table."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.HEALTHY.name}"
    moves: defaultdict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, event), (after, _) in TRANSITIONS.items():
        if state is not after:
            moves[state, after].append(event.value)
    for (state, after), events in moves.items():
        yield f"    {state.name} --> {after.name}: {', '.join(events)}"
    yield "```"


def table() -> Iterator[str]:
    """List every move that can happen."""
    yield "| state | event | next state | action |"
    yield "|---|---|---|---|"
    for (state, event), (after, actions) in TRANSITIONS.items():
        does = ", ".join(action.value for action in actions) or "nothing"
        yield f"| {state.value} | {event.value} | {after.value} | {does} |"


def state_machine() -> Iterator[str]:
    """Draw and list the moves."""
    yield from diagram()
    yield ""
    yield from table()


def ledger_tables() -> Iterator[str]:
    """List the columns of every table of the ledger."""
    for each in TABLES:
        yield f"## {each.name}"
        yield ""
        yield each.meaning
        if each.key:
            yield f"One row for each {', '.join(f'`{name}`' for name in each.key)}."
        yield ""
        yield "| column | type | meaning |"
        yield "|---|---|---|"
        for column in each.schema.fields:
            yield f"| `{column.name}` | {column.dataType.simpleString()} | {column.metadata['comment']} |"
        yield ""


PAGES = {
    DOCS / "explanation" / "state-machine.md": ("pairbus.core.health.TRANSITIONS", state_machine),
    DOCS / "reference" / "tables.md": ("pairbus.spark.schemas", ledger_tables),
}
"""Which pages have a generated part, what it is drawn from, and how."""


def current(text: str, source: str, lines: Iterable[str]) -> str:
    """Return a page with its generated part drawn anew."""
    begin = f"<!-- generated from {source} -->\n"
    head, _, rest = text.partition(begin)
    tail = rest.partition(END)[2]
    return head + begin + "\n" + "\n".join([*lines, ""]) + "\n" + END + tail


def main() -> None:
    for page, (source, draw) in PAGES.items():
        text = page.read_text(encoding="utf-8")
        drawn = current(text, source, draw())
        if "--check" not in sys.argv:
            page.write_text(drawn, encoding="utf-8")
        elif drawn != text:
            sys.exit(f"{page.name} is stale: run 'make diagrams' and commit what it draws")


if __name__ == "__main__":
    main()
