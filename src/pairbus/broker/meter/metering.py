"""What the broker counts (K1): every operation, by client, entity, kind and outcome.

Each link has counters of its own, plain whole numbers that are raised where the operation ends. They are gathered when
somebody looks, or once a second for the ledger: one record for all that was alike in that second, not one per message.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from pairbus.core.ledger import STEP_BYTES, Kind, MeteredBy, Outcome, Record, Stage, operations
from pairbus.core.naming import TRANSFER

REPEATED: Final = 50
"""A request for messages that is repeated within so many milliseconds is the same one: the SDK often does so."""
_GATHER: Final = 1000
"""After how many milliseconds it is gathered again."""
_LINGER: Final = 10_000
"""For how many milliseconds a link is counted that has gone: what it has sent may not be durable yet."""
_BACKLOG: Final = f"/{TRANSFER}/"


class Sums:
    """How much was done."""

    __slots__ = ("bytes", "messages", "operations")

    def __init__(self, operations: int = 0, messages: int = 0, size: int = 0) -> None:
        self.operations = operations
        self.messages = messages
        self.bytes = size

    def add(self, other: "Sums") -> None:
        """Count what another has counted."""
        self.operations += other.operations
        self.messages += other.messages
        self.bytes += other.bytes


class Counter:
    """Operations of one kind on one link."""

    __slots__ = ("done", "failed")

    def __init__(self) -> None:
        self.done = Sums()
        self.failed = Sums()

    def ended(self, refused: Exception | None, operations: int, messages: int, size: int) -> None:
        """Count operations that have ended, well or with a refusal."""
        sums = self.done if refused is None else self.failed
        sums.operations += operations
        sums.messages += messages
        sums.bytes += size

    def take(self) -> Iterator[tuple[Outcome, Sums]]:
        """Give what was counted, and begin anew."""
        for outcome, sums in ((Outcome.DONE, self.done), (Outcome.FAILED, self.failed)):
            if sums.operations:
                yield outcome, sums
        if self.done.operations or self.failed.operations:
            self.done, self.failed = Sums(), Sums()


class LinkMeter:
    """The counters of one link."""

    __slots__ = ("_counters", "client", "entity")

    def __init__(self, client: str, entity: str) -> None:
        self.client = client
        self.entity = entity
        self._counters: dict[Kind, Counter] = {}

    def __getitem__(self, kind: Kind) -> Counter:
        counter = self._counters.get(kind)
        if counter is None:
            counter = self._counters[kind] = Counter()
        return counter

    def take(self) -> Iterator[tuple[Kind, Outcome, Sums]]:
        """Give what was counted, and begin anew."""
        for kind, counter in self._counters.items():
            for outcome, sums in counter.take():
                yield kind, outcome, sums


class Sized(Protocol):
    """A message that was sent."""

    payload: bytes
    is_ping: bool


class Sends:
    """What one sender has sent."""

    __slots__ = ("_link", "_sent")

    def __init__(self, link: LinkMeter) -> None:
        self._link = link
        self._sent = link[Kind.SEND]

    def ended(self, messages: Sequence[Sized], refused: Exception | None) -> None:
        """Count messages that were taken or refused, or could not even be read; a ping is no message (G3)."""
        if len(messages) == 1 and not messages[0].is_ping and len(messages[0].payload) <= STEP_BYTES:  # as most are
            self._sent.ended(refused, 1, 1, len(messages[0].payload))
            return
        sizes = [len(message.payload) for message in messages if not message.is_ping]
        if sizes or not messages:
            self._sent.ended(refused, charged(sizes), len(sizes), sum(sizes))
        if len(sizes) < len(messages):
            pings = [len(message.payload) for message in messages if message.is_ping]
            self._link[Kind.PING].ended(refused, charged(pings), 0, sum(pings))


class Polls:
    """The requests of one receiver for messages, of which those count that nothing came of.

    A receiver asks by granting credit. It does not say when it stops waiting: that shows when it asks again, takes its
    credit back or goes.
    """

    __slots__ = ("_counter", "_since")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._since: int | None = None
        """When it asked, if nothing has come yet."""

    def asked(self, credit: int, now: int) -> None:
        """Take note that it grants so much credit."""
        if self._since is None:
            self._since = now if credit else None
        elif credit == 0 or now - self._since >= REPEATED:
            self._counter.ended(None, 1, 0, 0)
            self._since = now if credit else None

    def given(self) -> None:
        """Take note that it got a message."""
        self._since = None

    def ended(self) -> None:
        """Take note that it has gone."""
        if self._since is not None:
            self._since = None
            self._counter.ended(None, 1, 0, 0)


class Meter:
    """What was done in one namespace.

    :param namespace: its name.
    :param clock: tells the time, in milliseconds since the epoch.
    :ivar totals: what was gathered, by entity, kind and outcome.
    :ivar keeps_records: whether somebody takes :meth:`records`.
    """

    def __init__(self, namespace: str, clock: Callable[[], int]) -> None:
        self.namespace = namespace
        self.links: dict[LinkMeter, int | None] = {}
        """Those there are, and when those went that have gone."""
        self.totals: dict[tuple[str, Kind, Outcome], Sums] = {}
        self.keeps_records = False
        self._clock = clock
        self._unwritten: dict[tuple[str, str, Kind, Outcome], Sums] = {}
        self._gather_at = 0

    def attach(self, client: str, entity: str) -> LinkMeter:
        """Begin to count what a client does at an entity."""
        link = LinkMeter(client, entity)
        self.links[link] = None
        return link

    def detach(self, link: LinkMeter) -> None:
        """Take note that a link has gone; what is answered later is counted still."""
        self.links[link] = self._clock()

    def __len__(self) -> int:
        """How many links there are."""
        return sum(gone is None for gone in self.links.values())

    def count_management(self, client: str, path: str, *, failed: bool) -> None:
        """Count a request of the administration. In the totals it is the namespace's: the path may be anything."""
        outcome = Outcome.FAILED if failed else Outcome.DONE
        self.totals.setdefault(("", Kind.MANAGEMENT, outcome), Sums()).add(Sums(1))
        if self.keeps_records:
            self._unwritten.setdefault((client, path, Kind.MANAGEMENT, outcome), Sums()).add(Sums(1))

    def gather(self) -> None:
        """Bring :attr:`totals` up to date."""
        now = self._clock()
        self._gather_at = now + _GATHER
        for link in self.links:
            self._gather(link)
        self.links = {link: gone for link, gone in self.links.items() if gone is None or now - gone < _LINGER}

    def tick(self, now: int) -> None:
        """Gather, if it is time."""
        if now >= self._gather_at:
            self.gather()

    def _gather(self, link: LinkMeter) -> None:
        for kind, outcome, sums in link.take():
            self.totals.setdefault((link.entity, kind, outcome), Sums()).add(sums)
            if self.keeps_records:
                self._unwritten.setdefault((link.client, link.entity, kind, outcome), Sums()).add(sums)

    def records(self) -> list[Record]:
        """Return what was done since the last time, one record for all that was alike."""
        self.gather()
        unwritten, self._unwritten = self._unwritten, {}
        at = datetime.fromtimestamp(self._clock() / 1000, UTC)
        return [
            Record(
                id=os.urandom(16).hex(),
                at=at,
                metered_by=MeteredBy.BROKER,
                client=client,
                namespace=self.namespace,
                entity=entity,
                kind=kind,
                stage=_stage(entity, kind),
                outcome=outcome,
                messages=sums.messages,
                operations=sums.operations,
                bytes=sums.bytes,
            )
            for (client, entity, kind, outcome), sums in unwritten.items()
        ]


