"""``pairbus send``: messages from arguments, files or standard input."""

import json
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pairbus.cli.connecting import (
    BacklogQueuesOption,
    Connection,
    PrimaryOption,
    SecondaryOption,
    Side,
    connection,
    optional,
)
from pairbus.cli.inputs import BadLine, InputMessage, Inputs, is_terminal, property_of
from pairbus.cli.parsing import duration
from pairbus.cli.running import FAILED, REFUSED, counted, explained, fail, run, say
from pairbus.cli.terminal import console, json_text

if TYPE_CHECKING:
    from pairbus.aio import MessagingFactory, Turn
    from pairbus.cli.shipping import SendCounts, Shipper

SHOWN: Final = 10
"""How many problems are told one by one."""

_TURNS: Final = {
    "suspect": "{entity} does not take messages; they are held",
    "engaged": "{entity} is failing over: messages are parked in the secondary from now on",
    "healthy": "{entity} is back: messages go to the primary again",
}


def send(
    entity: Annotated[str, typer.Argument(help="The queue or topic.")],
    message: Annotated[list[str] | None, typer.Argument(help="Bodies of messages, one each.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="A file of messages, one line of JSON each; - is standard input."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Lines are bodies as they are, and not JSON.")] = False,
    message_id: Annotated[str | None, typer.Option("--id", help="Its id, if it is one message.")] = None,
    session: Annotated[str | None, typer.Option(help="Session id.")] = None,
    subject: Annotated[str | None, typer.Option(help="Subject.")] = None,
    content_type: Annotated[str | None, typer.Option(help="Content type.")] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Correlation id.")] = None,
    ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="Time to live.")] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Enqueue it later: after 90s, 15m, 2h, or at 2026-01-31T12:00Z.")
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", metavar="NAME=TEXT", help="An application property; name:=JSON for another type."
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Send the good lines although there are bad.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only read everything and say what is wrong.")] = False,
    failed: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write what was not accepted to this file, to be sent again.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long one send may take.")] = "60s",
    failover_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Paired: how long the entity may fail before messages are parked.")
    ] = "10s",
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")] = False,
) -> None:
    """Send messages to a queue or topic; with a secondary given, paired: parked there when the primary is away.

    A line of JSON has the fields of the SDK's message: `body`, `message_id`, `session_id`, `subject`,
    `time_to_live`, `scheduled_enqueue_time_utc`, `application_properties` and so on. It is what `pairbus receive`
    writes. Options give a message what its line does not say.

    Arguments and files are read to their end before anything is sent: a bad line is named with its cure, and nothing
    is sent. Standard input is sent as it comes, up to the first bad line.

    Exit code: 0, a broker has accepted all of them; 1, not all; 2, nothing was sent.

    Examples:
    `pairbus send orders "one coffee" --session table-4 -p priority:=1` sends a message.

    `pairbus receive orders --peek --all | pairbus send copy` sends copies of all messages to another queue.

    """
    defaults = _defaults(
        prop or (),
        ttl,
        schedule,
        session_id=session,
        subject=subject,
        content_type=content_type,
        correlation_id=correlation_id,
    )
    inputs = _inputs(message or [], file or [], text=text, defaults=defaults)
    if message_id is not None:
        if inputs.standard_input or inputs.files or len(inputs.arguments) != 1:
            raise typer.BadParameter("an id is for one message, given as an argument", param_hint="--id")
        defaults["message_id"] = message_id
    if failed is not None and any(failed.resolve() == path.resolve() for path in inputs.files):
        raise typer.BadParameter("it is one of the files that are read", param_hint="--failed")
    seconds = duration("--timeout", timeout)
    if not seconds:
        raise typer.BadParameter("it must be more than 0", param_hint="--timeout")
    interval = duration("--failover-interval", failover_interval)
    to = None if check else connection(Side.PRIMARY, primary)
    beside = optional(Side.SECONDARY, secondary)
    total = _validated(inputs, keep_going=keep_going)
    if to is None:
        console().print(f"{counted(total, 'message')} can be sent")
        return
    screen = _SendScreen(to, failed, total if not inputs.standard_input else None)
    with screen:
        code = 0
        try:
            run(
                _send(screen, inputs, entity, beside, seconds, interval, backlog_queues, keep_going=keep_going),
                to,
                right="Send",
            )
        except typer.Exit as ended:
            code = ended.exit_code
    if screen.shipper is not None or as_json:
        _tell(screen, entity, as_json=as_json)
    raise typer.Exit(code or (0 if screen.counts.is_complete else FAILED))


async def _send(
    screen: "_SendScreen",
    inputs: Inputs,
    entity: str,
    beside: Connection | None,
    timeout: float,  # noqa: ASYNC109 (of one send, handed on)
    interval: float,
    backlog_queues: int,
    *,
    keep_going: bool,
) -> None:
    from pairbus.aio import SendAvailabilityPairedNamespaceOptions
    from pairbus.cli.shipping import ParkedCount, Shipper
    from pairbus.instrument.hooks import Instrument

    parked = ParkedCount()
    async with AsyncExitStack() as opened:
        if beside is None:
            factory: MessagingFactory = await opened.enter_async_context(screen.to.factory(retry_total=1))
        else:
            other = await opened.enter_async_context(beside.factory(retry_total=0))
            manager = await opened.enter_async_context(beside.manager())
            factory = await opened.enter_async_context(
                screen.to.factory(retry_total=0, instrument=Instrument([parked], client="pairbus send"))
            )
            await factory.pair_namespace(
                SendAvailabilityPairedNamespaceOptions(
                    manager, other, backlog_queue_count=backlog_queues, failover_interval=interval
                )
            )
            factory.availability.subscribe(screen.turned)
        sender = factory.get_queue_sender(entity)  # to AMQP a topic is no different; its first send opens it
        opened.push_async_callback(sender.close)
        screen.shipper = Shipper(sender, timeout, parked, screen.refused, screen.moved)
        await screen.shipper.ship(inputs.chunks(), keep_going=keep_going, endless=inputs.standard_input)


