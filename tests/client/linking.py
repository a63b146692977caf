"""A scripted peer in the place of a broker, and both adapters on it: the movers' transports and paired senders."""

# ruff: noqa: ANN401 (options are handed on)

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from azure.servicebus.aio import ServiceBusClient
from tests.support.peer import Peer

from pairbus import SendAvailabilityPairedNamespaceOptions
from pairbus.aio import MessagingFactory, NamespaceManager
from pairbus.amqp.message import build_message, encode_data_section
from pairbus.core.options import TransportName
from pairbus.links.transport import Outgoing, Transport
from pairbus.syphon.transports import transport_to

HOUR = 3600.0
MINUTE = 60.0


@asynccontextmanager
async def transport_on(
    peer: Peer, carrier: TransportName, *, attempt_timeout: float = 15.0, credential: Any = None
) -> AsyncGenerator[Transport]:
    """Have a transport to a peer."""
    if credential is None:
        client = ServiceBusClient.from_connection_string(peer.connection_string, retry_total=0)
    else:
        client = ServiceBusClient(f"localhost:{peer.port}", credential, use_tls=False, retry_total=0)
    async with client:
        transport = transport_to(client, carrier, attempt_timeout=attempt_timeout)
        try:
            yield transport
        finally:
            await transport.close()


class Willing:
    """The administration of a namespace that has every queue."""

    def __init__(self, namespace: str) -> None:
        self.fully_qualified_namespace = namespace

    async def get_queue(self, queue_name: str) -> str:
        return queue_name

    async def create_queue(self, queue_name: str, **_settings: Any) -> str:
        return queue_name


@asynccontextmanager
async def paired(
    peer: Peer, secondary: Peer, carrier: TransportName, **options: Any
) -> AsyncGenerator[MessagingFactory]:
    """Have a factory of one peer, paired with another; any failure engages failover, so that none goes unseen."""
    factories = [
        MessagingFactory.from_connection_string(each.connection_string, retry_total=0, transport=carrier)
        for each in (peer, secondary)
    ]
    manager = cast("NamespaceManager", Willing(factories[1].fully_qualified_namespace))
    defaults: dict[str, Any] = {"backlog_queue_count": 1, "failover_interval": 0, "attempt_timeout": 15}
    await factories[0].pair_namespace(
        SendAvailabilityPairedNamespaceOptions(manager, factories[1], **{**defaults, **options})
    )
    try:
        yield factories[0]
    finally:
        for factory in factories:
            await factory.close()


def outgoing(*texts: str, **envelope: Any) -> Outgoing:
    """Return messages to send as one batch."""
    return Outgoing([build_message(encode_data_section(text.encode())) for text in texts], **envelope)
