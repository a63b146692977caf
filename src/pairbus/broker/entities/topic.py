"""A topic: what is sent to it is copied into each subscription that has a rule for it.

All copies of a message become durable together, and have one stored body. Whatever must be durable before somebody is
answered takes an ``answer``, as in a queue.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from pairbus.amqp import Message
from pairbus.broker.entities.copies import Copies, copies_of
from pairbus.broker.entities.intake import Intake, PendingSend, Publisher
from pairbus.broker.entities.message import Incoming, damaged, read_incoming, stamped
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.schedule import Schedule
from pairbus.broker.entities.settings import TopicSettings
from pairbus.broker.entities.subscription import Subscription
from pairbus.broker.filters import Facts, Matcher, Rule
from pairbus.broker.refusals import Answer, no_answer, not_found, store_failed
from pairbus.broker.store.base import EntityRow, Row, Store, StoreError, sequence_of

_LOGGER = logging.getLogger(__name__)


class Topic:
    """One topic.

    :ivar row: the topic as it is stored.
    :ivar used_at: when it was last used; 0: not since the broker started.
    :ivar publishers: the links by which clients send to it, to be told when it is deleted.
    """

    def __init__(self, row: EntityRow, settings: TopicSettings, store: Store) -> None:
        self.id = row.id
        self.path = row.path
        self.row = row
        self.settings = settings
        self.used_at = 0
        self.is_deleted = False
        self.publishers: dict[Publisher, None] = {}
        self.damaged_count = 0
        self._store = store
        self._intake = Intake(row, settings.for_intake(), store)
        self._schedule = Schedule(row.id, store, set(), self._resize)
        self._scheduled_size = 0
        self._subscriptions: dict[str, Subscription] = {}
        self._matcher: Matcher[Subscription] = Matcher()
        for scheduled in store.index(row.id):
            self._schedule.count += 1
            self._scheduled_size += scheduled.size
        self._size_at_most = self._scheduled_size

    def _resize(self, by: int) -> None:
        self._scheduled_size += by

    # --- subscriptions and rules ---------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions, by name."""
        return [self._subscriptions[name] for name in sorted(self._subscriptions)]

    @property
    def subscription_count(self) -> int:
        """How many subscriptions it has."""
        return len(self._subscriptions)

    def find_subscription(self, name: str) -> Subscription | None:
        """Return a subscription; names are compared case-insensitively."""
        return self._subscriptions.get(name.lower())

    def subscribe(self, subscription: Subscription) -> None:
        """Have a subscription; it gets nothing before it has rules."""
        self._subscriptions[subscription.name.lower()] = subscription
        self._size_at_most += subscription.size

    def unsubscribe(self, subscription: Subscription) -> None:
        """Have a subscription no more."""
        del self._subscriptions[subscription.name.lower()]
        self._matcher.remove_all(subscription)

    def put_rule(self, subscription: Subscription, rule: Rule) -> None:
        """Use a rule, in the place of the one of the same name if there is one, from the next message on."""
        self._matcher.put(subscription, rule)

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        """Use a rule no more."""
        self._matcher.remove(subscription, name)

    # --- coming in -----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of all messages, scheduled or in subscriptions."""
        return self._scheduled_size + sum(subscription.size for subscription in self._subscriptions.values())

    @property
    def scheduled_count(self) -> int:
        """Messages that are not due yet."""
        return self._schedule.count

    def change_settings(self, settings: TopicSettings) -> None:
        """Have other settings from now on; they are stored by whoever changes them."""
        self.settings = settings
        self._intake.change_settings(settings.for_intake())

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
        self._check_size(sum(len(message.payload) for message in fresh))
        numbers: dict[int, int] = {}
        scheduled: list[Row] = []
        copies: list[Copies] = []
        for message in fresh:
            if message.is_ping:  # it has asked what it wanted to know, and reaches no subscription (G3)
                continue
            row = intake.row(message, now)
            numbers[id(message)] = sequence_of(row.key)
            if row.due is not None:
                Message(
                    row.payload
                ).application_properties()  # what filters could not read is refused now, not when due
                scheduled.append(row)
            else:
                copies.append(self._match(message, row))
        pending = intake.remember([message for message in fresh if not message.is_ping], now)
        self._take(scheduled, copies, now, lambda error: self._taken(pending, error, answer))
        return [numbers.get(id(message), 0) for message in messages]

    def _check_size(self, added: int) -> None:
        """Refuse what makes the topic too large. All subscriptions are added up only when that may be so."""
        if self._size_at_most + added > self._intake.settings.max_bytes:
            self._size_at_most = self.size
            self._intake.check_size(self._size_at_most + added)

    def _taken(self, pending: PendingSend | None, error: StoreError | None, answer: Answer) -> None:
        self._intake.end(pending, refused=error is not None)
        if error is None:
            answer(None)
        else:
            answer(store_failed(self.path))

    def _match(self, message: Incoming, row: Row) -> Copies:
        """Ask the rules which subscriptions get a message; ``row`` says when it came, how long it lives, its number."""
        payload = stamped(message, sequence_of(row.key))
        lives = None if row.expires is None else row.expires - row.enqueued
        facts = Facts(Message(payload), enqueued=row.enqueued, sequence=sequence_of(row.key))
        original = Incoming(payload, message.message_id, message.session_id, lives)
        longest = self.settings.default_message_time_to_live
        return copies_of(original, row.key, facts, self._matcher.match(facts), longest)

    def _take(
        self,
        scheduled: list[Row],
        copies: Iterable[Copies],
        now: int,
        settled: Callable[[StoreError | None], None],
    ) -> None:
        """Journal messages, which arrive when they are durable."""
        journal = self._store.journal
        journal.rows.extend(scheduled)
        added = sum(len(row.payload) for row in scheduled)
        self._scheduled_size += added
        stored: dict[Queue, list[Row]] = {}
        for each in copies:
            each.journal(journal, now, stored)
        self._size_at_most += added + sum(len(row.payload) for rows in stored.values() for row in rows)

        def durable(error: StoreError | None) -> None:
            if error is None:
                for row in scheduled:
                    self._schedule.arrive(row)
            else:
                self._scheduled_size -= added
            for queue, rows in stored.items():
                queue.settle_copies(rows, is_stored=error is None)
            settled(error)

        journal.durable.append(durable)

    # --- time ----------------------------------------------------------------------------------------------------

    def cancel_scheduled(self, numbers: Sequence[int], now: int, answer: Answer) -> None:
        """Remove scheduled messages; all must be there."""
        self.used_at = now
        self._schedule.cancel(numbers)
        self._store.journal.durable.append(lambda error: self._taken(None, error, answer))

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        return self._schedule.due_at

    def tick(self, now: int) -> None:
        """Publish what is due, by the rules that there are now; a disabled topic does so too, as in the cloud."""
        if self._schedule.due_at is None or self._schedule.due_at > now:
            return
        due = self._schedule.take_due(now)
        for row in due:
            if row.damage is not None:
                self._bury_damaged(row, now)
        rows = [row for row in due if row.damage is None]
        if rows:
            copies = [self._match(read_incoming(row.payload), self._published(row, now)) for row in rows]
            self._take([], copies, now, lambda _error: None)

    def _bury_damaged(self, row: Row, now: int) -> None:
        """Give a scheduled message that is not what was stored to all dead-letter queues: no rule can judge it."""
        self.damaged_count += 1
        number, why = sequence_of(row.key), row.damage or "unknown"
        _LOGGER.error("%s: scheduled message %d is damaged, and is dead-lettered: %s", self.path, number, why)
        for subscription in self.subscriptions:
            if subscription.queue.dead is not None:
                payload = damaged(row.payload, why, self.path, number)
                subscription.queue.dead.receive_dead(payload, 0, now, no_answer)

    def _published(self, row: Row, now: int) -> Row:
        """Return a message that was scheduled as if it came now, with a number of now, as the cloud does."""
        expires = None if row.expires is None else row.expires - row.enqueued + now
        return row._replace(key=self._intake.new_key(), enqueued=now, expires=expires, due=None)
