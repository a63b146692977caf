"""The rules, and the paths and modules that texts name, are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "reference" / "rules.md"
TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "tests/**/*.py", "bench/*.py", "examples/*.py")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)

_DEFINED = re.compile(r"^- \*\*([A-Z]\d{1,2})\*\* ", re.MULTILINE)
_CITED = re.compile(r"\b[BCEGKPSYZ]\d{1,2}\b(?![-/.]\w)")
_TEST_NAME = re.compile(r"def test_((?:[bcegkpsyz]\d{1,2}_)+)")
_MODULE = re.compile(r"\bpairbus(?:\.[a-z_][a-z0-9_]*)+(?:\.[A-Za-z_]\w*)?")
_PATH = re.compile(r"`((?:src|tests|docs|bench|examples|deploy|core|aio|broker|spark|cli|amqp|instrument)/[\w./-]*)`")


def defined() -> set[str]:
    return set(_DEFINED.findall(RULES.read_text(encoding="utf-8")))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def cited(text: str) -> Iterator[str]:
    yield from _CITED.findall(text)
    for codes in _TEST_NAME.findall(text):
        yield from codes.upper().strip("_").split("_")


def test_each_rule_is_defined_once() -> None:
    codes = _DEFINED.findall(RULES.read_text(encoding="utf-8"))
    assert len(codes) > 40
    assert len(codes) == len(set(codes))


def test_each_rule_that_is_cited_is_defined() -> None:
    known = defined()
    unknown = {name_of(path): set(cited(path.read_text(encoding="utf-8"))) - known for path in TEXTS}
    assert not {path: codes for path, codes in unknown.items() if codes}


def test_each_module_and_path_that_is_named_exists() -> None:
    missing = {name_of(path): set(not_there(prose(path))) for path in TEXTS}
    assert not {path: names for path, names in missing.items() if names}


def not_there(words: str) -> Iterator[str]:
    yield from (name for name in _PATH.findall(words) if not exists(name))
    yield from (name for name in _MODULE.findall(words) if name not in telemetry() and not is_ours(name))


def prose(path: Path) -> str:
    """Return the whole of a page, or the docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
    return "\n".join(words for words in found if words)


@cache
def telemetry() -> frozenset[str]:
    """Return the names of spans, metrics, loggers and their attributes, which look like modules."""
    sources = (ROOT / "src" / "pairbus" / "instrument").glob("*.py")
    literals = (re.findall(r'"(pairbus\.[a-z_.]+)"', path.read_text(encoding="utf-8")) for path in sources)
    return frozenset(name for names in literals for name in names)


def exists(name: str) -> bool:
    return (ROOT / name).exists() or (ROOT / "src" / "pairbus" / name).exists()


def is_ours(name: str) -> bool:
    """Tell whether a dotted name is a module of ours, or is spelled in the module that it says it is in."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath("src", *parts[:length])
        for source in (place.with_suffix(".py"), place / "__init__.py"):
            if source.exists():
                return length == len(parts) or parts[length] in source.read_text(encoding="utf-8")
    return False
