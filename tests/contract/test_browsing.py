"""Looking at messages as bytes, over the management link alone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusAuthorizationError, ServiceBusError
from tests.client.stage import Records

from pairbus.amqp import Message
from pairbus.core.ledger import Kind
from pairbus.instrument.hooks import Instrument
from pairbus.links.sdk.browsing import Browser
from pairbus.testing import EmbeddedBroker, QueueSettings


def browse(broker: EmbeddedBroker, scenario: Callable[[ServiceBusClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            await scenario(client)

    asyncio.run(run())


def test_messages_of_all_sessions_are_seen_as_they_are_and_stay() -> None:
    async def scenario(client: ServiceBusClient) -> None:
        async with client.get_queue_sender("orders") as sender:
            for number in range(3):
                await sender.send_messages(ServiceBusMessage(str(number), session_id=str(number)))
        records = Records()
        async with Browser(client, "orders", instrument=Instrument([records], client="test")) as browser:
            assert [Message(each).data_sections() for each in await browser.peek(1, 10)] == [[b"0"], [b"1"], [b"2"]]
            assert [Message(each).data_sections() for each in await browser.peek(2, 1)] == [[b"1"]]
            assert await browser.peek(4, 10) == []
            assert browser.path == "orders"
        assert [(record.kind, record.messages) for record in records] == [
            (Kind.PEEK, 3),
            (Kind.PEEK, 1),
            (Kind.PEEK, 0),
        ]
        async with Browser(client, "orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as below:
            assert await below.peek(1, 10) == []
            assert below.path == "orders/$DeadLetterQueue"

    with EmbeddedBroker(queues={"orders": QueueSettings(requires_session=True)}) as broker:
        browse(broker, scenario)


def test_an_entity_that_was_deleted_and_made_again_is_looked_at_as_it_is_now() -> None:
    """The connection knows the old one, and is not used again."""
    with EmbeddedBroker(queues=["orders"]) as broker:

        async def scenario(client: ServiceBusClient) -> None:
            async with Browser(client, "orders") as browser:
                assert await browser.peek(1, 1) == []
                await asyncio.to_thread(broker.delete_queue, "orders")
                with pytest.raises(MessagingEntityNotFoundError):
                    await browser.peek(1, 1)
                await asyncio.to_thread(broker.create_queue, "orders", QueueSettings())
                assert await browser.peek(1, 1) == []
                await asyncio.to_thread(broker.delete_queue, "orders")
                await asyncio.to_thread(broker.create_queue, "orders", QueueSettings())
                assert await browser.peek(1, 1) == []

        browse(broker, scenario)


def test_an_entity_that_is_not_there_is_said_at_once() -> None:
    async def scenario(client: ServiceBusClient) -> None:
        async with Browser(client, "nowhere") as browser:
            with pytest.raises(MessagingEntityNotFoundError, match="'nowhere' could not be found"):
                await browser.peek(1, 1)

    with EmbeddedBroker(queues=["orders"]) as broker:
        browse(broker, scenario)


def test_a_browser_goes_on_after_its_connection_was_lost() -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:

        async def scenario(client: ServiceBusClient) -> None:
            async with Browser(client, "orders", attempt_timeout=5) as browser:
                assert await browser.peek(1, 1) == []
                await asyncio.to_thread(broker.fault, "localhost", "down", duration="300ms")
                assert await browser.peek(1, 1) == []

        browse(broker, scenario)


def test_looking_needs_the_right_to_listen() -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:
        address = broker.create_policy("sender", ["Send"])

        async def run() -> None:
            async with (
                ServiceBusClient.from_connection_string(address) as client,
                Browser(client, "orders", attempt_timeout=5) as browser,
            ):
                with pytest.raises((ServiceBusAuthorizationError, ServiceBusError)):
                    await browser.peek(1, 1)

        asyncio.run(run())
