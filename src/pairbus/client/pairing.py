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
from pairbus.client.entity_monitor import Seat, Watch
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
from pairbus.links.deadlines import Chores
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
        chores: Chores,
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
        self._watches: dict[str, Watch] = {}
        self._backlog: dict[str, SendLink] = {}
        self._probes: dict[Watch, SendLink] = {}

    @property
    def watches(self) -> tuple[Watch, ...]:
        """Every entity that was sent to."""
        return tuple(self._watches.values())

    def watch(self, entity: str) -> Watch:
        """Return the watch over an entity, which all its senders share (S1)."""
        key = entity_key(entity)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = Watch(self._book[entity], self._chores, ping=self._ping, turned=self._on_turn)
        return watch

    def take_seat(self, entity: str, make: Callable[[], ServiceBusSender]) -> Seat:
        """Give a sender its link to an entity."""
        watch = self.watch(entity)
        seat = Seat(self._link_to(make, entity, Stage.DIRECT, partial(self._primary_unheard, watch)))
        watch.seats.add(seat)
        if watch.health.state is not State.HEALTHY:
            self._prepare(seat)
        return seat

    async def leave_seat(self, entity: str, seat: Seat) -> None:
        """Close the link of a sender.

        A caller that is less patient than an attempt takes, and has a sender for each send, would never see an attempt
        end: so one link for each entity may stay until its attempt has ended, which tells of the entity's health.
        """
        watch = self.watch(entity)
        watch.seats.discard(seat)
        await seat.link.finish()
        if seat.link.is_unheard and watch.left_behind is None and watch.health.state is State.HEALTHY:
            watch.left_behind = seat.link
            self._chores.start(self._end_left_behind(watch, seat.link), f"last attempt at {entity}")
        else:
            await seat.link.close()

    async def _end_left_behind(self, watch: Watch, link: SendLink) -> None:
        try:
            await link.end()
        finally:
            watch.left_behind = None

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

    def _primary_unheard(self, watch: Watch, known: ErrorFacts | None, _began: float) -> None:
        """Note how an attempt at the primary ended whose caller has gone."""
        if known is None:
            watch.act(watch.health.attempt_accepted())
        else:
            watch.act(note_primary_failure(watch.health, self.policy, known, self.time()))

    def _backlog_unheard(self, queue: str, known: ErrorFacts | None, began: float) -> None:
        """Note how an attempt at a backlog queue ended whose caller has gone."""
        if known is None:
            self.rotation.accepted(queue, began=began)
        else:
            note_backlog_failure(self.rotation, queue, known, began=began, now=self.time())

    def stop(self) -> None:
        """Stop timers and pings, and let all sends that wait for a turn look again (C2)."""
        for watch in self._watches.values():
            watch.stop()

    def abandon(self, why: str) -> None:
        """End all that is under way."""
        for link in self._links():
            link.abandon(why)

    async def close(self) -> None:
        """Close all links."""
        await asyncio.gather(*(link.close() for link in self._links()))
        await asyncio.gather(*(client.close() for client in self.ends.native or ()))

    def _links(self) -> list[SendLink]:
        seats = [seat.link for watch in self._watches.values() for seat in watch.seats]
        left_behind = [watch.left_behind for watch in self._watches.values() if watch.left_behind is not None]
        return [*seats, *self._backlog.values(), *self._probes.values(), *left_behind]

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

    def _prepare(self, seat: Seat) -> None:
        """Open the link to the backlog queue of a sender, so that failing over costs no connection set-up."""
        queue = seat.choice.queue = self.rotation.choose(seat.choice.queue, self.time())
        if queue is not None:
            self.backlog(queue).prepare_soon()

    def _on_turn(self, watch: Watch, state: State) -> None:
        if state is State.SUSPECT:
            for seat in watch.seats:
                self._prepare(seat)
        self._instrument.turn(namespace_label(self.ends.primary), watch.health.entity, state.value)
        self._tell(watch.health.entity, state)

    async def _ping(self, watch: Watch) -> None:
        link = self._probe(watch)
        deadline = self.time() + self.policy.attempt_timeout
        try:
            watch.demands_sessions = await prober.ping(
                link, deadline, session=watch.demands_sessions, size=watch.health.ping_bytes
            )
        except Exception as error:  # noqa: BLE001 (G1: whatever it is, the entity is not back)
            _LOGGER.debug("%r is not back: %r (%s)", watch.health.entity, error, facts(error).cause.value)
            watch.act(watch.health.ping_failed(self.time(), error))
            return
        watch.act(watch.health.ping_accepted())
        probe = self._probes.pop(watch, None)
        if probe is not None:
            await probe.close()
        for seat in watch.seats:
            if seat.link is not link:
                seat.link.prepare_soon()

    def _probe(self, watch: Watch) -> SendLink:
        """The link to ping on: the sender's that sent last, so that it is open when the entity is back."""
        if watch.seats:
            return max((seat.link for seat in watch.seats), key=lambda link: link.used_at)
        if watch not in self._probes:
            entity = watch.health.entity
            self._probes[watch] = self._link_to(
                lambda: self.ends.primary_client.get_queue_sender(entity),
                entity,
                Stage.DIRECT,
                partial(self._primary_unheard, watch),
            )
        return self._probes[watch]
