"""The SQL of the store, read from the files beside it."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from sqlite3 import complete_statement

from pairbus.broker.store.checksums import IS_WHOLE

SQL = Path(__file__).parent / "sql"
MIGRATIONS = SQL / "migrations"
"""``0001.sql`` makes a store of version 1 of nothing, ``0002.sql`` one of version 2 of version 1, and so on."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def named(text: str) -> dict[str, str]:
    """Return the queries of a file by name, without comments."""
    parts = _NAME.split(text)[1:]
    return {
        name: "\n".join(line for line in body.strip().splitlines() if not line.startswith("--"))
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


QUERIES = named((SQL / "queries.sql").read_text(encoding="utf-8").replace("{is_whole}", IS_WHOLE))


@cache
def with_rows(name: str, count: int) -> str:
    """Return a query that writes so many rows at once."""
    head, row = QUERIES[name].removesuffix(";").split("VALUES ")
    return f"{head}VALUES {', '.join([row] * count)}"


@cache
def with_keys(name: str, count: int) -> str:
    """Return a query about so many keys."""
    return QUERIES[name].replace("{keys}", ", ".join("?" * count))


def migrations(directory: Path) -> dict[int, Path]:
    """Return the migrations of a directory by the version that they lead to, in order."""
    return {int(path.stem): path for path in sorted(directory.glob("*.sql"))}


def statements(script: str) -> Iterator[str]:
    """Return the statements of a script one by one: ``executescript`` would end the transaction around them."""
    gathered = ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if complete_statement(gathered):
            yield gathered
            gathered = ""
