"""E2: the native client makes of a message of the SDK the bytes that the SDK makes of it."""

# pyright: reportUnknownMemberType=false

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_syphon import messages

from pairbus.messages.encoding import encode_message
from pairbus.messages.sdk_batches import as_long, encoded_by_sdk

LATER = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both see the same second: a time to live ends at a time."""
    now = int(time.time())
    monkeypatch.setattr("pairbus.messages.encoding.time.time", lambda: now)
    monkeypatch.setattr("azure.servicebus._transport._pyamqp_transport.time.mktime", _mktime(now))


def _mktime(now: int) -> Callable[[object], float]:
    return lambda _moment: float(now)


@given(messages())
def test_any_message_is_encoded_as_the_sdk_does(message: AmqpAnnotatedMessage) -> None:
    assert encode_message(message) == encoded_by_sdk(message)


@pytest.mark.parametrize(
    "message",
    [
        ServiceBusMessage("text"),
        ServiceBusMessage(b"x" * 300, message_id="i" * 120, session_id="s", application_properties={"a": b"text"}),
        ServiceBusMessage(
            "", time_to_live=timedelta(days=3), scheduled_enqueue_time_utc=datetime(2040, 1, 1, tzinfo=UTC)
        ),
        ServiceBusMessage("big", application_properties={"a" * 200: "b" * 400, "n": 7, "none": None}),  # type: ignore[dict-item]
        AmqpAnnotatedMessage(value_body={"a": [1, 2.5, None, {"b": (b"d", 1)}]}),
        AmqpAnnotatedMessage(value_body=0),
        AmqpAnnotatedMessage(value_body=Decimal("1.5")),
        AmqpAnnotatedMessage(data_body=b"d", footer={"f": 1}, delivery_annotations={"x-d": 1}),
        AmqpAnnotatedMessage(data_body=b"d", application_properties={"long": as_long(5)}),
        AmqpAnnotatedMessage(data_body=b"d", annotations={"x-opt-a": as_long(5)}),
        AmqpAnnotatedMessage(data_body=b"d", header=AmqpMessageHeader(durable=True, delivery_count=3)),
        AmqpAnnotatedMessage(sequence_body=[[1, "a"], []]),
    ],
    ids=str,
)
def test_these_are_encoded_as_the_sdk_does(message: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    assert encode_message(message) == encoded_by_sdk(raw)


@pytest.mark.parametrize("value", [object(), 2**31, -(2**31) - 1, {1, 2}])
def test_what_the_sdk_cannot_encode_is_refused_with_the_same_type(value: object) -> None:
    made = AmqpAnnotatedMessage(data_body=b"d", application_properties={"a": cast("Any", value)})
    with pytest.raises((TypeError, ValueError)) as theirs:
        encoded_by_sdk(made)
    with pytest.raises((TypeError, ValueError)) as ours:
        encode_message(made)
    assert type(ours.value) is type(theirs.value)


@given(st.binary(max_size=600), st.text(max_size=300))
def test_bodies_and_ids_of_any_length(body: bytes, subject: str) -> None:
    message = ServiceBusMessage(body, subject=subject, message_id="m")
    assert encode_message(message) == encoded_by_sdk(message.raw_amqp_message)
