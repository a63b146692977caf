"""The native client with brokers that are not ours: RabbitMQ, and a peer made with Qpid Proton."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from tests.interop.peer import Peer, missing_proton
from tests.interop.rabbit import RabbitMQ, missing

from pairbus.amqp import Message, SaslClient, build_message
from pairbus.amqp.events import Delivery
from pairbus.amqp.message import encode_data_section
from pairbus.amqp.performatives import ACCEPTED, RELEASED, SETTLE_FIRST, Modified, Rejected
from pairbus.amqp.sections import Header, Properties
from pairbus.links.native.client import NativeClient
from pairbus.links.native.endpoint import Endpoint
from pairbus.links.native.receiving import ReceivingLink

SECONDS = 20.0
DURABLE = Header(durable=True)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    with RabbitMQ(tmp_path_factory.mktemp("rabbit")) as running:
        yield running


@pytest.fixture
def peer() -> Iterator[Peer]:
    why = missing_proton()
    if why is not None:
        pytest.skip(why)
    with Peer() as running:
        yield running


@pytest.fixture(params=["rabbit", "peer"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """Each of the two."""
    return request.getfixturevalue(request.param).endpoint


def message(text: str) -> bytes:
    return build_message(encode_data_section(text.encode()), properties=Properties(message_id=text))


def texts(deliveries: Sequence[Delivery]) -> list[str]:
    return [b"".join(Message(each.payload).data_sections()).decode() for each in deliveries]


async def take(link: ReceivingLink, count: int) -> list[Delivery]:
    """Receive exactly so many."""
    got: list[Delivery] = []
    while len(got) < count:
        more = await link.receive(count - len(got), SECONDS)
        assert more, f"{len(got)} of {count} came"
        got += more
    return got


def test_messages_of_any_size_arrive_as_they_were_sent(endpoint: Endpoint) -> None:
    async def play() -> None:
        client = NativeClient(endpoint)
        sender = await client.sender("orders", SECONDS)
        bodies = ["small", "x" * 300, "y" * 200_000]
        await asyncio.gather(*(sender.deliver(message(body), 0, SECONDS) for body in bodies))
        receiver = await client.receiver("orders", SECONDS)
        got = await take(receiver, 3)
        assert texts(got) == bodies
        assert await receiver.settle(got, ACCEPTED, SECONDS) == [None] * 3
        await client.close()

    asyncio.run(play())


def test_many_at_once_respect_the_credit_and_each_has_an_outcome(endpoint: Endpoint) -> None:
    async def play() -> None:
        client = NativeClient(endpoint)
        sender = await client.sender("orders", SECONDS)
        await asyncio.gather(*(sender.deliver(message(str(n)), 0, SECONDS) for n in range(3000)))
        receiver = await client.receiver("orders", SECONDS)
        got: list[Delivery] = []
        while len(got) < 3000:
            some = await take(receiver, min(250, 3000 - len(got)))
            assert set(await receiver.settle(some, ACCEPTED, SECONDS)) == {None}
            got += some
        assert texts(got) == [str(n) for n in range(3000)]
        await client.close()

    asyncio.run(play())


def test_released_and_modified_come_again_and_accepted_and_rejected_do_not(endpoint: Endpoint) -> None:
    """RabbitMQ 3.10 knows no *modified*: there it is released."""
    modified = RELEASED if endpoint.settle_mode == SETTLE_FIRST else Modified(delivery_failed=True)

    async def play() -> None:
        client = NativeClient(endpoint)
        sender = await client.sender("bills", SECONDS)
        for text in ("accept", "release", "modify", "reject"):
            await sender.deliver(message(text), 0, SECONDS)
        receiver = await client.receiver("bills", SECONDS)
        got = await take(receiver, 4)
        outcomes = (ACCEPTED, RELEASED, modified, Rejected())
        for delivery, outcome in zip(got, outcomes, strict=True):
            assert await receiver.settle([delivery], outcome, SECONDS) == [None]
        again = await take(receiver, 2)
        assert sorted(texts(again)) == ["modify", "release"]
        await receiver.settle(again, ACCEPTED, SECONDS)
        assert await receiver.receive(1, 0.3) == []
        await client.close()

    asyncio.run(play())


def test_a_link_to_nowhere_is_refused(endpoint: Endpoint) -> None:
    async def play() -> None:
        client = NativeClient(endpoint)
        with pytest.raises(ServiceBusError, match="not-found"):
            await client.receiver("nowhere", SECONDS)
        await client.close()

    asyncio.run(play())


def test_a_restart_of_the_broker_is_survived_and_what_was_not_settled_comes_again(rabbit: RabbitMQ) -> None:
    """A killed node: links end with the SDK's connection error, and the client connects anew."""

    async def play() -> None:
        client = NativeClient(rabbit.endpoint)
        sender = await client.sender("orders", SECONDS)
        durable = build_message(encode_data_section(b"kept"), header=DURABLE)
        await sender.deliver(durable, 0, SECONDS)
        receiver = await client.receiver("orders", SECONDS)
        assert texts(await take(receiver, 1)) == ["kept"]
        waiting = asyncio.ensure_future(receiver.receive(1, 60))
        await asyncio.sleep(0)
        await asyncio.to_thread(rabbit.stop)
        with pytest.raises(ServiceBusError):
            await waiting
        with pytest.raises(ServiceBusError):
            await sender.deliver(durable, 0, SECONDS)
        with pytest.raises(ServiceBusError, match="no connection"):
            await client.sender("orders", 2.0)
        await asyncio.to_thread(rabbit.start)
        receiver = await client.receiver("orders", SECONDS)
        got = await take(receiver, 1)
        assert texts(got) == ["kept"]
        await receiver.settle(got, ACCEPTED, SECONDS)
        await client.close()

    asyncio.run(play())


