"""One way to write a scenario for both clients of pairbus: as for the asynchronous one."""

# ruff: noqa: ANN401 (arguments are handed on)

from typing import Any, cast

from tests.support.threaded import Threaded

import pairbus
from pairbus import aio

KINDS = ("aio", "sync", "aio-native", "sync-native")
RETRYING = ("aio-retrying", "sync-retrying")
"""With the retries that the SDK does unless it is told otherwise; the native client does none of its own."""


class Twin:
    """One of the clients.

    :param kind: ``sync`` or ``aio``; with ``-native`` its sends go by the native client, with ``-retrying`` the SDK
        tries again by itself.
    """

    def __init__(self, kind: str) -> None:
        self.is_sync = kind.startswith("sync")
        self.is_native = kind.endswith("-native")
        self.is_retrying = kind.endswith("-retrying")

    def factory(self, connection_string: str, **options: Any) -> aio.MessagingFactory:
        """Make a factory; the SDK does not retry unless it is told to."""
        if not self.is_retrying:
            options = {"retry_total": 0, **options}
        if self.is_native:
            options = {"transport": "native", **options}
        if not self.is_sync:
            return aio.MessagingFactory.from_connection_string(connection_string, **options)
        made = pairbus.MessagingFactory.from_connection_string(connection_string, **options)
        return cast("aio.MessagingFactory", Threaded(made))

    def manager(self, connection_string: str) -> aio.NamespaceManager:
        """Make a manager."""
        kind = pairbus.NamespaceManager if self.is_sync else aio.NamespaceManager
        return cast("aio.NamespaceManager", kind.from_connection_string(connection_string))

    async def close_manager(self, manager: aio.NamespaceManager) -> None:
        """Close a manager."""
        if self.is_sync:
            cast("pairbus.NamespaceManager", manager).close()
        else:
            await manager.__aexit__()

    def options(
        self, manager: aio.NamespaceManager, secondary: aio.MessagingFactory, **options: Any
    ) -> pairbus.SendAvailabilityPairedNamespaceOptions:
        """Make the options of a pairing."""
        bare = secondary.inner if isinstance(secondary, Threaded) else secondary
        return pairbus.SendAvailabilityPairedNamespaceOptions(manager, bare, **options)
