"""What is not public in the SDK and used all the same: if it changes, these say so."""

# pyright: reportPrivateUsage=false

import asyncio
import inspect

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.aio.sdk import add_to, messages_of, new_batch, send_one
from pairbus.testing import EmbeddedBroker


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
    source = inspect.getsource(ServiceBusSender.send_messages)
    call = source[source.index("self._do_retryable_operation(") :]
    assert " ".join(call.split()) == (
        "self._do_retryable_operation( self._send, message=obj_message, timeout=timeout, "
        "operation_requires_timeout=True, apply_try_timeout=True, require_last_exception=True, )"
    )

    async def scenario(connection_string: str) -> None:
        async with ServiceBusClient.from_connection_string(connection_string) as client:
            async with client.get_queue_sender("orders") as sender:
                await send_one(sender, ServiceBusMessage("one", message_id="1"))
                batch = new_batch(sender, 10_000)
                add_to(batch, ServiceBusMessage("two", message_id="2"))
                await sender.send_messages(batch)
            async with client.get_queue_receiver("orders") as receiver:
                got = [str(m) for m in await receiver.receive_messages(2, max_wait_time=5)]
                got += [str(m) for m in await receiver.receive_messages(2, max_wait_time=1)]
                assert got == ["one", "two"]

    with EmbeddedBroker(queues=["orders"]) as broker:
        asyncio.run(scenario(broker.connection_string))
