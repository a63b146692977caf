"""A client that is neither ours nor the SDK: Apache Qpid Proton sends, receives and settles."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.client import Login

from pairbus.testing import EmbeddedBroker

proton: Any = pytest.importorskip("proton", reason="python-qpid-proton is not installed: make interop")
utils: Any = pytest.importorskip("proton.utils")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(queues=["orders"]) as broker:
        yield broker


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[Any]:
    port, login = broker.endpoints["localhost"].port, Login.of(broker.connection_string)
    opened = utils.BlockingConnection(
        f"amqp://{login.name}:{quote(login.key, safe='')}@127.0.0.1:{port}",
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        timeout=10,
    )
    yield opened
    opened.close()


def bodies(connection: Any, count: int, path: str = "orders") -> list[Any]:
    receiver = connection.create_receiver(path, credit=count)
    received: list[Any] = []
    for _ in range(count):
        message = receiver.receive(timeout=10)  # a binary body is a view of it, and garbage once it is let go
        received.append(message.body.tobytes() if hasattr(message.body, "tobytes") else message.body)
        receiver.accept()
    receiver.close()
    return received


def test_messages_of_every_kind_of_body_arrive_in_order(connection: Any) -> None:
    sender = connection.create_sender("orders")
    sent = ["text", 7, {"a": [1, 2.5, None]}, [True, "x"], None, b"\x00\xff"]
    for number, body in enumerate(sent):
        sender.send(proton.Message(id=str(number), body=body, properties={"n": number}))
    assert bodies(connection, len(sent)) == sent


def test_a_message_larger_than_a_frame_arrives_whole(connection: Any) -> None:
    connection.create_sender("orders").send(proton.Message(body="x" * 200_000))
    assert bodies(connection, 1) == ["x" * 200_000]


def test_released_and_modified_messages_come_again_and_rejected_ones_are_dead_lettered(connection: Any) -> None:
    sender = connection.create_sender("orders")
    sender.send(proton.Message(body="first"))
    receiver = connection.create_receiver("orders", credit=1)
    assert receiver.receive(timeout=10).body == "first"
    receiver.release(delivered=False)
    again = receiver.receive(timeout=10)
    assert (again.body, again.delivery_count) == ("first", 0)
    receiver.release(delivered=True)
    again = receiver.receive(timeout=10)
    assert (again.body, again.delivery_count) == ("first", 1)
    receiver.reject()
    sender.send(proton.Message(body="second"))
    assert receiver.receive(timeout=10).body == "second"
    receiver.accept()
    receiver.close()
    assert bodies(connection, 1, "orders/$DeadLetterQueue") == ["first"]


def test_a_link_to_a_queue_that_is_not_there_is_refused_with_the_reason(connection: Any) -> None:
    with pytest.raises(utils.LinkDetached) as caught:
        connection.create_sender("nowhere")
    assert "amqp:not-found" in str(caught.value)
