"""A queue: peek-lock and receive-and-delete, settlement, expiry, schedules, dead-lettering.

It decides and keeps account; messages lie in the store. Whatever must be durable before somebody is answered takes an
``answer``, which is called with None once it is, or with the refusal. Everything else takes effect at once.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pairbus.amqp.performatives import Map
from pairbus.broker.entities.intake import Intake
from pairbus.broker.entities.lines import Line
from pairbus.broker.entities.locks import Locks
from pairbus.broker.entities.message import (
    Held,
    Incoming,
    dead_lettered,
    forwarded,
    with_properties,
)
from pairbus.broker.entities.pool import FETCH, Pool
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.refusals import (
    Answer,
    RefusedError,
    disabled,
    lock_lost,
    message_not_found,
    not_found,
    store_failed,
)
from pairbus.broker.store.base import EntityRow, Row, RowState, Store, StoreError, key_of, sequence_of

RETRY: Final = 1000
"""After how many milliseconds that is tried again which the store has refused."""
AT_ONCE: Final = 256
"""Scheduled or expired messages that are dealt with at a time."""

EXPIRED: Final = ("TTLExpiredException", "The message expired and was dead lettered.")
EXHAUSTED: Final = "MaxDeliveryCountExceeded"


class Destination(Protocol):
    """What messages can be sent to: a queue or a topic."""

    def send(self, messages: Sequence[Incoming], now: int, answer: Answer) -> list[int]:
        """Take messages, all or none."""
        ...


class Queue:
    """One queue, or the dead-letter queue of one.

    :param tokens: makes lock tokens, 16 random bytes each.
    """

    def __init__(self, row: EntityRow, settings: QueueSettings, store: Store, tokens: Callable[[], bytes]) -> None:
        self.id = row.id
        self.path = row.path
        self.dead: Queue | None = None
        """Its dead-letter queue; None: it is one itself."""
        self.on_available: Callable[[str | None], None] | None = None
        """Told, with the session, when there is a message to be received that was not there before."""
        self.on_used: Callable[[], None] | None = None
        """Told when it is used: :attr:`wake_at` may be another one."""
        self.size = 0
        """Bytes of all messages."""
        self.used_at = 0
        """When it was last used, for auto-delete-on-idle."""
        self.is_deleted = False
        self.scheduled_count = 0
        self.lines: dict[str | None, Line] = {}
        """By session; under None without sessions. In memory a message that waits costs its number here."""
        self.locks = Locks()
        self.deferred: set[int] = set()
        self._store = store
        self._tokens = tokens
        self._pool = Pool(row.id, store)
        self._expires_at: int | None = store.next_expiry(row.id)
        self._due_at: int | None = store.next_due(row.id)
        self._leaving: set[int] = set()
        """Messages that are removed as soon as the store has done so; until then it still shows them."""
        self._unremoved: list[int] = []
        """Messages whose removal the store has refused, and when that is tried again."""
        self._retry_at: int | None = None
        self._forward_at = 0
        """When it may forward again, after the store has refused."""
        self._last_arrived = row.next_sequence - 1
        """The store may show a message after this one before it has told us of it."""
        self._intake = Intake(row, settings, store)
        self._recall()

    def _recall(self) -> None:
        for row in self._store.index(self.id):
            number = sequence_of(row.key)
            self.size += row.size
            if row.state == RowState.SCHEDULED:
                self.scheduled_count += 1
            elif row.state == RowState.DEFERRED:
                self.deferred.add(number)
            else:
                self._line(row.session).push(number)

    @property
    def active_count(self) -> int:
        """Messages that can be received, or are under lock."""
        return sum(map(len, self.lines.values())) + len(self.locks)

    @property
    def settings(self) -> QueueSettings:
        """Its settings."""
        return self._intake.settings

    # --- coming in -----------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Incoming], now: int, answer: Answer) -> list[int]:
        """Take messages, all or none, and return their sequence numbers; that of a ping or a duplicate is 0.

        What is wrong with them raises; whether they are stored is answered.
        """
        self.used_at = now
        if self.is_deleted:
            raise not_found(self.path)
        intake = self._intake
        intake.check(messages)
        fresh = intake.first_of_each(messages, now)
        if len(fresh) < len(messages):
            answer = intake.unless_the_first_is_refused(messages, answer)
        # A ping is counted here too: it asks whether the queue takes messages. It leaves no trace (G3).
        intake.check_size(self.size + sum(len(message.payload) for message in fresh))
        fresh = [message for message in fresh if not message.is_ping]
        total = sum(len(message.payload) for message in fresh)
        ids = intake.remember(fresh, now)
        rows = [intake.row(message, now) for message in fresh]
        self._insert(rows, total, ids, answer)
        if len(rows) == len(messages):
            return [sequence_of(row.key) for row in rows]
        numbers = {id(message): sequence_of(row.key) for message, row in zip(fresh, rows, strict=True)}
        return [numbers.get(id(message), 0) for message in messages]

    def _insert(self, rows: list[Row], total: int, ids: list[str], answer: Answer) -> None:
        self.size += total
        journal = self._store.journal
        journal.rows.extend(rows)

        def durable(error: StoreError | None) -> None:
            if error is None:
                self._arrive(rows)
                answer(None)
                return
            self.size -= total
            self._intake.forget(ids)
            answer(store_failed(self.path, error))

        journal.durable.append(durable)

    def stir(self) -> None:
        """Tell whoever sees to it that things are done in time that there may be some here."""
        if self.on_used is not None:
            self.on_used()

    def _arrive(self, rows: Sequence[Row]) -> None:
        self.stir()
        came: dict[str | None, None] = {}
        for row in rows:
            self._last_arrived = number = sequence_of(row.key)
            if row.due is not None:
                self._due_at = row.due if self._due_at is None else min(self._due_at, row.due)
                self.scheduled_count += 1
                continue
            if row.expires is not None:
                self._expires_at = row.expires if self._expires_at is None else min(self._expires_at, row.expires)
            self._line(row.session).push(number)
            self._pool.keep_if_there_is_room(row)
            came[row.session] = None
        for session in came:
            self._announce(session)

    def expect_copy(self, message: Incoming, now: int) -> Row:
        """Make room for a message that a topic stores here, and return its row; :meth:`settle_copies` follows."""
        row = self._intake.row(message, now)
        self.size += len(row.payload)
        return row

    def settle_copies(self, rows: Sequence[Row], *, is_stored: bool) -> None:
        """Take the messages that a topic has stored here, or make up for those that it could not store."""
        if is_stored:
            self._arrive(rows)
        else:
            self.size -= sum(len(row.payload) for row in rows)

    def _announce(self, session: str | None) -> None:
        if self.on_available is not None:
            self.on_available(session)

    def _line(self, session: str | None) -> Line:
        line = self.lines.get(session)
        if line is None:
            line = self.lines[session] = Line()
        return line

    # --- going out -----------------------------------------------------------------------------------------------

    def take(self, most: int, now: int, *, until: int | None = None, session: str | None = None) -> list[Held]:
        """Lock the first messages of the queue, or of a session, and return them.

        :param until: when the locks end; None: after the queue's lock duration.
        """
        return self._lock(self._first(most, now, session), now, until)

    def take_away(self, most: int, now: int, *, session: str | None = None) -> list[Held]:
        """Remove the first messages for good and return them (receive-and-delete)."""
        return self._take_away(self._first(most, now, session), now)

    def take_deferred(self, numbers: Sequence[int], now: int, *, delete: bool = False) -> list[Held]:
        """Lock deferred messages by their sequence numbers, or remove them for good; all must be there."""
        self.used_at = now
        self.stir()
        if not self.settings.status.gives_messages:
            raise disabled(self.path)
        numbers = list(dict.fromkeys(numbers))
        missing = [number for number in numbers if number not in self.deferred]
        if missing:
            raise message_not_found(missing)
        found = self._pool.fetch(numbers)
        self.deferred.difference_update(numbers)
        return self._take_away(found, now) if delete else self._lock(found, now, None)

    def peek(self, first: int, most: int, now: int, *, session: str | None = None) -> list[Held]:
        """Look at messages, of one session or all, from a sequence number on, whatever their state; nothing changes."""
        self.used_at = now
        self.stir()
        found: list[Held] = []
        while len(found) < most:
            rows = self._store.browse(self.id, first, most)
            found.extend(
                self._seen(row)
                for row in rows
                if sequence_of(row.key) not in self._leaving and (session is None or row.session == session)
            )
            if len(rows) < most:
                break
            first = sequence_of(rows[-1].key) + 1
        return found[:most]

    def _seen(self, row: Row) -> Held:
        """Return a message as one that looks sees it: a delivery that is under way does not count yet."""
        seen = Held(row)
        held = self._pool.find(seen.sequence)
        if held is None or held.token is None:
            seen.deliveries += 1
        return seen

    def _first(self, most: int, now: int, session: str | None) -> list[Held]:
        self.used_at = now
        self.stir()
        if not self.settings.status.gives_messages:
            raise disabled(self.path)
        line = self.lines.get(session)
        taken: list[Held] = []
        while line is not None and len(taken) < most:
            numbers = line.pop_many(most - len(taken))
            if not numbers:
                break
            found = self._pool.fetch(numbers, line.ahead(FETCH))
            taken += [
                held
                for held in found
                if (held.expires is None and held.deliveries == 0) or not self._ends(held, now)  # most are so
            ]
        return taken

    def _is_spent(self, held: Held, now: int) -> bool:
        if held.expires is not None and held.expires <= now:
            return True
        return self.dead is not None and held.deliveries >= self.settings.max_delivery_count

    def _ends(self, held: Held, now: int) -> bool:
        """Deal with a message that is not to be given out any more; tell whether it was one."""
        if not self._is_spent(held, now):
            return False
        if held.expires is not None and held.expires <= now:
            self._expire(held, now)
        else:
            most = self.settings.max_delivery_count
            why = f"Message could not be consumed after {most} delivery attempts."
            self._bury(held, now, EXHAUSTED, why, _nobody)
        return True

    def _lock(self, messages: list[Held], now: int, until: int | None) -> list[Held]:
        ends = now + self.settings.lock_duration if until is None else until
        base = key_of(self.id, 0)
        for held in messages:
            held.deliveries += 1
        self.locks.add_all(messages, self._tokens, ends)
        self._store.journal.deliveries.extend([(base | held.sequence, held.deliveries) for held in messages])
        return messages

    def _take_away(self, messages: list[Held], now: int) -> list[Held]:
        """Remove messages that are nobody's any more: if the store refuses, that is tried again, whatever happens."""
        for held in messages:
            held.deliveries += 1
        self._remove_all(messages)
        numbers = [held.sequence for held in messages]
        self._store.journal.durable.append(lambda error: self._taken_away(numbers, now, error))
        return messages

    def _taken_away(self, numbers: list[int], now: int, error: StoreError | None) -> None:
        if error is None:
            self._leaving.difference_update(numbers)
        else:
            self._unremoved.extend(numbers)
            self._retry_at = now + RETRY
            self.stir()

    def _remove_again(self, now: int) -> None:
        numbers, self._unremoved, self._retry_at = self._unremoved, [], None
        self._store.journal.removed.extend(key_of(self.id, number) for number in numbers)
        self._store.journal.durable.append(lambda error: self._taken_away(numbers, now, error))

    # --- settling ------------------------------------------------------------------------------------------------

    def renew(self, token: bytes, now: int) -> int:
        """Lock a message anew, and return until when."""
        held = self.locks.find(token, now)
        if held is None:
            raise lock_lost()
        self.locks.renew(held, now + self.settings.lock_duration)
        return held.until

    def complete(self, token: bytes, now: int, answer: Answer) -> None:
        """Remove a message for good."""
        held = self._unlock(token, now)
        self._remove(held)
        self._when_durable(lambda refused: self._removed(held, now, refused, answer))

    def complete_all(self, tokens: Sequence[bytes], now: int, answer: Answer) -> None:
        """Remove messages for good, with one answer for all; if one lock does not hold, none is removed."""
        self.used_at = now
        messages = self.locks.find_all(tokens, now)
        if messages is None:
            raise lock_lost()
        self.locks.remove_all(messages)
        self._remove_all(messages)

        def durable(refused: RefusedError | None) -> None:
            if refused is None:
                self._leaving.difference_update([held.sequence for held in messages])
            else:
                for held in messages:
                    self._removed(held, now, refused, _nobody)
            answer(refused)

        self._when_durable(durable)

    def abandon(self, token: bytes, now: int, answer: Answer, properties: Map | None = None) -> None:
        """Put a message back into its place, with some application properties set."""
        held = self._unlock(token, now)
        if properties:
            self._change(held, properties)
            self._write(held)
        self.put_back(held, now)
        self._when_durable(answer)

    def release(self, token: bytes, now: int, answer: Answer) -> None:
        """Put a message back that its receiver has not looked at: the delivery does not count."""
        held = self._unlock(token, now)
        held.deliveries -= 1
        self._store.journal.deliveries.append((key_of(self.id, held.sequence), held.deliveries))
        self.put_back(held, now)
        self._when_durable(answer)

    def defer(self, token: bytes, now: int, answer: Answer, properties: Map | None = None) -> None:
        """Set a message aside, to be received by its sequence number."""
        held = self._unlock(token, now)
        before = held.state
        held.state = RowState.DEFERRED
        if properties or held.is_unstored:
            self._change(held, properties)
            self._write(held)
        else:  # its body stays where it is, which may be where those of other subscriptions are
            self._store.journal.states.append((key_of(self.id, held.sequence), RowState.DEFERRED))
        self._set_aside(held)

        def durable(refused: RefusedError | None) -> None:
            if refused is not None and before != RowState.DEFERRED:
                held.state = before
                if held.sequence in self.deferred:
                    self.deferred.discard(held.sequence)
                    self.put_back(held, now)
            answer(refused)

        self._when_durable(durable)

    def dead_letter(
        self,
        token: bytes,
        now: int,
        answer: Answer,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: Map | None = None,
    ) -> None:
        """Move a message to the dead-letter queue."""
        held = self._unlock(token, now)
        self._change(held, properties)
        self._bury(held, now, reason, description, answer)

    def put_back(self, held: Held, now: int) -> None:
        """Give back a message whose lock is gone: to its place, unless it has expired or was delivered too often.

        One that was deferred stays so, as in the cloud.
        """
        if self._ends(held, now):
            return
        if held.state == RowState.DEFERRED:
            self._set_aside(held)
            return
        self._line(held.session).put_back(held.sequence)
        if self._pool.is_full:
            self._let_go_when_stored(held)
        self._announce(held.session)

    def _set_aside(self, held: Held) -> None:
        """Count a message among the deferred ones."""
        self.deferred.add(held.sequence)
        self._store.journal.deliveries.append((key_of(self.id, held.sequence), held.deliveries))
        self._let_go_when_stored(held)

    def _let_go_when_stored(self, held: Held) -> None:
        """Keep a message in memory until the store shows it as it is, and no longer, unless it is on its way again."""
        deliveries = held.deliveries

        def durable(error: StoreError | None) -> None:
            held.is_unstored = held.is_unstored or error is not None
            if not held.is_unstored and held.token is None and held.deliveries == deliveries:
                self._pool.let_go(held)

        self._store.journal.durable.append(durable)

    def _unlock(self, token: bytes, now: int) -> Held:
        self.used_at = now
        held = self.locks.find(token, now)
        if held is None:
            raise lock_lost()
        self.locks.remove(held)
        return held

    def _when_durable(self, answer: Answer) -> None:
        def durable(error: StoreError | None) -> None:
            answer(None if error is None else store_failed(self.path, error))

        self._store.journal.durable.append(durable)

    def _change(self, held: Held, properties: Map | None) -> None:
        if properties:
            payload = with_properties(held.payload, properties)
            self.size += len(payload) - len(held.payload)
            self._pool.change(held, payload)

    def _write(self, held: Held) -> None:
        key = key_of(self.id, held.sequence)
        row = Row(key, held.state, held.enqueued, held.expires, None, held.session, held.deliveries, held.payload)
        self._store.journal.rows.append(row)

    def _remove(self, held: Held) -> None:
        self._remove_all((held,))

    def _remove_all(self, messages: Sequence[Held]) -> None:
        base = key_of(self.id, 0)
        self.size -= sum([len(held.payload) for held in messages])
        self._leaving.update([held.sequence for held in messages])
        self._store.journal.removed.extend([base | held.sequence for held in messages])
        self._pool.let_go(*messages)

    def _removed(self, held: Held, now: int, refused: RefusedError | None, answer: Answer) -> None:
        """Take note that a message is gone, or that the store has refused and it is still there."""
        self._leaving.discard(held.sequence)
        if refused is not None:
            self.size += len(held.payload)
            self._pool.take_back(held)
            if held.state == RowState.DEFERRED:
                self.deferred.add(held.sequence)
            else:
                self._line(held.session).put_back(held.sequence)
                if not self._is_spent(held, now):  # else it would be tried again at once, and again
                    self._announce(held.session)
        answer(refused)

    def _expire(self, held: Held, now: int) -> None:
        if self.settings.dead_lettering_on_message_expiration and self.dead is not None:
            self._bury(held, now, *EXPIRED, _nobody)
        else:
            self._take_away([held], now)

    def _bury(self, held: Held, now: int, reason: str | None, description: str | None, answer: Answer) -> None:
        """Move a message to the dead-letter queue, in one transaction; in a dead-letter queue it stays."""
        if self.dead is None:
            self.put_back(held, now)
            self._when_durable(answer)
            return
        payload = dead_lettered(held.payload, reason, description, self.path)
        self._remove(held)
        self.dead.receive_dead(payload, held.deliveries, now, lambda refused: self._removed(held, now, refused, answer))

    def receive_dead(self, payload: bytes, deliveries: int, now: int, answer: Answer) -> None:
        """Take a message that another queue has dead-lettered."""
        row = Row(self._intake.new_key(), RowState.ACTIVE, now, None, None, None, deliveries, payload)
        self._insert([row], len(payload), [], answer)

    def forward(self, destination: Destination, now: int) -> None:
        """Move what can be received to another entity, in its order; what that refuses stays, to be tried again."""
        line = self.lines.get(None)
        while line is not None and now >= self._forward_at:
            number = line.pop()
            if number is None:
                return
            found = self._pool.fetch([number], line.ahead(FETCH))
            if not found or self._ends(found[0], now):
                continue
            held = found[0]
            try:
                destination.send([forwarded(held, now)], now, self._when_forwarded(held, now))
            except RefusedError:
                line.put_back(number)
                return
            self._remove(held)

    def _when_forwarded(self, held: Held, now: int) -> Answer:
        def answer(refused: RefusedError | None) -> None:
            if refused is not None:
                self._forward_at = now + RETRY
            self._removed(held, now, refused, _nobody)

        return answer

    def change_settings(self, settings: QueueSettings) -> None:
        """Have other settings from now on; they are stored by whoever changes them."""
        self._intake.change_settings(settings)

    def remember_session_state(self, session: str, state: bytes | None, answer: Answer) -> None:
        """Store what a session remembers."""
        self._store.journal.session_states.append((self.id, session, state))
        self._when_durable(answer)

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        first = self.locks.wake_at
        for time in (self._due_at, self._expires_at, self._retry_at):
            if time is not None and (first is None or time < first):
                first = time
        return first

    def tick(self, now: int) -> None:
        """Do what is due by ``now``: end locks, activate what was scheduled, expire what has lived long enough."""
        for held in self.locks.take_ended(now):
            self.put_back(held, now)
        if self._due_at is not None and self._due_at <= now:
            self._activate(now)
        if self._expires_at is not None and self._expires_at <= now:
            self._expire_due(now)
        if self._retry_at is not None and self._retry_at <= now:
            self._remove_again(now)

    def _activate(self, now: int) -> None:
        """Append what is due as if it came now, with new sequence numbers, as the cloud does."""
        rows = [row for row in self._store.due(self.id, now, AT_ONCE) if sequence_of(row.key) not in self._leaving]
        self._due_at = self._soonest(self._store.next_due(self.id), now)
        if rows:
            active = [self._activated(row, now) for row in rows]
            self._insert(active, self._drop_scheduled(rows), [], self._look_for_due)

    def _activated(self, row: Row, now: int) -> Row:
        expires = None if row.expires is None else row.expires - row.enqueued + now
        return row._replace(key=self._intake.new_key(), state=RowState.ACTIVE, enqueued=now, expires=expires, due=None)

    def _look_for_due(self, refused: RefusedError | None) -> None:
        if refused is None:
            self._due_at = self._store.next_due(self.id)

    def cancel_scheduled(self, numbers: Sequence[int], now: int, answer: Answer) -> None:
        """Remove scheduled messages; all must be there."""
        self.used_at = now
        numbers = list(dict.fromkeys(numbers))
        wanted = [key_of(self.id, number) for number in numbers if number not in self._leaving]
        rows = [row for row in self._store.load(wanted) if row.state == RowState.SCHEDULED]
        if len(rows) != len(numbers):
            raise message_not_found(numbers)
        self._drop_scheduled(rows)
        self._when_durable(answer)

    def _drop_scheduled(self, rows: Sequence[Row]) -> int:
        total = sum(len(row.payload) for row in rows)
        numbers = [sequence_of(row.key) for row in rows]
        self.size -= total
        self.scheduled_count -= len(rows)
        self._leaving.update(numbers)
        self._store.journal.removed.extend(row.key for row in rows)

        def durable(error: StoreError | None) -> None:
            self._leaving.difference_update(numbers)
            if error is not None:
                self.size += total
                self.scheduled_count += len(rows)

        self._store.journal.durable.append(durable)
        return total

    def _expire_due(self, now: int) -> None:
        self._expires_at = self._soonest(self._store.next_expiry(self.id), now)
        expired = False
        for row in self._store.expired(self.id, now, AT_ONCE):
            number = sequence_of(row.key)
            held = self._pool.find(number)
            if number > self._last_arrived or number in self._leaving or (held is not None and held.token is not None):
                continue  # it has not come yet, is going already, or expires when its lock ends
            if number in self.deferred:
                self.deferred.discard(number)
            else:
                self._drop_from_line(row.session, number)
            self._expire(held or self._pool.hold(row), now)
            expired = True
        if expired:
            self._when_durable(self._look_for_expired)

    def _drop_from_line(self, session: str | None, number: int) -> None:
        line = self._line(session)
        line.drop(number)
        if not line:
            del self.lines[session]

    def _look_for_expired(self, refused: RefusedError | None) -> None:
        if refused is None:
            self._expires_at = self._store.next_expiry(self.id)

    @staticmethod
    def _soonest(stored: int | None, now: int) -> int | None:
        """Look again when the store says so; what it shows as overdue is going already, or locked: a second later."""
        return None if stored is None else max(stored, now + RETRY)


def _nobody(_refused: RefusedError | None) -> None:
    """Nobody waits for the answer."""
