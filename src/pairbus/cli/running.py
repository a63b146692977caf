"""Running a command's work: whatever goes wrong ends with a line that names the cure, never with a traceback."""

import asyncio
import errno
import logging
import os
import re
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer

from pairbus.cli.terminal import console, line

if TYPE_CHECKING:
    from pairbus.cli.connecting import Connection

T = TypeVar("T")

FAILED: Final = 1
"""Exit code: the work was tried, and not all of it succeeded."""
REFUSED: Final = 2
"""Exit code: nothing could be done; an option, an input or the access is wrong."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))

_CURES: Final = {
    "UNAUTHORIZED": "check the key, and that its policy has the right ({right})",
    "NOT_FOUND": "check the name",
    "CONNECTION": "check the connection string's endpoint and the network",
    "TIMEOUT": "check the connection string's endpoint and the network, or give it more time",
    "INTERNAL": "try again",
    "DISABLED": "enable it",
    "FULL": "let its consumers catch up, or raise its quota",
    "BUSY": "try again later, or with fewer messages",
    "TOO_LARGE": "send it in smaller parts",
}
_SECRET: Final = re.compile(r"(?i)(SharedAccessKey|SharedAccessSignature|sig)=[^;&\s'\"]+")
_NOISE: Final = re.compile(
    r"<[^<>]*>|Content:(?=\s*<)|Operation returned an invalid status '[^']*'(?=\s)"
    r"|Error condition: \S+|Status Code: \d+\.?"
    r"|(?:TrackingId|SystemTracker|Timestamp):[^\s<]+|(?<=<Code>)\d+"
)


def run(work: Coroutine[Any, Any, T], where: "Connection | None" = None, *, right: str = "Manage") -> T:
    """Do a piece of asynchronous work to its end.

    :param where: the namespace that it works with, to be named in errors.
    :param right: the right that it needs there.
    """
    for name in ("azure", "pairbus"):  # what a user is to know, the command says itself
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(pipe_is_broken()) from None
    except Exception as error:
        if not is_foreseen(error) or (isinstance(error, OSError) and is_of_output(error)):
            raise
        fail(explained(error, where, right=right))


def is_foreseen(error: BaseException) -> bool:
    """Tell whether an error is a broker's, a network's or the caller's own, and no bug."""
    from pairbus.core.verdict import Cause
    from pairbus.errors import PairbusError
    from pairbus.links.errors import facts

    return isinstance(error, PairbusError) or facts(error).cause is not Cause.UNEXPECTED


def explained(error: BaseException, where: "Connection | None" = None, *, right: str = "Manage") -> str:
    """Say in a line what an error of the SDK means, and what cures it; no secret is in it."""
    from pairbus.errors import PairbusError
    from pairbus.links.errors import facts

    words = tidied(str(error)) or type(error).__name__
    if isinstance(error, PairbusError):
        return words
    cause = facts(error).cause
    there = f"{where.side.value} namespace {where.host}: " if where is not None else ""
    cure = _CURES.get(cause.name)
    said = f"{there}{cause.value}: {words}"
    return said if cure is None else f"{said}; {cure.format(right=right)}"


def tidied(text: str) -> str:
    """Return an error's text in a line, without what only the service's owner can read, and without secrets."""
    words = without_secrets(" ".join(_NOISE.sub(" ", text).split()))
    return re.sub(r"(?:\s*[.,]+)+(?=;|$)|\.(?=\.)", "", words).replace(" ;", ";")


def without_secrets(text: str) -> str:
    """Take keys and signatures out of a text."""
    return _SECRET.sub(r"\1=…", text)


def fail(text: str, code: int = REFUSED) -> NoReturn:
    """End the command with a line that says why."""
    say_error(text)
    raise typer.Exit(code) from None


def say_error(text: str) -> None:
    """Say what is wrong."""
    console(stderr=True).print(line(("error: ", "bold red"), text), soft_wrap=True)


def say(text: str) -> None:
    """Tell the user something that is no result, and so does not go where results go."""
    console(stderr=True).print(text, soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def pipe_is_broken() -> int:
    """Have nothing more written to a reader that has gone, and return the exit code that says so."""
    discard_output()
    return BROKEN_PIPE


def is_of_output(error: OSError) -> bool:
    """Tell whether an error means that the command's output has no room: a file of ours would be named in it."""
    return error.errno in _NO_ROOM and error.filename is None


def discard_output() -> None:
    """Have nothing more written: what is left in the buffer cannot be, and its error would be one more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
