"""One way to write a scenario for both clients of pairbus: as for the asynchronous one."""

# ruff: noqa: ANN401 (arguments are handed on)

from typing import Any, cast

import pairbus
from pairbus import aio
from support.threaded import Threaded

KINDS = ("aio", "sync", "native")


class Twin:
    """One of the clients.

    :param kind: ``sync`` or ``aio``, or ``native`` for the asynchronous one whose sends go by the native client.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def factory(self, connection_string: str, **options: Any) -> aio.MessagingFactory:
        """Make a factory; the SDK does not retry unless it is told to."""
        options = {"retry_total": 0, **options}
        if self.kind == "native":
            options = {"transport": "native", **options}
        if self.kind != "sync":
            return aio.MessagingFactory.from_connection_string(connection_string, **options)
        made = pairbus.MessagingFactory.from_connection_string(connection_string, **options)
        return cast("aio.MessagingFactory", Threaded(made))

    def manager(self, connection_string: str) -> aio.NamespaceManager:
        """Make a manager."""
        kind = aio.NamespaceManager if self.kind != "sync" else pairbus.NamespaceManager
        return cast("aio.NamespaceManager", kind.from_connection_string(connection_string))

    async def close_manager(self, manager: aio.NamespaceManager) -> None:
        """Close a manager."""
        if self.kind != "sync":
            await manager.__aexit__()
        else:
            cast("pairbus.NamespaceManager", manager).close()

    def options(
        self, manager: aio.NamespaceManager, secondary: aio.MessagingFactory, **options: Any
    ) -> pairbus.SendAvailabilityPairedNamespaceOptions:
        """Make the options of a pairing."""
        bare = secondary.inner if isinstance(secondary, Threaded) else secondary
        return pairbus.SendAvailabilityPairedNamespaceOptions(manager, bare, **options)
