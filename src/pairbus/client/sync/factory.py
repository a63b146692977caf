"""The synchronous client: the asynchronous one, run on an event loop in a background thread of each factory.

Safe to use from many threads. Every call has a real deadline. Receivers are the synchronous SDK's own.
"""

# ruff: noqa: ANN401 (the SDK's own arguments are handed on)

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, cast

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessageBatch, ServiceBusReceiver

from pairbus.client.availability import Availability as _Availability
from pairbus.client.availability import BacklogQueue, EntityAvailability, OnTurn
from pairbus.client.factory import MessagingFactory as _MessagingFactory
from pairbus.client.receivers import metered
from pairbus.client.sender import MessageSender as _MessageSender
from pairbus.client.sync.portal import OverdueError, Portal
from pairbus.core.lifecycle import FactoryState
from pairbus.core.options import (
    Namespaced,
    SendAvailabilityPairedNamespaceOptions,
    TransportName,
    check_pairing,
    check_timeout,
)
from pairbus.errors import FactoryClosedError, OptionError, SendTimeoutError
from pairbus.instrument.hooks import Instrument
from pairbus.links.errors import SendTimedOutError, timed_out
from pairbus.messages.sdk_messages import MessageTypes

T = TypeVar("T")

RECEIVERS_CLOSE_SECONDS: Final = 5.0
"""How long the synchronous SDK, which can hang, may take to close the application's receivers."""


