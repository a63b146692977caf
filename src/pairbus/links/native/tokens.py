"""The tokens of one connection: one for each entity that is used, renewed before it expires."""

import asyncio
import logging
import time
from typing import Final, Protocol

from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from pairbus.links.native.connection import NativeConnection

_LOGGER = logging.getLogger(__name__)

RENEWED_AT: Final = 0.9
"""The part of its life after which a token is renewed."""
RENEWED_AGAIN: Final = 5.0
"""After so many seconds a renewal that failed is tried again."""


class PutToken(Protocol):
    """Puts a token to ``$cbs``."""

    async def __call__(self, audience: str, kind: str, token: str, expires_on: float) -> None:
        """Put it, or raise why it is refused."""
        ...


class ConnectionTokens:
    """Shows the broker a token for each entity that is used on one connection, and a new one before it expires."""

    def __init__(self, connection: NativeConnection, put: PutToken) -> None:
        self._connection = connection
        self._put = put
        self._shown: dict[str, asyncio.Task[float]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def admit(self, entity: str) -> None:
        """See to it that the broker has a token for an entity."""
        audience = self._connection.endpoint.audience(entity)
        showing = self._shown.get(audience)
        if showing is None or (showing.done() and (showing.cancelled() or showing.exception() is not None)):
            showing = self._shown[audience] = self._connection.chores.start(
                self._show(audience), f"token {audience}", shared=True
            )
        await asyncio.shield(showing)

    def has_admitted(self, entity: str) -> bool:
        """Whether a token for an entity was shown."""
        return self._connection.endpoint.audience(entity) in self._timers

    def forget(self, entity: str) -> None:
        """Have the next one who needs it show a token anew."""
        audience = self._connection.endpoint.audience(entity)
        self._shown.pop(audience, None)
        timer = self._timers.pop(audience, None)
        if timer is not None:
            timer.cancel()

    async def _show(self, audience: str) -> float:
        tokens = self._connection.endpoint.tokens
        assert tokens is not None  # noqa: S101 (else nobody asks for it)
        try:
            token = await tokens(audience)
        except ServiceBusError:
            raise
        except Exception as error:
            raise ServiceBusAuthenticationError(message=f"no token could be had: {error}", error=error) from error
        await self._put(audience, token.type, token.text, token.expires_on)
        lasts = max(0.0, token.expires_on - time.time())
        self._timers[audience] = self._connection.loop.call_later(lasts * RENEWED_AT, self._renew, audience)
        return token.expires_on

    def _renew(self, audience: str) -> None:
        if self._connection.error is None:
            self._connection.chores.start(self._renewed(audience), f"token {audience}")

    async def _renewed(self, audience: str) -> None:
        try:
            await self._show(audience)
        except ServiceBusError as error:  # the old one is still good for a while
            _LOGGER.warning("the token for %s could not be renewed and is tried again: %s", audience, error)
            self._timers[audience] = self._connection.loop.call_later(RENEWED_AGAIN, self._renew, audience)

    def close(self) -> None:
        """Renew no more."""
        for timer in self._timers.values():
            timer.cancel()
