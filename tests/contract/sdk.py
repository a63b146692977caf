"""One way to write a scenario for both clients of the SDK: as for the asynchronous one.

The synchronous client is driven through :class:`Threaded`, which has the same shape: what blocks is awaited, in a
thread. So each scenario is written once, with the types of ``azure.servicebus.aio``, and runs over both.
"""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

from typing import Any, cast

import azure.servicebus as sync_sdk
from azure.servicebus import aio as aio_sdk
from tests.support.threaded import Threaded

import pairbus
from pairbus import aio as pairbus_aio


class Sdk:
    """One of the two clients.

    :param kind: ``sync`` or ``aio``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def client(self, connection_string: str, **options: Any) -> aio_sdk.ServiceBusClient:
        """Make a client; it does not retry unless it is told to."""
        options = {"retry_total": 0, **options}
        if self.kind == "aio":
            return aio_sdk.ServiceBusClient.from_connection_string(connection_string, **options)
        made = sync_sdk.ServiceBusClient.from_connection_string(connection_string, **options)
        return cast("aio_sdk.ServiceBusClient", Threaded(made))

    def manager(self, connection_string: str, **options: Any) -> pairbus_aio.NamespaceManager:
        """Make an administration client; it does not retry unless it is told to."""
        options = {"retry_total": 0, **options}
        if self.kind == "aio":
            return pairbus_aio.NamespaceManager.from_connection_string(connection_string, **options)
        made = pairbus.NamespaceManager.from_connection_string(connection_string, **options)
        return cast("pairbus_aio.NamespaceManager", Threaded(made))

    def renewer(self, **options: Any) -> aio_sdk.AutoLockRenewer:
        """Make a renewer of locks."""
        if self.kind == "aio":
            return aio_sdk.AutoLockRenewer(**options)
        return cast("aio_sdk.AutoLockRenewer", Threaded(sync_sdk.AutoLockRenewer(**options)))
