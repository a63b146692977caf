"""What a message carries, and how messages are sent."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError
from tests.contract.conftest import Run
from tests.contract.lab import Lab, bodies, one, peek, receive, send

from pairbus.testing import QueueSettings


def body_of(message: ServiceBusReceivedMessage) -> object:
    body = message.body
    return body if message.body_type is AmqpMessageBodyType.VALUE else list(cast("Iterable[object]", body))


def test_every_kind_of_body_comes_back_as_it_was_sent(run: Run) -> None:
    value = {b"text": "grün", b"list": [1, 2.5, True, None], b"bytes": b"\x00\xff"}
    kinds: list[tuple[ServiceBusMessage | AmqpAnnotatedMessage, AmqpMessageBodyType, object]] = [
        (ServiceBusMessage("grün"), AmqpMessageBodyType.DATA, ["grün".encode()]),
        (ServiceBusMessage(b"\x00\x01\xff"), AmqpMessageBodyType.DATA, [b"\x00\x01\xff"]),
        (ServiceBusMessage(""), AmqpMessageBodyType.DATA, [b""]),
        (AmqpAnnotatedMessage(data_body=[b"one", b"two"]), AmqpMessageBodyType.DATA, [b"one", b"two"]),
        (AmqpAnnotatedMessage(value_body="text"), AmqpMessageBodyType.VALUE, b"text"),
        (AmqpAnnotatedMessage(value_body=value), AmqpMessageBodyType.VALUE, None),
        (AmqpAnnotatedMessage(value_body=1234567890), AmqpMessageBodyType.VALUE, 1234567890),
        (AmqpAnnotatedMessage(sequence_body=[[1, b"two"], [3.5]]), AmqpMessageBodyType.SEQUENCE, [[1, b"two"], [3.5]]),
    ]

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        for message, _, _ in kinds:
            await sender.send_messages(message)
        for looked in (await peek(receiver), await receive(receiver, len(kinds))):
            for message, (_, kind, expected) in zip(looked, kinds, strict=True):
                assert message.body_type is kind
                if expected is not None:
                    assert body_of(message) == expected
            table = cast("dict[bytes, Any]", looked[5].body)
            assert table[b"text"] == "grün".encode()
            assert table[b"list"] == [1, 2.5, True, None]
            assert table[b"bytes"] == b"\x00\xff"

    run(scenario)


def test_every_property_comes_back(run: Run) -> None:
    number = uuid.uuid4()
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        properties: dict[str | bytes, Any] = {
            "text": "grün",
            "int": 7,
            "float": 1.25,
            "bool": True,
            "uuid": number,
            "time": moment,
            "none": None,
        }
        sent = ServiceBusMessage(
            "body",
            message_id="id",
            correlation_id="correlation",
            subject="subject",
            to="to",
            reply_to="reply-to",
            reply_to_session_id="reply-session",
            content_type="application/json",
            session_id="session",
            partition_key="session",
            time_to_live=timedelta(hours=1),
            application_properties=properties,
        )
        await sender.send_messages(sent)
        for message in (*await peek(receiver), await one(receiver)):
            assert (message.message_id, message.correlation_id) == ("id", "correlation")
            assert (message.subject, message.to, message.reply_to) == ("subject", "to", "reply-to")
            assert message.reply_to_session_id == "reply-session"
            assert message.content_type == "application/json"
            assert (message.session_id, message.partition_key) == ("session", "session")
            assert message.time_to_live == timedelta(hours=1)
            assert message.expires_at_utc == (message.enqueued_time_utc or moment) + timedelta(hours=1)
            assert message.application_properties == {
                b"text": "grün".encode(),
                b"int": 7,
                b"float": 1.25,
                b"bool": True,
                b"uuid": number,
                b"time": 1767323045678,
                b"none": None,
            }

    run(scenario)


def test_an_annotated_message_keeps_its_sections(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        sent = AmqpAnnotatedMessage(
            data_body=b"body",
            header=AmqpMessageHeader(durable=True, priority=7),
            properties=AmqpMessageProperties(
                message_id=b"id",
                user_id=b"user",
                content_encoding="gzip",
                creation_time=1_700_000_000_000,
                absolute_expiry_time=1_700_000_060_000,
                group_sequence=3,
            ),
            annotations={"x-own": "annotation"},
            application_properties={"key": "value"},
            footer={"foot": "note"},
        )
        await sender.send_messages(sent)
        raw = (await one(receiver)).raw_amqp_message
        assert raw.header is not None
        assert (raw.header.durable, raw.header.priority) == (True, 7)
        assert raw.properties is not None
        assert (raw.properties.message_id, raw.properties.user_id) == (b"id", b"user")
        assert raw.properties.content_encoding == b"gzip"
        assert (raw.properties.creation_time, raw.properties.group_sequence) == (1_700_000_000_000, 3)
        assert raw.properties.absolute_expiry_time == 1_700_000_060_000
        assert (raw.annotations or {})[b"x-own"] == b"annotation"
        assert raw.footer == {b"foot": b"note"}

    run(scenario)


def test_numbers_rise_and_times_are_the_brokers(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        before = lab.clock.utc(-0.002)
        await send(sender, "a", "b")
        await lab.pass_time(100)
        await send(sender, "c")
        messages = await receive(receiver, 3)
        numbers = [message.sequence_number or 0 for message in messages]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
        times = [message.enqueued_time_utc or before for message in messages]
        assert before <= times[0] <= times[1]
        assert times[2] - times[1] >= timedelta(seconds=100)
        assert len({message.lock_token for message in messages}) == 3

    run(scenario)


def test_lists_and_batches_arrive_in_order(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await sender.send_messages([ServiceBusMessage(f"list {i}") for i in range(150)])
        batch = await sender.create_message_batch()
        for i in range(150):
            batch.add_message(ServiceBusMessage(f"batch {i}", message_id=str(i), application_properties={"i": i}))
        await sender.send_messages(batch)
        messages = await receive(receiver, 300)
        assert bodies(messages) == [f"list {i}" for i in range(150)] + [f"batch {i}" for i in range(150)]
        assert [message.message_id for message in messages[150:]] == [str(i) for i in range(150)]
        assert (messages[299].application_properties or {})[b"i"] == 149

    run(scenario)


def test_a_batch_takes_no_more_than_the_entity_does(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 256 * 1024
        for _ in range(26):
            batch.add_message(ServiceBusMessage(b"x" * 10_000))
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(ServiceBusMessage(b"x" * 10_000))
        await sender.send_messages(batch)
        assert len(await peek(receiver)) == 26
        with pytest.raises(ValueError, match="too large"):
            await sender.create_message_batch(max_size_in_bytes=256 * 1024 + 1)

    run(scenario)


def test_a_large_message_comes_whole(run: Run) -> None:
    body = bytes(range(256)) * 990

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await sender.send_messages(ServiceBusMessage(body))
        peeked = (await peek(receiver))[0]
        got = await one(receiver)
        for message in (peeked, got):
            assert b"".join(cast("Iterable[bytes]", message.body)) == body
        await receiver.complete_message(got)

    run(scenario)


def test_a_premium_queue_takes_larger_messages(run: Run) -> None:
    body = b"0123456789" * 300_000

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await sender.send_messages(ServiceBusMessage(body))
        got = await one(receiver)
        assert b"".join(cast("Iterable[bytes]", got.body)) == body

    run(scenario, orders=QueueSettings(max_message_size_in_kilobytes=4096))


def test_a_message_that_is_too_large_is_refused_and_the_sender_goes_on(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * (256 * 1024 + 1)))
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages([ServiceBusMessage(b"x" * 100_000) for _ in range(3)])
        with pytest.raises(MessageSizeExceededError):
            await sender.schedule_messages(ServiceBusMessage(b"x" * (256 * 1024 + 1)), lab.clock.utc(60))
        await send(sender, "fits")
        assert bodies(await peek(receiver)) == ["fits"]

    run(scenario)