class _SendScreen:
    """What the user sees while messages are sent, and what is left over."""

    def __init__(self, to: Connection, failed: Path | None, total: int | None) -> None:
        self.to = to
        self.shipper: Shipper | None = None
        self.problems = 0
        self._failed = failed
        self._left = ExitStack()
        self._file: Any = None
        self._progress = Progress(
            TextColumn("sending"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
            disable=not is_terminal(sys.stderr),
        )
        self._task = self._progress.add_task("sending", total=total)

    @property
    def counts(self) -> "SendCounts":
        """What became of the messages so far."""
        from pairbus.cli.shipping import SendCounts

        return SendCounts() if self.shipper is None else self.shipper.counts

    def __enter__(self) -> None:
        self._left.enter_context(self._progress)

    def __exit__(self, *_error: object) -> None:
        self._left.close()

    def moved(self) -> None:
        """Show how far it has come."""
        self._progress.update(self._task, completed=self.counts.tried)

    def turned(self, turn: "Turn") -> None:
        """Tell of a turn of the entity's health."""
        self._progress.console.print(_TURNS[turn.state.value].format(entity=turn.entity))

    def refused(self, line: InputMessage | BadLine, error: BaseException | None) -> None:
        """Tell of a line that was not accepted, and keep it."""
        if isinstance(line, BadLine):
            self._problem(f"{line.where}: {line.problem}")
            return
        if error is not None:
            self._problem(f"{line.where}: {explained(error, self.to, right='Send')}")
        if self._failed is not None:
            if self._file is None:
                self._file = self._left.enter_context(self._failed.open("w", encoding="utf-8"))
            self._file.write(json_text(line.document) + "\n")

    def _problem(self, text: str) -> None:
        self.problems += 1
        if self.problems <= SHOWN:
            self._progress.console.print(text, soft_wrap=True)
        elif self.problems == SHOWN + 1:
            self._progress.console.print("... and more of them")


def _validated(inputs: Inputs, *, keep_going: bool) -> int:
    """Read all that can be read twice; end the command if a line of it is bad. Return how many are good."""
    good = bad = 0
    try:
        for line in inputs.at_hand():
            if isinstance(line, InputMessage):
                good += 1
                continue
            bad += 1
            if not keep_going and bad <= SHOWN:
                say(f"{line.where}: {line.problem}")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; name a file that can be read, or - for standard input")
    if bad and not keep_going:
        more = f" ({bad - SHOWN} more are bad)" if bad > SHOWN else ""
        say(f"nothing was sent{more}; correct the lines, or send the others with --keep-going")
        raise typer.Exit(REFUSED)
    return good + bad


def _inputs(arguments: list[str], files: list[Path], *, text: bool, defaults: dict[str, Any]) -> Inputs:
    named = [path for path in files if str(path) != "-"]
    standard_input = len(named) != len(files) or (not arguments and not files)
    if standard_input and not arguments and not files and is_terminal(sys.stdin):
        raise typer.BadParameter(
            'nothing to send: give bodies as arguments, or --file, or pipe lines of JSON into it ({"body": "..."})',
            param_hint="MESSAGE",
        )
    return Inputs(arguments, named, standard_input, text, defaults)


def _defaults(properties: Iterable[str], ttl: str | None, schedule: str | None, **given: str | None) -> dict[str, Any]:
    """Return the fields that options give to every message which does not have them itself."""
    made: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if ttl is not None:
        made["time_to_live"] = duration("--ttl", ttl)
    if schedule is not None:
        made["scheduled_enqueue_time_utc"] = _moment(schedule)
    try:
        named = dict(map(property_of, properties))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--property") from None
    return {**made, "application_properties": named} if named else made


def _moment(text: str) -> str:
    if text[:4].isdigit() and "-" in text:
        from pairbus.errors import DocumentError
        from pairbus.messages.values import moment

        try:
            return moment("--schedule", text).isoformat()
        except DocumentError:
            raise typer.BadParameter(
                f"{text!r} is no time; write 2026-01-31T12:00Z, or 15m for in 15 minutes", param_hint="--schedule"
            ) from None
    return (datetime.now(UTC) + timedelta(seconds=duration("--schedule", text))).isoformat()


def _tell(screen: _SendScreen, entity: str, *, as_json: bool) -> None:
    counts = screen.counts
    if as_json:
        typer.echo(json.dumps({"entity": entity, **asdict(counts)}))
        return
    said = [f"{counts.sent:,} sent", f"{counts.parked:,} parked", f"{counts.failed:,} failed"]
    if counts.unknown:
        said.append(
            f"{counts.unknown:,} unknown (no answer came: they may have arrived; if you repeat them, keep their ids)"
        )
    if counts.not_tried:
        said.append(f"{counts.not_tried:,} not tried")
    console().print(", ".join(said), soft_wrap=True)
