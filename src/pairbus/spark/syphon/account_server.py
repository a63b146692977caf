"""The line between the driver and its tasks, which Spark does not have.

Entries for the books go one way, word that the round is to end the other. A task that has something to enter waits
until it is written, so that nothing is completed unaccounted for. One whose line breaks has lost its driver, and
stops. When the line to a task breaks, the driver knows from its last entry what that one was about.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from pairbus.errors import LedgerError, PairbusError
from pairbus.syphon.accounts import Accounts, Entry

_LOGGER = logging.getLogger(__name__)

LONGEST_LINE: Final = 64 * 1024 * 1024
CONNECT_SECONDS: Final = 30.0
LAST_WORDS: Final = 10.0
"""How long a task that Spark has given up may take to end, in seconds."""


class DriverLostError(PairbusError):
    """The line to the driver is broken, so nothing can be accounted for: the task ends."""

    def __init__(self) -> None:
        super().__init__("the line to the driver is broken; what was not completed stays in the backlog")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a account_server is, and what opens it."""

    host: str
    port: int
    token: str = field(repr=False)


class AccountServer:
    """The driver's end.

    :param bind: the address to listen at.
    :param host: the address at which executors reach the driver.
    """

    def __init__(self, accounts: Accounts, *, bind: str, host: str) -> None:
        self._accounts = accounts
        self._bind = bind
        self._host = host
        self._token = secrets.token_urlsafe(32)
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._end: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._bind, 0, limit=LONGEST_LINE)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None  # noqa: S101 (entered)
        self._server.close()
        for line in self._lines:
            line.close()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._server.wait_closed()

    @property
    def address(self) -> Address:
        """What a task needs to know."""
        assert self._server is not None  # noqa: S101 (entered)
        return Address(self._host, self._server.sockets[0].getsockname()[1], self._token)

    @contextlib.asynccontextmanager
    async def round(self, end: asyncio.Event) -> AsyncGenerator[None]:
        """Tell all tasks of a round when it is to end; a task that is still there when the job has ended is cut off."""
        self._end = end
        ending = asyncio.create_task(self._tell_end(end))
        try:
            yield
        finally:
            ending.cancel()
            self._end = None
            self._tell_all_to_end()
            if self._serving:
                await asyncio.wait(self._serving, timeout=LAST_WORDS)
            for line in self._lines:
                line.close()

    async def _tell_end(self, end: asyncio.Event) -> None:
        await end.wait()
        self._tell_all_to_end()

    def _tell_all_to_end(self) -> None:
        for line in self._lines:
            _say(line, {"end": True})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (a server's callback is one)
        self._serving.add(task)
        workers: set[str] = set()
        try:
            greeting = json.loads(await reader.readline() or b"{}")
            if not hmac.compare_digest(str(greeting.get("token")), self._token):
                return
            self._lines.add(writer)
            if self._end is None or self._end.is_set():
                _say(writer, {"end": True})
            while said := await reader.readline():
                await self._hear(json.loads(said), workers, writer)
        except (OSError, ValueError) as error:  # it died half way through a line
            _LOGGER.debug("a task's line is broken: %r", error)
        finally:
            for worker in workers:
                self._accounts.close(worker)
            self._lines.discard(writer)
            self._serving.discard(task)
            writer.close()

    async def _hear(self, said: dict[str, Any], workers: set[str], writer: asyncio.StreamWriter) -> None:
        if "entry" not in said:
            if self._end is not None:
                self._end.set()
            return
        entry = Entry.from_document(said["entry"])
        workers.add(entry.worker)
        answer: dict[str, Any] = {"entered": said["number"]}
        try:
            await self._accounts.enter(entry)
        except LedgerError as error:
            answer["problem"] = str(error)
        _say(writer, answer)


class AccountClient:
    """The task's end: an account for its worker.

    :ivar end: set when the round is to end, also because the driver is gone.
    """

    def __init__(self, address: Address) -> None:
        self.end = asyncio.Event()
        self._address = address
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, self._writer = await asyncio.open_connection(
                self._address.host, self._address.port, limit=LONGEST_LINE
            )
        _say(self._writer, {"token": self._address.token})
        self._listening = asyncio.create_task(self._listen(reader))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writer is not None  # noqa: S101 (entered)
        assert self._listening is not None  # noqa: S101
        self._writer.close()
        self._listening.cancel()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def enter(self, entry: Entry) -> None:
        """Have an entry written, and wait until it is."""
        self._numbers += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._numbers] = answer
        self._say({"number": self._numbers, "entry": entry.to_document()})
        await answer

    async def ask_for_new_shares(self) -> None:
        """Ask the driver to end the round."""
        self._say({"quota": "used up"})

    def _say(self, what: dict[str, Any]) -> None:
        assert self._writer is not None  # noqa: S101 (entered)
        assert self._listening is not None  # noqa: S101
        if self._listening.done():
            raise DriverLostError
        _say(self._writer, what)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while said := await reader.readline():
                heard = json.loads(said)
                if "end" in heard:
                    self.end.set()
                    continue
                answer = self._answers.pop(heard["entered"])
                if answer.cancelled():
                    continue
                if "problem" in heard:
                    answer.set_exception(LedgerError(heard["problem"]))
                else:
                    answer.set_result(None)
        except OSError as error:
            _LOGGER.debug("the driver's line is broken: %r", error)
        finally:
            self.end.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(DriverLostError())


def _say(writer: asyncio.StreamWriter, what: dict[str, Any]) -> None:
    writer.write(json.dumps(what, separators=(",", ":")).encode() + b"\n")
