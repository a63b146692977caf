"""Messages that a client sends without waiting for the answers reach the broker together."""

import asyncio

from tests.support.client import Client, Worker

from pairbus.amqp import ConnectionOptions, SenderLink, SentDelivery, build_message
from pairbus.amqp.events import DeliveriesReceived, DispositionReceived, Event, FlowChanged, LinkAttached
from pairbus.amqp.message import build_batch, encode_data_section
from pairbus.amqp.performatives import BATCH_FORMAT, DeliveryState, Source, Target
from pairbus.testing import EmbeddedBroker

LIMIT = 256 * 1024


def message(text: str) -> bytes:
    return build_message(encode_data_section(text.encode()))


async def outcomes_of(broker: EmbeddedBroker, path: str, payloads: list[tuple[bytes, int]]) -> list[str]:
    """Send all in one go and return how the broker answered each."""
    client = await Client.of(broker)
    link = client.amqp.begin().attach_sender("all at once", Target(path))
    outcomes: dict[int, str] = {}
    done = asyncio.get_running_loop().create_future()

    def on_event(event: Event) -> None:
        if isinstance(event, FlowChanged) and not link.session.sent and not outcomes:
            for number, (payload, message_format) in enumerate(payloads):
                link.send(payload, number.to_bytes(4), message_format=message_format, context=number)
        elif isinstance(event, DispositionReceived):
            _note(event.deliveries, event.state, link, outcomes)
            if len(outcomes) == len(payloads):
                done.set_result(None)

    client.handle(link, on_event)
    client.flush()
    await done
    client.close()
    return [outcomes[number] for number in range(len(payloads))]


def _note(
    deliveries: list[SentDelivery], state: DeliveryState | None, link: SenderLink, outcomes: dict[int, str]
) -> None:
    outcomes.update((delivery.context, type(state).__name__) for delivery in deliveries if delivery.link is link)


async def bodies_in(broker: EmbeddedBroker, path: str, count: int) -> list[bytes]:
    client = await Client.of(broker)
    received: list[bytes] = []
    await Worker(client, path, count, on_received=lambda event: received.append(event.payload)).finished
    client.close()
    return received


def test_each_of_the_messages_that_come_together_has_an_outcome_of_its_own() -> None:
    """One that is refused does not take the others with it, and what is accepted keeps its order."""
    payloads = [
        (message("first"), 0),
        (message("x" * LIMIT), 0),
        (b"no message", 0),
        (build_batch([message("second"), message("third")]), BATCH_FORMAT),
        (message("fourth"), 0),
    ]
    with EmbeddedBroker(queues=["orders"]) as broker:
        outcomes = asyncio.run(outcomes_of(broker, "orders", payloads))
        received = asyncio.run(bodies_in(broker, "orders", 4))
    assert outcomes == ["Accepted", "Rejected", "Rejected", "Accepted", "Accepted"]
    for payload, text in zip(received, (b"first", b"second", b"third", b"fourth"), strict=True):
        assert payload.endswith(text)


def test_messages_that_come_together_are_accepted_together() -> None:
    payloads = [(message(str(number)), 0) for number in range(50)]
    with EmbeddedBroker(queues=["orders"]) as broker:
        assert asyncio.run(outcomes_of(broker, "orders", payloads)) == ["Accepted"] * 50
        received = asyncio.run(bodies_in(broker, "orders", 50))
    assert [payload.split(b"\xa0")[-1][1:] for payload in received] == [str(number).encode() for number in range(50)]


async def take(broker: EmbeddedBroker, path: str, count: int) -> int:
    """Receive with more credit than the session's window lets pass at once."""
    client = await Client.of(broker)
    session = client.amqp.begin()
    link = session.attach_receiver("taker", Source(path))
    taken = 0
    done = asyncio.get_running_loop().create_future()

    def on_event(event: Event) -> None:
        nonlocal taken
        if isinstance(event, LinkAttached):
            link.grant(count)
        elif isinstance(event, DeliveriesReceived):
            taken += len(event.deliveries)
            if taken == count:
                done.set_result(None)

    client.handle(link, on_event)
    client.flush()
    await done
    client.close()
    assert count > session.incoming_window
    return taken


def test_a_receiver_with_more_credit_than_window_gets_all_it_asked_for() -> None:
    count = 2 * ConnectionOptions("any").incoming_window
    with EmbeddedBroker(queues=["orders"]) as broker:
        payloads = [(build_batch([message("x")] * 1000), BATCH_FORMAT)] * -(-count // 1000)
        asyncio.run(outcomes_of(broker, "orders", payloads))
        assert asyncio.run(take(broker, "orders", count)) == count
