"""Every rule of the client is named by an end-to-end test, which runs with both clients where both exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

RULES = {
    f"{letter}{number}"
    for letter, last in {"P": 3, "B": 5, "S": 10, "E": 3, "G": 4, "Y": 5, "C": 2, "K": 1}.items()
    for number in range(1, last + 1)
}
OF_THE_MOVER = {"Y3", "Y4", "Y5"}
"""What only the mover does, which is one and the same for both clients."""

_NAMED = re.compile(r"\b([A-Z])(\d+)\b(?: to \1(\d+)\b)?")


def named(test: ast.FunctionDef) -> Iterator[str]:
    """The rules that a test's name and docstring name."""
    yield from (part.upper() for part in test.name.split("_"))
    for letter, first, last in _NAMED.findall(ast.get_docstring(test) or ""):
        yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))


def test_every_rule_has_a_test_with_both_clients() -> None:
    alone, both = set[str](), set[str]()
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                arguments = {argument.arg for argument in node.args.args}
                (both if "play" in arguments else alone).update(named(node))
    assert sorted(RULES - both - alone) == []
    assert sorted(RULES - both - OF_THE_MOVER) == []
