"""How a broker that runs takes orders from this machine: a socket in a directory that only its user can enter.

One line of JSON is a request, one the answer. It is not the namespace's port, which an order may have just closed.
"""

import asyncio
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from pairbus.errors import PairbusError

SECONDS: Final = 10.0
MAX_LINE: Final = 64 * 1024

Document: TypeAlias = dict[str, Any]


class ControlError(PairbusError):
    """No broker takes the order, or it has refused it."""


def directory() -> Path:
    """Return where the sockets of this user's brokers are, made if it is not there; no other user can enter."""
    place = Path(tempfile.gettempdir()) / f"pairbus-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()  # a link would lead to where another user has put it
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ControlError(f"{place} must be yours alone (mode 0700): remove it, or set TMPDIR to another directory")
    return place


class ControlServer:
    """Listens for orders.

    :param obey: carries out a request and returns the answer; what it refuses it raises as PairbusError.
    """

    def __init__(self, obey: Callable[[Document], Document]) -> None:
        self.path = directory() / f"{os.getpid()}-{os.urandom(4).hex()}.sock"
        self._obey = obey
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=MAX_LINE)

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                line = await reader.readline()
            writer.write(json.dumps(self._answer(line)).encode() + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # whoever asked has gone, or says nothing that ends: there is nobody to tell
        finally:
            writer.close()

    def _answer(self, line: bytes) -> Document:
        try:
            return self._obey(json.loads(line))
        except (PairbusError, ValueError, TypeError, KeyError) as error:
            return {"error": str(error)}


def ask(path: Path, request: Document) -> Document:
    """Send a request to a broker and return its answer; what it refuses is raised."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plug:
            plug.settimeout(SECONDS)
            plug.connect(str(path))
            plug.sendall(json.dumps(request).encode() + b"\n")
            with plug.makefile("rb") as answers:
                answer: Document = json.loads(answers.readline(MAX_LINE))
    except (OSError, ValueError) as error:
        raise ControlError(f"the broker at {path} does not answer: {error}") from None
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer


def running() -> Iterator[tuple[Path, list[str]]]:
    """Find the brokers of this user that run, and the namespaces that they serve; what a killed one left is removed."""
    for path in sorted(directory().glob("*.sock")):
        try:
            yield path, list(ask(path, {"do": "namespaces"})["namespaces"])
        except ControlError:
            if not Path(f"/proc/{path.name.partition('-')[0]}").exists():
                path.unlink(missing_ok=True)


def socket_of(pid: int) -> Path:
    """Return where a broker takes orders whose process is known."""
    found = next(directory().glob(f"{pid}-*.sock"), None)
    if found is None:
        raise ControlError(f"the process {pid} takes no orders")
    return found


def find(namespace: str) -> Path:
    """Return the one broker that serves a namespace."""
    found = list(running())
    serving = [path for path, names in found if namespace.lower() in {name.lower() for name in names}]
    if len(serving) == 1:
        return serving[0]
    if serving:
        pids = ", ".join(path.name.partition("-")[0] for path in serving)
        raise ControlError(
            f"several brokers serve {namespace!r} (processes {pids}): say which one with --pid, or end the others"
        )
    known = ", ".join(sorted({name for _, names in found for name in names}))
    there = f"those that run serve {known}" if known else "none runs: start one with `pairbus broker`"
    raise ControlError(f"no broker of yours serves {namespace!r}; {there}")
