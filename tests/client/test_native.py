"""The native client with the embedded broker: every way to connect and to show who one is, and the SDK's errors."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus._pyamqp.utils import generate_sas_token
from azure.servicebus._transport import _pyamqp_transport as sdk_transport
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from tests.support.client import Login

from pairbus.amqp import Message
from pairbus.amqp.client.signing import sign
from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import ACCEPTED
from pairbus.broker.listen.certificates import own_certificate
from pairbus.errors import OptionError
from pairbus.links.native import errors
from pairbus.links.native.client import NativeClient
from pairbus.links.native.endpoint import endpoint_of
from pairbus.links.native.receiving import ANY_SESSION, ReceivingLink
from pairbus.links.sdk.transport import SdkTransport
from pairbus.messages.encoding import encode_message
from pairbus.syphon.transports import transport_to
from pairbus.testing import EmbeddedBroker, Endpoint, QueueSettings, Right

SECONDS = 10.0
BIG = "x" * 200_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    queues = {"orders": QueueSettings(), "sessions": QueueSettings(requires_session=True)}
    with EmbeddedBroker(queues=queues, tls=True) as running:
        yield running


@pytest.fixture
def endpoint(broker: EmbeddedBroker) -> Endpoint:
    return broker.endpoints["localhost"]


def sdk_client(endpoint: Endpoint, way: str, ca_file: str | None = None) -> ServiceBusClient:
    """Make the SDK's client, of which the native one takes where to connect."""
    if way == "plain":
        return ServiceBusClient.from_connection_string(endpoint.connection_string)
    kind = TransportType.Amqp if way == "tls" else TransportType.AmqpOverWebsocket
    options: dict[str, Any] = {"transport_type": kind, "custom_endpoint_address": endpoint.address}
    if way == "ws":
        return ServiceBusClient.from_connection_string(endpoint.connection_string, **options)
    assert endpoint.tls_connection_string is not None
    return ServiceBusClient.from_connection_string(
        endpoint.tls_connection_string, connection_verify=ca_file or endpoint.ca_file, **options
    )


async def take(link: ReceivingLink, count: int) -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        more = await link.receive(count - len(got), SECONDS)
        assert more
        got += more
    return got


def texts(deliveries: list[Delivery]) -> list[str]:
    return [b"".join(Message(each.payload).data_sections()).decode() for each in deliveries]


async def there_and_back(client: NativeClient) -> None:
    """Send and receive something small and something large."""
    sender = await client.sender("orders", SECONDS)
    for text in ("small", BIG):
        await sender.deliver(encode_message(ServiceBusMessage(text)), 0, SECONDS)
    receiver = await client.receiver("orders", SECONDS)
    got = await take(receiver, 2)
    assert texts(got) == ["small", BIG]
    assert await receiver.settle(got, ACCEPTED, SECONDS) == [None, None]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["plain", "tls", "ws", "wss"])
def test_messages_go_and_come(endpoint: Endpoint, way: str, loop: str) -> None:
    loops = None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def play() -> None:
        client = NativeClient(endpoint_of(sdk_client(endpoint, way)))
        await there_and_back(client)
        await client.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(play())


@pytest.mark.parametrize("way", ["tls", "wss"])
def test_a_client_that_trusts_another_ca_refuses_the_broker(endpoint: Endpoint, tmp_path: Path, way: str) -> None:
    other = own_certificate(tmp_path, "127.0.0.1").ca

    async def play() -> None:
        client = NativeClient(endpoint_of(sdk_client(endpoint, way, str(other))))
        with pytest.raises(ServiceBusConnectionError, match=r"(?i)certificate verify failed"):
            await client.sender("orders", SECONDS)
        await client.close()

    asyncio.run(play())


class Identity:
    """A credential as azure-identity has them."""

    def __init__(self, login: Login, host: str, seconds: float) -> None:
        self.asked = 0
        self.in_time: list[bool] = []
        """Whether the token before was still good, for each one."""
        self._expires_on = 0
        self._login = login
        self._host = host
        self._seconds = seconds

    async def get_token(self, *scopes: str, **_options: object) -> AccessToken:
        assert scopes == ("https://servicebus.azure.net//.default",)
        self.asked += 1
        self.in_time.append(time.time() < self._expires_on)
        expires_on = self._expires_on = int(time.time() + self._seconds)
        return AccessToken(
            sign(f"sb://{self._host}/", self._login.name, self._login.key, int(time.time()) + 60), expires_on
        )


