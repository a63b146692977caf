"""What the dashboard finds out from namespaces, and does there, with the real SDK over sockets."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.core.ledger import Kind, Record, Stage
from pairbus.dashboard.dead_letters import DeadLetterError, Piles
from pairbus.dashboard.look import Looker
from pairbus.dashboard.snapshot import Role
from pairbus.errors import OptionError
from pairbus.instrument.hooks import Instrument
from pairbus.testing import EmbeddedBroker, QueueSettings

NOBODY = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"


Scenario: TypeAlias = Callable[[EmbeddedBroker, EmbeddedBroker], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    """Run a scenario with two namespaces."""
    with (
        EmbeddedBroker(namespaces=["contoso"], queues=["contoso/orders"], topics={"contoso/news": ["all"]}) as primary,
        EmbeddedBroker(namespaces=["fabrikam"]) as secondary,
    ):
        asyncio.run(scenario(primary, secondary))


class Records(list[Record]):
    """A sink that keeps what it is told."""

    def record(self, record: Record) -> None:
        self.append(record)


@dataclass
class Seen:
    """Both namespaces as the dashboard sees them, and what it wrote down of it."""

    primary: str
    secondary: str
    records: Records = field(default_factory=Records)

    async def __aenter__(self) -> Self:
        instrument = Instrument([self.records], client="dashboard")
        one = Looker(Role.PRIMARY, self.primary, None, instrument)
        other = Looker(Role.SECONDARY, self.secondary, one.client.fully_qualified_namespace, instrument)
        self.lookers = {Role.PRIMARY: one, Role.SECONDARY: other}
        self.piles = Piles(self.lookers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for looker in self.lookers.values():
            await looker.close()

    async def look(self) -> None:
        for looker in self.lookers.values():
            await looker.again()
        await self.piles.again()


def parked(path: str | None = None, message_id: str | None = None) -> ServiceBusMessage:
    """Make a message of a backlog queue that belongs there, or does not say where."""
    label: Any = None if path is None else {"x-ms-path": path}
    return ServiceBusMessage("x", application_properties=label, message_id=message_id)


async def dead_letter(address: str, queue: str, message: ServiceBusMessage, *, subscription: str | None = None) -> None:
    async with ServiceBusClient.from_connection_string(address) as client:
        sending = client.get_topic_sender(queue) if subscription else client.get_queue_sender(queue)
        async with sending as sender:
            await sender.send_messages(message)
        receiving = (
            client.get_subscription_receiver(queue, subscription) if subscription else client.get_queue_receiver(queue)
        )
        async with receiving as receiver:
            (received,) = await receiver.receive_messages(max_wait_time=10)
            await receiver.dead_letter_message(received, reason="Tested")


def test_a_namespace_is_seen_with_its_backlog_and_its_dead_letters() -> None:
    """B1, K1: depth, oldest age and destinations; each look is an operation that is written down."""

    async def scenario(primary: EmbeddedBroker, secondary: EmbeddedBroker) -> None:
        async with Seen(primary.connection_string, secondary.connection_string) as seen:
            label = seen.lookers[Role.PRIMARY].look.name
            backlog = f"{label}/x-servicebus-transfer/0"
            for path in (backlog, "other/x-servicebus-transfer/0"):
                secondary.create_queue(path, QueueSettings())
            async with (
                ServiceBusClient.from_connection_string(secondary.connection_string) as client,
                client.get_queue_sender(backlog) as sender,
            ):
                await sender.send_messages([parked("orders"), parked("orders"), parked()])
            await dead_letter(primary.connection_string, "news", ServiceBusMessage("x"), subscription="all")
            await seen.look()

            (queue,) = seen.lookers[Role.SECONDARY].look.backlog
            assert (queue.path, queue.depth) == (backlog, 3)
            assert queue.top is not None
            assert (dict(queue.top.destinations), queue.top.looked_at) == ({"orders": 2, "": 1}, 3)
            assert [(each.path, each.dead_letters) for each in seen.lookers[Role.PRIMARY].look.with_dead_letters] == [
                ("news/Subscriptions/all", 1)
            ]
            told = {(record.kind, record.stage, record.client) for record in seen.records}
            assert told == {
                (Kind.MANAGEMENT, Stage.SETUP, "dashboard"),
                (Kind.PEEK, Stage.SETUP, "dashboard"),
            }

            (pile,) = seen.piles.piles
            assert (pile.shelf.name, pile.letters[0].reason) == ("news/all", "Tested")
            with pytest.raises(OptionError, match="every subscription a copy"):
                await seen.piles.resubmit(pile, None)
            assert await seen.piles.resubmit(pile, None, "orders") == "1 message sent again."
            assert seen.lookers[Role.PRIMARY].look.queues[0].depth == 1
            assert seen.piles.piles == ()

    play(scenario)


def test_a_dead_letter_of_a_backlog_queue_goes_home_or_back_or_away() -> None:
    """Y3: what the syphon could not deliver can be sent where it belongs, by who knows where that is."""

    async def scenario(primary: EmbeddedBroker, secondary: EmbeddedBroker) -> None:
        async with Seen(primary.connection_string, secondary.connection_string) as seen:
            backlog = f"{seen.lookers[Role.PRIMARY].look.name}/x-servicebus-transfer/0"
            secondary.create_queue(backlog, QueueSettings())
            for number, path in enumerate(("orders", "orders", None)):
                await dead_letter(secondary.connection_string, backlog, parked(path, message_id=f"m{number}"))
            await seen.look()
            (pile,) = seen.piles.piles
            assert pile.shelf.is_backlog
            first, second, lost = pile.letters
            assert (first.destination, lost.destination) == ("orders", "")

            assert await seen.piles.resubmit(pile, [first]) == "1 message sent again."
            assert seen.lookers[Role.SECONDARY].look.backlog[0].depth == 1
            assert "m2 is kept:" in await seen.piles.resubmit(pile, [lost])
            assert await seen.piles.resubmit(pile, [lost], "orders") == "1 message sent again."
            (orders, *_) = (await seen.lookers[Role.PRIMARY].again()).queues
            assert (orders.path, orders.depth) == ("orders", 1)
            assert await seen.piles.discard(pile, [second]) == "1 message discarded."
            assert await seen.piles.discard(pile, None) == "0 messages discarded."
            assert seen.piles.piles == ()

            alone = Piles({Role.SECONDARY: seen.lookers[Role.SECONDARY]})
            with pytest.raises(OptionError, match="does not know the primary"):
                await alone.resubmit(pile, [second], "orders")

    play(scenario)


def test_what_cannot_be_seen_is_told_with_what_was_known() -> None:
    async def scenario(primary: EmbeddedBroker, secondary: EmbeddedBroker) -> None:
        await dead_letter(primary.connection_string, "orders", ServiceBusMessage("x"))
        listens = primary.create_policy("listens", ["Listen"])
        async with Seen(listens, NOBODY) as seen:
            await seen.look()
            denied, away = (looker.look for looker in seen.lookers.values())
            assert (denied.at, denied.problem) == (
                None,
                "access is denied: the connection string needs the Manage and Listen claims",
            )
            assert (away.at, away.problem) == (None, "it cannot be reached")
            assert not seen.piles.is_informed
        async with Seen(primary.connection_string, secondary.connection_string) as seen:
            await seen.look()
            (pile,) = seen.piles.piles
            await asyncio.to_thread(primary.stop)
            await seen.look()
            look = seen.lookers[Role.PRIMARY].look
            assert look.problem == "it cannot be reached"
            assert look.with_dead_letters, "what was known stays"
            with pytest.raises(DeadLetterError, match="it cannot be reached; what was not is a dead letter still"):
                await seen.piles.discard(pile, None)

    play(scenario)
