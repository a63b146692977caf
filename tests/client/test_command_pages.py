"""The commands of pages that need a pair run as they are written, one after the other, in a shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.commanding import Shell, broker, pairbus

__all__ = ["broker", "pairbus"]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["messages", "dead-letters", "drill"])
def test_the_commands_of_a_page_run(pairbus: Shell, page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PAIRBUS_PRIMARY_CONNECTION_STRING": pairbus.primary,
        "PAIRBUS_SECONDARY_CONNECTION_STRING": pairbus.secondary,
    }
    for line in "".join(blocks).splitlines():
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],  # noqa: S607 (whichever the reader has)
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
