"""One way to write a scenario for both clients of the SDK: as for the asynchronous one.

The synchronous client is driven through :class:`Threaded`, which has the same shape: what blocks is awaited, in a
thread. So each scenario is written once, with the types of ``azure.servicebus.aio``, and runs over both.
"""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import azure.servicebus as sync_sdk
from azure.servicebus import aio as aio_sdk

import pairbus
from pairbus import aio as pairbus_aio

_AT_ONCE = (
    "get_queue_sender",
    "get_queue_receiver",
    "get_topic_sender",
    "get_subscription_receiver",
    "list_queue_sessions",
    "register",
    "list_queues",
    "list_queues_runtime_properties",
    "list_topics",
    "list_topics_runtime_properties",
    "list_subscriptions",
    "list_subscriptions_runtime_properties",
    "list_rules",
)
"""What does not wait in the asynchronous client either."""
_WRAPPED = (
    sync_sdk.ServiceBusClient,
    sync_sdk.ServiceBusReceiver,
    sync_sdk.ServiceBusSender,
    sync_sdk.ServiceBusSession,
    sync_sdk.AutoLockRenewer,
)
_END = object()


class Threaded:
    """An object of the synchronous SDK, with the shape of its asynchronous twin."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if isinstance(value, _WRAPPED):
            return Threaded(value)
        if not callable(value):
            return value
        return self._now(value) if name in _AT_ONCE else self._in_thread(value)

    @staticmethod
    def _now(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made = function(*map(_bare, args), **options)
            return Threaded(made) if isinstance(made, (*_WRAPPED, Iterator)) else made

        return call

    @staticmethod
    def _in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(function, *map(_bare, args), **options)

        return call

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.inner.__exit__, *error)

    def __aiter__(self) -> "Threaded":
        return Threaded(iter(self.inner))

    async def __anext__(self) -> Any:
        item = await asyncio.to_thread(next, self.inner, _END)
        if item is _END:
            raise StopAsyncIteration
        return item


def _bare(value: Any) -> Any:
    return value.inner if isinstance(value, Threaded) else value


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
