"""``pairbus receive``: messages of a queue or subscription, as lines of JSON."""

import enum
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pairbus.cli.connecting import Connection, OnOption, PrimaryOption, SecondaryOption, Side, chosen
from pairbus.cli.parsing import duration
from pairbus.cli.running import FAILED, counted, explained, fail, pipe_is_broken, run, say
from pairbus.cli.terminal import json_text

if TYPE_CHECKING:
    from pairbus.amqp import Message
    from pairbus.links.sdk.links import QueueLink

BURST: Final = 100
"""How many messages are under lock at once: they must be written before their locks end."""
SECONDS: Final = 15.0
"""The deadline of each step, beyond the time that it waits for messages."""


LAST_LOOK: Final = 0.2
"""How long a message may be on its way that the broker has forgotten already, in seconds."""


class Mode(enum.Enum):
    """What becomes of a message at the broker."""

    PEEK = "peek"
    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class SubQueue(enum.Enum):
    """A queue that belongs to an entity."""

    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"


_PATHS: Final = {
    SubQueue.DEAD_LETTER: "$DeadLetterQueue",
    SubQueue.TRANSFER_DEAD_LETTER: "$Transfer/$DeadLetterQueue",
}


@dataclass(slots=True)
class _Count:
    written: int = 0
    not_completed: int = 0


def receive(
    entity: Annotated[str, typer.Argument(help="The queue, or the topic of the subscription.")],
    subscription: Annotated[str | None, typer.Option("--subscription", "-s", help="One of the topic.")] = None,
    most: Annotated[int, typer.Option("--max", "-n", min=1, metavar="N", help="How many messages at most.")] = 1,
    everything: Annotated[bool, typer.Option("--all", help="All messages, until none has come for --wait.")] = False,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for the next message.")] = "5s",
    mode: Annotated[
        Mode, typer.Option(help="peek-lock completes a message once its line is written; peek only looks.")
    ] = Mode.PEEK_LOCK,
    peek: Annotated[bool, typer.Option("--peek", help="Only look: the same as --mode peek.")] = False,
    sub_queue: Annotated[SubQueue | None, typer.Option(help="Its dead-letter or transfer-dead-letter queue.")] = None,
    session: Annotated[str | None, typer.Option(help="Receive from this session.")] = None,
    next_session: Annotated[
        bool, typer.Option("--next-session", help="Receive from the next session that has messages.")
    ] = False,
    first: Annotated[
        int, typer.Option("--from", min=1, metavar="NUMBER", help="peek: from this sequence number on.")
    ] = 1,
    on: OnOption = Side.PRIMARY,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
) -> None:
    """Receive messages, and write each as a line of JSON that `pairbus send` accepts.

    A message is completed only after its line is written and flushed: if the command is interrupted, its reader goes
    away or the disk is full, what was not written is still in the queue. With `--mode receive-and-delete` the broker
    forgets a message when it sends it: cheaper by one operation, and lost if it is interrupted.

    Exit code: 0, also if there were no messages; 1, a message was written and could not be completed, and so will
    come again; 2, nothing could be received; 141, the reader of the output has gone.

    Examples:
    `pairbus receive orders` takes one message.

    `pairbus receive orders --peek --all > orders.jsonl` copies what is in a queue, and leaves it there.

    `pairbus receive orders -s audit --sub-queue dead-letter --all` empties a subscription's dead-letter queue.

    """
    from pairbus.links.sdk.browsing import path_of

    if session is not None and next_session:
        raise typer.BadParameter("give either --session or --next-session", param_hint="--session")
    seconds = duration("--wait", wait)
    path = path_of(entity, subscription=subscription, sub_queue=_PATHS[sub_queue] if sub_queue else None)
    at = chosen(on, primary, secondary)
    limit = None if everything else most
    count = _Count()
    if peek or mode is Mode.PEEK:
        if next_session:
            raise typer.BadParameter("name the session to look at with --session", param_hint="--next-session")
        run(_peek(at, path, count, first=first, most=limit, session=session), at, right="Listen")
    else:
        run(
            _receive(at, path, count, mode, limit, seconds, session=session, next_session=next_session),
            at,
            right="Listen",
        )
    if count.not_completed:
        say(
            f"{count.not_completed:,} of {counted(count.written, 'message')} could not be completed once written: "
            "they will come again, with the same ids"
        )
        raise typer.Exit(FAILED)


