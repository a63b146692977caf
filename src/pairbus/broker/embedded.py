"""A broker for tests and notebooks: in a thread of this process, or in a process of its own."""

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pairbus.broker.config import from_options
from pairbus.broker.running import Broker, Endpoint
from pairbus.errors import PairbusError

START_SECONDS = 30.0


class EmbeddedBroker:
    """Serves Service Bus namespaces as long as the ``with`` block runs.

    .. code-block:: python

        with EmbeddedBroker(queues=["orders"]) as broker:
            client = ServiceBusClient.from_connection_string(broker.connection_string)

    :param namespaces: their names, with a port each if they are to have one: ``contoso:5700``.
    :param queues: queues to make: ``contoso/orders``, or just ``orders`` with one namespace.
    :param data: keep everything in this directory; None: in memory.
    :param process: run it in a process of its own, which :meth:`kill` can end as an outage would.
    """

    def __init__(
        self,
        *,
        namespaces: Iterable[str] = ("localhost",),
        queues: Iterable[str] = (),
        data: Path | None = None,
        process: bool = False,
    ) -> None:
        self._namespaces = list(namespaces)
        self._queues = list(queues)
        self._data = data
        self._process_wanted = process
        self._endpoints: dict[str, Endpoint] = {}
        self._running: _InThread | _InProcess | None = None

    def start(self) -> Self:
        """Start it, and wait until it serves."""
        if self._running is None:
            kind = _InProcess if self._process_wanted else _InThread
            self._running = kind(self._namespaces, self._queues, self._data)
            self._endpoints = {endpoint.namespace: endpoint for endpoint in self._running.endpoints}
        return self

    def stop(self) -> None:
        """Stop it in order: clients are told, and everything is durable."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """End its process with ``kill -9``."""
        running, self._running = self._running, None
        if not isinstance(running, _InProcess):
            raise PairbusError("only a broker that runs with process=True can be killed")
        running.kill()

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where each namespace can be reached, by name."""
        return dict(self._endpoints)

    @property
    def connection_string(self) -> str:
        """The connection string of the first namespace."""
        return next(iter(self._endpoints.values())).connection_string

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _InThread:
    def __init__(self, namespaces: list[str], queues: list[str], data: Path | None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pairbus broker", daemon=True)
        self._thread.start()
        self._broker = Broker(from_options(namespaces, queues, port=0, data=data))
        try:
            asyncio.run_coroutine_threadsafe(self._broker.start(), self._loop).result(START_SECONDS)
        except BaseException:
            self._end()
            raise
        self.endpoints = list(self._broker.endpoints.values())

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._broker.stop(), self._loop).result(START_SECONDS)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _InProcess:
    def __init__(self, namespaces: list[str], queues: list[str], data: Path | None) -> None:
        command = [sys.executable, "-m", "pairbus", "broker", "--json", "--port", "0"]
        for option, values in (("--namespace", namespaces), ("--queue", queues)):
            for value in values:
                command += [option, value]
        if data is not None:
            command += ["--data", str(data)]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.endpoints = [self._read_endpoint() for _ in namespaces]

    def _read_endpoint(self) -> Endpoint:
        assert self._process.stdout is not None  # noqa: S101 (asked for above)
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(START_SECONDS)
            self._errors.seek(0)
            why = self._errors.read().decode(errors="replace").strip()
            self._end()
            raise PairbusError(f"the broker did not start: {why}")
        return Endpoint(**json.loads(line))

    def stop(self) -> None:
        self._process.terminate()
        self._end()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(START_SECONDS)
        self._errors.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
