"""The two transports, by name."""

import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Final, get_args

from azure.servicebus.aio import ServiceBusClient

from pairbus.core.options import TransportName
from pairbus.links.native.endpoint import endpoint_of, is_proxied
from pairbus.links.native.transport import NativeTransport
from pairbus.links.sdk.transport import SdkTransport
from pairbus.links.tls import tls_context
from pairbus.links.transport import Transport

_LOGGER = logging.getLogger(__name__)

TRANSPORTS: Final[tuple[TransportName, ...]] = get_args(TransportName)


def transport_to(client: ServiceBusClient, name: TransportName, *, attempt_timeout: float = 15.0) -> Transport:
    """Make a transport to the namespace of a client of the SDK, with its credential and its way to connect.

    :param client: made with ``retry_total=0``: whoever drives the transport retries. The native transport opens nothing
        of it. Behind an HTTP proxy, which it cannot use, the SDK's takes its place.
    """
    if name == "native" and is_proxied(client):
        _LOGGER.warning("the native client cannot go by way of an HTTP proxy: messages are carried by the SDK")
    elif name == "native":
        return NativeTransport(endpoint_of(client), attempt_timeout=attempt_timeout)
    return SdkTransport(client, attempt_timeout=attempt_timeout)


@contextlib.asynccontextmanager
async def open_transport(connection_string: str, name: TransportName) -> AsyncGenerator[Transport]:
    """Open a transport to the namespace of a connection string, and close it afterwards."""
    async with ServiceBusClient.from_connection_string(
        connection_string, retry_total=0, ssl_context=tls_context()
    ) as client:
        transport = transport_to(client, name)
        try:
            yield transport
        finally:
            await transport.close()