async def _peek(at: Connection, path: str, count: _Count, *, first: int, most: int | None, session: str | None) -> None:
    from pairbus.links.sdk.browsing import browse

    async with (
        at.client(retry_total=0) as client,
        aclosing(browse(client, path, first=first, most=most, session_id=session)) as messages,
    ):
        async for message in messages:
            _write([message])
            count.written += 1


async def _receive(
    at: Connection,
    path: str,
    count: _Count,
    mode: Mode,
    most: int | None,
    wait: float,
    *,
    session: str | None,
    next_session: bool,
) -> None:
    from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode

    from pairbus.amqp import Message
    from pairbus.links.sdk.links import QueueLink

    settled = mode is Mode.RECEIVE_AND_DELETE
    options: dict[str, Any] = {
        "receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE if settled else ServiceBusReceiveMode.PEEK_LOCK,
        "session_id": NEXT_AVAILABLE_SESSION if next_session else session,
        "max_wait_time": max(wait, 0.1),
    }
    async with at.client(retry_total=0) as client:
        link = QueueLink(client.get_queue_receiver(path, **options))
        try:
            try:
                await link.do(SECONDS + wait, link.open())
            except Exception as error:
                if next_session and _no_session(error):
                    return
                raise
            while most is None or count.written < most:
                burst = BURST if most is None else min(BURST, most - count.written)
                if not await _burst(link, burst, wait, count, settled=settled):
                    break
            if settled:
                rest = await link.do(SECONDS, link.take_rest(LAST_LOOK))
                _write([Message(payload) for _, payload in rest], settled=True)
        finally:
            await link.close()


async def _burst(link: "QueueLink", most: int, wait: float, count: _Count, *, settled: bool) -> bool:
    """Receive some messages, write them, and only then complete them; tell whether there were any."""
    from pairbus.amqp import Message

    began = time.monotonic()
    take = link.take if settled else link.receive
    got = await link.do(wait + SECONDS, take(most, max(wait, 0.01)))
    if not got:
        return time.monotonic() - began < wait
    try:
        _write([Message(payload) for _, payload in got], settled=settled)
    except (OSError, typer.Exit):
        if not settled:  # others need not wait until the locks end
            await link.do(SECONDS, link.settle_run([message for message, _ in got], "abandon"))
        raise
    count.written += len(got)
    if not settled:
        try:
            await link.do(SECONDS, link.settle_run([message for message, _ in got], "complete"))
        except Exception as error:  # noqa: BLE001 (the lines are out, and the messages come again)
            count.not_completed += len(got)
            say(explained(error, right="Listen"))
            return False
    return True


def _no_session(error: Exception) -> bool:
    """Tell whether nobody has sent to any session, for which the SDK has only a time-out."""
    from azure.servicebus.exceptions import OperationTimeoutError

    return isinstance(error, OperationTimeoutError)


def _write(messages: "Sequence[Message]", *, settled: bool = False) -> None:
    """Write messages to the output.

    :param settled: whether the broker has forgotten them already.
    """
    from pairbus.messages.documents import document_of

    try:
        for message in messages:
            sys.stdout.write(json_text(document_of(message)) + "\n")
        sys.stdout.flush()
    except OSError as error:
        lost = f"up to {counted(len(messages), 'message')} that the broker has forgotten are lost" if settled else ""
        if isinstance(error, BrokenPipeError):
            if lost:
                say(f"the reader of the output has gone; {lost}")
            raise
        pipe_is_broken()  # what is left in the buffer can be written no more than the rest
        left = lost or "what was not written is still in the queue"
        fail(f"the output cannot be written: {error.strerror}; {left}")
