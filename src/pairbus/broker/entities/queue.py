"""A queue: peek-lock and receive-and-delete, settlement, expiry, schedules, dead-lettering.

It decides and keeps account; messages lie in the store. Whatever must be durable before somebody is answered takes an
``answer``, which is called with None once it is, or with the refusal. Everything else takes effect at once.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pairbus.amqp.performatives import Map
from pairbus.broker.entities.message import Held, Incoming, dead_lettered, forwarded, with_properties
from pairbus.broker.entities.pool import FETCH
from pairbus.broker.entities.schedule import RETRY
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.entities.stock import Stock, nobody
from pairbus.broker.refusals import (
    Answer,
    RefusedError,
    disabled,
    is_passing,
    lock_lost,
    message_not_found,
    not_found,
    too_many_hops,
)
from pairbus.broker.store.base import Row, RowState, key_of, sequence_of

MAX_HOPS: Final = 4
"""How often a message is forwarded, at most."""

_LOGGER = logging.getLogger(__name__)


class Destination(Protocol):
    """What messages can be sent to: a queue or a topic."""

    path: str

    def send(self, messages: Sequence[Incoming], now: int, answer: Answer) -> list[int]:
        """Take messages, all or none."""
        ...


class Queue(Stock):
    """One queue, or a dead-letter queue of one: what its senders and receivers can do."""

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
        intake.check_size(self.size + total)
        if pings:  # which were counted, too: they ask whether the queue takes messages. They leave no trace (G3).
            fresh = [message for message in fresh if not message.is_ping]
            total -= pings
        coming = intake.remember(fresh, now)
        rows = [intake.row(message, now) for message in fresh]
        self._insert(rows, total, coming, answer)
        if len(rows) == len(messages):
            return [sequence_of(row.key) for row in rows]
        numbers = {id(message): sequence_of(row.key) for message, row in zip(fresh, rows, strict=True)}
        return [numbers.get(id(message), 0) for message in messages]

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
        for held in found:
            if held.damage is not None:
                self.deferred.discard(held.sequence)
                self._bury_damaged(held, now)
        missing = [held.sequence for held in found if held.damage is not None]
        if missing:
            raise message_not_found(missing)
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
                if sequence_of(row.key) not in self._leaving
                and row.damage is None  # whoever receives it finds it in the dead-letter queue
                and (session is None or row.session == session)
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
                if (held.expires is None and held.deliveries == 0 and held.damage is None)
                or not self._ends(held, now)  # most are so
            ]
        return taken

    def _lock(self, messages: list[Held], now: int, until: int | None) -> list[Held]:
        ends = now + self.settings.lock_duration if until is None else until
        base = key_of(self.id, 0)
        for held in messages:
            held.deliveries += 1
        self.locks.add_all(messages, self._tokens, ends)
        self._store.journal.deliveries.extend([(base | held.sequence, held.deliveries) for held in messages])
        return messages

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
                    self._removed(held, now, refused, nobody)
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

    def _unlock(self, token: bytes, now: int) -> Held:
        self.used_at = now
        held = self.locks.find(token, now)
        if held is None:
            raise lock_lost()
        self.locks.remove(held)
        return held

    def _change(self, held: Held, properties: Map | None) -> None:
        if properties:
            payload = with_properties(held.payload, properties)
            self.size += len(payload) - len(held.payload)
            self._pool.change(held, payload)

    def _write(self, held: Held) -> None:
        key = key_of(self.id, held.sequence)
        row = Row(key, held.state, held.enqueued, held.expires, None, held.session, held.deliveries, held.payload)
        self._store.journal.rows.append(row)

    # --- forwarding ----------------------------------------------------------------------------------------------

    def forward(self, find: Callable[[], Destination], now: int, transfer_dead: Callable[[], "Queue"]) -> None:
        """Move what can be received to another entity, in its order.

        What the other entity cannot take now, because it is full, stays here to be tried again. What it will never
        take goes to the transfer dead-letter queue, with the reason, and does not keep back the messages behind it.

        :param find: returns the other entity, or refuses.
        :param transfer_dead: returns the transfer dead-letter queue.
        """
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
                message = forwarded(held, now)
                if message.hops > MAX_HOPS:
                    raise too_many_hops(MAX_HOPS)
                find().send([message], now, self._when_forwarded(held, now))
            except RefusedError as refused:
                if is_passing(refused):
                    line.put_back(number)
                    return
                self._give_up(held, now, refused, transfer_dead())
            self._remove(held)

    def _give_up(self, held: Held, now: int, refused: RefusedError, transfer_dead: "Queue") -> None:
        """Give a message that cannot be forwarded to the transfer dead-letter queue; the caller removes it here."""
        _LOGGER.info("%s: message %d cannot be forwarded: %s", self.path, held.sequence, refused.description)
        payload = dead_lettered(held.payload, refused.condition, refused.description, self.path)
        transfer_dead.receive_dead(payload, held.deliveries, now, self._when_forwarded(held, now))

    def _when_forwarded(self, held: Held, now: int) -> Answer:
        def answer(refused: RefusedError | None) -> None:
            if refused is not None:
                self._forward_at = now + RETRY
            self._removed(held, now, refused, nobody)

        return answer

    # --- settings ------------------------------------------------------------------------------------------------

    def cancel_scheduled(self, numbers: Sequence[int], now: int, answer: Answer) -> None:
        """Remove scheduled messages; all must be there."""
        self.used_at = now
        self._schedule.cancel(numbers)
        self._when_durable(answer)

    def change_settings(self, settings: QueueSettings) -> None:
        """Have other settings from now on; they are stored by whoever changes them."""
        self._intake.change_settings(settings)

    def remember_session_state(self, session: str, state: bytes | None, answer: Answer) -> None:
        """Store what a session remembers."""
        self._store.journal.session_states.append((self.id, session, state))
        self._when_durable(answer)
