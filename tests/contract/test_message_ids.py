"""What the broker adds to messages, as the cloud does: an id where there is none, and the token of a lock."""

import asyncio
import re
import uuid
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from tests.contract.conftest import Run, play
from tests.contract.lab import Lab, bodies, one, peek, receive, send
from tests.contract.sdk import Sdk
from tests.support.caller import Caller
from tests.support.client import Login

from pairbus.amqp import Message, build_message
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.sections import Properties
from pairbus.testing import EmbeddedBroker, QueueSettings

LOCK_TOKEN = b"x-opt-lock-token"


def bare(body: str, **properties: Any) -> AmqpAnnotatedMessage:  # noqa: ANN401 (the SDK's own)
    """Make a message without an id, which the SDK gives those of its other kind."""
    return AmqpAnnotatedMessage(data_body=[body.encode()], properties=AmqpMessageProperties(**properties))


def are_new(ids: Iterable[object]) -> bool:
    """Tell whether ids are the broker's, all different."""
    names = [str(name) for name in ids]
    return len(names) == len(set(names)) and all(re.fullmatch("[0-9a-f]{32}", name) for name in names)


def test_a_message_without_an_id_gets_one(run: Run) -> None:
    """Node.js' SDK ends its process on a delivery without."""

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await sender.send_messages(bare("single"))
        await sender.send_messages([bare("of a list"), bare("with one", message_id="x")])
        batch = await sender.create_message_batch()
        batch.add_message(bare("of a batch", subject="s" * 230))
        await sender.send_messages(batch)
        await sender.schedule_messages(bare("scheduled"), lab.clock.utc(60))
        peeked = {str(message): message.message_id for message in await peek(receiver)}
        await lab.pass_time(61)
        got = {str(message): message for message in await receive(receiver, 5)}
        assert list(got) == ["single", "of a list", "with one", "of a batch", "scheduled"]
        assert {body: message.message_id for body, message in got.items()} == peeked
        assert got.pop("with one").message_id == "x"
        assert got["of a batch"].subject == "s" * 230
        assert got.pop("scheduled").message_id, "the SDK's own, or the broker's"
        assert are_new(message.message_id for message in got.values())
        first = got["single"]
        await receiver.abandon_message(first)
        assert (await one(receiver)).message_id == first.message_id, "it keeps it"

    run(scenario)


def test_the_id_is_the_same_wherever_a_message_goes(tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        sender = await lab.topic_sender("news")
        subscribers = [await lab.subscriber(name, "news") for name in ("one", "two")]
        await sender.send_messages(bare("a"))
        copies = [await one(subscriber) for subscriber in subscribers]
        assert copies[0].message_id == copies[1].message_id
        assert are_new([copies[0].message_id])
        await subscribers[0].dead_letter_message(copies[0])
        dead = await lab.open(lab.client().get_subscription_receiver("news", "one", sub_queue="deadletter"))
        assert (await one(dead)).message_id == copies[0].message_id
        await lab.restart()
        (again,) = await peek(await lab.subscriber("two", "news"))
        assert again.message_id == copies[0].message_id

    play(scenario, Sdk("aio"), {}, tmp_path, topics={"news": ["one", "two"]})


def test_messages_without_ids_are_no_duplicates(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        for _ in range(2):
            await sender.send_messages(bare("a"))
        await sender.send_messages([bare("a"), bare("a")])
        await sender.send_messages([bare("b", message_id="b"), bare("b", message_id="b")])
        got = await receive(receiver, 5)
        assert bodies(got) == ["a", "a", "a", "a", "b"]
        assert are_new(message.message_id for message in got[:4])

    run(scenario, orders=QueueSettings(requires_duplicate_detection=True))


def test_a_delivery_under_lock_names_its_token(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        own = {"mine": "kept"}
        await send(sender, "a", "b", time_to_live=timedelta(hours=1))
        await sender.send_messages(AmqpAnnotatedMessage(data_body=[b"c"], delivery_annotations=own))
        for message in await receive(receiver, 3):
            annotations = message.raw_amqp_message.delivery_annotations or {}
            assert annotations[LOCK_TOKEN] == message.lock_token
            assert (annotations.get(b"mine") == b"kept") is (str(message) == "c")
            await receiver.abandon_message(message)
        deleting = await lab.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        await receiver.close()
        for message in await receive(deleting, 3):
            annotations = message.raw_amqp_message.delivery_annotations or {}
            assert LOCK_TOKEN not in annotations
            assert (annotations.get(b"mine") == b"kept") is (str(message) == "c")

    run(scenario)


def test_a_deferred_message_names_its_token(run: Run) -> None:
    """The SDK's versions before 7.15 settle it by this token, and by no other."""

    async def scenario(lab: Lab) -> None:
        sender, receiver = await lab.both()
        await send(sender, "a", "b")
        numbers: list[int] = []
        for message in await receive(receiver, 2):
            await receiver.defer_message(message)
            numbers.append(message.sequence_number or 0)
        for message in await receiver.receive_deferred_messages(numbers):
            assert isinstance(message.lock_token, uuid.UUID)
            assert (message.raw_amqp_message.delivery_annotations or {})[LOCK_TOKEN] == message.lock_token

    run(scenario)


def test_a_deferred_message_is_settled_by_the_token_of_its_annotations() -> None:
    async def scenario(port: int, login: Login) -> None:
        caller = await Caller.connect(port, login)
        payload = build_message(encode_data_section(b"a"), properties=Properties(message_id="x"))
        await caller.send(await caller.sender("orders"), payload)
        receiver = await caller.receiver("orders")
        delivery = await caller.take(receiver)
        token = Message(delivery.payload).delivery_annotations()["x-opt-lock-token"]
        defer = {"lock-tokens": [token], "disposition-status": "defered"}
        await caller.manage("orders", "update-disposition", defer)
        asked = {"sequence-numbers": [1], "receiver-settle-mode": 1}
        (entry,) = (await caller.manage("orders", "receive-by-sequence-number", asked))["messages"]
        token = Message(entry["message"]).delivery_annotations()["x-opt-lock-token"]
        assert token == entry["lock-token"]
        complete = {"lock-tokens": [token], "disposition-status": "completed"}
        await caller.manage("orders", "update-disposition", complete)
        peek = {"from-sequence-number": 1, "message-count": 1}
        assert (await caller.manage("orders", "peek-message", peek)).get("messages", []) == []
        await caller.close()

    with EmbeddedBroker(queues=["orders"]) as broker:
        endpoint = broker.endpoints["localhost"]
        asyncio.run(scenario(endpoint.port, Login.of(endpoint.connection_string)))
