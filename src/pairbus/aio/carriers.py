"""The two transports, by name."""

from typing import Final, get_args

from azure.servicebus.aio import ServiceBusClient

from pairbus.aio.native.endpoint import endpoint_of
from pairbus.aio.native.transport import NativeTransport
from pairbus.aio.sdk_transport import SdkTransport
from pairbus.aio.transport import Transport
from pairbus.core.options import TransportName

TRANSPORTS: Final[tuple[TransportName, ...]] = get_args(TransportName)


def transport_to(client: ServiceBusClient, name: TransportName, *, attempt_timeout: float = 15.0) -> Transport:
    """Make a transport to the namespace of a client of the SDK, with its credential and its way to connect.

    :param client: made with ``retry_total=0``: whoever drives the transport retries. The native transport opens nothing
        of it.
    """
    if name == "native":
        return NativeTransport(endpoint_of(client), attempt_timeout=attempt_timeout)
    return SdkTransport(client, attempt_timeout=attempt_timeout)