def test_a_peer_that_goes_and_comes_back_is_connected_to_again(peer: Peer) -> None:
    async def play() -> None:
        client = NativeClient(peer.endpoint)
        sender = await client.sender("orders", SECONDS)
        await sender.deliver(message("before"), 0, SECONDS)
        await asyncio.to_thread(peer.restart)
        while sender.error is None:  # noqa: ASYNC110 (the end of the connection is the event)
            await asyncio.sleep(0.01)
        with pytest.raises(ServiceBusError):
            await sender.deliver(message("lost"), 0, SECONDS)
        receiver = await client.receiver("orders", SECONDS)
        assert texts(await take(receiver, 1)) == ["before"]
        await client.close()

    asyncio.run(play())


def test_an_outcome_that_the_broker_does_not_know_ends_the_link_and_the_message_comes_again(rabbit: RabbitMQ) -> None:
    async def play() -> None:
        client = NativeClient(rabbit.endpoint)
        sender = await client.sender("bills", SECONDS)
        await sender.deliver(message("again"), 0, SECONDS)
        receiver = await client.receiver("bills", SECONDS)
        await receiver.settle(await take(receiver, 1), Modified(delivery_failed=True), SECONDS)
        with pytest.raises(ServiceBusError, match="invalid-field"):
            await receiver.receive(1, SECONDS)
        receiver = await client.receiver("bills", SECONDS)
        got = await take(receiver, 1)
        assert texts(got) == ["again"]
        await receiver.settle(got, ACCEPTED, SECONDS)
        await client.close()

    asyncio.run(play())


def test_wrong_credentials_are_an_authentication_error(rabbit: RabbitMQ) -> None:
    async def play() -> None:
        good = rabbit.endpoint
        bad = Endpoint("localhost", good.host, good.port, sasl=lambda: SaslClient("PLAIN", username="x", password="y"))  # noqa: S106
        with pytest.raises(ServiceBusAuthenticationError):
            await NativeClient(bad).sender("orders", SECONDS)

    asyncio.run(play())
