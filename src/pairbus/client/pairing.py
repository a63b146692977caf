"""A pairing at work: what the senders of a paired factory share (S1, S5)."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from pairbus.client import pings as prober
from pairbus.client.entity_monitor import EntityMonitor, SenderState
from pairbus.client.send_link import SendLink, Unheard
from pairbus.core.health import HealthBook, State
from pairbus.core.ledger import Stage
from pairbus.core.naming import entity_key, namespace_label
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions
from pairbus.core.rotation import Rotation
from pairbus.core.sending import SendPolicy, note_backlog_failure, note_primary_failure
from pairbus.core.verdict import ErrorFacts
from pairbus.instrument.hooks import Instrument
from pairbus.links.channel import OpenChannel
from pairbus.links.deadlines import BackgroundTasks
from pairbus.links.errors import facts
from pairbus.links.native.client import NativeClient
from pairbus.links.sdk.channel import open_channel

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ends:
    """Both namespaces, and the SDK's clients that the links of the pairing are made of."""

    primary: str
    secondary: str
    primary_client: ServiceBusClient
    secondary_client: ServiceBusClient
    check_secondary: Callable[[], None]
    """Raises if the secondary's factory was closed or has faulted."""
    native: tuple[NativeClient, NativeClient] | None = None
    """The native clients of both, if sends go by them."""


