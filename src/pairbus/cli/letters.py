"""The dead letters that ``pairbus deadletter`` means, and what it does with them."""

from collections.abc import Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO

import typer
from azure.servicebus.aio import ServiceBusClient

from pairbus.cli.connecting import Connection, Side, chosen, connection, optional
from pairbus.cli.parsing import duration
from pairbus.cli.terminal import json_text
from pairbus.core.naming import TRANSFER
from pairbus.operate import deadletters
from pairbus.operate.deadletters import Choice, Letter, Outcome, Shelf, browse_letters
from pairbus.syphon.survey import survey


@dataclass(frozen=True, slots=True)
class ChosenQueues:
    """The queues whose dead letters are meant.

    :ivar at: their namespace.
    :ivar shelf: None: all backlog queues of the pairing.
    :ivar primary: whose backlog it is, if it is one.
    """

    at: Connection
    shelf: Shelf | None
    primary: Connection | None
    backlog_queues: int

    async def shelves(self) -> list[Shelf]:
        """Find them."""
        if self.shelf is not None or self.primary is None:
            return [self.shelf] if self.shelf is not None else []
        async with self.at.client(retry_total=0) as client, self.at.manager() as manager:
            there = await survey(manager, client, self.primary.host, self.backlog_queues, look_at=0)
        return [Shelf(queue.path, is_backlog=True) for queue in there.queues if queue.dead_lettered]


def desk_of(
    entity: str | None,
    subscription: str | None,
    on: Side,
    primary: str | None,
    secondary: str | None,
    backlog_queues: int,
) -> ChosenQueues:
    """Read which queues are meant."""
    if entity is None:
        if subscription is not None:
            raise typer.BadParameter("name its topic, too", param_hint="--subscription")
        return ChosenQueues(
            connection(Side.SECONDARY, secondary), None, connection(Side.PRIMARY, primary), backlog_queues
        )
    is_backlog = f"/{TRANSFER}/" in entity.lower()
    at = connection(Side.SECONDARY, secondary) if is_backlog else chosen(on, primary, secondary)
    return ChosenQueues(at, Shelf(entity, subscription, is_backlog), optional(Side.PRIMARY, primary), backlog_queues)


def choice_of(
    reason: str | None,
    destination: str | None,
    older: str | None,
    newer: str | None,
    properties: Iterable[str],
    ids: list[str] | None,
    sequences: list[int] | None,
) -> Choice:
    """Read which dead letters are meant."""
    named: dict[str, str] = {}
    for each in properties:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{each!r} is not name=value", param_hint="--property")
        named[name] = value
    now = datetime.now(UTC)
    return Choice(
        reason=reason,
        destination=destination,
        before=None if older is None else now - timedelta(seconds=duration("--older-than", older)),
        after=None if newer is None else now - timedelta(seconds=duration("--newer-than", newer)),
        properties=named,
        message_ids=frozenset(ids) if ids else None,
        sequence_numbers=frozenset(sequences) if sequences else None,
    )


async def found(chosen_queues: ChosenQueues, choice: Choice, most: int | None) -> list[tuple[Shelf, Letter]]:
    """Look at them."""
    shelves = await chosen_queues.shelves()
    async with chosen_queues.at.client(retry_total=0) as client:
        return [
            (shelf, letter) for shelf in shelves async for letter in browse_letters(client, shelf, choice, most=most)
        ]


async def export(chosen_queues: ChosenQueues, choice: Choice, most: int | None, file: IO[str]) -> int:
    """Write them, and return how many."""
    count = 0
    shelves = await chosen_queues.shelves()
    async with chosen_queues.at.client(retry_total=0) as client:
        for shelf in shelves:
            async with aclosing(browse_letters(client, shelf, choice, most=most)) as letters:
                async for letter in letters:
                    file.write(json_text(letter.document()) + "\n")
                    count += 1
    file.flush()
    return count


async def resubmit(
    chosen_queues: ChosenQueues, choice: Choice, most: int | None, to: str | None, done: list[Letter]
) -> Outcome:
    """Send them again; ``done`` gets those that were, even if it fails half way."""
    total = Outcome()
    shelves = await chosen_queues.shelves()
    async with AsyncExitStack() as opened:
        client: ServiceBusClient = await opened.enter_async_context(chosen_queues.at.client(retry_total=0))
        for shelf in shelves:
            elsewhere = None
            if to is not None and shelf.is_backlog and chosen_queues.primary is not None:
                elsewhere = await opened.enter_async_context(chosen_queues.primary.client(retry_total=0))
            outcome = await deadletters.resubmit(
                client, shelf, choice, to=to, to_client=elsewhere, most=most, told=done.append
            )
            total.add(outcome)
    return total


async def discard(chosen_queues: ChosenQueues, choice: Choice, most: int | None, done: list[Letter]) -> Outcome:
    """Discard them; ``done`` gets those that were, even if it fails half way."""
    total = Outcome()
    shelves = await chosen_queues.shelves()
    async with chosen_queues.at.client(retry_total=0) as client:
        for shelf in shelves:
            total.add(await deadletters.discard(client, shelf, choice, most=most, told=done.append))
    return total