@pytest.mark.parametrize("kind", ["named key", "signature", "identity", "signature in the connection string"])
def test_every_credential_opens_the_door(endpoint: Endpoint, kind: str) -> None:
    login = Login.of(endpoint.connection_string)
    host = endpoint.connection_string.partition("sb://")[2].partition(";")[0].rstrip("/")
    signature = sign(f"sb://{host}/", login.name, login.key, int(time.time()) + 60)
    text = f"Endpoint=sb://{host};SharedAccessSignature={signature};UseDevelopmentEmulator=true"
    credentials: dict[str, Any] = {
        "named key": AzureNamedKeyCredential(login.name, login.key),
        "signature": AzureSasCredential(signature),
        "identity": Identity(login, host, 60),
    }

    async def play() -> None:
        if kind in credentials:
            made = ServiceBusClient(host, credentials[kind], use_tls=False)
        else:
            made = ServiceBusClient.from_connection_string(text)
        client = NativeClient(endpoint_of(made))
        await there_and_back(client)
        await client.close()

    asyncio.run(play())


def test_a_token_is_renewed_before_it_expires(endpoint: Endpoint) -> None:
    login = Login.of(endpoint.connection_string)
    host = endpoint.connection_string.partition("sb://")[2].partition(";")[0].rstrip("/")

    async def play() -> None:
        identity = Identity(login, host, 5)
        client = NativeClient(endpoint_of(ServiceBusClient(host, cast("Any", identity), use_tls=False)))
        sender = await client.sender("orders", SECONDS)
        assert identity.asked == 1
        async with asyncio.timeout(SECONDS):
            while identity.asked < 3:  # noqa: ASYNC110 (two renewals are what is waited for)
                await asyncio.sleep(0.05)
        assert identity.in_time[1:3] == [True, True]
        assert sender.error is None
        await client.close()

    asyncio.run(play())


def test_wrong_keys_and_missing_claims_are_the_sdks_errors(broker: EmbeddedBroker, endpoint: Endpoint) -> None:
    login = Login.of(endpoint.connection_string)
    listens = broker.create_policy("kitchen", [Right.LISTEN])

    async def play() -> None:
        wrong = endpoint.connection_string.replace(login.key, "wrong")
        for text, error in (
            (wrong, ServiceBusAuthenticationError),
            (listens, ServiceBusAuthorizationError),
        ):
            client = NativeClient(endpoint_of(ServiceBusClient.from_connection_string(text)))
            with pytest.raises(error) as caught:
                await client.sender("orders", SECONDS)
            assert login.key not in str(caught.value)
            await client.close()
        client = NativeClient(endpoint_of(sdk_client(endpoint, "plain")))
        with pytest.raises(MessagingEntityNotFoundError):
            await client.receiver("nowhere", SECONDS)
        await client.close()

    asyncio.run(play())


def test_sessions_are_locked_by_name_or_as_they_come(endpoint: Endpoint) -> None:
    async def play() -> None:
        client = NativeClient(endpoint_of(sdk_client(endpoint, "plain")))
        sender = await client.sender("sessions", SECONDS)
        for name in ("a", "b"):
            await sender.deliver(encode_message(ServiceBusMessage(name, session_id=name)), 0, SECONDS)
        named = await client.receiver("sessions", SECONDS, session_id="b")
        assert named.session_id == "b"
        assert named.session_locked_until is not None
        with pytest.raises(SessionCannotBeLockedError):
            await client.receiver("sessions", SECONDS, session_id="b")
        following = await client.receiver("sessions", SECONDS, session_id=ANY_SESSION, wait=5)
        assert following.session_id == "a"
        for link in (named, following):
            got = await take(link, 1)
            assert texts(got) == [link.session_id]
            assert await link.settle(got, ACCEPTED, SECONDS) == [None]
        await client.close()

    asyncio.run(play())


