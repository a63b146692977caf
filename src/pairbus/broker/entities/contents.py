"""What a queue holds, and in which state each message is.

A message that is stored is in one of these states, and a removal or an activation moves it from one to the other:

- *waiting* to be received: its sequence number is in :attr:`QueueContents.waiting`, under its session;
- *locked*: the queue's :class:`~pairbus.broker.entities.locks.Locks` have it;
- *deferred*: its number is in :attr:`QueueContents.deferred`;
- *scheduled*: only counted here, by :class:`~pairbus.broker.entities.schedule.Schedule`;
- *leaving*: its removal is journalled, but the store still shows it until the transaction has been committed.

A waiting message costs its number in memory and nothing else, so that a queue may be deep. Payloads are in the store;
the cache has those that just came in, are about to go out, or are locked. Nothing here decides what becomes of a
message: :class:`~pairbus.broker.entities.queue.Queue` does.
"""

from collections.abc import Callable, Iterable, Sequence

from pairbus.broker.entities.cache import FETCH, MessageCache
from pairbus.broker.entities.message import Held
from pairbus.broker.entities.order import DeliveryOrder
from pairbus.broker.entities.schedule import AT_ONCE, RETRY, Schedule
from pairbus.broker.store.base import EntityRow, Row, RowState, Store, StoreError, key_of, sequence_of


