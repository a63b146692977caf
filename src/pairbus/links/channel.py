"""The port through which senders reach the wire: an open way to send to one queue or topic.

:mod:`pairbus.client.send_link` stands above it and decides what is sent when; the adapters (``links.sdk.channel``,
``links.native.sending``) only carry it. Nothing above the port knows which of them it has.

A channel takes messages that are encoded already and answers by a call, not by a coroutine, so that a send needs no
task of its own. What is asked of an entity's management node, which is rare, is a coroutine.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from pairbus.messages.sdk_batches import Message

Answered: TypeAlias = Callable[[Exception | None], None]
"""Told how a transfer ended: None is well."""

STALE_SECONDS: Final = 240.0
"""A link that was idle for longer is replaced before it is used again: brokers detach idle ones after ten minutes."""


class Channel(Protocol):
    """An open way to send to one entity. It raises and answers the exception types of the SDK."""

    @property
    def carries_many(self) -> bool:
        """Whether it takes the next transfer before the last one was answered."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        ...

    @property
    def batch_bytes(self) -> int:
        """The largest message, or batch, that the broker takes."""
        ...

    def send(self, messages: Sequence[Message], payload: bytes, message_format: int, answered: Answered) -> None:
        """Send messages as one transfer. ``answered`` is called once; not at all if the channel is closed before.

        :param messages: what is sent, as the application made it.
        :param payload: the same, encoded: one message, or a batch.
        """
        ...

    def flush(self) -> None:
        """Write what was sent since the last time."""
        ...

    async def schedule(self, messages: Sequence[Message], at: datetime) -> list[int]:
        """Send messages to be enqueued at a time, and return their sequence numbers."""
        ...

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        """Cancel messages that were scheduled."""
        ...

    def suspect(self, since: float) -> None:
        """Note that a transfer which began then was not answered in time."""
        ...

    def close(self, *, in_doubt: bool) -> None:
        """Close it, in the background.

        :param in_doubt: something is under way on it: it need not be closed in order.
        """
        ...


class OpenChannel(Protocol):
    """Opens a channel."""

    async def __call__(self, *, retries: bool) -> Channel:
        """Open a channel, or raise what hinders it before long.

        :param retries: the SDK may try again by itself.
        """
        ...
