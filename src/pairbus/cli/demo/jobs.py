"""The demo's jobs: commands of pairbus itself, as a user would run them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pairbus.errors import PairbusError


@contextmanager
def serving_dashboard(ledger: Path, environment: Mapping[str, str]) -> Generator[str]:
    """Serve the dashboard as long as the block runs; gives its address."""
    command = [sys.executable, "-m", "pairbus", "dashboard", "--ledger", str(ledger), "--port", "0", "--json"]
    with subprocess.Popen(  # noqa: S603 (our own command)
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            line = "" if server.stdout is None else server.stdout.readline()
            if not line:
                raise PairbusError("'pairbus dashboard' did not start")
            yield json.loads(line)["url"]
        finally:
            server.terminate()


async def run(*arguments: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run ``pairbus`` with ``--json`` in a process of its own; return the object that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pairbus", *arguments, "--json"),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    if process.returncode != 0:
        why = errors.decode(errors="replace").strip() or f"it ended with code {process.returncode}"
        raise PairbusError(f"'pairbus {arguments[0]}' failed: {why}")
    return cast("dict[str, Any]", json.loads(out))
