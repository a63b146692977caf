"""What a component calls for each operation, and what a sink is.

Whoever builds a factory makes one :class:`Instrument` and hands it to all its parts. Each part says when an operation
begins and how it ended; the instrument makes the ledger's record of it and hands it to the sinks. There is no
configuration of the process: without sinks and a tracer an operation costs next to nothing and leaves no trace.

.. code-block:: python

    instrument = Instrument([LedgerFile("ledger")], client="orders-api")
    operation = instrument.begin("contoso", "orders", Kind.SEND, Stage.DIRECT, sizes=[len(payload)])
    try:
        await send(payload)
    except ServiceBusError as error:
        operation.failed(error, in_doubt=facts.in_doubt)
        raise
    operation.done()
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pairbus.core.ledger import Kind, Outcome, Record, Stage, operations
from pairbus.core.naming import entity_key
from pairbus.instrument.logs import log_turn

Properties: TypeAlias = MutableMapping[Any, Any]
"""A message's application properties, in which it carries the context of its trace. Keys may be text or bytes."""

_LOGGER = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes records. It is called from whatever thread the operation ends on, and must not block."""

    def record(self, record: Record) -> None:
        """Take a record. What it raises is logged once and counted, and breaks nothing."""
        ...


@runtime_checkable
class Keeper(Sink, Protocol):
    """A sink that writes later than it takes, and can be waited for."""

    def flush(self, timeout: float, /) -> bool:
        """Write all that it was given before; tell whether that went within so many seconds. Blocks."""
        ...


class Started(NamedTuple):
    """What is known of an operation when it begins.

    :ivar carriers: the application properties of its messages; a tracer may add the trace's context to them.
    """

    client: str
    namespace: str
    entity: str
    kind: Kind
    stage: Stage
    destination: str | None
    carriers: Sequence[Properties]


class Span(Protocol):
    """An operation as a tracer sees it."""

    def end(self, record: Record, error: BaseException | None) -> None:
        """Take note of how it ended."""
        ...


class Tracer(Protocol):
    """Begins a span for each operation."""

    def begin(self, started: Started) -> Span:
        """Begin a span; messages that are sent get its context."""
        ...


class Operation:
    """One operation that is under way: end it once, with :meth:`done` or :meth:`failed`."""

    __slots__ = ("began", "instrument", "is_open", "sizes", "span", "started")

    def __init__(self, instrument: "Instrument", started: Started, sizes: Sequence[int], span: Span | None) -> None:
        self.instrument = instrument
        self.started = started
        self.sizes = sizes
        self.span = span
        self.began = instrument.elapsed()
        self.is_open = True

    def done(self, sizes: Sequence[int] | None = None, *, oldest_at: datetime | None = None) -> None:
        """Tell that it ended well.

        :param sizes: the encoded size of each of its messages, if they were not known at the beginning: a receive. A
            receive without messages is recorded as an empty one, and one of the syphon as waiting (Y2).
        :param oldest_at: when the oldest of the messages was enqueued.
        """
        if sizes is not None:
            self.sizes = sizes
        self.instrument.ended(self, Outcome.DONE, oldest_at=oldest_at)

    def failed(self, error: BaseException, *, in_doubt: bool = False) -> None:
        """Tell that it failed.

        :param in_doubt: no answer came: it may have been done (S7).
        """
        self.instrument.ended(self, Outcome.UNKNOWN if in_doubt else Outcome.FAILED, error=error)


class Instrument:
    """Makes records of what the parts of one factory do, and hands them to sinks.

    One instrument belongs to one factory; health is told from its event loop, and operations may begin and end in any
    thread, as those of a synchronous receiver do. Sinks may be shared by many instruments. Whoever made a sink closes
    it.

    :param sinks: who gets the records: :class:`~pairbus.instrument.ledger.LedgerFile` and the like.
    :param tracer: begins spans, see :mod:`pairbus.instrument.opentelemetry`.
    :param client: how the application names itself in the ledger; None: its program and this machine.
    :param now: tells the time, UTC.
    :param elapsed: a monotonic clock, in seconds.
    :param new_id: makes the records' ids.
    """

    def __init__(
        self,
        sinks: Iterable[Sink] = (),
        *,
        tracer: Tracer | None = None,
        client: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = time.perf_counter,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        self.client: Final = _this_program() if client is None else client
        self.sink_errors = 0
        """How often a sink or the tracer has raised."""
        self._sinks = tuple(sinks)
        self._keepers = tuple(sink for sink in self._sinks if isinstance(sink, Keeper))
        self._tracer = tracer
        self._now = now
        self.elapsed = elapsed
        self._new_id = new_id
        self._complained: set[int] = set()
        self._spells: dict[str, _Spell] = {}

    @property
    def traces(self) -> bool:
        """Whether the messages' application properties are wanted by :meth:`begin`."""
        return self._tracer is not None

    @property
    def measures(self) -> bool:
        """Whether anybody wants to know the messages' sizes, which cost time to find out; how many is always wanted."""
        return bool(self._sinks) or self._tracer is not None

    def begin(
        self,
        namespace: str,
        entity: str,
        kind: Kind,
        stage: Stage,
        *,
        sizes: Sequence[int] = (),
        destination: str | None = None,
        carriers: Sequence[Properties] = (),
    ) -> Operation:
        """Tell that an operation begins, right before it does.

        :param namespace: which namespace it is done at: the first label of its host name.
        :param entity: the queue, topic or subscription it is done at; a backlog queue when a message is parked.
        :param sizes: the encoded size of each message, where that is known.
        :param destination: where a message of a backlog queue belongs, if all belong to the same entity.
        :param carriers: the application properties of each message, if :attr:`traces`. Messages that are sent and carry
            no trace's context get one, so their sizes are taken afterwards.
        """
        started = Started(self.client, namespace, entity, kind, stage, destination, carriers)
        span = None
        if self._tracer is not None:
            try:
                span = self._tracer.begin(started)
            except Exception as error:  # noqa: BLE001 (a send is never broken by who watches it)
                self._complain(self._tracer, error)
        return Operation(self, started, sizes, span)

    @property
    def keeps(self) -> bool:
        """Whether any sink is worth waiting for with :meth:`flush`."""
        return bool(self._keepers)

    def flush(self, timeout: float = 1.0) -> bool:
        """Have all records so far written, so that they outlive the process; tell whether that went. Blocks.

        :param timeout: in seconds; a disk that is full or slow must not stop the work (ADR 0017).
        """
        ends = time.monotonic() + timeout
        all_written = True
        for keeper in self._keepers:
            try:
                all_written &= keeper.flush(max(0.0, ends - time.monotonic()))
            except Exception as error:  # noqa: BLE001 (the work is never broken by who watches it)
                self._complain(keeper, error)
                all_written = False
        return all_written

    def turn(self, namespace: str, entity: str, state: str) -> None:
        """Tell that the health of an entity of the primary has turned: ``healthy``, ``suspect`` or ``engaged``.

        The record says how long the state lasted that ends here, and how many messages were parked in it. When
        failover engages, and when it ends, that is logged (:mod:`pairbus.instrument.logs`).
        """
        at = self.elapsed()
        before = self._spells.get(entity_key(entity), _HEALTHY)
        lasted = 0.0 if before is _HEALTHY else at - before.since
        self._spells[entity_key(entity)] = _Spell(state, at)
        log_turn(entity, before.state, state, lasted, before.parked)
        self._hand_out(
            Record(
                id=self._new_id(),
                at=self._now(),
                client=self.client,
                namespace=namespace,
                entity=entity,
                kind=Kind.TURN,
                stage=Stage.DIRECT,
                outcome=Outcome.DONE,
                messages=before.parked,
                duration_us=round(lasted * 1e6),
                detail=state,
            )
        )

    def ended(
        self,
        operation: Operation,
        outcome: Outcome,
        *,
        oldest_at: datetime | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Make the record of an operation and hand it out; what is told of it later is passed over."""
        if not operation.is_open:
            return
        operation.is_open = False
        started, sizes, span = operation.started, operation.sizes, operation.span
        if started.stage is Stage.PARK and outcome is Outcome.DONE:
            self._count_parked(started.destination, len(sizes))
        if not self._sinks and span is None:
            return
        kind, stage = started.kind, started.stage
        if kind is Kind.RECEIVE and not sizes and outcome is Outcome.DONE:
            kind = Kind.EMPTY_RECEIVE
            stage = Stage.IDLE if stage is Stage.SYPHON else stage
        record = Record(
            id=self._new_id(),
            at=self._now(),
            client=started.client,
            namespace=started.namespace,
            entity=started.entity,
            kind=kind,
            stage=stage,
            outcome=outcome,
            messages=0 if kind is Kind.PING else len(sizes),  # G3
            operations=operations(sizes),
            bytes=sum(sizes),
            duration_us=round((self.elapsed() - operation.began) * 1e6),
            destination=started.destination,
            oldest_at=oldest_at,
            detail=None if error is None else type(error).__name__,
        )
        self._hand_out(record)
        if span is not None:
            try:
                span.end(record, error)
            except Exception as problem:  # noqa: BLE001 (as above)
                self._complain(span, problem)

    def _count_parked(self, destination: str | None, messages: int) -> None:
        spell = self._spells.get(entity_key(destination or ""))
        if spell is not None:
            spell.parked += messages

    def _hand_out(self, record: Record) -> None:
        for sink in self._sinks:
            try:
                sink.record(record)
            except Exception as error:  # noqa: BLE001 (a send is never broken by who watches it)
                self._complain(sink, error)

    def _complain(self, who: object, error: Exception) -> None:
        self.sink_errors += 1
        if id(type(who)) not in self._complained:
            self._complained.add(id(type(who)))
            _LOGGER.warning(
                "%s does not take records: %r; operations go on, and this is said once", type(who).__name__, error
            )


@dataclass(slots=True)
class _Spell:
    """A state of an entity's health since it began."""

    state: str
    since: float
    parked: int = 0


_HEALTHY: Final = _Spell("healthy", 0.0)
"""What an entity is before it is heard of."""


def _this_program() -> str:
    return f"{Path(sys.argv[0] or 'python').name}@{socket.gethostname()}"
