"""One way to write a scenario for both clients of pairbus: as for the asynchronous one."""

# ruff: noqa: ANN401 (arguments are handed on)

import asyncio
from collections.abc import Callable
from typing import Any, Self, cast

import azure.servicebus as sync_sdk

import pairbus
from pairbus import aio

KINDS = ("aio", "sync")

_AT_ONCE = ("get_queue_sender", "get_topic_sender", "get_queue_receiver", "get_subscription_receiver", "fault")
_WRAPPED = (pairbus.MessagingFactory, pairbus.MessageSender, sync_sdk.ServiceBusReceiver)


class Threaded:
    """An object of the synchronous client, with the shape of its asynchronous twin."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return value
        return self._now(value) if name in _AT_ONCE else self._in_thread(value)

    @staticmethod
    def _now(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made = function(*args, **options)
            return Threaded(made) if isinstance(made, _WRAPPED) else made

        return call

    @staticmethod
    def _in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(function, *args, **options)

        return call

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.inner.__exit__, *error)


class Twin:
    """One of the two clients.

    :param kind: ``sync`` or ``aio``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def factory(self, connection_string: str, **options: Any) -> aio.MessagingFactory:
        """Make a factory; the SDK does not retry unless it is told to."""
        options = {"retry_total": 0, **options}
        if self.kind == "aio":
            return aio.MessagingFactory.from_connection_string(connection_string, **options)
        made = pairbus.MessagingFactory.from_connection_string(connection_string, **options)
        return cast("aio.MessagingFactory", Threaded(made))

    def manager(self, connection_string: str) -> aio.NamespaceManager:
        """Make a manager."""
        kind = aio.NamespaceManager if self.kind == "aio" else pairbus.NamespaceManager
        return cast("aio.NamespaceManager", kind.from_connection_string(connection_string))

    async def close_manager(self, manager: aio.NamespaceManager) -> None:
        """Close a manager."""
        if self.kind == "aio":
            await manager.__aexit__()
        else:
            cast("pairbus.NamespaceManager", manager).close()

    def options(
        self, manager: aio.NamespaceManager, secondary: aio.MessagingFactory, **options: Any
    ) -> pairbus.SendAvailabilityPairedNamespaceOptions:
        """Make the options of a pairing."""
        bare = secondary.inner if isinstance(secondary, Threaded) else secondary
        return pairbus.SendAvailabilityPairedNamespaceOptions(manager, bare, **options)