class MessageSender:
    """Sends messages to one queue or topic; any number of threads may share it.

    It has the methods of :class:`azure.servicebus.ServiceBusSender`, and does what
    :class:`pairbus.aio.MessageSender` does. Get one from
    :meth:`~pairbus.MessagingFactory.get_queue_sender` or ``get_topic_sender``.
    """

    def __init__(self, sender: _MessageSender, run: "_Run") -> None:
        self._sender = sender
        self._run = run

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary namespace."""
        return self._sender.fully_qualified_namespace

    @property
    def entity_name(self) -> str:
        """The queue or topic that it sends to."""
        return self._sender.entity_name

    @property
    def client_identifier(self) -> str:
        """How the broker names this sender in its errors."""
        return self._sender.client_identifier

    def __str__(self) -> str:
        return str(self._sender)

    def __enter__(self) -> Self:
        """Open the link. Paired, an outage is no error: the link is opened when the entity is back."""
        self._run(self._sender.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the link, after the sends that are under way. A factory that is closed has closed it already."""
        with suppress(FactoryClosedError):
            self._run(self._sender.close())

    def send_messages(
        self, message: MessageTypes | ServiceBusMessageBatch, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Send a message, several or a batch, and return when a broker has accepted them.

        See :meth:`pairbus.aio.MessageSender.send_messages`. It never blocks longer than ``timeout`` and a second.
        """
        check_timeout(timeout)  # before the portal, which counts with it
        self._run_send(self._sender.send_messages(message, timeout=timeout, **kwargs), timeout)

    def schedule_messages(
        self, messages: MessageTypes, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Send messages to be enqueued at a time, and return their sequence numbers.

        :return: a :class:`~pairbus.ParkedSchedule` when they were parked with their schedule (S9).
        """
        check_timeout(timeout)
        return self._run_send(
            self._sender.schedule_messages(messages, schedule_time_utc, timeout=timeout, **kwargs), timeout
        )

    def _run_send(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        try:
            return self._run(work, timeout)
        except OverdueError:  # the loop is too busy to end it, so it may have been sent (S7)
            error = SendTimeoutError(self.entity_name, timeout or 0.0, None, maybe_sent=True)
            raise SendTimedOutError(error) from None

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel messages that the primary has scheduled, by their sequence numbers.

        :raises pairbus.errors.CancelUnavailableError: failover is engaged, and the primary cannot be asked (S9).
        """
        check_timeout(timeout)
        try:
            self._run(self._sender.cancel_scheduled_messages(sequence_numbers, timeout=timeout, **kwargs), timeout)
        except OverdueError:
            raise timed_out(f"cancelling messages at {self.entity_name!r}", timeout or 0.0) from None

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make an empty batch, as large as the broker takes it. Paired, that works during an outage too."""
        return self._run(self._sender.create_message_batch(max_size_in_bytes))


class Availability:
    """The state of a factory, its pairing and its entities, as it is when it is asked."""

    def __init__(self, availability: _Availability, portal: Portal) -> None:
        self._availability = availability
        self._portal = portal

    @property
    def state(self) -> str:
        """The factory is ``open``, ``closed`` or ``faulted``."""
        return self._availability.state

    @property
    def paired_with(self) -> str | None:
        """The host name of the secondary; None: not paired."""
        return self._availability.paired_with

    @property
    def entities(self) -> Mapping[str, EntityAvailability]:
        """Every entity that was sent to since the pairing, by name, case-insensitively (S1)."""
        return self._portal.call(lambda: self._availability.entities)

    def entity(self, name: str) -> EntityAvailability:
        """The health of one entity, which is healthy unless it is known not to be."""
        return self._portal.call(lambda: self._availability.entity(name))

    @property
    def backlog_queues(self) -> tuple[BacklogQueue, ...]:
        """The backlog queues of the pairing, those that had to be left out too (B5)."""
        return self._portal.call(lambda: self._availability.backlog_queues)

    def subscribe(self, callback: OnTurn) -> Callable[[], None]:
        """Have a function called at each turn of an entity's health, in the factory's thread: it must not block.

        :return: a function that ends it.
        """
        return self._portal.call(lambda: self._availability.subscribe(callback))

    def export(self) -> dict[str, Any]:
        """Return all of it as plain data, which JSON can carry."""
        return self._portal.call(self._availability.export)


class MessagingFactory:
    """Hands out senders and receivers for one namespace, as :class:`azure.servicebus.ServiceBusClient` does.

    .. code-block:: python

        factory = MessagingFactory.from_connection_string(primary)
        factory.pair_namespace(SendAvailabilityPairedNamespaceOptions(manager, secondary_factory))

    See :class:`pairbus.aio.MessagingFactory`. It has one background thread, which starts when it is first needed, and
    belongs to the process that used it first: after a fork, make a new one.

    :param fully_qualified_namespace: the namespace's host name.
    :param credential: of azure-identity, a shared access signature, or a named key.
    :param transport: what carries the sends of a paired factory: "sdk", or "native", which is many times faster.
    :param instrument: gets a record of every operation (K1); None: nobody does.
    :param options: everything else that the SDK's client takes.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: TokenCredential | AzureSasCredential | AzureNamedKeyCredential,
        *,
        transport: TransportName = "sdk",
        instrument: Instrument | None = None,
        **options: Any,
    ) -> None:
        shared = credential if isinstance(credential, AzureSasCredential | AzureNamedKeyCredential) else None
        self._start(
            partial(
                _MessagingFactory,
                fully_qualified_namespace,
                _AsyncCredential(cast("TokenCredential", credential)) if shared is None else shared,
                transport=transport,
                instrument=instrument,
                **options,
            ),
            partial(ServiceBusClient, fully_qualified_namespace, credential, **options),
        )

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        transport: TransportName = "sdk",
        instrument: Instrument | None = None,
        **options: Any,
    ) -> Self:
        """Make a factory from a connection string, with the keyword arguments of the SDK's client."""
        factory = cls.__new__(cls)
        own = {"transport": transport, "instrument": instrument}
        factory._start(  # noqa: SLF001 (its own class)
            partial(cast("Any", _MessagingFactory.from_connection_string), conn_str, **own, **options),
            partial(ServiceBusClient.from_connection_string, conn_str, **options),
        )
        return factory

    def _start(self, make_twin: Callable[[], _MessagingFactory], make_client: Callable[[], ServiceBusClient]) -> None:
        self._make_twin = make_twin
        self._make_client = make_client
        self._factory = make_twin()
        self._portal = Portal(f"pairbus {self._factory.fully_qualified_namespace}", at_exit=self._end)
        self._availability = Availability(self._factory.availability, self._portal)
        self._client: ServiceBusClient | None = None
        self._client_lock = threading.Lock()

    @property
    def fully_qualified_namespace(self) -> str:
        """The namespace's host name."""
        return self._factory.fully_qualified_namespace

    @property
    def is_paired(self) -> bool:
        """Whether the factory is paired."""
        return self._factory.is_paired

    @property
    def availability(self) -> Availability:
        """The health of every entity, the rotation and the pairing's state: readable, with callbacks, exportable."""
        return self._availability

    def __enter__(self) -> Self:
        self._factory.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> MessageSender:
        """Get a sender to a queue, with the SDK's arguments."""
        sender = self._factory.get_queue_sender(
            queue_name, client_identifier=client_identifier, socket_timeout=socket_timeout, **kwargs
        )
        return MessageSender(sender, self._portal.run)

    def get_topic_sender(
        self,
        topic_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> MessageSender:
        """Get a sender to a topic, with the SDK's arguments."""
        sender = self._factory.get_topic_sender(
            topic_name, client_identifier=client_identifier, socket_timeout=socket_timeout, **kwargs
        )
        return MessageSender(sender, self._portal.run)

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """Get the SDK's own receiver of a queue, with the SDK's arguments (P3); its calls are recorded (K1)."""
        return metered(self._receiving().get_queue_receiver(queue_name, **kwargs), self._factory.instrument)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """Get the SDK's own receiver of a subscription, with the SDK's arguments (P3); its calls are recorded (K1)."""
        receiver = self._receiving().get_subscription_receiver(topic_name, subscription_name, **kwargs)
        return metered(receiver, self._factory.instrument)

    def _receiving(self) -> ServiceBusClient:
        self._factory.check_open()
        with self._client_lock:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def pair_namespace(self, options: SendAvailabilityPairedNamespaceOptions) -> None:
        """Pair the factory with a secondary namespace: from then on its sends are available while this one is not.

        The options name a synchronous factory and a synchronous administration client. See
        :meth:`pairbus.aio.MessagingFactory.pair_namespace`.
        """
        secondary = options.secondary_messaging_factory
        if not isinstance(secondary, MessagingFactory):
            raise OptionError("secondary_messaging_factory", secondary, "a pairbus.MessagingFactory")
        self._portal.run(self._pair(options, secondary))

    async def _pair(self, options: SendAvailabilityPairedNamespaceOptions, secondary: "MessagingFactory") -> None:
        check_pairing(
            self.fully_qualified_namespace,
            secondary.fully_qualified_namespace,
            primary_is_paired=self.is_paired,
            secondary_is_paired=secondary.is_paired,
        )
        twin = secondary.twin(asyncio.get_running_loop())
        await self._factory.pair_namespace(
            SendAvailabilityPairedNamespaceOptions(
                _AsyncAdministration(options.secondary_namespace_manager),
                twin,
                backlog_queue_count=options.backlog_queue_count,
                failover_interval=options.failover_interval,
                enable_syphon=options.enable_syphon,
                ping_primary_interval=options.ping_primary_interval,
                syphon_retry_interval=options.syphon_retry_interval,
                syphon_transport=options.syphon_transport,
                attempt_timeout=options.attempt_timeout,
                on_outage=options.on_outage,
                classify=options.classify,
            )
        )

    def twin(self, loop: asyncio.AbstractEventLoop) -> _MessagingFactory:
        """Make a factory for the same namespace that lives in another loop, and shares this one's fate."""
        self._factory.check_open()
        twin = self._make_twin()
        own = self._factory

        def own_ended() -> None:
            lifecycle = own.lifecycle
            if loop.is_closed():
                return
            if lifecycle.state is FactoryState.FAULTED:
                loop.call_soon_threadsafe(twin.fault, lifecycle.cause)
            else:
                loop.call_soon_threadsafe(twin.end)

        def twin_ended() -> None:
            if twin.lifecycle.state is FactoryState.FAULTED:
                self._portal.soon(lambda: own.fault(twin.lifecycle.cause))

        own.when_ended(own_ended)
        twin.when_ended(twin_ended)
        return twin

    def fault(self, cause: BaseException | str) -> None:
        """Let the factory fault (C1): its operations raise an error naming the cause. It still wants to be closed."""
        self._portal.soon(lambda: self._factory.fault(cause))

    def close(self) -> None:
        """Close the factory (C2): pings stop, sends that are under way may end, links and the thread are closed."""
        with self._client_lock:
            client, self._client = self._client, None
        if client is not None:
            closing = threading.Thread(target=client.close, name="pairbus closing receivers", daemon=True)
            closing.start()
            closing.join(RECEIVERS_CLOSE_SECONDS)
        self._end()

    def _end(self) -> None:
        if self._factory.lifecycle.state is FactoryState.CLOSED:
            return
        if self._portal.is_running:
            self._portal.run(self._factory.close())
        else:
            self._factory.end()
        self._portal.stop()


class _Run(Protocol):
    """The type of :meth:`Portal.run`."""

    def __call__(self, work: Coroutine[Any, Any, T], seconds: float | None = None, /) -> T: ...


class _AsyncCredential:
    """A synchronous credential for the asynchronous SDK: tokens are fetched in a thread."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return await asyncio.to_thread(self._credential.get_token, *scopes, **options)

    async def close(self) -> None:
        """The application closes its credential."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        pass


class _AsyncAdministration:
    """A synchronous administration client for the asynchronous factory: each call in a thread."""

    def __init__(self, administration: Namespaced) -> None:
        self._administration: Any = administration
        self.fully_qualified_namespace = administration.fully_qualified_namespace

    async def get_queue(self, queue_name: str, /) -> Any:
        return await asyncio.to_thread(self._administration.get_queue, queue_name)

    async def create_queue(self, queue_name: str, /, **settings: Any) -> Any:
        return await asyncio.to_thread(partial(self._administration.create_queue, queue_name, **settings))
