"""A queue: peek-lock and receive-and-delete, settlement, expiry, schedules, dead-lettering.

A queue decides what becomes of messages. It has three parts:
:class:`~pairbus.broker.entities.contents.QueueContents` knows what it holds,
:class:`~pairbus.broker.entities.locks.Locks` which messages are locked, and
:class:`~pairbus.broker.entities.intake.Intake` checks what is sent to it.

A method whose effect must be durable before its caller is answered takes an ``answer``, which is called with None once
it is, or with the refusal. Everything else takes effect at once.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pairbus.amqp.performatives import Map
from pairbus.broker.entities.contents import QueueContents
from pairbus.broker.entities.intake import Intake, PendingSend, Publisher
from pairbus.broker.entities.locks import Locks
from pairbus.broker.entities.message import Held, Incoming, damaged, dead_lettered, with_properties
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.refusals import (
    Answer,
    RefusedError,
    disabled,
    lock_lost,
    message_not_found,
    no_answer,
    not_found,
    store_failed,
)
from pairbus.broker.store.base import EntityRow, Row, RowState, Store, StoreError, sequence_of

_LOGGER = logging.getLogger(__name__)

EXPIRED: Final = ("TTLExpiredException", "The message expired and was dead lettered.")
EXHAUSTED: Final = "MaxDeliveryCountExceeded"


class Queue:
    """One queue, or a dead-letter queue of one.

    :ivar dead: its dead-letter queue; None: it is one itself.
    :ivar transfer_dead: its transfer dead-letter queue, for what it could not forward; None: it has not needed one yet.
    :ivar on_available: called with the session when a message can be received that could not be before.
    :ivar on_used: called when it is used, after which :attr:`wake_at` may be another time.
    :ivar used_at: when it was last used, for auto-delete-on-idle.
    :ivar publishers: the links by which clients send to it, to be told when it is deleted.
    :ivar damaged_count: messages that were found to be damaged since the broker started.
    :param tokens: makes lock tokens, 16 random bytes each.
    """

    def __init__(self, row: EntityRow, settings: QueueSettings, store: Store, tokens: Callable[[], bytes]) -> None:
        self.id = row.id
        self.path = row.path
        self.dead: Queue | None = None
        self.transfer_dead: Queue | None = None
        self.on_available: Callable[[str | None], None] | None = None
        self.on_used: Callable[[], None] | None = None
        self.used_at = 0
        self.is_deleted = False
        self.publishers: dict[Publisher, None] = {}
        self.damaged_count = 0
        self.contents = QueueContents(row, store, self.stir)
        self.locks = Locks()
        self._store = store
        self._tokens = tokens
        self._intake = Intake(row, settings, store)

    @property
    def settings(self) -> QueueSettings:
        return self._intake.settings

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return self.contents.size

    @property
    def full_size(self) -> int:
        """Bytes of all messages, those of its dead-letter queues too."""
        return sum(each.contents.size for each in (self, self.dead, self.transfer_dead) if each is not None)

    @property
    def active_count(self) -> int:
        """Messages that can be received, or are locked."""
        return self.contents.waiting_count + len(self.locks)

    @property
    def deferred(self) -> set[int]:
        """Sequence numbers of deferred messages."""
        return self.contents.deferred

    @property
    def scheduled_count(self) -> int:
        """Messages that are not due yet."""
        return self.contents.schedule.count

    def has_waiting(self, session: str | None) -> bool:
        """Tell whether a message can be received, of a session or, with None, of a queue without sessions."""
        return bool(self.contents.waiting.get(session))

    def stir(self) -> None:
        """Tell the namespace that something may have to be done here in time."""
        if self.on_used is not None:
            self.on_used()

    def _announce(self, session: str | None) -> None:
        if self.on_available is not None:
            self.on_available(session)

    def _when_durable(self, answer: Answer) -> None:
        def durable(error: StoreError | None) -> None:
            answer(None if error is None else store_failed(self.path))

        self._store.journal.durable.append(durable)

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
            answer = intake.unless_the_first_is_refused(messages, fresh, answer)
        total, pings = 0, 0
        for message in fresh:
            size = len(message.payload)
            total += size
            pings += size if message.is_ping else 0
        intake.check_size(self.contents.size + total)
        if pings:  # which were counted, too: they ask whether the queue takes messages. They leave no trace (G3).
            fresh = [message for message in fresh if not message.is_ping]
            total -= pings
        pending = intake.remember(fresh, now)
        rows = [intake.row(message, now) for message in fresh]
        self._insert(rows, total, pending, answer)
        if len(rows) == len(messages):
            return [sequence_of(row.key) for row in rows]
        numbers = {id(message): sequence_of(row.key) for message, row in zip(fresh, rows, strict=True)}
        return [numbers.get(id(message), 0) for message in messages]

    def _insert(self, rows: list[Row], total: int, pending: PendingSend | None, answer: Answer) -> None:
        self.contents.size += total
        journal = self._store.journal
        journal.rows.extend(rows)

        def durable(error: StoreError | None) -> None:
            self._intake.end(pending, refused=error is not None)
            if error is None:
                self._arrive(rows)
                answer(None)
                return
            self.contents.size -= total
            answer(store_failed(self.path))

        journal.durable.append(durable)

    def _arrive(self, rows: Sequence[Row]) -> None:
        self.stir()
        for session in self.contents.arrive(rows):
            self._announce(session)

    def expect_copy(self, message: Incoming, now: int) -> Row:
        """Return the row of a message that a topic stores here; :meth:`settle_copies` follows."""
        row = self._intake.row(message, now)
        self.contents.size += len(row.payload)
        return row

    def settle_copies(self, rows: Sequence[Row], *, is_stored: bool) -> None:
        """Take the messages that a topic has stored here, or forget those that it could not store."""
        if is_stored:
            self._arrive(rows)
        else:
            self.contents.size -= sum(len(row.payload) for row in rows)

    def receive_dead(self, payload: bytes, deliveries: int, now: int, answer: Answer) -> None:
        """Take a message that another queue has dead-lettered."""
        row = Row(self._intake.new_key(), RowState.ACTIVE, now, None, None, None, deliveries, payload)
        self._insert([row], len(payload), None, answer)

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
        missing = [number for number in numbers if number not in self.contents.deferred]
        if missing:
            raise message_not_found(missing)
        found = self.contents.take_deferred(numbers)
        missing = [held.sequence for held in found if held.damage is not None]
        if missing:
            for held in found:
                if held.damage is None:
                    self.contents.deferred.add(held.sequence)
                else:
                    self._dead_letter_damaged(held, now)
            raise message_not_found(missing)
        return self._take_away(found, now) if delete else self._lock(found, now, None)

    def peek(self, first: int, most: int, now: int, *, session: str | None = None) -> list[Held]:
        """Look at messages, of one session or all, from a sequence number on, whatever their state; nothing changes."""
        self.used_at = now
        self.stir()
        return self.contents.browse(first, most, session)

    def _first(self, most: int, now: int, session: str | None) -> list[Held]:
        self.used_at = now
        self.stir()
        if not self.settings.status.gives_messages:
            raise disabled(self.path)
        taken: list[Held] = []
        while len(taken) < most and (found := self.contents.take_first(most - len(taken), session)):
            taken += [
                held
                for held in found
                if (held.expires is None and held.deliveries == 0 and held.damage is None)
                or not self._ends(held, now)  # most are so
            ]
        return taken

    def _lock(self, messages: list[Held], now: int, until: int | None) -> list[Held]:
        ends = now + self.settings.lock_duration if until is None else until
        for held in messages:
            held.deliveries += 1
        self.locks.add_all(messages, self._tokens, ends)
        self.contents.journal_deliveries(messages)
        return messages

    def _take_away(self, messages: list[Held], now: int) -> list[Held]:
        """Remove messages that no receiver holds a lock of."""
        for held in messages:
            held.deliveries += 1
        self.contents.remove_for_good(messages, now)
        return messages

    # --- settling ------------------------------------------------------------------------------------------------

    def renew(self, token: bytes, now: int) -> int:
        """Renew a lock, and return until when it holds."""
        held = self.locks.find(token, now)
        if held is None:
            raise lock_lost()
        self.locks.renew(held, now + self.settings.lock_duration)
        return held.until

    def complete(self, token: bytes, now: int, answer: Answer) -> None:
        """Remove a message for good."""
        held = self._unlock(token, now)
        self.contents.remove((held,))
        self._when_durable(lambda refused: self._removed(held, now, refused, answer))

    def complete_all(self, tokens: Sequence[bytes], now: int, answer: Answer) -> None:
        """Remove messages for good, with one answer for all; if one lock does not hold, none is removed."""
        self.used_at = now
        messages = self.locks.find_all(tokens, now)
        if messages is None:
            raise lock_lost()
        self.locks.remove_all(messages)
        self.contents.remove(messages)

        def durable(refused: RefusedError | None) -> None:
            if refused is None:
                self.contents.removed(messages)
            else:
                for held in messages:
                    self._removed(held, now, refused, no_answer)
            answer(refused)

        self._when_durable(durable)

    def abandon(self, token: bytes, now: int, answer: Answer, properties: Map | None = None) -> None:
        """Put a message back into its place, with some application properties set."""
        held = self._unlock(token, now)
        if properties:
            self._change(held, properties)
            self.contents.journal_whole(held)
        self.put_back(held, now)
        self._when_durable(answer)

    def release(self, token: bytes, now: int, answer: Answer) -> None:
        """Put a message back that its receiver has not looked at: the delivery does not count."""
        held = self._unlock(token, now)
        held.deliveries -= 1
        self.contents.journal_deliveries((held,))
        self.put_back(held, now)
        self._when_durable(answer)

    def defer(self, token: bytes, now: int, answer: Answer, properties: Map | None = None) -> None:
        """Set a message aside, to be received by its sequence number."""
        held = self._unlock(token, now)
        before = held.state
        held.state = RowState.DEFERRED
        if properties or held.is_unstored:
            self._change(held, properties)
            self.contents.journal_whole(held)
        else:
            self.contents.journal_state(held)
        self.contents.count_as_deferred(held)

        def durable(refused: RefusedError | None) -> None:
            if refused is not None and before != RowState.DEFERRED:
                held.state = before
                if held.sequence in self.contents.deferred:
                    self.contents.deferred.discard(held.sequence)
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
        self._dead_letter(held, now, reason, description, answer)

    def _unlock(self, token: bytes, now: int) -> Held:
        self.used_at = now
        held = self.locks.find(token, now)
        if held is None:
            raise lock_lost()
        self.locks.remove(held)
        return held

    def _change(self, held: Held, properties: Map | None) -> None:
        if properties:
            self.contents.change_payload(held, with_properties(held.payload, properties))

    # --- leaving -------------------------------------------------------------------------------------------------

    def next_to_forward(self, now: int) -> Held | None:
        """Take the first message that waits out of its place; :meth:`hand_over` or :meth:`put_back` follows."""
        while found := self.contents.take_first(1, None):
            if not self._ends(found[0], now):
                return found[0]
        return None

    def hand_over(self, held: Held) -> None:
        """Remove a message that another entity has taken, in the same transaction; :meth:`handed_over` follows."""
        self.contents.remove((held,))

    def handed_over(self, held: Held, now: int, refused: RefusedError | None) -> None:
        """Take the store's answer to :meth:`hand_over`."""
        self._removed(held, now, refused, no_answer)

    def _removed(self, held: Held, now: int, refused: RefusedError | None, answer: Answer) -> None:
        """Take the store's answer to a removal: what it has refused to remove is still here."""
        if refused is None:
            self.contents.removed((held,))
        else:
            self.contents.restore(held)
            # One that is spent would be tried again at once, and again.
            if held.state != RowState.DEFERRED and not self._is_spent(held, now):
                self._announce(held.session)
        answer(refused)

    def put_back(self, held: Held, now: int) -> None:
        """Give back a message whose lock is gone: to its place, unless it has expired or was delivered too often.

        One that was deferred stays so, as in the cloud.
        """
        if self._ends(held, now):
            return
        if held.state == RowState.DEFERRED:
            self.contents.count_as_deferred(held)
            return
        self.contents.put_back(held)
        if self.contents.cache.is_full:
            self.contents.release_when_stored(held)
        self._announce(held.session)

    def _is_spent(self, held: Held, now: int) -> bool:
        if held.damage is not None:
            return True
        if held.expires is not None and held.expires <= now:
            return True
        return self.dead is not None and held.deliveries >= self.settings.max_delivery_count

    def _ends(self, held: Held, now: int) -> bool:
        """Remove or dead-letter a message that must not be delivered any more; tell whether it was one."""
        if not self._is_spent(held, now):
            return False
        if held.damage is not None or (held.expires is not None and held.expires <= now):
            self._expire(held, now)
        else:
            most = self.settings.max_delivery_count
            why = f"Message could not be consumed after {most} delivery attempts."
            self._dead_letter(held, now, EXHAUSTED, why, no_answer)
        return True

    def _expire(self, held: Held, now: int) -> None:
        if held.damage is not None:
            self._dead_letter_damaged(held, now)
        elif self.settings.dead_lettering_on_message_expiration and self.dead is not None:
            self._dead_letter(held, now, *EXPIRED, no_answer)
        else:
            self._take_away([held], now)

    def _dead_letter(self, held: Held, now: int, reason: str | None, description: str | None, answer: Answer) -> None:
        """Move a message to the dead-letter queue, in one transaction; in a dead-letter queue it stays."""
        if self.dead is None:
            self.put_back(held, now)
            self._when_durable(answer)
            return
        payload = dead_lettered(held.payload, reason, description, self.path)
        self.contents.remove((held,))
        self.dead.receive_dead(payload, held.deliveries, now, lambda refused: self._removed(held, now, refused, answer))

    def dead_letter_damaged(self, now: int) -> None:
        """Dead-letter the messages whose records were damaged when the queue was recalled; called when it is served."""
        for held in self.contents.take_damaged():
            self._dead_letter_damaged(held, now)

    def _dead_letter_damaged(self, held: Held, now: int) -> None:
        """Move a message that is not what was stored to the dead-letter queue, or give it the reason in one."""
        self.contents.remove((held,))
        self._store_damaged(held, now, lambda refused: self._removed(held, now, refused, no_answer))

    def _store_damaged(self, found: Held, now: int, answer: Answer) -> None:
        self.damaged_count += 1
        why = found.damage or "unknown"
        _LOGGER.error("%s: message %d is damaged, and is dead-lettered: %s", self.path, found.sequence, why)
        payload = damaged(found.payload, why, self.path, found.sequence)
        (self.dead or self).receive_dead(payload, found.deliveries, now, answer)

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        locks, contents = self.locks.wake_at, self.contents.wake_at
        return locks if contents is None or (locks is not None and locks < contents) else contents

    def tick(self, now: int) -> None:
        """Do what is due by ``now``: end locks, activate what was scheduled, expire what has lived long enough."""
        for held in self.locks.take_ended(now):
            self.put_back(held, now)
        due_at = self.contents.schedule.due_at
        if due_at is not None and due_at <= now:
            self._activate(now)
        expired = self.contents.take_expired(now)
        for held in expired:
            self._expire(held, now)
        if expired:
            self._when_durable(lambda refused: self.contents.expired() if refused is None else None)
        self.contents.remove_again(now)

    def _activate(self, now: int) -> None:
        """Append what is due as if it came now, with new sequence numbers, as the cloud does."""
        due = self.contents.schedule.take_due(now)
        for row in due:
            if row.damage is not None:
                self._store_damaged(Held(row), now, no_answer)
        rows = [row for row in due if row.damage is None]
        if rows:
            active = [self._activated(row, now) for row in rows]
            self._insert(active, sum(len(row.payload) for row in rows), None, no_answer)

    def _activated(self, row: Row, now: int) -> Row:
        expires = None if row.expires is None else row.expires - row.enqueued + now
        return row._replace(key=self._intake.new_key(), state=RowState.ACTIVE, enqueued=now, expires=expires, due=None)

    # --- settings ------------------------------------------------------------------------------------------------

    def cancel_scheduled(self, numbers: Sequence[int], now: int, answer: Answer) -> None:
        """Remove scheduled messages; all must be there."""
        self.used_at = now
        self.contents.schedule.cancel(numbers)
        self._when_durable(answer)

    def change_settings(self, settings: QueueSettings) -> None:
        """Use other settings from now on; the caller stores them."""
        self._intake.change_settings(settings)

    def remember_session_state(self, session: str, state: bytes | None, answer: Answer) -> None:
        """Store what a session remembers."""
        self._store.journal.session_states.append((self.id, session, state))
        self._when_durable(answer)
