"""Which client carries the messages for the mover."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Literal, TypeAlias

from azure.servicebus.aio import ServiceBusClient

from pairbus.aio.sdk import tls_context
from pairbus.aio.sdk_transport import SdkTransport
from pairbus.aio.transport import Transport

TransportKind: TypeAlias = Literal["sdk"]
"""``sdk``: the official client."""


@contextlib.asynccontextmanager
async def open_transport(connection_string: str, kind: TransportKind = "sdk") -> AsyncGenerator[Transport]:
    """Open a transport to the namespace of a connection string, and close it afterwards."""
    del kind  # there is one
    async with ServiceBusClient.from_connection_string(
        connection_string, retry_total=0, ssl_context=tls_context()
    ) as client:
        transport = SdkTransport(client)
        try:
            yield transport
        finally:
            await transport.close()
