"""What is not public in the SDK and used all the same: if it changes, these say so."""

# pyright: reportPrivateUsage=false

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._decode import decode_frame, decode_payload
from azure.servicebus._pyamqp._encode import encode_frame, encode_payload
from azure.servicebus._pyamqp.performatives import TransferFrame
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import given
from hypothesis import strategies as st

from pairbus.links.sdk.internals import add_to, new_batch
from pairbus.links.sdk.links import sender_to
from pairbus.links.sdk.shortcuts import encode_message, transfer_head
from pairbus.messages.sdk_batches import messages_of
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
            await link.send_one(ServiceBusMessage("one", message_id="1"))
            batch = new_batch(link.sender, 10_000)
            add_to(batch, ServiceBusMessage("two", message_id="2"))
            await link.sender.send_messages(batch)
            await link.send_one(ServiceBusMessage(b"x" * 200_000, message_id="3"))  # more than a frame
            with pytest.raises(MessageSizeExceededError):
                await link.send_one(ServiceBusMessage(b"x" * 300_000))
            await link.send_one(ServiceBusMessage("four"))
            await link.close()
            got: list[int] = []
            async with client.get_queue_receiver("orders") as receiver:
                while len(got) < 4:
                    got += [len(str(message)) for message in await receiver.receive_messages(4, max_wait_time=5)]
            assert got == [3, 3, 200_000, 4]

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


text = st.text(max_size=300)


@given(
    body=st.none() | st.binary(max_size=400) | text,
    standard=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("subject", "content_type", "to", "reply_to", "correlation_id", "reply_to_session_id", "message_id"),
            st.text("abc", max_size=128) | st.text("abc", min_size=100, max_size=128),
        )
        | {
            "session_id": st.text("abc", min_size=1, max_size=5),
            "time_to_live": st.timedeltas(timedelta(seconds=1), timedelta(days=40)),
        },
    ),
    application=st.dictionaries(text, st.integers(-(2**31), 2**31 - 1) | text | st.booleans(), max_size=3),
)
def test_a_message_is_encoded_to_say_what_the_sdks_says(
    body: str | bytes | None, standard: dict[str, Any], application: dict[str | bytes, Any]
) -> None:
    """E2, S2: with every property and kind of body that a :class:`ServiceBusMessage` can have."""
    standard = {name: value for name, value in standard.items() if value}
    made = ServiceBusMessage(body, application_properties=application or None, **standard)
    message = PyamqpTransport.to_outgoing_amqp_message(made.raw_amqp_message)
    theirs = bytearray()
    encode_payload(theirs, message)
    assert decode_payload(memoryview(encode_message(message))) == decode_payload(memoryview(theirs))
