"""``pairbus deadletter``: what could not be delivered, to be looked at, sent again, kept elsewhere or discarded."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.highlighter import JSONHighlighter
from rich.table import Table

from pairbus.cli.connecting import (
    BacklogQueuesOption,
    PrimaryOption,
    SecondaryOption,
    Side,
    connection,
)
from pairbus.cli.inputs import is_terminal
from pairbus.cli.running import FAILED, REFUSED, counted, fail, run, say
from pairbus.cli.status import age
from pairbus.cli.terminal import console, json_text, visible

if TYPE_CHECKING:
    from pairbus.operate.deadletters import Letter, Outcome, Shelf

deadletter = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at messages that could not be delivered, send them again, export or discard them.",
)

EntityArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(help="A queue, or the topic of a subscription. Without: all backlog queues of the pairing."),
]
SubscriptionOption: TypeAlias = Annotated[
    str | None, typer.Option("--subscription", "-s", help="A subscription of the topic.")
]
OnOption: TypeAlias = Annotated[Side, typer.Option("--on", help="The namespace in which the entity is.")]
ReasonOption: TypeAlias = Annotated[str | None, typer.Option(help="Only those with this reason.")]
DestinationOption: TypeAlias = Annotated[
    str | None, typer.Option(help="Only those that belong to this queue or topic, of a backlog queue.")
]
OlderOption: TypeAlias = Annotated[str | None, typer.Option(metavar="DURATION", help="Only those older than this.")]
NewerOption: TypeAlias = Annotated[str | None, typer.Option(metavar="DURATION", help="Only those younger than this.")]
PropertyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="NAME=VALUE", help="Only those with this application property."),
]
IdOption: TypeAlias = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this message.")]
SequenceOption: TypeAlias = Annotated[
    list[int] | None, typer.Option("--sequence", metavar="NUMBER", help="Only the one with this sequence number.")
]
MaxOption: TypeAlias = Annotated[
    int | None, typer.Option("--max", "-n", min=1, metavar="N", help="How many at most, of each queue.")
]
DryRunOption: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]


@deadletter.command("list")
def list_letters(
    entity: EntityArgument = None,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    destination: DestinationOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    prop: PropertyOption = None,
    message_id: IdOption = None,
    sequence: SequenceOption = None,
    most: MaxOption = 1000,
    on: OnOption = Side.PRIMARY,
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters: of all backlog queues, or of one queue or subscription. Nothing is locked.

    Examples:
    `pairbus deadletter list` lists what the syphon could not deliver.

    `pairbus deadletter list orders --reason MaxDeliveryCountExceeded --older-than 1d` lists those of a queue.

    """
    from pairbus.cli import letters

    chosen_queues = letters.desk_of(entity, subscription, on, primary, secondary, backlog_queues)
    choice = letters.choice_of(reason, destination, older_than, newer_than, prop or (), message_id, sequence)
    found = run(letters.found(chosen_queues, choice, most), chosen_queues.at, right="Listen")
    if as_json:
        typer.echo(json.dumps([_summary(shelf, letter) for shelf, letter in found], indent=2, default=str))
        return
    terminal = console()
    if not found:
        terminal.print("There are no dead letters." if choice.is_everything else "There are no such dead letters.")
        return
    table = Table("queue", "number", "message id", "age", "reason", "destination")
    for shelf, letter in found:
        table.add_row(
            _short(shelf),
            str(letter.sequence_number),
            visible(letter.message_id),
            age(letter.enqueued_at),
            visible(letter.reason),
            visible(letter.destination),
        )
    terminal.print(table)
    terminal.print(f"{counted(len(found), 'dead letter')}")


