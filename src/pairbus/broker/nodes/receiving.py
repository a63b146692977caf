"""A client's link that receives from an entity, peek-lock or receive-and-delete, with a session or without."""

from typing import Final

from pairbus.amqp import SenderLink, SentDelivery
from pairbus.amqp.events import DispositionReceived
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    SETTLE_SETTLED,
    Accepted,
    DeliveryState,
    Map,
    Modified,
    Rejected,
    Released,
    Source,
)
from pairbus.amqp.types import Described, Symbol
from pairbus.broker.entities.message import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, outgoing, outgoing_parts
from pairbus.broker.entities.sessions import LockedSession
from pairbus.broker.faults.board import FaultKind
from pairbus.broker.meter.metering import Counter, LinkMeter, Polls, charged
from pairbus.broker.namespace.namespace import Namespace, QueueNode
from pairbus.broker.nodes.sending import Changed, rejected
from pairbus.broker.refusals import (
    Answer,
    RefusedError,
    bad_argument,
    forwards,
    idle,
    session_lock_lost,
    session_needed,
    session_not_supported,
    timed_out,
)
from pairbus.core.ledger import STEP_BYTES, Kind

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
TIMEOUT: Final = Symbol("com.microsoft:timeout")
DEFAULT_WAIT: Final = 60_000
"""How long, in milliseconds, a receiver waits for a session if it does not say."""

_TICKS_AT_EPOCH: Final = 621_355_968_000_000_000
_TICKS_PER_MILLISECOND: Final = 10_000


