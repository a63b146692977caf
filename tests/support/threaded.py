"""An object of a synchronous client with the shape of its asynchronous twin, so that a scenario is written once."""

# ruff: noqa: ANN401 (arguments are handed on)

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Self

import azure.servicebus as sync_sdk

import pairbus

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
    "fault",
)
"""What does not wait in the asynchronous client either."""
_WRAPPED = (
    sync_sdk.ServiceBusClient,
    sync_sdk.ServiceBusReceiver,
    sync_sdk.ServiceBusSender,
    sync_sdk.ServiceBusSession,
    sync_sdk.AutoLockRenewer,
    pairbus.MessagingFactory,
    pairbus.MessageSender,
)
_END = object()


class Threaded:
    """What blocks is awaited, in a thread."""

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
