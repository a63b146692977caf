"""The messaging factory: one namespace, and what makes its sends available."""

# pyright: reportUnknownMemberType=false
# ruff: noqa: ANN401, SLF001 (the SDK's own arguments are handed on)

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random, SystemRandom
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Self, cast
from weakref import WeakSet

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from pairbus.client.availability import Availability
from pairbus.client.backlog_setup import Backlog, QueueAdministration
from pairbus.client.pairing import Ends, Pairing
from pairbus.client.receivers import metered
from pairbus.client.sender import MessageSender, SendsUnderWay
from pairbus.client.shared_fate import share_fate
from pairbus.core.health import State
from pairbus.core.lifecycle import FactoryState, Lifecycle
from pairbus.core.naming import backlog_paths, namespace_label
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions, TransportName, check_pairing
from pairbus.errors import OptionError
from pairbus.instrument.hooks import Instrument
from pairbus.links.deadlines import BackgroundTasks, within
from pairbus.links.native.client import NativeClient
from pairbus.links.native.endpoint import endpoint_of
from pairbus.links.sdk.links import Link
from pairbus.links.tls import tls_context
from pairbus.syphon.in_process import Syphon
from pairbus.syphon.transports import TRANSPORTS, transport_to

CLOSE_SECONDS: Final = 30.0
"""How long the SDK may take to close the receivers of the application."""

CHORE_SECONDS: Final = 5.0

_LOGGER = logging.getLogger(__name__)


