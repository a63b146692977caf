"""Draws the generated parts of the documentation from the code that they describe.

``python docs/generate.py`` writes them; with ``--check`` it only says, with exit code 1, which are stale.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pairbus.core.health import TRANSITIONS, State

STATE_MACHINE = Path(__file__).parent / "explanation" / "state-machine.md"
BEGIN, END = "<!-- generated from pairbus.core.health.TRANSITIONS -->\n", "<!-- end of the generated part -->\n"


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


def current(text: str) -> str:
    """Return the page with its generated part drawn anew."""
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return head + BEGIN + "\n" + "\n".join([*diagram(), "", *table(), ""]) + "\n" + END + tail


def main() -> None:
    text = STATE_MACHINE.read_text(encoding="utf-8")
    drawn = current(text)
    if "--check" not in sys.argv:
        STATE_MACHINE.write_text(drawn, encoding="utf-8")
    elif drawn != text:
        sys.exit(f"{STATE_MACHINE.name} is stale: run 'make diagrams' and commit what it draws")


if __name__ == "__main__":
    main()
