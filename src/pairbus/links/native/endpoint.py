"""Where a namespace is reached, and with what a client shows who it is."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# ruff: noqa: SLF001 (the SDK's client has no public way to what it was told)

import importlib.util
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import certifi
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from pairbus.amqp import SaslClient
from pairbus.amqp.client.signing import TOKEN_TYPE, sign
from pairbus.amqp.performatives import SETTLE_SECOND
from pairbus.errors import OptionError
from pairbus.links.tls import tls_context

JWT_TYPE: Final = "jwt"
JWT_SCOPE: Final = "https://servicebus.azure.net//.default"
SIGNED_SECONDS: Final = 3600
_AMQPS_PORT: Final = 5671
_AMQP_PORT: Final = 5672
_HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Token:
    """What is put to ``$cbs``; ``expires_on`` in seconds since the epoch."""

    text: str = field(repr=False)
    type: str
    expires_on: float


TokenSource: TypeAlias = Callable[[str], Awaitable[Token]]
"""Makes or fetches a token for an audience."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One namespace of one broker.

    :ivar hostname: the namespace's name, as addresses and audiences have it.
    :ivar tls: None: no TLS, as with the emulator.
    :ivar tokens: None: SASL alone says who one is.
    :ivar addresses: makes the address of an entity, for a broker that is not Service Bus.
    :ivar settle_mode: which rcv-settle-mode to ask for: with *second* the broker answers settlements.
    """

    hostname: str
    host: str
    port: int
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    websocket: bool = False
    tokens: TokenSource | None = field(default=None, repr=False)
    sasl: Callable[[], SaslClient] = field(default=SaslClient, repr=False)
    addresses: Callable[[str], str] | None = field(default=None, repr=False)
    settle_mode: int = SETTLE_SECOND

    def address(self, entity: str) -> str:
        """Return the address of an entity."""
        return f"amqps://{self.hostname}/{entity}" if self.addresses is None else self.addresses(entity)

    def audience(self, entity: str) -> str:
        """Return what a token for an entity is for."""
        return f"sb://{self.hostname}/{entity}"


def endpoint_of(client: ServiceBusClient) -> Endpoint:
    """Return where a client of the SDK connects to, and its credential: nothing is opened."""
    config: Any = client._config
    if is_proxied(client):
        raise OptionError("http_proxy", config.http_proxy, "none with transport='native'; use transport='sdk'")
    websocket = config.transport_type == TransportType.AmqpOverWebsocket
    if websocket and importlib.util.find_spec("wsproto") is None:
        raise OptionError(
            "transport_type", "AmqpOverWebsocket", "AMQP over WebSocket needs wsproto: pip install 'pairbus[websocket]'"
        )
    host, _, port = client.fully_qualified_namespace.partition(":")
    default = _HTTPS_PORT if websocket else _AMQPS_PORT
    if not config.use_tls:
        default = _AMQP_PORT
    if config.custom_endpoint_hostname:
        host, port = config.custom_endpoint_hostname, str(config.connection_port)
    tls = None
    if config.use_tls:
        tls = config.ssl_context or (verifying(config.connection_verify) if config.connection_verify else tls_context())
    return Endpoint(
        client.fully_qualified_namespace,
        host,
        int(port) if port else default,
        tls,
        websocket,
        tokens_of(client._credential),
    )


def is_proxied(client: ServiceBusClient) -> bool:
    """Tell whether a client of the SDK goes by way of an HTTP proxy."""
    config: Any = client._config
    return bool(config.http_proxy)


def verifying(authorities: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities of a file, beside those that everybody does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    try:
        context.load_verify_locations(authorities)
    except OSError as error:  # of ssl, too
        raise OptionError("connection_verify", authorities, f"a readable file of certificates: {error}") from error
    return context


def tokens_of(credential: Any) -> TokenSource:  # noqa: ANN401 (any of the SDK's, of which some are not public)
    """Return what makes tokens of a credential: a named key, a signature, or one of azure-identity."""
    if isinstance(credential, AzureNamedKeyCredential):
        return _signing(lambda: credential.named_key)
    if isinstance(credential, AzureSasCredential):
        return _given(lambda: credential.signature)
    policy, key = getattr(credential, "policy", None), getattr(credential, "key", None)
    if isinstance(policy, str) and isinstance(key, str):  # of a connection string
        return _signing(lambda: (policy, key))
    signature = getattr(credential, "token", None)
    if isinstance(signature, str):  # of a connection string, too
        return _given(lambda: signature)

    async def fetch(_audience: str) -> Token:
        fetched = await credential.get_token(JWT_SCOPE)
        return Token(fetched.token, JWT_TYPE, float(fetched.expires_on))

    return fetch


def _signing(named_key: Callable[[], tuple[str, str]]) -> TokenSource:
    async def make(audience: str) -> Token:
        policy, key = named_key()
        expires_on = int(time.time()) + SIGNED_SECONDS
        return Token(sign(audience, policy, key, expires_on), TOKEN_TYPE, expires_on)

    return make


def _given(signature: Callable[[], str]) -> TokenSource:
    async def give(_audience: str) -> Token:
        text = signature()
        expires_on = parse_qs(text.partition(" ")[2]).get("se", [""])[0]
        return Token(text, TOKEN_TYPE, float(expires_on) if expires_on.isdecimal() else time.time() + SIGNED_SECONDS)

    return give
