"""What the tests of the connector do with the SDK: send, receive, look."""

import asyncio
from collections.abc import Sequence

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from pyspark.sql import DataFrame, Row, SparkSession

from pairbus.amqp import Message
from pairbus.links.sdk.browsing import Browser
from pairbus.testing import EmbeddedBroker


def send(broker: EmbeddedBroker, entity: str, *messages: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
    """Send messages, in their order."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(entity) as sender,
    ):
        for message in messages:
            sender.send_messages(message)


def send_many(broker: EmbeddedBroker, entity: str, bodies: Sequence[str]) -> None:
    """Send messages of these bodies, as one batch."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(entity) as sender,
    ):
        sender.send_messages([ServiceBusMessage(body, message_id=body) for body in bodies])


def receive(broker: EmbeddedBroker, entity: str, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages, and complete them."""
    got: list[ServiceBusReceivedMessage] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(entity) as receiver,
    ):
        while len(got) < count:
            some = receiver.receive_messages(count - len(got), max_wait_time=10)
            assert some, f"{len(got)} of {count} messages came"
            for message in some:
                receiver.complete_message(message)
            got += some
    return got


def dead_letter(broker: EmbeddedBroker, entity: str, count: int) -> None:
    """Move messages to the dead-letter queue."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(entity) as receiver,
    ):
        for message in receiver.receive_messages(count, max_wait_time=10):
            receiver.dead_letter_message(message, reason="spoiled", error_description="smells")


def look(broker: EmbeddedBroker, entity: str, sub_queue: ServiceBusSubQueue | None = None) -> list[Message]:
    """Return all messages of an entity, as they are on the wire."""

    async def look() -> list[Message]:
        found: list[Message] = []
        async with (
            AsyncClient.from_connection_string(broker.connection_string) as client,
            Browser(client, entity, sub_queue=sub_queue) as browser,
        ):
            while page := [Message(each) for each in await browser.peek(number_of(found[-1]) + 1 if found else 1, 250)]:
                found += page
        return found

    return asyncio.run(look())


def number_of(message: Message) -> int:
    """Return a message's sequence number."""
    return int(message.message_annotations()["x-opt-sequence-number"])


def read(spark: SparkSession, broker: EmbeddedBroker, entity: str, **options: object) -> DataFrame:
    """Read an entity."""
    given = {"connectionString": broker.connection_string, "entity": entity, **options}
    return spark.read.format("servicebus").options(**{name: str(value) for name, value in given.items()}).load()


def write(frame: DataFrame, broker: EmbeddedBroker, **options: object) -> None:
    """Write a DataFrame."""
    given = {"connectionString": broker.connection_string, **options}
    writer = frame.write.format("servicebus").mode("append")
    writer.options(**{name: str(value) for name, value in given.items()}).save()


def in_order(frame: DataFrame) -> list[Row]:
    """Collect messages in the order of their entity."""
    return frame.orderBy("entity", "sequenceNumber").collect()