def test_conditions_become_the_types_that_the_sdk_has_for_them() -> None:
    theirs = dict(sdk_transport._ERROR_CODE_TO_ERROR_MAPPING)
    known = {getattr(code, "value", code).decode(): kind for code, kind in theirs.items()}
    assert {name: kind for name, kind in errors.TYPE_OF_CONDITION.items() if name != errors.NOT_FOUND} == known
    for condition in (*known, errors.NOT_FOUND, "amqp:link:redirect", "amqp:decode-error"):
        ours = errors.of_condition(condition, "why")
        told = sdk_transport.PyamqpTransport._handle_amqp_exception_with_condition(
            sdk_transport._LOGGER, cast("Any", condition.encode()), "why"
        )
        assert (type(ours), str(ours), ours._condition) == (type(told), str(told), told._condition)


def test_a_signature_is_the_sdks() -> None:
    ours = sign("sb://host/a queue/é", "polícy", "k&y=", 1_700_000_000)
    theirs = generate_sas_token("sb://host/a queue/é", "polícy", "k&y=", 1_700_000_000)
    assert parse_qs(ours)["sig"] == parse_qs(theirs)["sig"]
    assert parse_qs(ours.partition(" ")[2])["sr"] == parse_qs(theirs.partition(" ")[2])["sr"]


def test_a_proxy_is_the_sdks(endpoint: Endpoint) -> None:
    proxy: dict[str, Any] = {"proxy_hostname": "localhost", "proxy_port": 1}
    client = ServiceBusClient.from_connection_string(endpoint.connection_string, http_proxy=proxy)
    assert isinstance(transport_to(client, "native"), SdkTransport)
    with pytest.raises(OptionError, match="transport='sdk'"):
        endpoint_of(client)


def test_no_more_is_fetched_than_was_asked_for(endpoint: Endpoint) -> None:
    """The credit bounds the memory, however deep the queue: all others are there for another receiver."""

    async def play() -> None:
        client = NativeClient(endpoint_of(sdk_client(endpoint, "plain")))
        sender = await client.sender("orders", SECONDS)
        for number in range(50):
            await sender.deliver(encode_message(ServiceBusMessage(str(number))), 0, SECONDS)
        receiver, other = await client.receiver("orders", SECONDS), await client.receiver("orders", SECONDS)
        mine = await take(receiver, 7)
        theirs = await take(other, 43)
        assert texts(mine) + texts(theirs) == [str(number) for number in range(50)]
        assert receiver._arrived == other._arrived == []
        for link, got in ((receiver, mine), (other, theirs)):
            assert not any(await link.settle(got, ACCEPTED, SECONDS))
        await client.close()

    asyncio.run(play())


def test_what_nobody_asks_for_is_put_back(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that lies around would lose its lock."""
    monkeypatch.setattr("pairbus.links.native.receiving.FRESH_SECONDS", 0.1)

    async def play() -> None:
        client = NativeClient(endpoint_of(sdk_client(endpoint, "plain")))
        sender = await client.sender("orders", SECONDS)
        idle = await client.receiver("orders", SECONDS)
        assert await idle.receive(5, 0.01) == []  # its credit is still there
        await sender.deliver(encode_message(ServiceBusMessage("one")), 0, SECONDS)
        other = await client.receiver("orders", SECONDS)
        got = await take(other, 1)
        assert texts(got) == ["one"]
        await other.settle(got, ACCEPTED, SECONDS)
        await client.close()

    asyncio.run(play())


def test_a_broker_that_goes_leaves_what_was_sent_in_doubt() -> None:
    async def play() -> None:
        broker = EmbeddedBroker(queues=["orders"]).start()
        made = ServiceBusClient.from_connection_string(broker.connection_string)
        transport = transport_to(made, "native")
        client = NativeClient(endpoint_of(made))
        sender = await client.sender("orders", SECONDS)
        sending = asyncio.ensure_future(sender.deliver(encode_message(ServiceBusMessage("one")), 0, SECONDS))
        await asyncio.sleep(0)
        sender.connection.flush()
        sender.connection.abort()
        with pytest.raises(ServiceBusError) as lost:
            await sending
        assert transport.facts(lost.value).in_doubt
        await asyncio.to_thread(broker.stop)
        with pytest.raises(ServiceBusConnectionError) as refused:
            await client.sender("orders", SECONDS)
        assert not transport.facts(refused.value).in_doubt
        await client.close()

    asyncio.run(play())
