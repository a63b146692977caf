"""What the SDK makes of access control, the policies that its users make, and where their keys are kept."""

import asyncio
import json
import stat
import time
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)
from tests.contract.lab import Clock, bodies, receive, send
from tests.contract.sdk import Sdk
from tests.support.client import Login

from pairbus.broker.access.tokens import sign
from pairbus.broker.config.options import from_file
from pairbus.broker.store.base import StoreError
from pairbus.errors import OptionError, PairbusError
from pairbus.testing import EmbeddedBroker, Policy, QueueSettings, Right


@pytest.fixture(params=["sync", "aio"])
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return Sdk(str(request.param))


def with_key(connection_string: str, key: str) -> str:
    return connection_string.replace(Login.of(connection_string).key, key)


def test_a_wrong_key_is_an_authentication_error(sdk: Sdk) -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:
        old = broker.connection_string
        broker.rotate_key("RootManageSharedAccessKey")
        assert broker.connection_string != old

        async def play() -> None:
            for spoilt in (with_key(old, "wrong"), old, old.replace("RootManageSharedAccessKey", "Nobody")):
                async with sdk.client(spoilt) as client:
                    with pytest.raises(ServiceBusAuthenticationError):
                        await client.get_queue_sender("orders").__aenter__()
            async with sdk.client(broker.connection_string) as client, client.get_queue_sender("orders") as sender:
                await send(sender, "a")

        asyncio.run(play())


def test_a_claim_that_is_missing_is_an_authorization_error(sdk: Sdk) -> None:
    with EmbeddedBroker(queues=["orders", "bills"]) as broker:
        sends = broker.create_policy("checkout", [Right.SEND], entity="orders")
        listens = broker.create_policy("kitchen", [Right.LISTEN])

        async def play() -> None:
            async with sdk.client(sends) as client, client.get_queue_sender("orders") as sender:
                await send(sender, "a")
                with pytest.raises(ServiceBusAuthorizationError, match="'Listen' claim"):
                    await client.get_queue_receiver("orders").__aenter__()
            async with sdk.client(listens) as client, client.get_queue_receiver("orders") as receiver:
                assert bodies(await receive(receiver)) == ["a"]
                with pytest.raises(ServiceBusAuthorizationError, match="'Send' claim"):
                    await client.get_queue_sender("bills").__aenter__()

        asyncio.run(play())


def test_a_namespace_that_is_not_here_is_a_communication_error(sdk: Sdk) -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:

        async def play() -> None:
            async with sdk.client(broker.connection_string.replace("127.0.0.1", "127.1")) as client:
                with pytest.raises(ServiceBusCommunicationError, match=r"'127\.1' could not be found"):
                    await client.get_queue_sender("orders").__aenter__()

        asyncio.run(play())


def test_an_expired_token_ends_the_link_as_the_cloud_does(sdk: Sdk) -> None:
    clock = Clock()
    with EmbeddedBroker(queues=["orders"], access_clock=clock) as broker:

        async def play() -> None:
            async with sdk.client(broker.connection_string) as client:
                sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
                await asyncio.gather(sender.__aenter__(), receiver.__aenter__())
                await send(sender, "a")
                clock.advance(3600)  # as long as a token of the SDK is good
                await asyncio.to_thread(broker.wake)
                with pytest.raises(ServiceBusConnectionError):
                    await send(sender, "b")
                with pytest.raises(ServiceBusConnectionError, match="Code: RenewToken"):
                    await receiver.receive_messages(1, max_wait_time=10)
                with pytest.raises(ServiceBusAuthenticationError):  # its new tokens are of the machine's time
                    await send(sender, "c")
                await asyncio.gather(sender.close(), receiver.close())

        asyncio.run(play())


def test_signatures_instead_of_keys(sdk: Sdk) -> None:
    """A client may have a token only, in its connection string or as a credential."""
    with EmbeddedBroker(namespaces=["contoso"], queues=["orders"]) as broker:
        endpoint, login = broker.connection_string.partition(";")[0], Login.of(broker.connection_string)
        host = endpoint.partition("//")[2]
        token = sign("https://contoso.servicebus.windows.net/Orders", login.name, login.key, int(time.time()) + 60)

        async def play() -> None:
            text = f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true"
            async with sdk.client(text) as client, client.get_queue_sender("orders") as sender:
                await send(sender, "a")
                with pytest.raises(ServiceBusAuthenticationError):
                    await client.get_queue_sender("bills").__aenter__()

        asyncio.run(play())
        for credential in (AzureSasCredential(token), AzureNamedKeyCredential(login.name, login.key)):
            with (
                ServiceBusClient(host, credential, retry_total=0, use_tls=False) as client,
                client.get_queue_sender("orders") as sender,
            ):
                sender.send_messages(ServiceBusMessage("b"))


# --- policies and keys -----------------------------------------------------------------------------------------------


def exchange(connection_string: str, queue: str = "orders") -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def keys_of(connection_string: str) -> str:
    return connection_string.partition(";")[2]  # the port is another one each time