class QueueContents:
    """The messages of one queue.

    :ivar size: bytes of all messages.
    :ivar waiting: messages that can be received, by session; under None without sessions.
    :ivar deferred: sequence numbers of deferred messages.
    :param on_retry: called when :attr:`wake_at` has changed because the store has refused a removal.
    """

    def __init__(self, row: EntityRow, store: Store, on_retry: Callable[[], None]) -> None:
        self.entity = row.id
        self.size = 0
        self.waiting: dict[str | None, DeliveryOrder] = {}
        self.deferred: set[int] = set()
        self.cache = MessageCache(row.id, store)
        self._store = store
        self._on_retry = on_retry
        self._expires_at: int | None = store.next_expiry(row.id)
        self._leaving: set[int] = set()
        self.schedule = Schedule(row.id, store, self._leaving, self._resize)
        self._unremoved: list[int] = []
        """Messages whose removal the store has refused."""
        self._remove_again_at: int | None = None
        self._last_arrived = row.next_sequence - 1
        """The store may show a message after this one before it has answered that it is stored."""
        self._damaged: list[int] = []
        """Keys of messages whose records are damaged, until :meth:`take_damaged`."""
        self._recall()

    def _recall(self) -> None:
        # There may be a million: an enum's member, looked up for each, would take longer than the rest.
        scheduled, deferred = int(RowState.SCHEDULED), int(RowState.DEFERRED)
        base = key_of(self.entity, 0)
        session, push = None, self.order_of(None).push
        for key, state, _expires, _due, name, size, is_whole in self._store.index(self.entity):
            if not is_whole:
                self._damaged.append(key)
                continue
            self.size += size
            if state == scheduled:
                self.schedule.count += 1
            elif state == deferred:
                self.deferred.add(key - base)
            else:
                if name != session:
                    session, push = name, self.order_of(name).push
                push(key - base)
        if not self.waiting[None]:
            del self.waiting[None]

    def _resize(self, by: int) -> None:
        self.size += by

    @property
    def waiting_count(self) -> int:
        """How many messages can be received."""
        return sum(map(len, self.waiting.values()))

    def order_of(self, session: str | None) -> DeliveryOrder:
        """Return the order in which the messages of a session are given out."""
        order = self.waiting.get(session)
        if order is None:
            order = self.waiting[session] = DeliveryOrder()
        return order

    # --- coming in -----------------------------------------------------------------------------------------------

    def arrive(self, rows: Sequence[Row]) -> Iterable[str | None]:
        """Let messages wait that are stored now, or count them as scheduled; return the sessions that have new ones."""
        sessions: dict[str | None, None] = {}
        for row in rows:
            self._last_arrived = number = sequence_of(row.key)
            if row.due is not None:
                self.schedule.arrive(row)
                continue
            if row.expires is not None:
                self._expires_at = row.expires if self._expires_at is None else min(self._expires_at, row.expires)
            self.order_of(row.session).push(number)
            self.cache.keep_if_there_is_room(row)
            sessions[row.session] = None
        return sessions

    # --- reading -------------------------------------------------------------------------------------------------

    def take_first(self, most: int, session: str | None) -> list[Held]:
        """Take messages that wait out of their order; the caller locks, removes or returns them."""
        order = self.waiting.get(session)
        if order is None:
            return []
        taken: list[Held] = []
        while not taken and (numbers := order.pop_many(most)):  # again if all of them are gone from the store
            taken = self.cache.fetch(numbers, order.ahead(FETCH))
        return taken

    def take_deferred(self, numbers: Sequence[int]) -> list[Held]:
        """Take messages, all of which are deferred; the caller locks or removes them."""
        self.deferred.difference_update(numbers)
        return self.cache.fetch(numbers)

    def browse(self, first: int, most: int, session: str | None) -> list[Held]:
        """Return messages in any state, from a sequence number on, as their receivers would see them."""
        found: list[Held] = []
        while len(found) < most:
            rows = self._store.browse(self.entity, first, most)
            found.extend(
                self._seen(row)
                for row in rows
                if sequence_of(row.key) not in self._leaving
                and row.damage is None  # its receiver finds it in the dead-letter queue
                and (session is None or row.session == session)
            )
            if len(rows) < most:
                break
            first = sequence_of(rows[-1].key) + 1
        return found[:most]

    def _seen(self, row: Row) -> Held:
        """Return a message for a browser, to whom a delivery that is under way does not count yet."""
        seen = Held(row)
        held = self.cache.find(seen.sequence)
        if held is None or held.token is None:
            seen.deliveries += 1
        return seen

    def take_damaged(self) -> list[Held]:
        """Return the messages whose records were damaged when the queue was recalled, once."""
        keys, self._damaged = self._damaged, []
        rows = self._store.load(keys)
        self.size += sum(len(row.payload) for row in rows)
        return [self.cache.hold(row) for row in rows]

    # --- changing ------------------------------------------------------------------------------------------------

    def put_back(self, held: Held) -> None:
        """Let a message wait again, in its old place."""
        self.order_of(held.session).put_back(held.sequence)

    def count_as_deferred(self, held: Held) -> None:
        self.deferred.add(held.sequence)
        self.journal_deliveries((held,))
        self.release_when_stored(held)

    def release_when_stored(self, held: Held) -> None:
        """Take a message out of the cache when the store shows it as it is, unless it has been delivered again."""
        deliveries = held.deliveries

        def durable(error: StoreError | None) -> None:
            held.is_unstored = held.is_unstored or error is not None
            if not held.is_unstored and held.token is None and held.deliveries == deliveries:
                self.cache.release(held)

        self._store.journal.durable.append(durable)

    def change_payload(self, held: Held, payload: bytes) -> None:
        self.size += len(payload) - len(held.payload)
        self.cache.change(held, payload)

    def journal_deliveries(self, messages: Iterable[Held]) -> None:
        base = key_of(self.entity, 0)
        self._store.journal.deliveries.extend([(base | held.sequence, held.deliveries) for held in messages])

    def journal_state(self, held: Held) -> None:
        """Store a message's state; its body stays where it is, which may be where those of other subscriptions are."""
        self._store.journal.states.append((key_of(self.entity, held.sequence), held.state))

    def journal_whole(self, held: Held) -> None:
        """Store a message with its payload, in place of what is stored of it."""
        key = key_of(self.entity, held.sequence)
        row = Row(key, held.state, held.enqueued, held.expires, None, held.session, held.deliveries, held.payload)
        self._store.journal.rows.append(row)

    # --- going ---------------------------------------------------------------------------------------------------

    def remove(self, messages: Sequence[Held]) -> None:
        """Journal a removal. :meth:`removed` or :meth:`restore` follows, when the store has answered."""
        base = key_of(self.entity, 0)
        self.size -= sum([len(held.payload) for held in messages])
        self._leaving.update([held.sequence for held in messages])
        self._store.journal.removed.extend([base | held.sequence for held in messages])
        self.cache.release(*messages)

    def removed(self, messages: Sequence[Held]) -> None:
        """Forget messages whose removal is durable."""
        self._leaving.difference_update([held.sequence for held in messages])

    def restore(self, held: Held) -> None:
        """Have a message again whose removal the store has refused: waiting, or deferred if it was."""
        self._leaving.discard(held.sequence)
        self.size += len(held.payload)
        self.cache.keep(held)
        if held.state == RowState.DEFERRED:
            self.deferred.add(held.sequence)
        else:
            self.put_back(held)

    def remove_for_good(self, messages: Sequence[Held], now: int) -> None:
        """Remove messages that were given away: if the store refuses, the removal is tried again until it succeeds."""
        self.remove(messages)
        numbers = [held.sequence for held in messages]
        self._store.journal.durable.append(lambda error: self._removed_for_good(numbers, now, error))

    def _removed_for_good(self, numbers: list[int], now: int, error: StoreError | None) -> None:
        if error is None:
            self._leaving.difference_update(numbers)
        else:
            self._unremoved.extend(numbers)
            self._remove_again_at = now + RETRY
            self._on_retry()

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When a message is due or expires, or a removal is to be tried again; None: not before something happens."""
        first = None
        for time in (self.schedule.due_at, self._expires_at, self._remove_again_at):
            if time is not None and (first is None or time < first):
                first = time
        return first

    def remove_again(self, now: int) -> None:
        """Try removals again that the store has refused, if it is time."""
        if self._remove_again_at is None or self._remove_again_at > now:
            return
        numbers, self._unremoved, self._remove_again_at = self._unremoved, [], None
        self._store.journal.removed.extend(key_of(self.entity, number) for number in numbers)
        self._store.journal.durable.append(lambda error: self._removed_for_good(numbers, now, error))

    def take_expired(self, now: int) -> list[Held]:
        """Take messages that have expired, waiting or deferred; the caller removes them. :meth:`expired` follows."""
        if self._expires_at is None or self._expires_at > now:
            return []
        stored = self._store.next_expiry(self.entity)
        # What is overdue is leaving or locked: a second later it is not.
        self._expires_at = None if stored is None else max(stored, now + RETRY)
        return [
            held
            for row in self._store.expired(self.entity, now, AT_ONCE)
            if (held := self._take_expired(row)) is not None
        ]

    def _take_expired(self, row: Row) -> Held | None:
        number = sequence_of(row.key)
        held = self.cache.find(number)
        if number > self._last_arrived or number in self._leaving or (held is not None and held.token is not None):
            return None  # it has not arrived yet, is leaving already, or expires when its lock ends
        if number in self.deferred:
            self.deferred.discard(number)
        else:
            order = self.order_of(row.session)
            order.drop(number)
            if not order:
                del self.waiting[row.session]
        return held or self.cache.hold(row)

    def expired(self) -> None:
        """Look up when the next message expires, after those that have are removed."""
        self._expires_at = self._store.next_expiry(self.entity)
