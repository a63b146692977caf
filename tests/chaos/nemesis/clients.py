"""The clients under test: a paired factory of each kind, and the ways in which applications call it."""

# ruff: noqa: ANN401, ASYNC109 (the options of a pairing, and a caller's time-out, are handed on)

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusMessage
from tests.chaos.nemesis.brokers import Side
from tests.chaos.nemesis.journal import Call, Journal
from tests.client.twins import Twin

from pairbus.aio import MessageSender, MessagingFactory
from pairbus.client.availability import Turn

DEFAULT_RETRIES = {"retry_total": 3}
"""What the SDK does by itself; the twins of the client tests have it retry nothing."""


@dataclass(eq=False)
class Client:
    """One application: a factory that is paired, and the journal in which its calls are noted."""

    kind: str
    factory: MessagingFactory
    journal: Journal

    async def send(
        self,
        caller: str,
        entity: str,
        *,
        sender: MessageSender | None = None,
        count: int = 1,
        size: int = 100,
        timeout: float | None = None,
        as_batch: bool = False,
    ) -> Call:
        """Make one call and note how it ended; it raises nothing.

        :param sender: the sender to use; None: one of its own, which is opened and closed.
        :param count: how many messages; more than one are a list.
        :param as_batch: put them in a batch that the sender makes.
        """
        call, messages = self.journal.begin(self.kind, caller, entity, count=count, size=size, timeout=timeout)
        try:
            if sender is None:
                async with self.factory.get_queue_sender(entity) as own:
                    await self._send(call, own, messages, as_batch=as_batch)
                    call.step = "close"
            else:
                await self._send(call, sender, messages, as_batch=as_batch)
        except asyncio.CancelledError as error:
            if self.journal.ended:
                raise  # the harness gives the call up
            call.error = error
            me = asyncio.current_task()
            while me is not None and me.cancelling():  # nobody cancelled the caller, whatever its task says
                me.uncancel()
        except Exception as error:  # noqa: BLE001 (this is what is noted)
            call.error = error
        call.ended = time.monotonic()
        return call

    @staticmethod
    async def _send(
        call: Call, sender: MessageSender, messages: Sequence[ServiceBusMessage], *, as_batch: bool
    ) -> None:
        what: Any = messages[0] if len(messages) == 1 else list(messages)
        if as_batch:
            call.step = "batch"
            what = await sender.create_message_batch()
            for message in messages:
                what.add_message(message)
        call.step, call.send_began = "send", time.monotonic()
        await sender.send_messages(what, timeout=call.timeout)


@asynccontextmanager
async def paired(
    kind: str,
    journal: Journal,
    primary: Side,
    secondary: Side,
    *,
    factory: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """Pair a factory of a kind, and close it at the end.

    :param factory: options of the factories; the SDK retries as it does by default.
    """
    twin = Twin(kind)
    given = DEFAULT_RETRIES | (factory or {})
    manager = twin.manager(secondary.connection_string)
    one, other = twin.factory(primary.connection_string, **given), twin.factory(secondary.connection_string, **given)

    def turned(turn: Turn) -> None:
        journal.turned(kind, turn.entity, turn.state.value)

    try:
        await one.pair_namespace(twin.options(manager, other, **options))
        inner: Any = getattr(one, "inner", one)
        inner.availability.subscribe(turned)
        yield Client(kind, one, journal)
    finally:
        await one.close()
        await other.close()
        await twin.close_manager(manager)
