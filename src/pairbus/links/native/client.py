"""One namespace: a connection that is opened when it is needed, and again when it was lost, and the links on it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from pairbus.amqp.types import Timestamp, UInt, Value
from pairbus.links.deadlines import BackgroundTasks
from pairbus.links.errors import timed_out, unsent
from pairbus.links.native import errors
from pairbus.links.native.connection import CLOSE_SECONDS, NativeConnection
from pairbus.links.native.endpoint import Endpoint
from pairbus.links.native.receiving import AnySession, ReceivingLink
from pairbus.links.native.requests import RequestLink
from pairbus.links.native.sending import SendingLink
from pairbus.links.native.tokens import ConnectionTokens

L = TypeVar("L", SendingLink, ReceivingLink, RequestLink)
T = TypeVar("T")

CBS: Final = "$cbs"
VENDOR: Final = "com.microsoft:"
TOKEN_SECONDS: Final = 30.0


class Opened:
    """What there is on one connection."""

    def __init__(self, connection: NativeConnection) -> None:
        self.connection: Final = connection
        self.nodes: dict[str, asyncio.Task[RequestLink]] = {}
        self._doors = ConnectionTokens(connection, self._put_token)

    async def admitted(self, entity: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do something for which the broker wants a token, if it wants tokens.

        A broker that refuses although a token was shown earlier may have let it expire before its time, by its own
        clock: it is shown another one, once.
        """
        if self.connection.endpoint.tokens is None:
            return await work()
        shown_earlier = self._doors.has_admitted(entity)
        await self._doors.admit(entity)
        try:
            return await work()
        except ServiceBusAuthorizationError:
            if not shown_earlier:
                raise
        self._doors.forget(entity)
        await self._doors.admit(entity)
        return await work()

    async def node(self, node: str) -> RequestLink:
        """Return the links to a node that answers requests."""
        opening = self.nodes.get(node)
        if opening is None or (opening.done() and (not _is_good(opening) or opening.result().error is not None)):
            opening = self.nodes[node] = self.connection.chores.start(
                self._open_node(node), f"links to {node}", shared=True
            )
        return await asyncio.shield(opening)

    async def _open_node(self, node: str) -> RequestLink:
        link = RequestLink(self.connection, node)
        await link.attached()
        return link

    async def _put_token(self, audience: str, kind: str, token: str, expires_on: float) -> None:
        link = await self.node(CBS)
        asked = {
            "operation": "put-token",
            "type": kind,
            "name": audience,
            "expiration": Timestamp(int(expires_on * 1000)),
        }
        answer = await link.ask(asked, token, TOKEN_SECONDS)
        if not answer.is_good:
            raise ServiceBusAuthenticationError(
                message=f"the token for {audience} is refused with status {answer.status}: {answer.description}"
            )

    async def close(self) -> None:
        """Close the connection, and all that is on it."""
        self._doors.close()
        await self.connection.close()


class NativeClient:
    """Opens links of one namespace, all on one connection. Nothing is retried here; every call has a deadline."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint: Final = endpoint
        self._opening: asyncio.Task[Opened] | None = None
        self._chores = BackgroundTasks()

    async def sender(self, entity: str, seconds: float) -> SendingLink:
        """Open a link to send to a queue or topic."""
        return await self._open_link(entity, seconds, lambda on: SendingLink(on, entity, self.manage, seconds))

    async def open_channel(self, entity: str, seconds: float, *, retries: bool) -> SendingLink:
        """Open a link to send to a queue or topic, for senders."""
        del retries  # whoever sends tries again by its own rules
        return await self.sender(entity, seconds)

    async def receiver(
        self,
        entity: str,
        seconds: float,
        *,
        session_id: str | AnySession | None = None,
        wait: float | None = None,
    ) -> ReceivingLink:
        """Open a link to receive from a queue or subscription, and from which of its sessions if it has any."""
        return await self._open_link(
            entity, seconds, lambda on: ReceivingLink(on, entity, session_id=session_id, wait=wait)
        )

    async def manage(
        self,
        entity: str,
        operation: str,
        body: Mapping[str, Value],
        seconds: float,
        *,
        link_name: str | None = None,
    ) -> Value:
        """Have an entity do something, and return what it answers; None: there is nothing.

        :param link_name: the link that the request is about.
        """

        async def ask(opened: Opened) -> Value:
            link = await opened.node(f"{entity}/$management")
            asked: dict[str, Value] = {
                "operation": VENDOR + operation,
                "type": "entity-mgmt",
                VENDOR + "server-timeout": UInt(int(seconds * 1000)),
            }
            if link_name is not None:
                asked["associated-link-name"] = link_name
            answer = await link.ask(asked, dict(body), seconds)
            if not answer.is_good:
                problem = errors.of_answer(answer, f"{operation} of {entity!r}")
                if isinstance(problem, MessagingEntityNotFoundError):
                    link.close()  # it is the deleted entity's; one that was created again needs new links
                raise problem
            return answer.body

        return await self._within(
            seconds, f"{operation} of {entity!r}", lambda opened: opened.admitted(entity, lambda: ask(opened))
        )

    async def _open_link(self, entity: str, seconds: float, make: Callable[[NativeConnection], L]) -> L:
        async def attach(opened: Opened) -> L:
            link = make(opened.connection)
            try:
                await link.attached()
            except BaseException:
                link.close()
                raise
            return link

        return await self._within(
            seconds, f"opening a link to {entity!r}", lambda opened: opened.admitted(entity, lambda: attach(opened))
        )

    async def _within(self, seconds: float, what: str, work: Callable[[Opened], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        opened: Opened | None = None
        try:
            async with asyncio.timeout(seconds):
                opened = await self._opened(seconds)
                return await work(opened)
        except TimeoutError:
            if opened is not None:
                opened.connection.suspect(began)
            raise unsent(timed_out(what, seconds)) from None

    async def _opened(self, seconds: float) -> Opened:
        opening = self._opening
        if opening is None or (opening.done() and not _is_alive(opening)):
            opening = self._opening = self._chores.start(
                self._open(seconds), f"connection to {self.endpoint.hostname}", shared=True
            )
        return await asyncio.shield(opening)  # who gives up leaves it to the others

    async def _open(self, seconds: float) -> Opened:
        return Opened(await NativeConnection.open(self.endpoint, seconds))

    async def close(self) -> None:
        """Close the connection, and all that is on it. It never hangs, and the client may be used again."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait({opening}, timeout=CLOSE_SECONDS)
            if _is_good(opening):
                await opening.result().close()
            opening.cancel()
        await self._chores.end(CLOSE_SECONDS)


def _is_good(task: "asyncio.Task[T]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _is_alive(opening: "asyncio.Task[Opened]") -> bool:
    return _is_good(opening) and opening.result().connection.error is None
