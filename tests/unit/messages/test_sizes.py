"""K2: what a client takes for the size of a message, without encoding it, is about what it has on the wire."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.client.pings import ping_message
from pairbus.core.forecast import PING_BYTES
from pairbus.messages.sdk_messages import encoded_size, outgoing, size_of

IN_BATCH = 8
"""What a message takes in a batch beside its own bytes."""
NEAR = 40


@pytest.mark.parametrize(
    "message",
    [
        ServiceBusMessage(b""),
        ServiceBusMessage("text"),
        ServiceBusMessage(b"x" * 100_000),
        ServiceBusMessage("one", subject="many", session_id="s" * 100, correlation_id="c", to="t"),
        ServiceBusMessage("y", application_properties={f"key-{n}": f"value {n}" for n in range(50)}),
        ServiceBusMessage("y", application_properties={"n": 1, b"m": b"2", "yes": True}),
        ServiceBusMessage("z", time_to_live=timedelta(days=3), reply_to="r", reply_to_session_id="q" * 30),
        ServiceBusMessage("p", partition_key="k" * 90, scheduled_enqueue_time_utc=datetime(2026, 1, 1, tzinfo=UTC)),
        AmqpAnnotatedMessage(value_body={"a": [1, 2, 3]}),
        AmqpAnnotatedMessage(value_body=None),
        AmqpAnnotatedMessage(sequence_body=[[1, "two", 3.0]]),
        AmqpAnnotatedMessage(data_body=[b"one", b"two"]),
        ping_message(None),
        ping_message("s" * 36, 5_000),
    ],
)
def test_k2_the_size_of_a_message_is_nearly_that_on_the_wire(message: Any) -> None:  # noqa: ANN401 (of two kinds)
    outgoing(message)
    assert abs(size_of(message) - (encoded_size(message) - IN_BATCH)) < NEAR


@pytest.mark.parametrize("session", [None, "s" * 36])
def test_k2_a_ping_is_forecast_with_about_the_bytes_that_it_has(session: str | None) -> None:
    (message,) = outgoing(ping_message(session))
    assert abs(size_of(message) - PING_BYTES) < NEAR
