"""Messages that are sent to a queue or a topic: which are accepted, and what is stored of them."""

from collections.abc import Sequence
from typing import Protocol

from pairbus.broker.entities.duplicates import Duplicates
from pairbus.broker.entities.message import END_OF_TIME, Incoming
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.refusals import Answer, RefusedError, disabled, full, session_needed, store_failed, too_large
from pairbus.broker.store.base import EntityRow, Row, RowState, Store, key_of


class Publisher(Protocol):
    """A link by which a client sends to an entity."""

    def send_away(self, refused: RefusedError) -> None:
        """End the link, and tell its client why."""
        ...


class PendingSend:
    """The message ids of one send, which is on its way to the store.

    :ivar ids: each id, and until when it is remembered.
    :ivar refused: the store has not taken it.
    """

    __slots__ = ("ids", "refused")

    def __init__(self, ids: Sequence[tuple[str, int]]) -> None:
        self.ids = ids
        self.refused = False


class Intake:
    """Checks what is sent to one entity, gives it sequence numbers, and remembers message ids to know duplicates."""

    def __init__(self, row: EntityRow, settings: QueueSettings, store: Store) -> None:
        self.next_sequence = row.next_sequence
        self.settings = settings
        self._entity = row.id
        self._path = row.path
        self._store = store
        self._forget_at = 0
        """When the store is told next that old message ids need no room any more."""
        self._pending: dict[str, PendingSend] = {}
        """By id: what is on its way to the store, of which a duplicate may come already."""
        self._duplicates: Duplicates | None = None
        if settings.requires_duplicate_detection:
            known = store.seen(row.id, 0)
            self._duplicates = Duplicates(settings.duplicate_detection_history_time_window, known)

    def change_settings(self, settings: QueueSettings) -> None:
        """Have other settings from now on."""
        self.settings = settings
        if self._duplicates is not None:
            self._duplicates.window = settings.duplicate_detection_history_time_window

    def check(self, messages: Sequence[Incoming]) -> None:
        """Refuse messages that the queue does not take, all of them for one."""
        settings = self.settings
        if not settings.status.takes_messages:
            raise disabled(self._path)
        limit, sessions_only = min(settings.max_message_bytes, settings.max_bytes), settings.requires_session
        for message in messages:
            if len(message.payload) > limit and len(message.payload) - message.added > limit:
                raise too_large(len(message.payload), limit)
            if sessions_only and message.session_id is None:
                raise session_needed(self._path)

    def check_size(self, size: int) -> None:
        """Refuse what would make the queue larger than it may be."""
        if size > self.settings.max_bytes:
            raise full(self._path, self.settings.max_bytes)

    def first_of_each(self, messages: Sequence[Incoming], now: int) -> Sequence[Incoming]:
        """Leave out duplicates."""
        duplicates = self._duplicates
        if duplicates is None:
            return messages
        seen: set[str | None] = set()
        fresh: list[Incoming] = []
        for message in messages:
            name = message.message_id
            if name is not None and (name in seen or duplicates.is_known(name, now)):
                continue
            seen.add(name)
            fresh.append(message)
        return fresh

    def unless_the_first_is_refused(
        self, messages: Sequence[Incoming], fresh: Sequence[Incoming], answer: Answer
    ) -> Answer:
        """A duplicate is stored if the one before it is, which may still be on its way to the store.

        :param fresh: what :meth:`first_of_each` has left of them.
        """
        known = {message.message_id for message in messages} - {message.message_id for message in fresh}
        firsts = [self._pending[name] for name in known if name in self._pending]

        def durable(refused: RefusedError | None) -> None:
            if refused is None and any(first.refused for first in firsts):
                refused = store_failed(self._path)  # as the one before it was
            answer(refused)

        return durable

    def remember(self, messages: Sequence[Incoming], now: int) -> PendingSend | None:
        """Remember message ids, so that duplicates are known, until :meth:`end` tells that the store has answered."""
        if self._duplicates is None:
            return None
        names = [message.message_id for message in messages if message.message_id is not None]
        pending = PendingSend([(name, self._duplicates.remember(name, now)) for name in names])
        self._pending.update(dict.fromkeys(names, pending))
        journal = self._store.journal
        journal.seen.extend((self._entity, name, until) for name, until in pending.ids)
        if now >= self._forget_at:
            self._forget_at = now + self._duplicates.window
            journal.forgotten.append((self._entity, now))
        return pending

    def end(self, pending: PendingSend | None, *, refused: bool) -> None:
        """Take the store's answer; what it has refused was never there, and its ids are forgotten."""
        if pending is None or self._duplicates is None:
            return
        pending.refused = refused
        for message_id, until in pending.ids:
            if self._pending.get(message_id) is pending:
                del self._pending[message_id]
            if refused:
                self._duplicates.forget(message_id, until)

    def row(self, message: Incoming, now: int) -> Row:
        """Return what is stored of a message, with the next sequence number."""
        due = message.due if message.due is not None and message.due > now else None
        lives, longest = message.time_to_live, self.settings.default_message_time_to_live
        if longest is not None and (lives is None or lives > longest):
            lives = longest
        enqueued = now if due is None else due
        ends = None if lives is None else enqueued + lives
        return Row(
            self.new_key(),
            RowState.ACTIVE if due is None else RowState.SCHEDULED,
            enqueued,
            ends if ends is None or ends < END_OF_TIME else None,
            due,
            message.session_id if self.settings.requires_session else None,
            0,
            message.payload,
        )

    def new_key(self) -> int:
        """Return the key of the next message."""
        number = self.next_sequence
        self.next_sequence = number + 1
        return key_of(self._entity, number)
