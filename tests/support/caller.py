"""A client for tests that asks one thing after another and hears what the broker says, refusals included."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

from tests.support.client import Client, ConnectionEndedError, Login

from pairbus.amqp import Message, ReceiverLink, SenderLink, build_message
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    Delivery,
    DispositionReceived,
    Event,
    FlowChanged,
    LinkAttached,
    LinkDetached,
)
from pairbus.amqp.message import encode_value_section
from pairbus.amqp.performatives import ACCEPTED, SETTLE_SECOND, DeliveryState, Source, Target
from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Described, Symbol, ULong, Value

SAS: Final = "servicebus.windows.net:sastoken"
DEADLINE: Final = 15.0
SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
T = TypeVar("T")


class RefusedByBrokerError(Exception):
    """The broker has refused a link or ended it, or answered a request with a status that is no success."""

    def __init__(self, condition: object, description: object) -> None:
        self.condition = str(condition)
        self.description = str(description)
        super().__init__(f"{condition}: {description}")


class Caller:
    """One connection. Each link has a queue of what happened to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.session = client.amqp.begin()
        self._events: dict[object, asyncio.Queue[Event]] = {}
        self._nodes: dict[str, tuple[SenderLink, ReceiverLink]] = {}
        self._count = 0

    @classmethod
    async def connect(cls, port: int, login: Login | None = None) -> Self:
        """Connect as nobody in particular, or with the name of a policy and its key."""
        return cls(await Client.connect(port, login))

    async def close(self) -> None:
        """End, and wait until that is so."""
        self.client.close()
        await self.client.lost

    # --- links ---------------------------------------------------------------------------------------------------

    async def sender(self, path: str) -> SenderLink:
        """Attach a link that sends."""
        link = self.session.attach_sender(self._name(), Target(path))
        await self._attached(link)
        return link

    async def receiver(self, path: str, *, session: str | None = None, reply_to: str | None = None) -> ReceiverLink:
        """Attach a link that receives."""
        source = Source(path)
        if session is not None:
            source.filter = {SESSION_FILTER: Described(ULong(0x137000000C), session)}
        target = None if reply_to is None else Target(reply_to)
        link = self.session.attach_receiver(self._name(), source, target, rcv_settle_mode=SETTLE_SECOND)
        await self._attached(link)
        return link

    async def send(self, link: SenderLink, payload: bytes) -> DeliveryState | None:
        """Send a message, and return the outcome."""
        if link.credit == 0:
            await self._next(link, FlowChanged)
        self._count += 1
        link.send(payload, self._count.to_bytes(4))
        return (await self._next(link, DispositionReceived)).state

    async def take(self, link: ReceiverLink) -> Delivery:
        """Receive one message."""
        link.grant(1)
        (delivery,) = (await self._next(link, DeliveriesReceived)).deliveries
        return delivery

    async def complete(self, link: ReceiverLink, delivery: Delivery) -> DeliveryState | None:
        """Complete a message, and return what the broker makes of it."""
        link.settle(delivery, ACCEPTED, settled=False)
        return (await self._next(link, DispositionReceived)).state

    async def ended(self, link: SenderLink | ReceiverLink) -> RefusedByBrokerError:
        """Wait until the broker ends a link, and return why."""
        error = (await self._next(link, LinkDetached)).error
        return RefusedByBrokerError(error.condition if error else None, error.description if error else None)

    # --- requests ------------------------------------------------------------------------------------------------

    async def put_token(self, audience: str, token: str, kind: str = SAS) -> tuple[int, str]:
        """Put a token; return the status and its description."""
        asked = {"operation": "put-token", "type": kind, "name": audience}
        said = (await self._ask("$cbs", asked, token)).application_properties()
        return int(said["status-code"]), str(said["status-description"])

    async def manage(self, path: str, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make a management request; return the body of the answer."""
        answer = await self._ask(f"{path}/$management", {"operation": f"com.microsoft:{operation}"}, body)
        said = answer.application_properties()
        if int(said["statusCode"]) >= 300:
            raise RefusedByBrokerError(said.get("errorCondition"), said.get("statusDescription"))
        return answer.body_values()[0] or {}

    async def _ask(self, node: str, properties: dict[str, Any], body: Value) -> Message:
        if node not in self._nodes:
            reply_to = f"{node}-{uuid.uuid4()}"
            self._nodes[node] = await self.sender(node), await self.receiver(node, reply_to=reply_to)
        asking, hearing = self._nodes[node]
        target = hearing.remote.target if hearing.remote is not None else None
        request = build_message(
            encode_value_section(body),
            properties=Properties(message_id=str(uuid.uuid4()), reply_to=str(getattr(target, "address", ""))),
            application_properties=properties,
        )
        await self.send(asking, request)
        return Message((await self.take(hearing)).payload)

    # --- what happens --------------------------------------------------------------------------------------------

    def _name(self) -> str:
        return str(uuid.uuid4())

    async def _attached(self, link: SenderLink | ReceiverLink) -> None:
        self._events[link] = asyncio.Queue()
        self.client.handle(link, self._events[link].put_nowait)
        await self._next(link, LinkAttached)

    async def _next(self, link: SenderLink | ReceiverLink, kind: type[T]) -> T:
        """Wait for something to happen to a link; that the link ends happens too."""
        self.client.flush()
        while True:
            event = await asyncio.wait_for(self._events[link].get(), DEADLINE)
            if isinstance(event, kind):
                return event
            if isinstance(event, Closed):
                raise ConnectionEndedError(event.error)
            if isinstance(event, LinkDetached):
                error = event.error
                raise RefusedByBrokerError(error.condition if error else None, error.description if error else None)


async def refused(call: Callable[[], Any]) -> str | None:
    """Return the condition with which the broker refuses something; None: it does not."""
    try:
        await call()
    except RefusedByBrokerError as error:
        return error.condition
    return None
