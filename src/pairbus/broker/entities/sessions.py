"""The sessions of a queue: who has which, until when, and what each remembers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pairbus.broker.entities.message import Held
from pairbus.broker.entities.queue import Queue
from pairbus.broker.refusals import Answer, RefusedError, session_lock_lost, session_locked


@dataclass(slots=True)
class LockedSession:
    """A session that a receiver has locked.

    :ivar owner: the receiver, whatever that is to the caller.
    """

    name: str
    owner: object
    until: int


class Sessions:
    """The sessions of one queue."""

    def __init__(self, queue: Queue, states: Iterable[tuple[str, bytes]] = ()) -> None:
        self.on_ready: Callable[[], None] | None = None
        """Told when there is a session to be had that was not there before."""
        self._queue = queue
        self._states = dict(states)
        self._stored = dict(self._states)
        """What a crash would leave of them."""
        self._updated: dict[str, int] = {}
        """When the states were set that were set since the broker started."""
        self._settings: dict[str, int] = {}
        """How often each was set."""
        self._taken: dict[str, LockedSession] = {}
        self._ready: dict[str, None] = {}
        """Sessions with messages that nobody has, in the order in which they became so."""
        for name, order in queue.contents.waiting.items():
            if name is not None and order:
                self._ready[name] = None

    def message_came(self, name: str) -> None:
        """Note that there is a message for a session."""
        if name not in self._taken and name not in self._ready:
            self._ready[name] = None
            if self.on_ready is not None:
                self.on_ready()

    def accept(self, name: str, owner: object, now: int) -> LockedSession:
        """Lock a session by its name, whether it has messages or not."""
        if name in self._taken:
            raise session_locked(name)
        self._ready.pop(name, None)
        session = self._taken[name] = LockedSession(name, owner, now + self._queue.settings.lock_duration)
        return session

    def accept_next(self, owner: object, now: int) -> LockedSession | None:
        """Lock the session that has waited longest; None: there is none."""
        while self._ready:
            name = next(iter(self._ready))
            if self._queue.has_waiting(name):
                return self.accept(name, owner, now)
            del self._ready[name]  # its messages have expired
        return None

    def holds(self, session: LockedSession, now: int) -> bool:
        """Tell whether a session is still had by whoever accepted it."""
        return self._taken.get(session.name) is session and session.until > now

    def held_by(self, name: str, owner: object, now: int) -> LockedSession:
        """Return a session that a receiver has, or refuse one whose lock has ended."""
        session = self._taken.get(name)
        if session is None or session.owner is not owner or session.until <= now:
            raise session_lock_lost(name)
        return session

    def held(self, name: str, now: int) -> LockedSession:
        """Return a session that somebody has."""
        session = self._taken.get(name)
        if session is None or session.until <= now:
            raise session_lock_lost(name)
        return session

    def renew(self, name: str, now: int) -> int:
        """Lock a session anew, and its messages with it; return until when."""
        session = self.held(name, now)
        session.until = now + self._queue.settings.lock_duration
        for message in self._locked(name):
            self._queue.locks.renew(message, session.until)
        return session.until

    def release(self, session: LockedSession, now: int) -> None:
        """Give up a session; its messages that are not settled go back to their places."""
        if self._taken.get(session.name) is not session:
            return
        del self._taken[session.name]
        for message in sorted(self._locked(session.name), key=lambda held: held.sequence):
            self._queue.locks.remove(message)
            self._queue.put_back(message, now)
        if self._queue.has_waiting(session.name):
            self.message_came(session.name)
        else:
            self._queue.contents.waiting.pop(session.name, None)

    def state(self, name: str, now: int) -> bytes | None:
        """Return what a session remembers."""
        self.held(name, now)
        return self._states.get(name)

    def set_state(self, name: str, state: bytes | None, now: int, answer: Answer) -> None:
        """Let a session remember something, or, with None, nothing."""
        self.held(name, now)
        _remember(self._states, name, state)
        self._updated[name] = now
        self._settings[name] = number = self._settings.get(name, 0) + 1

        def durable(refused: RefusedError | None) -> None:
            if refused is None:
                _remember(self._stored, name, state)
            elif self._settings[name] == number:  # else a later one is under way, and has the last word
                _remember(self._states, name, self._stored.get(name))
            answer(refused)

        self._queue.remember_session_state(name, state, durable)

    def names(self, skip: int, top: int, updated_after: int | None = None) -> list[str]:
        """List the sessions that have messages or remember something, in alphabetical order.

        :param updated_after: list only those whose state was set after this time instead. A state from before the
            broker's start may have been: its time is not stored.
        """
        if updated_after is not None:
            states = [name for name in self._states if self._updated.get(name, updated_after + 1) > updated_after]
            return sorted(states)[skip : skip + top]
        known = {name for name, order in self._queue.contents.waiting.items() if name is not None and order}
        known.update(self._states)
        known.update(message.session for message in self._queue.locks if message.session is not None)
        return sorted(known)[skip : skip + top]

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        return min((session.until for session in self._taken.values()), default=None)

    def tick(self, now: int) -> list[LockedSession]:
        """Give up the sessions whose locks have ended, and return them."""
        ended = [session for session in self._taken.values() if session.until <= now]
        for session in ended:
            self.release(session, now)
        return ended

    def _locked(self, name: str) -> list[Held]:
        return [held for held in self._queue.locks if held.session == name]


def _remember(states: dict[str, bytes], name: str, state: bytes | None) -> None:
    if state is None:
        states.pop(name, None)
    else:
        states[name] = state