@deadletter.command()
def show(
    entity: EntityArgument = None,
    subscription: SubscriptionOption = None,
    message_id: IdOption = None,
    sequence: SequenceOption = None,
    on: OnOption = Side.PRIMARY,
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
) -> None:
    """Show dead letters in full, by id or sequence number: all properties, the body, and why they are dead letters."""
    from pairbus.cli import letters

    if not message_id and not sequence:
        raise typer.BadParameter("say which one: --id or --sequence, as `pairbus deadletter list` shows them")
    chosen_queues = letters.desk_of(entity, subscription, on, primary, secondary, backlog_queues)
    choice = letters.choice_of(None, None, None, None, (), message_id, sequence)
    found = run(letters.found(chosen_queues, choice, None), chosen_queues.at, right="Listen")
    if not found:
        fail("there is no such dead letter; see pairbus deadletter list", FAILED)
    for _, letter in found:
        console().print(JSONHighlighter()(json_text(letter.document(), indent=2)), soft_wrap=True)


@deadletter.command()
def export(
    entity: EntityArgument = None,
    subscription: SubscriptionOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Write to this file, which must not exist.")
    ] = None,
    reason: ReasonOption = None,
    destination: DestinationOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    prop: PropertyOption = None,
    message_id: IdOption = None,
    sequence: SequenceOption = None,
    most: MaxOption = None,
    on: OnOption = Side.PRIMARY,
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
) -> None:
    """Write dead letters as lines of JSON, which `pairbus send` accepts. They stay where they are."""
    from pairbus.cli import letters

    chosen_queues = letters.desk_of(entity, subscription, on, primary, secondary, backlog_queues)
    choice = letters.choice_of(reason, destination, older_than, newer_than, prop or (), message_id, sequence)
    if output is None:
        run(letters.export(chosen_queues, choice, most, sys.stdout), chosen_queues.at, right="Listen")
        return
    try:
        file = output.open("x", encoding="utf-8")
    except OSError as error:
        fail(f"{output}: {error.strerror}; name a file that is not there yet")
    with file:
        count = run(letters.export(chosen_queues, choice, most, file), chosen_queues.at, right="Listen")
    say(f"{counted(count, 'dead letter')} written to {output}")


