"""The demo's jobs: commands of pairbus itself, as a user would run them."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from pairbus.errors import PairbusError


async def run(*arguments: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run ``pairbus`` with ``--json`` in a process of its own; return the object that its output ends with."""
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
    lines = out.decode().strip().splitlines()
    if process.returncode != 0 or not lines:
        why = errors.decode(errors="replace").strip() or f"it ended with code {process.returncode}"
        raise PairbusError(f"'pairbus {arguments[0]}' failed: {why}")
    return cast("dict[str, Any]", json.loads(lines[-1]))
