"""What may import what, beyond the rules that import-linter checks."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "pairbus"


def imported(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "no relative imports"
            names.add(node.module)
    return names


@pytest.mark.parametrize("module", sorted((SOURCE / "core").glob("*.py")), ids=lambda path: path.stem)
def test_core_is_standard_library_only_and_reads_no_clock(module: Path) -> None:
    for name in imported(module):
        assert name.startswith(("pairbus.core", "pairbus.errors")) or name.split(".")[0] in sys.stdlib_module_names
        assert name not in {"time", "asyncio", "threading", "socket", "secrets"}, name
    text = module.read_text(encoding="utf-8")
    assert ".now(" not in text
    assert "utcnow" not in text


def modules_with(text: str) -> set[str]:
    return {
        str(module.relative_to(SOURCE)) for module in SOURCE.rglob("*.py") if text in module.read_text(encoding="utf-8")
    }


def test_one_module_imports_what_is_private_in_the_sdk() -> None:
    private = {
        str(module.relative_to(SOURCE))
        for module in SOURCE.rglob("*.py")
        if any(name.startswith("azure.") and "._" in name for name in imported(module))
    }
    assert private == {"links/sdk/private.py"}


def test_only_messages_and_the_broker_spell_the_names_of_annotations() -> None:
    spelled = modules_with("x-opt-")
    assert spelled
    assert all(name.startswith(("messages/annotations.py", "broker/")) for name in spelled), spelled


IMPORT_EACH_FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [each for each in sys.modules if each == "pairbus" or each.startswith("pairbus.")]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


def test_every_module_can_be_the_first_one_that_is_imported() -> None:
    """Which one is first depends on the command, so a circle shows only in some of them."""
    names = [
        ".".join(("pairbus", *module.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for module in sorted(SOURCE.rglob("*.py"))
        if module.name != "__main__.py"
    ]
    command = [sys.executable, "-c", IMPORT_EACH_FIRST, *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_stale_diagram_is_noticed_and_drawn_anew(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(SOURCE.parents[1] / "docs", docs)
    for name in ("CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(SOURCE.parents[1] / name, tmp_path)
    page = docs / "explanation" / "state-machine.md"
    drawn = page.read_text(encoding="utf-8")

    def generate(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, docs / "generate.py", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    assert generate("--check").returncode == 0
    page.write_text(drawn.replace("ping accepted", "ping heard"), encoding="utf-8")
    stale = generate("--check")
    assert stale.returncode == 1
    assert "state-machine.md is stale: run 'make diagrams'" in stale.stderr
    assert generate().returncode == 0
    assert page.read_text(encoding="utf-8") == drawn