def test_keys_are_kept_with_the_namespace(tmp_path: Path) -> None:
    data = tmp_path / "data"
    queues = {"orders": QueueSettings(authorization_rules=(Policy("till", (Right.SEND,)),))}
    broker = EmbeddedBroker(queues=queues, data=data)
    with broker:
        broker.create_policy("everywhere", [Right.MANAGE])
        broker.create_policy("app", [Right.SEND], entity="orders")
        broker.rotate_key("app", entity="orders", secondary=True)
        names = (("RootManageSharedAccessKey", None), ("everywhere", None), ("app", "orders"), ("till", "orders"))
        before = {name: keys_of(broker.connection_string_for(name, entity=entity)) for name, entity in names}
        assert len({Login.of(text).key for text in before.values()}) == len(names)
        assert keys_of(broker.connection_string) == before["RootManageSharedAccessKey"]
        assert "EntityPath=orders" in before["app"]
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in data.iterdir() if file.suffix != ".lock"}
        assert set(modes.values()) == {0o600}
        database = {f"localhost.db{part}" for part in ("", "-wal", "-shm", ".reserve", ".commits")}
        assert modes.keys() == {*database, "localhost.keys.json"}
    with broker:
        assert before == {name: keys_of(broker.connection_string_for(name, entity=entity)) for name, entity in names}
        exchange(broker.connection_string_for("app", entity="orders"))
        exchange(broker.connection_string_for("till", entity="orders"))
        exchange(broker.connection_string_for("everywhere", secondary=True))
    with EmbeddedBroker(data=data, process=True) as other:
        assert keys_of(other.connection_string) == before["RootManageSharedAccessKey"]
        exchange(other.connection_string)


def test_keys_in_memory_are_made_anew() -> None:
    broker = EmbeddedBroker(queues=["orders"])
    with broker:
        first = broker.connection_string
    with broker:
        assert keys_of(broker.connection_string) != keys_of(first)


def test_a_file_of_keys_that_cannot_be_read_is_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "localhost.keys.json"
    for text in ('{"SharedAccessPolicies": ["secret"]}', "secret", '["secret"]', "{}"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(StoreError, match="delete it to have new keys made") as caught:
            EmbeddedBroker(data=tmp_path).start()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("process", [False, True])
def test_policies_come_from_the_configuration(tmp_path: Path, *, process: bool) -> None:
    queues = [{"Name": "orders", "SharedAccessPolicies": [{"Name": "app", "Rights": ["Send"], "PrimaryKey": "mine"}]}]
    root = {"Name": "RootManageSharedAccessKey", "Rights": ["Manage"], "PrimaryKey": "known"}
    namespace = {"Name": "contoso", "Port": 0, "Queues": queues, "SharedAccessPolicies": [root]}
    file = tmp_path / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), encoding="utf-8")
    broker = EmbeddedBroker(process=process)
    broker._config = from_file(file, port=0)  # pyright: ignore[reportPrivateUsage]
    with broker:
        assert Login.of(broker.connection_string).key == "known"
        exchange(broker.connection_string)
        app = with_key(broker.connection_string, "mine").replace("RootManageSharedAccessKey", "app")
        exchange(app)
        with pytest.raises(ServiceBusAuthenticationError):
            exchange(app, "bills")


@pytest.mark.parametrize(
    ("policies", "names"),
    [
        ({}, "SharedAccessPolicies"),
        (["a"], r"SharedAccessPolicies\[0\]"),
        ([{"Rights": ["Send"]}], r"SharedAccessPolicies\[0\].Name"),
        ([{"Name": "a", "Rights": "Send"}], r"SharedAccessPolicies\[0\].Rights"),
        ([{"Name": "a", "Rights": ["Fly"]}], "rights"),
        ([{"Name": "a", "Rights": ["Send"], "PrimaryKey": 5}], r"SharedAccessPolicies\[0\].PrimaryKey"),
        ([{"Name": "a", "Rights": ["Send"], "Key": "secret"}], r"SharedAccessPolicies\[0\]"),
        ([{"Name": "a", "Rights": ["Send"], "PrimaryKey": "secret;"}], "policy a"),
        ([{"Name": str(number), "Rights": ["Send"]} for number in range(13)], "12 at most"),
        ([{"Name": "a", "Rights": ["Send"]}] * 2, "already"),
    ],
)
@pytest.mark.parametrize("of_queue", [False, True])
def test_policies_that_cannot_be_are_named(tmp_path: Path, policies: object, names: str, *, of_queue: bool) -> None:
    entry = {"SharedAccessPolicies": policies or {"a": 1}}
    namespace = {"Name": "contoso", "Queues": [{"Name": "orders", **entry}]} if of_queue else {"Name": "x", **entry}
    file = tmp_path / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), encoding="utf-8")
    with pytest.raises(OptionError, match=names) as caught:
        from_file(file)
    assert "secret" not in str(caught.value)


def test_what_cannot_be_done_with_policies_is_refused() -> None:
    with EmbeddedBroker(queues=["orders"]) as broker:
        with pytest.raises(OptionError, match="Fly"):
            broker.create_policy("a", ["Fly"])
        with pytest.raises(OptionError, match="one of this name already"):
            broker.create_policy("RootManageSharedAccessKey", ["Send"])
        with pytest.raises(OptionError, match="RootManageSharedAccessKey, with all rights"):
            broker.delete_policy("RootManageSharedAccessKey")
        for entity in (None, "orders"):
            with pytest.raises(OptionError, match="one that is there"):
                broker.rotate_key("nobody", entity=entity)
        with pytest.raises(PairbusError, match="could not be found"):
            broker.create_policy("a", ["Send"], entity="nowhere")
        for number in range(12):
            broker.create_policy(str(number), ["Send"], entity="orders")
        with pytest.raises(OptionError, match="12 at most"):
            broker.create_policy("one more", ["Send"], entity="orders")