class Pairing:
    """The health of the entities, the rotation, and the links to the backlog queues.

    :param queues: the backlog queues that there are.
    :param missing: those that had to be left out, and why (B5).
    :param turned: told of each turn of an entity's health.
    """

    def __init__(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        ends: Ends,
        *,
        queues: tuple[str, ...],
        missing: Mapping[str, Exception],
        chores: BackgroundTasks,
        instrument: Instrument,
        random: Random,
        turned: Callable[[str, State], None],
    ) -> None:
        self.options: Final = options
        self.ends: Final = ends
        self.missing: Final = missing
        self.random: Final = random
        self.rotation: Final = Rotation(queues, random)
        self.policy: Final = SendPolicy(options.attempt_timeout.total_seconds(), options.on_outage, options.classify)
        self._book = HealthBook(
            failover_interval=options.failover_interval.total_seconds(),
            ping_interval=options.ping_primary_interval.total_seconds(),
        )
        self._chores = chores
        self._instrument = instrument
        self._tell = turned
        self.time: Final = asyncio.get_running_loop().time  # to ask which loop runs is a call of the system
        self._monitors: dict[str, EntityMonitor] = {}
        self._backlog: dict[str, SendLink] = {}
        self._probes: dict[EntityMonitor, SendLink] = {}

    @property
    def monitors(self) -> tuple[EntityMonitor, ...]:
        """Every entity that was sent to."""
        return tuple(self._monitors.values())

    def monitor(self, entity: str) -> EntityMonitor:
        """Return the monitor of an entity, which all its senders share (S1)."""
        key = entity_key(entity)
        monitor = self._monitors.get(key)
        if monitor is None:
            monitor = self._monitors[key] = EntityMonitor(
                self._book[entity], self._chores, ping=self._ping, turned=self._on_turn
            )
        return monitor

    def add_sender(self, entity: str, make: Callable[[], ServiceBusSender]) -> SenderState:
        """Give a sender its link to an entity."""
        monitor = self.monitor(entity)
        sender_state = SenderState(self._link_to(make, entity, Stage.DIRECT, partial(self._primary_unheard, monitor)))
        monitor.senders.add(sender_state)
        if monitor.health.state is not State.HEALTHY:
            self._prepare(sender_state)
        return sender_state

    async def remove_sender(self, entity: str, sender_state: SenderState) -> None:
        """Close the link of a sender.

        A caller that is less patient than an attempt takes, and has a sender for each send, would never see an attempt
        end: so one link for each entity may stay until its attempt has ended, which tells of the entity's health.
        """
        monitor = self.monitor(entity)
        monitor.senders.discard(sender_state)
        await sender_state.link.finish()
        if sender_state.link.is_unheard and monitor.left_behind is None and monitor.health.state is State.HEALTHY:
            monitor.left_behind = sender_state.link
            self._chores.start(self._end_left_behind(monitor, sender_state.link), f"last attempt at {entity}")
        else:
            await sender_state.link.close()

    async def _end_left_behind(self, monitor: EntityMonitor, link: SendLink) -> None:
        try:
            await link.end()
        finally:
            monitor.left_behind = None

    def backlog(self, queue: str) -> SendLink:
        """Return the link to a backlog queue, which all senders share."""
        link = self._backlog.get(queue)
        if link is None:
            link = self._backlog[queue] = self._link_to(
                lambda: self.ends.secondary_client.get_queue_sender(queue),
                queue,
                Stage.PARK,
                partial(self._backlog_unheard, queue),
            )
        return link

    def _primary_unheard(self, monitor: EntityMonitor, known: ErrorFacts | None, _began: float) -> None:
        """Note how an attempt at the primary ended whose caller has gone."""
        if known is None:
            monitor.act(monitor.health.attempt_accepted())
        else:
            monitor.act(note_primary_failure(monitor.health, self.policy, known, self.time()))

    def _backlog_unheard(self, queue: str, known: ErrorFacts | None, began: float) -> None:
        """Note how an attempt at a backlog queue ended whose caller has gone."""
        if known is None:
            self.rotation.accepted(queue, began=began)
        else:
            note_backlog_failure(self.rotation, queue, known, began=began, now=self.time())

    def stop(self) -> None:
        """Stop timers and pings, and let all sends that wait for a turn look again (C2)."""
        for monitor in self._monitors.values():
            monitor.stop()

    def abandon(self, why: str) -> None:
        """End all that is under way."""
        for link in self._links():
            link.abandon(why)

    async def close(self) -> None:
        """Close all links."""
        await asyncio.gather(*(link.close() for link in self._links()))
        await asyncio.gather(*(client.close() for client in self.ends.native or ()))

    def _links(self) -> list[SendLink]:
        senders = [sender_state.link for monitor in self._monitors.values() for sender_state in monitor.senders]
        left_behind = [monitor.left_behind for monitor in self._monitors.values() if monitor.left_behind is not None]
        return [*senders, *self._backlog.values(), *self._probes.values(), *left_behind]

    def _link_to(self, make: Callable[[], ServiceBusSender], entity: str, stage: Stage, unheard: Unheard) -> SendLink:
        is_direct, seconds = stage is Stage.DIRECT, self.policy.attempt_timeout
        opener: OpenChannel = partial(open_channel, make, seconds, self._chores)
        if self.ends.native is not None:
            opener = partial(self.ends.native[0 if is_direct else 1].open_channel, entity, seconds)
        return SendLink(
            opener,
            namespace=namespace_label(self.ends.primary if is_direct else self.ends.secondary),
            entity=entity,
            stage=stage,
            chores=self._chores,
            instrument=self._instrument,
            unheard=unheard,
        )

    def _prepare(self, sender_state: SenderState) -> None:
        """Open the link to the backlog queue of a sender, so that failing over costs no connection set-up."""
        queue = sender_state.choice.queue = self.rotation.choose(sender_state.choice.queue, self.time())
        if queue is not None:
            self.backlog(queue).prepare_soon()

    def _on_turn(self, monitor: EntityMonitor, state: State) -> None:
        if state is State.SUSPECT:
            for sender_state in monitor.senders:
                self._prepare(sender_state)
        self._instrument.turn(namespace_label(self.ends.primary), monitor.health.entity, state.value)
        self._tell(monitor.health.entity, state)

    async def _ping(self, monitor: EntityMonitor) -> None:
        link = self._probe(monitor)
        deadline = self.time() + self.policy.attempt_timeout
        try:
            monitor.demands_sessions = await prober.ping(
                link, deadline, session=monitor.demands_sessions, size=monitor.health.ping_bytes
            )
        except Exception as error:  # noqa: BLE001 (G1: whatever it is, the entity is not back)
            _LOGGER.debug("%r is not back: %r (%s)", monitor.health.entity, error, facts(error).cause.value)
            monitor.act(monitor.health.ping_failed(self.time(), error))
            return
        monitor.act(monitor.health.ping_accepted())
        probe = self._probes.pop(monitor, None)
        if probe is not None:
            await probe.close()
        for sender_state in monitor.senders:
            if sender_state.link is not link:
                sender_state.link.prepare_soon()

    def _probe(self, monitor: EntityMonitor) -> SendLink:
        """The link to ping on: the sender's that sent last, so that it is open when the entity is back."""
        if monitor.senders:
            return max((sender_state.link for sender_state in monitor.senders), key=lambda link: link.used_at)
        if monitor not in self._probes:
            entity = monitor.health.entity
            self._probes[monitor] = self._link_to(
                lambda: self.ends.primary_client.get_queue_sender(entity),
                entity,
                Stage.DIRECT,
                partial(self._primary_unheard, monitor),
            )
        return self._probes[monitor]
