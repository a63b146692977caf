"""What ``pairbus send`` is to send: arguments, files and standard input, line by line."""

import asyncio
import json
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, cast

from pairbus.errors import DocumentError, PairbusError

if TYPE_CHECKING:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

CHUNK: Final = 500
STANDARD_INPUT: Final = "standard input"
_TOO_DEEP: Final = "its values are nested too deep; nest them less, or send the JSON as text in body"


class InputError(PairbusError):
    """What is to be sent cannot be read."""


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message to send.

    :ivar where: where it was read, for people: ``orders.jsonl:3``.
    :ivar document: as it was read, with all that options add, and with its id.
    :ivar size: how many bytes it takes in a batch. A message that cannot be encoded is a :class:`BadLine`.
    """

    where: str
    document: dict[str, Any]
    message: "AmqpAnnotatedMessage"
    size: int


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

    def at_hand(self) -> Iterator[InputMessage | BadLine]:
        """Read what can be read twice: arguments and files."""
        for number, argument in enumerate(self.arguments, 1):
            yield self._made(f"argument {number}", {"body": argument})
        for path in self.files:
            with path.open("rb") as file:
                yield from self._lines(str(path), file)

    def _lines(self, name: str, file: Iterable[bytes]) -> Iterator[InputMessage | BadLine]:
        """Read lines as bytes: whatever one of them holds, the number of the bad one is known."""
        for number, line in enumerate(file, 1):
            bare = line.rstrip(b"\r\n")
            if bare.strip():
                yield self._read(f"{name}:{number}", bare)

    def _read(self, where: str, line: bytes) -> InputMessage | BadLine:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            return BadLine(
                where,
                f"byte {error.start + 1} is not UTF-8 (0x{line[error.start]:02x}); "
                "convert the text, or give the body as body_base64",
            )
        if self.text:
            return self._made(where, {"body": text})
        try:
            document = json.loads(text)
        except RecursionError:
            return BadLine(where, _TOO_DEEP)
        except ValueError as error:
            return BadLine(
                where, f'not a line of JSON: {error}; write {{"body": "one coffee"}}, or add --text if lines are bodies'
            )
        return self._made(where, document)

    def _made(self, where: str, document: Any) -> InputMessage | BadLine:  # noqa: ANN401 (what JSON may be)
        from pairbus.messages.documents import message_from
        from pairbus.messages.sdk_messages import encoded_size

        try:
            if isinstance(document, dict):
                document = {**self.defaults, **cast("dict[str, Any]", document)}
                if not document.get("message_id"):
                    document["message_id"] = str(uuid.uuid4())
            message = message_from(document)
            return InputMessage(where, document, message, encoded_size(message))
        except DocumentError as error:
            return BadLine(where, str(error))
        except RecursionError:
            return BadLine(where, _TOO_DEEP)
        except UnicodeEncodeError as error:
            return BadLine(
                where, f"{error.object[error.start]!r} is half a character, which no text can have; remove it"
            )
        except (ArithmeticError, TypeError, ValueError) as error:
            return BadLine(where, f"it cannot be sent: {error}")

    async def chunks(self) -> AsyncIterator[list[InputMessage | BadLine]]:
        """Read everything, some lines at a time: of standard input, what is there."""
        chunk: list[InputMessage | BadLine] = []
        for line in self.at_hand():
            chunk.append(line)
            if len(chunk) >= CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        if self.standard_input:
            async for chunk in _streamed(self._lines(STANDARD_INPUT, sys.stdin.buffer)):
                yield chunk


_Read: TypeAlias = InputMessage | BadLine | BaseException | None
"""What the thread that reads standard input hands over; an error or None is the last."""


async def _streamed(lines: Iterator[InputMessage | BadLine]) -> AsyncIterator[list[InputMessage | BadLine]]:
    """Read in a thread of its own, which may wait for a line for ever without holding anything up.

    What the thread raises is raised here: the caller never waits for a thread that has ended.
    """
    queue: asyncio.Queue[_Read] = asyncio.Queue(CHUNK)
    arguments = (lines, queue, asyncio.get_running_loop())
    threading.Thread(target=_hand_over, args=arguments, name="standard input", daemon=True).start()
    while True:
        chunk: list[InputMessage | BadLine] = []
        line = await queue.get()
        while isinstance(line, InputMessage | BadLine):
            chunk.append(line)
            if queue.empty() or len(chunk) >= CHUNK:
                break
            line = queue.get_nowait()
        if chunk:
            yield chunk
        if isinstance(line, BaseException):
            raise line
        if line is None:
            return


def _hand_over(
    lines: Iterator[InputMessage | BadLine], queue: "asyncio.Queue[_Read]", loop: asyncio.AbstractEventLoop
) -> None:
    def put(line: _Read) -> bool:
        putting = queue.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except (RuntimeError, CancelledError):  # the command has ended
            putting.close()
            return False
        return True

    try:
        for line in lines:
            if not put(line):
                return
    except OSError as error:
        put(InputError(f"{STANDARD_INPUT}: {error.strerror}; pipe lines of JSON into it, or name a file with --file"))
    except BaseException as error:  # noqa: BLE001 (raised where it can be told)
        put(error)
    else:
        put(None)


def property_of(text: str) -> tuple[str, Any]:
    """Read an application property: ``name=text``, or ``name:=`` and JSON."""
    name, sign, value = text.partition("=")
    if not sign or not name.rstrip(":"):
        raise ValueError(f"{text!r} is not a property; write name=text, or name:=JSON for another type")
    if not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value)
    except RecursionError:
        raise ValueError(f"{name}: {_TOO_DEEP}") from None
    except ValueError as error:
        raise ValueError(f"{text!r}: what follows := is not JSON: {error}") from None


def is_terminal(stream: IO[str]) -> bool:
    """Tell whether a person sits at a stream."""
    return stream.isatty()
