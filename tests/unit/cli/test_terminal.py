"""The console of the commands takes every text literally, and it is the only one."""

import ast
import io
import json
from pathlib import Path

import pytest
from rich.table import Table

import pairbus.cli
from pairbus.cli.terminal import console, json_text, line, visible

ROOT = Path(pairbus.cli.__file__).parent
HOSTILE = "[/b] [eu] [bold]x[/bold] :smile: \x1b[31m \x9b2J \u202e \x7f \ud800"
SHOWN = r"[/b] [eu] [bold]x[/bold] :smile: \x1b[31m \x9b2J \u202e \x7f \ud800"


def printed(what: object) -> str:
    terminal = console()
    terminal.file = io.StringIO()
    terminal.width = 300
    terminal.print(what)
    return terminal.file.getvalue()


def test_every_place_of_a_str_is_literal() -> None:
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE, show_footer=True)
    table.add_column(HOSTILE, HOSTILE)
    table.add_row(HOSTILE, HOSTILE)
    assert printed(HOSTILE) == f"{SHOWN}\n"
    assert printed(line(HOSTILE, (HOSTILE, "bold"))) == f"{SHOWN}{SHOWN}\n"
    assert printed(table).count(SHOWN) == 7


def test_our_own_lines_stay_lines_and_what_others_wrote_is_one() -> None:
    assert printed("one\ntwo") == "one\ntwo\n"
    assert visible("one\ntwo\r\tthree") == r"one\ntwo\r\tthree"
    assert visible("größer ☕ 文") == "größer ☕ 文"


@pytest.mark.parametrize("text", [HOSTILE, "größer", "\x00\u2028", 'a"b\\'])
def test_json_says_the_same_and_is_not_obeyed(text: str) -> None:
    written = json_text({"text": text})
    assert json.loads(written) == {"text": text}
    assert written.isprintable()


def test_no_other_module_of_the_commands_makes_a_console_or_writes_markup() -> None:
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "Console"]
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert not made, path
        assert not [text for text in texts if "[/]" in text], path


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