class ReceivingNode:
    """Gives messages to a receiver and settles them as it says.

    :ivar used_at: when the receiver asked for messages, got one or settled one last, or the link was attached.
    """

    def __init__(
        self, namespace: Namespace, node: QueueNode, link: SenderLink, changed: Changed, meter: LinkMeter
    ) -> None:
        self.session: LockedSession | None = None
        self._namespace = namespace
        self._node = node
        self._link = link
        self._changed = changed
        self._meter = meter
        self._received = meter[Kind.RECEIVE]
        self._completed = meter[Kind.COMPLETE]
        self._polls = Polls(meter[Kind.EMPTY_RECEIVE])
        self.used_at = namespace.clock()
        self._source = link.remote.source if link.remote is not None else None
        self._deletes = link.remote is not None and link.remote.snd_settle_mode == SETTLE_SETTLED

    # --- attaching -----------------------------------------------------------------------------------------------

    def attached(self) -> None:
        """Begin, at once or when the session is there that the receiver wants."""
        if not self._node.queue.settings.status.gives_messages:
            self._node.queue.take(0, self._namespace.clock())  # refuses, and says why
        if self._node.forward_to is not None:
            raise forwards(self._node.queue.path, self._node.forward_to)
        wants_session, name = _session_filter(self._source)
        sessions = self._node.sessions
        if sessions is None:
            if wants_session:
                raise session_not_supported(self._node.queue.path)
            self._link.accept()
            self._node.consumers.add(self)
            return
        if not wants_session:
            raise session_needed(self._node.queue.path)
        now = self._namespace.clock()
        if name is not None:
            self.accepted(sessions.accept(name, self, now))
            return
        properties = (self._link.remote.properties if self._link.remote is not None else None) or {}
        wait = properties.get(TIMEOUT)
        until = now + (int(wait) if isinstance(wait, int) else DEFAULT_WAIT)
        self._node.consumers.wait_for_session(self, until)

    def accepted(self, session: LockedSession) -> None:
        """Begin with a session; the answer names it and tells until when it is locked."""
        self.session = session
        source = self._source if isinstance(self._source, Source) else Source()
        source.filter = {SESSION_FILTER: _session_filter_value(source.filter, session.name)}
        ticks = session.until * _TICKS_PER_MILLISECOND + _TICKS_AT_EPOCH
        self._link.accept(source=source, properties={LOCKED_UNTIL: ticks})
        self._node.consumers.add(self)
        self._changed()

    def gave_up(self) -> None:
        """End: no session came in time."""
        self._meter[Kind.EMPTY_RECEIVE].ended(None, 1, 0, 0)
        self._link.refuse(timed_out("No session with messages became available in time.").error)
        self._changed()

    def session_ended(self) -> None:
        """End: the lock of the session has run out."""
        if self.session is not None:
            self._link.detach(session_lock_lost(self.session.name).error)
            self._changed()

    def send_away(self, refused: RefusedError) -> None:
        """End: the entity is gone, or gives no more."""
        if self._link.is_attached:
            self._link.detach(refused.error)
        else:
            self._link.refuse(refused.error)
        self._changed()

    def let_go(self) -> None:
        """End: it was idle for too long, with messages wanted or not."""
        self._link.detach(idle(self._link.name, "consumer").error)

    def detached(self) -> None:
        """End. Messages under lock stay so until their locks end; a session is free at once."""
        self._polls.ended()
        self._node.consumers.remove(self)

    # --- giving --------------------------------------------------------------------------------------------------

    @property
    def wants(self) -> int:
        """How many messages it takes now."""
        return self._link.sendable if self._link.is_attached else 0

    def on_flow(self) -> None:
        """Take note of new credit."""
        self.used_at = self._namespace.clock()
        self._polls.asked(self._link.credit, self.used_at)
        self._node.consumers.serve()
        if self._link.draining:
            self._link.drained()

    def give(self, most: int) -> int:
        """Send so many messages at most; return how many there were."""
        queue, now = self._node.queue, self._namespace.clock()
        session = self.session
        if self._deletes:
            taken = queue.take_away(most, now, session=session.name if session is not None else None)
        elif session is not None:
            taken = queue.take(most, now, until=session.until, session=session.name)
        else:
            taken = queue.take(most, now)
        if self._deletes:
            for held in taken:
                self._link.send(outgoing(held), held.sequence.to_bytes(8), settled=True)
        elif taken:
            self._link.send_all([(held.token or b"", *outgoing_parts(held)) for held in taken])
        if taken:
            self.used_at = now
            sizes = [len(held.payload) for held in taken]
            count = len(taken) if max(sizes) <= STEP_BYTES else charged(sizes)
            self._received.ended(None, count, len(taken), sum(sizes))
            self._polls.given()
            self._changed()
        return len(taken)

    # --- settling ------------------------------------------------------------------------------------------------

    def on_disposition(self, event: DispositionReceived, deliveries: list[SentDelivery]) -> None:
        """Settle deliveries as the receiver says, and tell it when that is durable."""
        self.used_at = self._namespace.clock()
        if isinstance(event.state, Accepted) and len(deliveries) > 1 and self._complete_all(event, deliveries):
            return
        for delivery in deliveries:
            self._settle(delivery, event.state, settled_by_peer=event.settled)

    def _complete_all(self, event: DispositionReceived, deliveries: list[SentDelivery]) -> bool:
        """Complete many at once; tell whether that went: if not, each is looked at on its own."""

        def answer(refused: RefusedError | None) -> None:
            if not event.settled and not self._loses_answers:
                outcome = ACCEPTED if refused is None else rejected(refused.error)
                for delivery in deliveries:
                    self._link.settle(delivery, outcome)
            self._completed.ended(refused, len(deliveries), len(deliveries), 0)
            self._changed()

        now = self._namespace.clock()
        try:
            self._check_session(now)
            self._node.queue.complete_all([delivery.context for delivery in deliveries], now, answer)
        except RefusedError:
            return False
        return True

    @property
    def _loses_answers(self) -> bool:
        faults = self._namespace.faults
        return bool(faults) and faults.find(FaultKind.LOSE_ANSWERS, self._node.queue.path) is not None

    def _check_session(self, now: int) -> None:
        if self.session is not None and self._node.sessions is not None:
            self._node.sessions.held_by(self.session.name, self, now)

    def _settle(self, delivery: SentDelivery, state: DeliveryState | None, *, settled_by_peer: bool) -> None:
        def answer(refused: RefusedError | None) -> None:
            if not settled_by_peer and not self._loses_answers:
                outcome = _echo(state) if refused is None else rejected(refused.error)
                self._link.settle(delivery, outcome)
            self._counter(state).ended(refused, 1, 1, 0)
            self._changed()

        try:
            self._apply(delivery.context, state, answer)
        except RefusedError as refused:
            answer(refused)

    def _counter(self, state: DeliveryState | None) -> Counter:
        match state:
            case Accepted():
                return self._completed
            case Rejected():
                return self._meter[Kind.DEAD_LETTER]
            case Modified(_, True):
                return self._meter[Kind.DEFER]
            case _:
                return self._meter[Kind.ABANDON]

    def _apply(self, token: bytes, state: DeliveryState | None, answer: Answer) -> None:
        queue, now = self._node.queue, self._namespace.clock()
        self._check_session(now)
        match state:
            case Accepted():
                queue.complete(token, now, answer)
            case Rejected(error):
                info = dict(error.info or {}) if error is not None else {}
                reason = info.pop(DEAD_LETTER_REASON, None)
                description = info.pop(DEAD_LETTER_DESCRIPTION, None)
                queue.dead_letter(token, now, answer, reason=reason, description=description, properties=info)
            case Modified(_, True, annotations):
                queue.defer(token, now, answer, _plain(annotations))
            case Modified(_, _, annotations):
                queue.abandon(token, now, answer, _plain(annotations))
            case Released() | None:
                queue.release(token, now, answer)
            case _:
                raise bad_argument(f"The outcome {type(state).__name__} is not supported.")


def _echo(state: DeliveryState | None) -> DeliveryState:
    """Return the outcome that a client waits for: its own, without what only the broker needed."""
    match state:
        case Accepted():
            return ACCEPTED
        case Rejected():
            return Rejected()
        case Modified(failed, undeliverable):
            return Modified(failed, undeliverable)
        case _:
            return RELEASED


def _plain(annotations: Map | None) -> Map | None:
    return {str(name): value for name, value in annotations.items()} if annotations else None


def _session_filter(source: object) -> tuple[bool, str | None]:
    filters = source.filter if isinstance(source, Source) else None
    if not filters or SESSION_FILTER not in filters:
        return False, None
    value = filters[SESSION_FILTER]
    return True, value.value if isinstance(value, Described) else value


def _session_filter_value(filters: Map | None, name: str) -> object:
    """Keep the shape in which the client wrote its filter."""
    old = (filters or {}).get(SESSION_FILTER)
    return Described(old.descriptor, name) if isinstance(old, Described) else name
