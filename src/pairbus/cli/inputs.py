"""What ``pairbus send`` is to send: arguments, files and standard input, line by line."""

import asyncio
import itertools
import json
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from pairbus.errors import DocumentError

if TYPE_CHECKING:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

CHUNK: Final = 500
STANDARD_INPUT: Final = "standard input"


@dataclass(frozen=True, slots=True)
class Line:
    """One message to send.

    :ivar where: where it was read, for people: ``orders.jsonl:3``.
    :ivar document: as it was read, with all that options add, and with its id.
    """

    where: str
    document: dict[str, Any]
    message: "AmqpAnnotatedMessage"


@dataclass(frozen=True, slots=True)
class BadLine:
    """One that cannot be read, and why."""

    where: str
    problem: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where messages come from, in this order: arguments, files, standard input.

    :ivar text: a line is a body as it is, and not JSON.
    :ivar defaults: fields for every message that does not have them itself.
    """

    arguments: Sequence[str] = ()
    files: Sequence[Path] = ()
    standard_input: bool = False
    text: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def at_hand(self) -> Iterator[Line | BadLine]:
        """Read what can be read twice: arguments and files."""
        for number, argument in enumerate(self.arguments, 1):
            yield self._made(f"argument {number}", {"body": argument})
        for path in self.files:
            with path.open(encoding="utf-8", errors="strict", newline="\n") as file:
                yield from self._lines(str(path), file)

    def _lines(self, name: str, file: Iterable[str]) -> Iterator[Line | BadLine]:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                bare = line.rstrip("\r\n")
                if bare.strip():
                    yield self._read(f"{name}:{number}", bare)
        except UnicodeDecodeError:
            yield BadLine(f"{name}:{number + 1}", "it is not UTF-8; convert the file, or give the body as body_base64")

    def _read(self, where: str, line: str) -> Line | BadLine:
        if self.text:
            return self._made(where, {"body": line})
        try:
            document = json.loads(line)
        except ValueError as error:
            return BadLine(
                where, f'not a line of JSON: {error}; write {{"body": "one coffee"}}, or add --text if lines are bodies'
            )
        return self._made(where, document)

    def _made(self, where: str, document: Any) -> Line | BadLine:  # noqa: ANN401 (what JSON may be)
        from pairbus.aio.documents import message_from

        try:
            if isinstance(document, dict):
                document = {**self.defaults, **cast("dict[str, Any]", document)}
                if not document.get("message_id"):
                    document["message_id"] = str(uuid.uuid4())
            message = message_from(document)
        except DocumentError as error:
            return BadLine(where, str(error))
        return Line(where, document, message)

    async def chunks(self) -> AsyncIterator[list[Line | BadLine]]:
        """Read everything, some lines at a time: of standard input, what is there."""
        chunk: list[Line | BadLine] = []
        for line in self.at_hand():
            chunk.append(line)
            if len(chunk) >= CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        if self.standard_input:
            async for chunk in _streamed(self._lines(STANDARD_INPUT, sys.stdin)):
                yield chunk


async def _streamed(lines: Iterator[Line | BadLine]) -> AsyncIterator[list[Line | BadLine]]:
    """Read in a thread of its own, which may wait for a line for ever without holding anything up."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Line | BadLine | None] = asyncio.Queue(CHUNK)

    def read() -> None:
        for line in itertools.chain(lines, (None,)):
            putting = queue.put(line)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):  # the command has ended
                putting.close()
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    ended = False
    while not ended:
        chunk: list[Line | BadLine] = []
        line = await queue.get()
        while line is not None:
            chunk.append(line)
            if queue.empty() or len(chunk) >= CHUNK:
                break
            line = queue.get_nowait()
        ended = line is None
        if chunk:
            yield chunk


def property_of(text: str) -> tuple[str, Any]:
    """Read an application property: ``name=text``, or ``name:=`` and JSON."""
    name, sign, value = text.partition("=")
    if not sign or not name.rstrip(":"):
        raise ValueError(f"{text!r} is not a property; write name=text, or name:=JSON for another type")
    if not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value)
    except ValueError as error:
        raise ValueError(f"{text!r}: what follows := is not JSON: {error}") from None


def is_terminal(stream: IO[str]) -> bool:
    """Tell whether a person sits at a stream."""
    return stream.isatty()
