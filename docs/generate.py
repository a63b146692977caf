"""Draws the generated parts of the documentation from the code that they describe.

``python docs/generate.py`` writes them; with ``--check`` it only says, with exit code 1, which are stale.
"""

import ast
import enum
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from typer.main import get_command

import pairbus
from pairbus.cli import app
from pairbus.core.health import TRANSITIONS, State
from pairbus.spark.tables.schemas import TABLES

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE = Path(pairbus.__file__).parent
END = "<!-- end of the generated part -->\n"


def state_machine() -> Iterator[str]:
    """Draw an entity's health: the moves, and all that can happen."""
    yield from diagram()
    yield ""
    yield from table()


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


def commands() -> Iterator[str]:
    """Tell of every command what its own help tells."""
    yield from command("pairbus", get_command(app), 2)


def command(name: str, described: Any, depth: int) -> Iterator[str]:  # noqa: ANN401 (typer has no types for them)
    inner: Mapping[str, Any] = getattr(described, "commands", {})
    if depth > 2:
        yield "#" * (depth - 1) + f" {name}"
        yield ""
        yield from usage(name, described.params)
        yield cleandoc(described.help or "")
        yield ""
        yield from parameters(described.params)
    for each in sorted(inner):
        yield from command(f"{name} {each}", inner[each], depth + 1)


def split(described: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the arguments, and the options."""
    arguments = [each for each in described if each.param_type_name == "argument"]
    return arguments, [each for each in described if each.param_type_name == "option" and each.name != "help"]


def usage(name: str, described: list[Any]) -> Iterator[str]:
    arguments, options = split(described)
    words = [each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments]
    if words or options:
        yield f"`{' '.join([name, *words, *(['[OPTIONS]'] if options else [])])}`"
        yield ""


def parameters(described: list[Any]) -> Iterator[str]:
    arguments, options = split(described)
    if not arguments and not options:
        return
    yield "| | | unless given |"
    yield "|---|---|---|"
    for each in arguments:
        yield row(f"`{each.name.upper()}`", each)
    for each in options:
        value = "" if isinstance(each.default, bool) else " " + (each.metavar or kind(each))
        yield row("`" + ", ".join(sorted(each.opts, key=len)) + value + "`", each)
    yield ""


def kind(option: Any) -> str:  # noqa: ANN401
    if isinstance(option.default, enum.Enum):
        return r"\|".join(choice.value for choice in type(option.default))
    return option.name.upper()


def row(name: str, each: Any) -> str:  # noqa: ANN401
    words = (each.help or "").replace("|", r"\|")
    if each.multiple:
        words += " May be repeated."
    default = each.default.value if isinstance(each.default, enum.Enum) else each.default
    if each.envvar:
        default = f"`{each.envvar}`"
    elif default is None or isinstance(default, bool) or default == "":
        default = "required" if each.required else ""
    else:
        default = f"`{default}`"
    return f"| {name} | {words} | {default} |"


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


def rooms() -> Iterator[str]:
    """List the rooms of the code from the top to the bottom, as import-linter holds them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    yield "| room | what is in it |"
    yield "|---|---|"
    for layer in layers:
        for name in re.split(r"\s*[|:]\s*", layer):
            place = SOURCE.joinpath(*name.split("."))
            source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
            path = f"{place.relative_to(SOURCE)}/" if place.is_dir() else str(source.relative_to(SOURCE))
            yield f"| `{path}` | {words.splitlines()[0].rstrip('.')} |"


PARTS: Mapping[Path, tuple[str, Callable[[], Iterator[str]]]] = {
    ROOT / "CONTRIBUTING.md": ("the layers in pyproject.toml", rooms),
    DOCS / "explanation" / "state-machine.md": ("pairbus.core.health.TRANSITIONS", state_machine),
    DOCS / "reference" / "cli.md": ("the commands' own help", commands),
    DOCS / "reference" / "tables.md": ("pairbus.spark.tables.schemas", ledger_tables),
}
"""Pages with a generated part: what it is generated from, and how it is drawn."""


def current(text: str, source: str, draw: Callable[[], Iterator[str]]) -> str:
    """Return a page with its generated part drawn anew."""
    begin = f"<!-- generated from {source} -->\n"
    head, _, rest = text.partition(begin)
    tail = rest.partition(END)[2]
    return head + begin + "\n" + "\n".join([*draw(), ""]) + "\n" + END + tail


def main() -> None:
    stale: list[str] = []
    for page, (source, draw) in PARTS.items():
        text = page.read_text(encoding="utf-8")
        drawn = current(text, source, draw)
        if "--check" not in sys.argv:
            page.write_text(drawn, encoding="utf-8")
        elif drawn != text:
            stale.append(page.name)
    if stale:
        sys.exit(f"{', '.join(stale)} is stale: run 'make diagrams' and commit what it draws")


if __name__ == "__main__":
    main()