class MessagingFactory:
    """Hands out senders and receivers for one namespace, as :class:`azure.servicebus.aio.ServiceBusClient` does.

    .. code-block:: python

        factory = MessagingFactory.from_connection_string(primary)
        await factory.pair_namespace(SendAvailabilityPairedNamespaceOptions(manager, secondary_factory))

    Unpaired it behaves exactly like the SDK. Once it is paired, its senders keep sends available while the namespace is
    not; its receivers are the SDK's own, always of this namespace (P3).

    :param fully_qualified_namespace: the namespace's host name.
    :param credential: of azure-identity, a shared access signature, or a named key.
    :param transport: what carries the sends of a paired factory, to both namespaces: "sdk", or "native", which is many
        times faster. Receivers, and an unpaired factory, are always the SDK's.
    :param instrument: gets a record of every operation (K1); None: nobody does.
    :param options: everything else that the SDK's client takes.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: AsyncTokenCredential | AzureSasCredential | AzureNamedKeyCredential,
        *,
        transport: TransportName = "sdk",
        instrument: Instrument | None = None,
        **options: Any,
    ) -> None:
        self._start(
            partial(cast("Any", ServiceBusClient), fully_qualified_namespace, credential, **options),
            transport,
            instrument,
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
        make_client = partial(cast("Any", ServiceBusClient.from_connection_string), conn_str, **options)
        factory._start(make_client, transport, instrument)
        return factory

    def _start(
        self, make_client: "partial[ServiceBusClient]", transport: TransportName, instrument: Instrument | None
    ) -> None:
        if transport not in TRANSPORTS:
            raise OptionError("transport", transport, "one of " + ", ".join(map(repr, TRANSPORTS)))
        self._transport = transport
        self._make_client = make_client
        self.lifecycle = Lifecycle()
        self.availability = Availability(self)
        self.under_way = SendsUnderWay()
        self.pairing: Pairing | None = None
        """What the senders of a paired factory share; None: not paired."""
        self.instrument = Instrument() if instrument is None else instrument
        self.client = make_client()
        """The SDK's client, of which the receivers are and the senders while unpaired."""
        self.unpaired_links: WeakSet[Link] = WeakSet()
        """The senders' links of that client."""
        self._tls: SSLContext | None = None
        self._chores = BackgroundTasks()
        self._random: Random = SystemRandom()
        self.is_pairing = False
        """Whether :meth:`pair_namespace` is under way."""
        self._on_ended: list[Callable[[], None]] = []
        self._syphon: Syphon | None = None

    @property
    def fully_qualified_namespace(self) -> str:
        """The namespace's host name."""
        return self.client.fully_qualified_namespace

    @property
    def is_paired(self) -> bool:
        """Whether the factory is paired."""
        return self.pairing is not None

    async def __aenter__(self) -> Self:
        self.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> MessageSender:
        """Get a sender to a queue, with the SDK's arguments."""
        self.check_open()
        return MessageSender(
            self,
            lambda client: client.get_queue_sender(
                queue_name, client_identifier=client_identifier, socket_timeout=socket_timeout, **kwargs
            ),
        )

    def get_topic_sender(
        self,
        topic_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> MessageSender:
        """Get a sender to a topic, with the SDK's arguments."""
        self.check_open()
        return MessageSender(
            self,
            lambda client: client.get_topic_sender(
                topic_name, client_identifier=client_identifier, socket_timeout=socket_timeout, **kwargs
            ),
        )

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """Get the SDK's own receiver of a queue, with the SDK's arguments (P3); its calls are recorded (K1)."""
        self.check_open()
        return metered(self.client.get_queue_receiver(queue_name, **kwargs), self.instrument)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """Get the SDK's own receiver of a subscription, with the SDK's arguments (P3); its calls are recorded (K1)."""
        self.check_open()
        receiver = self.client.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        return metered(receiver, self.instrument)

    async def pair_namespace(self, options: SendAvailabilityPairedNamespaceOptions) -> None:
        """Pair the factory with a secondary namespace: from then on its sends are available while this one is not.

        Sends before it has returned are not paired. If it fails, the factory stays unpaired and usable.

        :raises pairbus.errors.PairingError: the pairing cannot work, access to the secondary is denied, or no backlog
            queue can be made or reached.
        """
        self.check_open()
        secondary = options.secondary_messaging_factory
        if not isinstance(secondary, MessagingFactory):
            raise OptionError("secondary_messaging_factory", secondary, "a pairbus.aio.MessagingFactory")
        secondary.check_open()
        check_pairing(
            self.fully_qualified_namespace,
            secondary.fully_qualified_namespace,
            primary_is_paired=self.is_paired or self.is_pairing,
            secondary_is_paired=secondary.is_paired or secondary.is_pairing,
        )
        self.is_pairing = True
        try:
            before = self._tls, secondary._tls
            try:
                pairing = await self._pair(options, secondary)
                if options.enable_syphon:
                    try:
                        self._start_syphon(pairing, secondary)
                    except BaseException:
                        await pairing.close()
                        raise
            except BaseException:
                self._tls, secondary._tls = before
                raise
            self.pairing = pairing
        finally:
            self.is_pairing = False

    async def _pair(self, options: SendAvailabilityPairedNamespaceOptions, secondary: "MessagingFactory") -> Pairing:
        paths = backlog_paths(self.fully_qualified_namespace, options.backlog_queue_count)
        backlog = Backlog(
            cast("QueueAdministration", options.secondary_namespace_manager),
            namespace_label(secondary.fully_qualified_namespace),
            self.instrument,
        )
        missing = await backlog.ensure(paths)
        self._tls = secondary._tls = await asyncio.to_thread(tls_context)
        self.check_open()
        return Pairing(
            options,
            Ends(
                self.fully_qualified_namespace,
                secondary.fully_qualified_namespace,
                self.make_client(),
                secondary.make_client(retry_total=0),  # a park that fails is tried again by S5 and S13, elsewhere first
                secondary.check_open,
                self._native_clients(secondary),
            ),
            queues=tuple(path for path in paths if path not in missing),
            missing=missing,
            chores=self._chores,
            instrument=self.instrument,
            random=self._random,
            turned=self._turned,
        )

    def _native_clients(self, secondary: "MessagingFactory") -> tuple[NativeClient, NativeClient] | None:
        if self._transport != "native":
            return None
        return NativeClient(endpoint_of(self.make_client())), NativeClient(endpoint_of(secondary.make_client()))

    def make_client(self, **options: Any) -> ServiceBusClient:
        """Make another client of the SDK for this namespace, with these options before the factory's own."""
        given = self._make_client.keywords
        if self._tls is not None and not given.get("ssl_context") and not given.get("connection_verify"):
            options = {"ssl_context": self._tls, **options}
        return self._make_client(**options)

    def _start_syphon(self, pairing: Pairing, secondary: "MessagingFactory") -> None:
        attempt_timeout, carrier = pairing.policy.attempt_timeout, pairing.options.syphon_transport
        self._syphon = Syphon(
            transport_to(self.make_client(retry_total=0), carrier, attempt_timeout=attempt_timeout),
            transport_to(secondary.make_client(retry_total=0), carrier, attempt_timeout=attempt_timeout),
            pairing.rotation.queues,
            retry_interval=pairing.options.syphon_retry_interval.total_seconds(),
            instrument=self.instrument,
        )
        self._syphon.start()
        share_fate(self, secondary)

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Have a function called once, in the event loop, when the factory is closed or has faulted."""
        self._on_ended.append(callback)

    def fault(self, cause: BaseException | str) -> None:
        """Let the factory fault (C1): its operations raise an error that names the cause, and what is under way ends.

        It still wants to be closed.
        """
        if self.lifecycle.state is not FactoryState.OPEN:
            return
        self.lifecycle.fault(cause)
        _LOGGER.error("the factory of %s has faulted: %s", self.fully_qualified_namespace, cause)
        self._stop()
        if self.pairing is not None:
            self.pairing.abandon("the factory has faulted")
        if self._syphon is not None:
            self._chores.start(self._syphon.stop(), "stop of the syphon")

    async def close(self) -> None:
        """Close the factory (C2): pings stop, sends that are under way may end, links are closed. It never hangs."""
        self.end()
        pairing = self.pairing
        if self._syphon is not None:
            await self._syphon.stop()
        if pairing is not None:
            await self.under_way.ended(pairing.policy.attempt_timeout)
            pairing.abandon("the factory was closed")  # sends that take too long, and pings
            await self.under_way.ended(CHORE_SECONDS)
            await pairing.close()
        try:
            await within(CLOSE_SECONDS, self.client.close())
        except TimeoutError:
            _LOGGER.warning("links of %s could not be closed in order", self.fully_qualified_namespace)
        for link in self.unpaired_links:
            link.cut()
        await self._chores.end(CHORE_SECONDS)

    def end(self) -> None:
        """Take no more operations, as :meth:`close` does, but leave it to that to wait for what is under way."""
        self.lifecycle.close()
        self._stop()

    def check_open(self) -> None:
        """Raise if the factory was closed or has faulted."""
        self.lifecycle.check_open()

    def _stop(self) -> None:
        if self.pairing is not None:
            self.pairing.stop()
        callbacks, self._on_ended = self._on_ended, []
        for callback in callbacks:
            callback()

    def _turned(self, entity: str, state: State) -> None:
        self.availability.turned(entity, state)