@deadletter.command()
def resubmit(
    entity: EntityArgument = None,
    subscription: SubscriptionOption = None,
    to: Annotated[
        str | None,
        typer.Option(help="Send them to this queue or topic instead; those of a backlog queue: of the primary."),
    ] = None,
    reason: ReasonOption = None,
    destination: DestinationOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    prop: PropertyOption = None,
    message_id: IdOption = None,
    sequence: SequenceOption = None,
    most: MaxOption = None,
    dry_run: DryRunOption = False,
    on: OnOption = Side.PRIMARY,
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again, with the ids they had, and remove those that were accepted.

    One of a queue goes back to its queue. One of a backlog queue goes back to that, as it was parked, and the syphon
    carries it home; with `--to` it is unparked and sent there. For one of a subscription say where it goes: the topic
    gives every subscription another copy.

    A dead letter is removed only after a broker has accepted it again. Interrupted, one may be in both places, with
    the same id.

    Exit code: 0, all that were meant were sent again; 1, some are dead letters still; 2, nothing could be done.

    Examples:
    `pairbus deadletter resubmit --reason DestinationGone --destination orders --dry-run` says what it would do.

    `pairbus deadletter resubmit orders --older-than 1h` gives a queue's dead letters another try.

    """
    from pairbus.cli import letters

    chosen_queues = letters.desk_of(entity, subscription, on, primary, secondary, backlog_queues)
    if subscription is not None and to is None:
        raise typer.BadParameter(
            f"say where they go; {entity!r} gives every subscription whose rules match another copy", param_hint="--to"
        )
    if to is not None and (chosen_queues.shelf is None or chosen_queues.shelf.is_backlog):
        connection(Side.PRIMARY, primary)
    choice = letters.choice_of(reason, destination, older_than, newer_than, prop or (), message_id, sequence)
    if dry_run:
        _would(run(letters.found(chosen_queues, choice, most), chosen_queues.at, right="Listen"), "sent again")
        return
    done: list[Letter] = []
    try:
        outcome = run(
            letters.resubmit(chosen_queues, choice, most, to, done), chosen_queues.at, right="Listen and Send"
        )
    except typer.Exit:
        say(f"{counted(len(done), 'dead letter')} sent again before; the others are where they were")
        raise
    _tell(outcome, "sent again", as_json=as_json)


@deadletter.command()
def discard(
    entity: EntityArgument = None,
    subscription: SubscriptionOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, if no filter says which.")] = False,
    reason: ReasonOption = None,
    destination: DestinationOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    prop: PropertyOption = None,
    message_id: IdOption = None,
    sequence: SequenceOption = None,
    most: MaxOption = None,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    on: OnOption = Side.PRIMARY,
    backlog_queues: BacklogQueuesOption = 10,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove dead letters for good. `pairbus deadletter export` keeps a copy.

    Example:
    `pairbus deadletter discard orders --reason TTLExpiredException --older-than 30d` asks, and removes them.

    """
    from pairbus.cli import letters

    chosen_queues = letters.desk_of(entity, subscription, on, primary, secondary, backlog_queues)
    choice = letters.choice_of(reason, destination, older_than, newer_than, prop or (), message_id, sequence)
    if choice.is_everything and not everything and not dry_run:
        raise typer.BadParameter("say which with a filter, or --all", param_hint="--all")
    if dry_run or not yes:
        found = run(letters.found(chosen_queues, choice, most), chosen_queues.at, right="Listen")
        if dry_run or not found:
            _would(found, "discarded")
            return
        if not is_terminal(sys.stdin):
            fail("nobody is there to be asked; add --yes")
        if not typer.confirm(f"Remove {counted(len(found), 'dead letter')} for good?"):
            raise typer.Exit(REFUSED)
    done: list[Letter] = []
    try:
        outcome = run(letters.discard(chosen_queues, choice, most, done), chosen_queues.at, right="Listen")
    except typer.Exit:
        say(f"{counted(len(done), 'dead letter')} discarded before; the others are where they were")
        raise
    _tell(outcome, "discarded", as_json=as_json)


def _would(found: "list[tuple[Shelf, Letter]]", what: str) -> None:
    terminal = console()
    for shelf, letter in found:
        why = f" ({letter.reason})" if letter.reason else ""
        terminal.print(visible(f"{_short(shelf)} {letter.sequence_number} {letter.message_id}{why}"), soft_wrap=True)
    terminal.print(f"{counted(len(found), 'dead letter')} would be {what}; nothing was done")


def _tell(outcome: "Outcome", what: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "done": [letter.message_id for letter in outcome.done],
                    "kept": [{"message_id": letter.message_id, "why": why} for letter, why in outcome.kept],
                    "twice": [letter.message_id for letter in outcome.twice],
                    "vanished": outcome.vanished,
                }
            )
        )
    else:
        for letter, why in outcome.kept:
            say(visible(f"{letter.sequence_number} {letter.message_id}: {why}"))
        said = [f"{counted(len(outcome.done), 'dead letter')} {what}"]
        if outcome.kept:
            said.append(f"{len(outcome.kept):,} kept")
        if outcome.twice:
            said.append(
                f"{len(outcome.twice):,} sent again and not removed: they are in both places, with the same ids"
            )
        if outcome.vanished:
            said.append(f"{outcome.vanished:,} taken by somebody else")
        console().print(", ".join(said), soft_wrap=True)
    if outcome.kept or outcome.twice or outcome.vanished:
        raise typer.Exit(FAILED)


def _summary(shelf: "Shelf", letter: "Letter") -> dict[str, Any]:
    return {
        "queue": shelf.name,
        "sequence_number": letter.sequence_number,
        "message_id": letter.message_id,
        "enqueued_time_utc": None if letter.enqueued_at is None else letter.enqueued_at.isoformat(),
        "reason": letter.reason,
        "description": letter.description,
        "destination": letter.destination or None,
    }


def _short(shelf: "Shelf") -> str:
    return shelf.name.rpartition("/")[2] if shelf.is_backlog else shelf.name
