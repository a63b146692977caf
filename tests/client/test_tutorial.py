"""The tutorial, as its reader would follow it: its own blocks, in their order."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def block(language: str, beginning: str) -> str:
    """Find the one block of the page that begins so."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [text for text in blocks if text.startswith(beginning)]
    return found


@contextmanager
def the_first_terminal(folder: Path) -> Generator[dict[str, str]]:
    """Run its broker, on free ports; give the other terminals' environment."""
    command = [*_words(block("sh", "pairbus broker")), "--port", "0", "--json"]
    with (
        TemporaryDirectory() as sockets,  # where nobody else's broker is, and its path is short
        subprocess.Popen(
            command, cwd=folder, env=os.environ | {"TMPDIR": sockets}, stdout=subprocess.PIPE, text=True
        ) as broker,
    ):
        try:
            assert broker.stdout is not None
            contoso, fabrikam = (json.loads(broker.stdout.readline())["connection_string"] for _ in range(2))
            yield os.environ | {
                "TMPDIR": sockets,
                "PAIRBUS_PRIMARY_CONNECTION_STRING": contoso,
                "PAIRBUS_SECONDARY_CONNECTION_STRING": fabrikam,
            }
        finally:
            broker.terminate()


def _words(line: str) -> list[str]:
    program, *arguments = line.partition("#")[0].split()
    return [str(Path(sys.executable).with_name(program)), *arguments]


def test_the_tutorial_ends_with_every_order(tmp_path: Path) -> None:
    with the_first_terminal(tmp_path) as environment:

        def run(line: str) -> str:
            words = _words(line.replace('"one coffee"', "one-coffee"))
            ended = subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
            return ended.stdout

        send, receive = block("sh", "pairbus send").splitlines()
        run(send)
        assert json.loads(run(receive))["body"] == "one-coffee"
        (tmp_path / "shop.py").write_text(block("python", "# not run here"), encoding="utf-8")
        shop_command = [sys.executable, *block("sh", "python shop.py").split()[1:]]
        with subprocess.Popen(shop_command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as shop:
            assert shop.stdout is not None
            said = iter(shop.stdout)
            _until(said, "sent order 10\n")
            run(block("sh", "pairbus fault contoso down"))
            _until(said, "*** orders is engaged\n")
            _until(said, "sent order 30\n")
            assert "orders" in run(block("sh", "pairbus status"))
            run(block("sh", "pairbus fault contoso clear"))
            _until(said, "*** orders is healthy\n")
            _until(said, "sent order 149\n")
        assert shop.returncode == 0
        run(block("sh", "pairbus syphon"))
        lines = run(block("sh", "pairbus receive orders --all").partition(">")[0]).splitlines()
    assert sorted(json.loads(line)["body"] for line in lines) == sorted(f"order {number}" for number in range(150))


def _until(said: Iterator[str], line: str) -> None:
    assert line in said, f"the shop never said {line!r}"  # reads on until it is there
