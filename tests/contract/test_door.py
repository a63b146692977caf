"""One port per namespace: the SDK over TLS and over WebSocket, beside plain AMQP, and HTTP (ADR 7)."""

import asyncio
import http.client
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdministrationClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from tests.contract.lab import one
from tests.contract.sdk import Sdk

from pairbus.broker.listen.certificates import own_certificate
from pairbus.errors import PairbusError
from pairbus.testing import EmbeddedBroker, Endpoint

BIG = "x" * 200_000
"""More than fits in a frame of AMQP."""
KINDS = ["sync", "aio"]
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated")  # the SDK's use of aiohttp


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """Where a broker is that runs on asyncio's event loop, or on the one that an application may have chosen."""
    broker = EmbeddedBroker(queues=["orders"], tls=True)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "uvloop":
            patch.setattr(asyncio, "new_event_loop", pytest.importorskip("uvloop").new_event_loop)
        broker.start()
    with broker:
        yield broker.endpoints["localhost"]


def client(sdk: Sdk, endpoint: Endpoint, way: str, ca_file: str | None = None) -> ServiceBusClient:
    """Make a client as docs/how-to/broker.md tells."""
    if way == "plain":
        return sdk.client(endpoint.connection_string)
    kind = TransportType.Amqp if way == "tls" else TransportType.AmqpOverWebsocket
    options: dict[str, Any] = {"transport_type": kind, "custom_endpoint_address": endpoint.address}
    if way == "ws":
        return sdk.client(endpoint.connection_string, **options)
    assert endpoint.tls_connection_string is not None
    return sdk.client(endpoint.tls_connection_string, connection_verify=ca_file or endpoint.ca_file, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["plain", "tls", "ws", "wss"])
def test_messages_go_and_come(endpoint: Endpoint, kind: str, way: str) -> None:
    async def scenario() -> None:
        made = client(Sdk(kind), endpoint, way)
        async with made, made.get_queue_sender("orders") as sender, made.get_queue_receiver("orders") as receiver:
            await sender.send_messages(ServiceBusMessage(BIG))
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
            message = await one(receiver)
            assert str(message) == BIG
            await receiver.complete_message(message)
            for number in range(20):
                message = await one(receiver)
                assert str(message) == str(number)
                await receiver.complete_message(message)

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["tls", "wss"])
def test_a_client_that_trusts_another_ca_refuses_the_broker(
    endpoint: Endpoint, tmp_path: Path, kind: str, way: str
) -> None:
    other = own_certificate(tmp_path, "127.0.0.1").ca

    async def scenario() -> None:
        async with client(Sdk(kind), endpoint, way, str(other)) as made:
            with pytest.raises(ServiceBusError, match=r"(?i)certificate[_ ]verify[_ ]failed"):
                await made.get_queue_sender("orders").__aenter__()

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["tls", "ws", "wss"])
def test_the_broker_stops_while_clients_are_there(way: str) -> None:
    async def scenario() -> None:
        broker = EmbeddedBroker(queues=["orders"], tls=True).start()
        async with client(Sdk("aio"), broker.endpoints["localhost"], way) as made:
            sender = await made.get_queue_sender("orders").__aenter__()
            await sender.send_messages(ServiceBusMessage("one"))
            await asyncio.to_thread(broker.stop)
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("two"), timeout=10)
            await asyncio.gather(sender.close(), return_exceptions=True)

    asyncio.run(scenario())


def test_the_administration_client_comes_by_https(endpoint: Endpoint) -> None:
    text, ca_file = endpoint.tls_connection_string, endpoint.ca_file
    assert text is not None
    options: dict[str, Any] = {"connection_verify": ca_file, "retry_total": 0}
    with (
        ServiceBusAdministrationClient.from_connection_string(text, **options) as made,
        pytest.raises(ResourceNotFoundError),
    ):
        made.get_queue("nowhere")

    async def scenario() -> None:
        async with AioAdministrationClient.from_connection_string(text, **options) as made:
            with pytest.raises(ResourceNotFoundError):
                await made.get_queue("nowhere")

    asyncio.run(scenario())


@pytest.mark.parametrize("secure", [False, True])
def test_http_is_there_plain_and_in_tls(endpoint: Endpoint, *, secure: bool) -> None:
    if secure:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        connection = http.client.HTTPSConnection("localhost", endpoint.port, timeout=10, context=context)
    else:
        connection = http.client.HTTPConnection("localhost", endpoint.port, timeout=10)
    for _ in range(2):
        connection.request("GET", "/$nothing-is-called-so")
        answer = connection.getresponse()
        answer.read()
        assert answer.status in set(HTTPStatus)
        assert answer.headers["content-length"] is not None
    connection.close()


def test_old_tls_is_not_spoken(endpoint: Endpoint) -> None:
    context = ssl.create_default_context(cafile=endpoint.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    connection = http.client.HTTPSConnection("localhost", endpoint.port, timeout=10, context=context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connection.request("GET", "/")
    connection.close()


def test_the_certificate_stays_with_the_data(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path, tls=True) as broker:
        assert broker.ca_file == str(tmp_path / "tls" / "ca.pem")
        before = Path(broker.ca_file).read_bytes()
    with EmbeddedBroker(data=tmp_path, tls=True, process=True) as broker:
        assert Path(broker.ca_file).read_bytes() == before
    with EmbeddedBroker() as broker, pytest.raises(PairbusError, match="tls=True"):
        _ = broker.ca_file
