"""What a queue holds: messages as they come, stay, expire and go. They lie in the store; this keeps account of them."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Self

from pairbus.broker.entities.intake import Coming, Intake
from pairbus.broker.entities.lines import Line
from pairbus.broker.entities.locks import Locks
from pairbus.broker.entities.message import Held, Incoming, damaged, dead_lettered
from pairbus.broker.entities.pool import Pool
from pairbus.broker.entities.schedule import AT_ONCE, RETRY, Schedule
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.refusals import Answer, RefusedError, store_failed
from pairbus.broker.store.base import EntityRow, Row, RowState, Store, StoreError, key_of, sequence_of

_LOGGER = logging.getLogger(__name__)

EXPIRED: Final = ("TTLExpiredException", "The message expired and was dead lettered.")
EXHAUSTED: Final = "MaxDeliveryCountExceeded"


class Stock:
    """The messages of one queue, and what time does to them.

    :param tokens: makes lock tokens, 16 random bytes each.
    """

    def __init__(self, row: EntityRow, settings: QueueSettings, store: Store, tokens: Callable[[], bytes]) -> None:
        self.id = row.id
        self.path = row.path
        self.dead: Self | None = None
        """Its dead-letter queue; None: it is one itself."""
        self.transfer_dead: Self | None = None
        """Its transfer dead-letter queue, for what it could not forward; None: it has not needed one yet."""
        self.on_available: Callable[[str | None], None] | None = None
        """Told, with the session, when there is a message to be received that was not there before."""
        self.on_used: Callable[[], None] | None = None
        """Told when it is used: :attr:`wake_at` may be another one."""
        self.size: int = 0
        """Bytes of all messages."""
        self.used_at = 0
        """When it was last used, for auto-delete-on-idle."""
        self.is_deleted = False
        self.damaged_count = 0
        """Messages that were found to be damaged since the broker started."""
        self.lines: dict[str | None, Line] = {}
        """By session; under None without sessions. In memory a message that waits costs its number here."""
        self.locks = Locks()
        self.deferred: set[int] = set()
        self._store = store
        self._tokens = tokens
        self._pool = Pool(row.id, store)
        self._expires_at: int | None = store.next_expiry(row.id)
        self._leaving: set[int] = set()
        """Messages that are removed as soon as the store has done so; until then it still shows them."""
        self._schedule = Schedule(row.id, store, self._leaving, self._resize)
        self._unremoved: list[int] = []
        """Messages whose removal the store has refused, and when that is tried again."""
        self._retry_at: int | None = None
        self._forward_at = 0
        """When it may forward again, after the store has refused."""
        self._last_arrived = row.next_sequence - 1
        """The store may show a message after this one before it has told us of it."""
        self._intake = Intake(row, settings, store)
        self._unreliable: list[int] = []
        """Keys of messages whose records were found to be damaged; see :meth:`set_damaged_aside`."""
        self._recall()

    def _recall(self) -> None:
        # There may be a million: an enum's member, looked up for each, would take longer than the rest.
        scheduled, deferred = int(RowState.SCHEDULED), int(RowState.DEFERRED)
        base = key_of(self.id, 0)
        session, push = None, self._line(None).push
        for key, state, _expires, _due, name, size, is_whole in self._store.index(self.id):
            if not is_whole:
                self._unreliable.append(key)
                continue
            self.size += size
            if state == scheduled:
                self._schedule.count += 1
            elif state == deferred:
                self.deferred.add(key - base)
            else:
                if name != session:
                    session, push = name, self._line(name).push
                push(key - base)
        if not self.lines[None]:
            del self.lines[None]

    @property
    def active_count(self) -> int:
        """Messages that can be received, or are under lock."""
        return sum(map(len, self.lines.values())) + len(self.locks)

    @property
    def full_size(self) -> int:
        """Bytes of all messages, those of its dead-letter queues too."""
        return self.size + sum(each.size for each in (self.dead, self.transfer_dead) if each is not None)

    @property
    def scheduled_count(self) -> int:
        """Messages that are not due yet."""
        return self._schedule.count

    @property
    def settings(self) -> QueueSettings:
        """Its settings."""
        return self._intake.settings

    def _resize(self, by: int) -> None:
        self.size += by

    def stir(self) -> None:
        """Tell whoever sees to it that things are done in time that there may be some here."""
        if self.on_used is not None:
            self.on_used()

    def _line(self, session: str | None) -> Line:
        line = self.lines.get(session)
        if line is None:
            line = self.lines[session] = Line()
        return line

    def _announce(self, session: str | None) -> None:
        if self.on_available is not None:
            self.on_available(session)

    def _when_durable(self, answer: Answer) -> None:
        def durable(error: StoreError | None) -> None:
            answer(None if error is None else store_failed(self.path))

        self._store.journal.durable.append(durable)

    # --- coming in -----------------------------------------------------------------------------------------------

    def _insert(self, rows: list[Row], total: int, coming: Coming | None, answer: Answer) -> None:
        self.size += total
        journal = self._store.journal
        journal.rows.extend(rows)

        def durable(error: StoreError | None) -> None:
            self._intake.end(coming, refused=error is not None)
            if error is None:
                self._arrive(rows)
                answer(None)
                return
            self.size -= total
            answer(store_failed(self.path))

        journal.durable.append(durable)

    def _arrive(self, rows: Sequence[Row]) -> None:
        self.stir()
        came: dict[str | None, None] = {}
        for row in rows:
            self._last_arrived = number = sequence_of(row.key)
            if row.due is not None:
                self._schedule.arrive(row)
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

    def receive_dead(self, payload: bytes, deliveries: int, now: int, answer: Answer) -> None:
        """Take a message that another queue has dead-lettered."""
        row = Row(self._intake.new_key(), RowState.ACTIVE, now, None, None, None, deliveries, payload)
        self._insert([row], len(payload), None, answer)

    # --- going ---------------------------------------------------------------------------------------------------

    def set_damaged_aside(self, now: int) -> None:
        """Dead-letter the messages whose records were damaged when it was recalled; once, when it has its own queue."""
        keys, self._unreliable = self._unreliable, []
        for row in self._store.load(keys):
            self.size += len(row.payload)
            self._bury_damaged(self._pool.hold(row), now)

    def _bury_damaged(self, held: Held, now: int) -> None:
        """Move a message that is not what was stored to the dead-letter queue, or give it the reason in one."""
        self._remove(held)
        self._store_damaged(held, now, lambda refused: self._removed(held, now, refused, nobody))

    def _store_damaged(self, found: Held, now: int, answer: Answer) -> None:
        self.damaged_count += 1
        why = found.damage or "unknown"
        _LOGGER.error("%s: message %d is damaged, and is dead-lettered: %s", self.path, found.sequence, why)
        payload = damaged(found.payload, why, self.path, found.sequence)
        (self.dead or self).receive_dead(payload, found.deliveries, now, answer)

    def _is_spent(self, held: Held, now: int) -> bool:
        if held.damage is not None:
            return True
        if held.expires is not None and held.expires <= now:
            return True
        return self.dead is not None and held.deliveries >= self.settings.max_delivery_count

    def _ends(self, held: Held, now: int) -> bool:
        """Deal with a message that is not to be given out any more; tell whether it was one."""
        if not self._is_spent(held, now):
            return False
        if held.damage is not None:
            self._bury_damaged(held, now)
        elif held.expires is not None and held.expires <= now:
            self._expire(held, now)
        else:
            most = self.settings.max_delivery_count
            why = f"Message could not be consumed after {most} delivery attempts."
            self._bury(held, now, EXHAUSTED, why, nobody)
        return True

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

    def _expire(self, held: Held, now: int) -> None:
        if held.damage is not None:
            self._bury_damaged(held, now)
        elif self.settings.dead_lettering_on_message_expiration and self.dead is not None:
            self._bury(held, now, *EXPIRED, nobody)
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

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        first = self.locks.wake_at
        for time in (self._schedule.due_at, self._expires_at, self._retry_at):
            if time is not None and (first is None or time < first):
                first = time
        return first

    def tick(self, now: int) -> None:
        """Do what is due by ``now``: end locks, activate what was scheduled, expire what has lived long enough."""
        for held in self.locks.take_ended(now):
            self.put_back(held, now)
        if self._schedule.due_at is not None and self._schedule.due_at <= now:
            self._activate(now)
        if self._expires_at is not None and self._expires_at <= now:
            self._expire_due(now)
        if self._retry_at is not None and self._retry_at <= now:
            self._remove_again(now)

    def _activate(self, now: int) -> None:
        """Append what is due as if it came now, with new sequence numbers, as the cloud does."""
        due = self._schedule.take_due(now)
        for row in due:
            if row.damage is not None:
                self._store_damaged(Held(row), now, nobody)
        rows = [row for row in due if row.damage is None]
        if rows:
            active = [self._activated(row, now) for row in rows]
            self._insert(active, sum(len(row.payload) for row in rows), None, nobody)

    def _activated(self, row: Row, now: int) -> Row:
        expires = None if row.expires is None else row.expires - row.enqueued + now
        return row._replace(key=self._intake.new_key(), state=RowState.ACTIVE, enqueued=now, expires=expires, due=None)

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


def nobody(_refused: RefusedError | None) -> None:
    """Nobody waits for the answer."""