class ConnectionMeter:
    """The meters of one client's links.

    :ivar client: how the client names itself.
    """

    def __init__(self, meter: Meter) -> None:
        self.client = ""
        self._meter = meter
        self._links: dict[object, LinkMeter] = {}

    def attach(self, link: object, entity: str) -> LinkMeter:
        """Begin to count what is done on a link at an entity."""
        made = self._links[link] = self._meter.attach(self.client, entity)
        return made

    def detach(self, link: object) -> None:
        """Take note that a link has gone, or was refused."""
        if link in self._links:
            self._meter.detach(self._links.pop(link))


def charged(sizes: Sequence[int]) -> int:
    """Return how many operations messages of these sizes are charged as: quicker than the rule where they are small."""
    return len(sizes) if max(sizes, default=STEP_BYTES + 1) <= STEP_BYTES else operations(sizes)


def _stage(entity: str, kind: Kind) -> Stage:
    """Return the stage of an operation as far as the broker can tell it: by the entity and by what is done.

    What a syphon sends to its destination looks like any other send.
    """
    if kind is Kind.PING:
        return Stage.PING
    if kind is Kind.MANAGEMENT:
        return Stage.SETUP
    if _BACKLOG not in entity.lower():
        return Stage.DIRECT
    if kind in {Kind.SEND, Kind.SCHEDULE}:
        return Stage.PARK
    return Stage.IDLE if kind is Kind.EMPTY_RECEIVE else Stage.SYPHON
