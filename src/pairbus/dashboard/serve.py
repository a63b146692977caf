"""Serving the page until somebody ends it."""

# pyright: reportUnknownMemberType=false

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI
from nicegui import ui

from pairbus.dashboard.guard import Guard, check_token
from pairbus.dashboard.monitor import Monitor, Sources
from pairbus.dashboard.page import add_page
from pairbus.errors import OptionError

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (which is not said in an address)
STOP_SECONDS: Final = 2
"""How long requests that are under way may take to end when the page does."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where the page is served, and to whom.

    :ivar token: what others must show; None: only this machine can see the page.
    """

    host: str = "127.0.0.1"
    port: int = 5680
    token: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to :func:`serve`: an end that was asked for is no failure."""
        yield


def serve(sources: Sources, where: Where, ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM.

    :param ready: told the page's address when it can be opened.
    :raises OptionError: the address cannot be listened on, or is not safe without a token.
    """
    check_token(where.host, where.token)
    _check_certificate(where)
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        listening = socket.create_server((where.host, where.port), family=family)
    except OSError as error:
        raise OptionError(
            "port", where.port, f"one that is free on {where.host} ({os.strerror(error.errno or 0)})"
        ) from None
    with listening:
        asyncio.run(_serve(sources, where, listening, ready))


def _check_certificate(where: Where) -> None:
    if where.certificate is None and where.key is None:
        return
    try:
        if where.certificate is None:
            raise FileNotFoundError("none is given, only a key")
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(where.certificate, where.key)
    except OSError as error:
        valid = f"a PEM file that can be read, with its key ({error.strerror or error})"
        raise OptionError("certificate", str(where.certificate), valid) from None


async def _serve(sources: Sources, where: Where, listening: socket.socket, ready: Callable[[str], None]) -> None:
    monitor = Monitor(sources)
    secure = where.certificate is not None
    port = listening.getsockname()[1]
    host = "localhost" if where.host in _EVERYWHERE else where.host
    host = f"[{host}]" if ":" in host else host

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with monitor.running():
            ready(f"{'https' if secure else 'http'}://{host}:{port}/")
            yield

    api = FastAPI(lifespan=lifespan, openapi_url=None)
    add_page(monitor)
    ui.run_with(
        api,
        title="pairbus",
        language="en-US",
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        show_welcome_message=False,
        favicon=_ICON,
    )
    server = _Server(
        uvicorn.Config(
            Guard(api, token=where.token, port=port, secure=secure),
            log_level="warning",
            access_log=False,  # a token may be part of an address
            server_header=False,
            ssl_certfile=where.certificate,
            ssl_keyfile=where.key,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )

    def stop() -> None:
        server.should_exit = True

    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop)
    await server.serve(sockets=[listening])


_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#2456a6"/>'
    '<path d="M7 11h13l-4-4m4 4-4 4M25 21H12l4-4m-4 4 4 4" fill="none" stroke="#fff" stroke-width="2.6" '
    'stroke-linecap="round" stroke-linejoin="round"/></svg>'
)
