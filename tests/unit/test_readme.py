"""What the README and the documentation tell a reader to run does run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {
    "make demo": "runs pairbus demo, which the command's tests run",
    "make test": "is what runs this test",
    "pairbus simulate --seeds 10000": "is what make chaos runs",
}


def blocks(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        (f"{page.relative_to(ROOT)}:{index}", block)
        for page in PAGES
        for index, block in enumerate(fence.findall(page.read_text(encoding="utf-8")))
    ]


def commands() -> list[tuple[str, str]]:
    return [(where, line.partition("#")[0].strip()) for where, block in blocks("sh") for line in block.splitlines()]


@pytest.mark.parametrize(("where", "code"), blocks("python"))
def test_python_blocks_run(where: str, code: str) -> None:
    exec(compile(code, where, "exec"), {"__name__": "__main__"})  # noqa: S102 (the README's own code)


@pytest.mark.parametrize(("where", "command"), commands())
def test_commands_run(where: str, command: str) -> None:
    if command in ELSEWHERE:
        return
    program, *arguments = shlex.split(command)
    assert program == "pairbus", where
    subprocess.run([Path(sys.executable).with_name(program), *arguments], check=True, capture_output=True)
