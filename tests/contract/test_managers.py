"""The managers of a namespace: the SDK's administration clients, for Azure and for the embedded broker alike."""

import asyncio
from typing import Any, cast

import azure.servicebus.aio.management as aio_sdk
import azure.servicebus.management as sync_sdk
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport

import pairbus
from pairbus import aio as pairbus_aio
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions
from pairbus.links.plain_http import plain
from pairbus.testing import EmbeddedBroker

AZURE = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=a2V5"


class Directory:
    """A credential as azure-identity has them."""

    def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        return AccessToken("token", 2**33)


class AsyncDirectory:
    """The same, asynchronous."""

    async def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        return AccessToken("token", 2**33)


def test_they_are_the_sdks_own_clients() -> None:
    manager = pairbus.NamespaceManager.from_connection_string(AZURE)
    assert isinstance(manager, sync_sdk.ServiceBusAdministrationClient)
    assert manager.fully_qualified_namespace == "contoso.servicebus.windows.net"
    assert issubclass(pairbus_aio.NamespaceManager, aio_sdk.ServiceBusAdministrationClient)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(pairbus, "Nothing")  # noqa: B009 (no checker knows it either)


def test_one_connection_string_serves_the_data_client_and_the_manager(shared_broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with pairbus_aio.NamespaceManager.from_connection_string(shared_broker.connection_string) as manager:
            assert [queue.name async for queue in manager.list_queues()] == ["orders"]

    with pairbus.NamespaceManager.from_connection_string(shared_broker.connection_string) as manager:
        assert [queue.name for queue in manager.list_queues()] == ["orders"]
    asyncio.run(scenario())


def test_azure_is_reached_by_https_and_the_embedded_broker_by_http(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def send(_transport: object, request: object, **_options: object) -> None:
        asked.append(str(getattr(request, "url", "")))
        raise ServiceRequestError("nobody is there")

    async def send_async(transport: object, request: object, **options: object) -> None:
        send(transport, request, **options)

    monkeypatch.setattr(RequestsTransport, "send", send)
    monkeypatch.setattr(AioHttpTransport, "send", send_async)
    host = "contoso.servicebus.windows.net"

    def ask(manager: pairbus.NamespaceManager) -> None:
        with manager, pytest.raises(ServiceRequestError):
            manager.get_queue("a/b")

    async def ask_async(manager: pairbus_aio.NamespaceManager) -> None:
        async with manager:
            with pytest.raises(ServiceRequestError):
                await manager.get_queue("a/b")

    async def scenario() -> None:
        for connection_string in (AZURE, AZURE + ";UseDevelopmentEmulator=true"):
            await ask_async(pairbus_aio.NamespaceManager.from_connection_string(connection_string, retry_total=0))
        for use_tls in (True, False):
            await ask_async(
                pairbus_aio.NamespaceManager(
                    host, cast("Any", AsyncDirectory()), use_tls=use_tls, retry_total=1, retry_backoff_factor=0
                )
            )

    for connection_string in (AZURE, AZURE + ";UseDevelopmentEmulator=true"):
        ask(pairbus.NamespaceManager.from_connection_string(connection_string, retry_total=0))
    for use_tls in (True, False):
        ask(pairbus.NamespaceManager(host, Directory(), use_tls=use_tls, retry_total=1, retry_backoff_factor=0))
    by_sync, asked[:] = list(asked), []
    asyncio.run(scenario())
    assert by_sync == asked
    schemes = [url.partition("://")[0] for url in asked]
    assert schemes == ["https", "http", "https", "https", "http", "http"], "a retry goes the same way"
    assert {url.partition("://")[2].partition("?")[0] for url in asked} == {f"{host}/a%2Fb"}


def test_a_request_has_its_own_address_again() -> None:
    class Request:
        url = "https://host/a"

    request = Request()
    with plain(request):
        assert request.url == "http://host/a"
    assert request.url == "https://host/a"


def test_a_manager_can_be_the_one_of_a_pairing() -> None:
    """P2: the options want to know which namespace a manager manages."""
    manager = pairbus.NamespaceManager.from_connection_string(AZURE)
    options = SendAvailabilityPairedNamespaceOptions(manager, manager)
    assert options.secondary_namespace_manager is manager
