"""What is not public in the SDK and used all the same: if it changes, these say so."""

# pyright: reportPrivateUsage=false

import asyncio
import inspect
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.performatives import TransferFrame
from azure.servicebus._version import VERSION
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.amqp.performatives import BATCH_FORMAT
from pairbus.links.sdk.links import sender_to
from pairbus.links.sdk.private import add_to, new_batch, transfer_head
from pairbus.messages.encoding import batch_of, encoded
from pairbus.messages.sdk_batches import messages_of
from pairbus.testing import EmbeddedBroker


def test_the_sdk_is_one_that_its_private_names_were_compared_with() -> None:
    """A later one may have changed what ``links/sdk/private.py`` replaces: compare, run bench/client.py, and add it."""
    assert VERSION.startswith("7.15.")


@pytest.mark.parametrize("body", ["short", "x" * 400])
def test_a_message_is_added_to_a_batch_as_the_sdk_does(body: str) -> None:
    ours, theirs = ServiceBusMessageBatch(max_size_in_bytes=1000), ServiceBusMessageBatch(max_size_in_bytes=1000)
    message = ServiceBusMessage(body, session_id="s", application_properties={"a": 1})
    for batch in (ours, theirs):
        with pytest.raises(MessageSizeExceededError):  # noqa: PT012 (until it is full)
            while True:
                (add_to if batch is ours else ServiceBusMessageBatch.add_message)(batch, message)
    assert ours._message == theirs._message
    assert (ours.size_in_bytes, len(ours)) == (theirs.size_in_bytes, len(theirs))
    assert messages_of(ours) == messages_of(theirs)


def test_one_message_is_sent_as_the_sdk_does() -> None:
    """What the short cut (ADR 0020) leaves out has not changed, and what it sends is what the SDK sends."""
    source = inspect.getsource(ServiceBusSender.send_messages)
    call = source[source.index("self._do_retryable_operation(") :]
    assert " ".join(call.split()) == (
        "self._do_retryable_operation( self._send, message=obj_message, timeout=timeout, "
        "operation_requires_timeout=True, apply_try_timeout=True, require_last_exception=True, )"
    )

    async def scenario(connection_string: str) -> None:
        async with ServiceBusClient.from_connection_string(connection_string) as client:
            link = await sender_to(client, "orders").open()

            async def send(message: ServiceBusMessage) -> None:
                await link.express.send([message], encoded(message), 0)

            await send(ServiceBusMessage("one", message_id="1"))
            batch = new_batch(link.sender, 10_000)
            add_to(batch, ServiceBusMessage("two", message_id="2"))
            await link.sender.send_messages(batch)
            await send(ServiceBusMessage(b"x" * 200_000, message_id="3"))  # more than a frame
            several = [ServiceBusMessage("five"), ServiceBusMessage("sixth")]
            await link.express.send(several, batch_of(list(map(encoded, several)), several[0]), BATCH_FORMAT)
            with pytest.raises(MessageSizeExceededError):
                await send(ServiceBusMessage(b"x" * 300_000))
            await send(ServiceBusMessage("four"))
            await link.close()
            got: list[int] = []
            async with client.get_queue_receiver("orders") as receiver:
                while len(got) < 6:
                    got += [len(str(message)) for message in await receiver.receive_messages(6, max_wait_time=5)]
            assert got == [3, 3, 200_000, 4, 5, 4]

    with EmbeddedBroker(queues=["orders"]) as broker:
        asyncio.run(scenario(broker.connection_string))


def test_the_frame_of_a_transfer_says_what_the_sdks_says() -> None:
    fields: dict[str, Any] = {
        "handle": 3,
        "delivery_id": 70_000,
        "delivery_tag": b"\0\0\0\x07",
        "message_format": 0x80013700,
        "settled": False,
        "more": False,
        "rcv_settle_mode": None,
        "state": None,
        "resume": None,
        "aborted": None,
        "batchable": None,
        "payload": b"payload",
    }
    ours = transfer_head(5, fields, 512)
    assert ours is not None
    header, theirs = encode_frame(TransferFrame(**fields))
    assert theirs is not None
    assert ours[4:8] == header[4:] + b"\0\5"
    assert len(ours) + len(b"payload") == int.from_bytes(ours[:4])
    assert decode_frame(memoryview(ours[8:] + b"payload")) == decode_frame(memoryview(theirs))
    assert transfer_head(5, fields, len(ours)) is None
    assert transfer_head(5, fields | {"state": b"x"}, 512) is None
