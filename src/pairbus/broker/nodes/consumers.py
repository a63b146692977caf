"""Those who wait for the messages of one queue, and whose turn it is."""

from collections.abc import Callable
from typing import Protocol

from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import LockedSession, Sessions
from pairbus.broker.refusals import RefusedError

TURN = 100
"""How many messages one receiver gets, at most, before it is the next one's turn."""


class Consumer(Protocol):
    """A receiver."""

    session: LockedSession | None

    @property
    def wants(self) -> int:
        """How many messages it takes now."""
        ...

    def give(self, most: int) -> int:
        """Give it so many messages at most; return how many there were."""
        ...

    def accepted(self, session: LockedSession) -> None:
        """Give it the session that it waits for."""
        ...

    def gave_up(self) -> None:
        """Tell it that no session came in time."""
        ...

    def session_ended(self) -> None:
        """Tell it that its session's lock has ended."""
        ...

    def send_away(self, refused: RefusedError) -> None:
        """Tell it that it gets no more, and why."""
        ...


class Consumers:
    """The receivers of one queue. Whoever has credit gets messages in turn."""

    def __init__(self, queue: Queue, sessions: Sessions | None, clock: Callable[[], int]) -> None:
        self._queue = queue
        self._sessions = sessions
        self._clock = clock
        self._receivers: dict[Consumer, None] = {}
        self._waiting: dict[Consumer, int] = {}
        """Who waits for a session, and until when."""
        self._serving = False
        queue.on_available = self.message_came
        if sessions is not None:
            sessions.on_ready = self._hand_out_sessions

    def add(self, consumer: Consumer) -> None:
        """Let a receiver take part."""
        self._receivers[consumer] = None
        self._queue.stir()

    def remove(self, consumer: Consumer) -> None:
        """Let a receiver go; its session is free again."""
        self._receivers.pop(consumer, None)
        self._waiting.pop(consumer, None)
        if consumer.session is not None and self._sessions is not None:
            self._sessions.release(consumer.session, self._clock())
            self._hand_out_sessions()

    def wait_for_session(self, consumer: Consumer, until: int) -> None:
        """Let a receiver wait for a session with messages."""
        self._waiting[consumer] = until
        self._queue.stir()
        self._hand_out_sessions()

    def __len__(self) -> int:
        return len(self._receivers) + len(self._waiting)

    def send_away(self, refused: RefusedError) -> None:
        """End all receivers, and tell them why."""
        for consumer in (*self._receivers, *self._waiting):
            consumer.send_away(refused)
        self._waiting.clear()

    def serve(self) -> None:
        """Give out messages, as long as there are some and somebody wants them."""
        if self._serving or not self._queue.settings.status.gives_messages:
            return
        self._serving = True
        try:
            while self._one_round():
                pass
        finally:
            self._serving = False

    def _one_round(self) -> bool:
        gave = False
        turn = self._turn()
        for consumer in list(self._receivers):
            wants = min(consumer.wants, turn)
            if wants > 0 and self._has_some_for(consumer) and consumer.give(wants):
                gave = True
                if consumer in self._receivers:
                    del self._receivers[consumer]
                    self._receivers[consumer] = None  # it was its turn
        return gave

    def _turn(self) -> int:
        """How many messages one gets at a time: its share of what there is, so that all have something to do."""
        waiting = self._queue.contents.waiting.get(None)
        return min(TURN, -(-len(waiting) // max(1, len(self._receivers)))) if waiting else TURN

    def _has_some_for(self, consumer: Consumer) -> bool:
        session = consumer.session
        if session is None or self._sessions is None:
            return self._queue.has_waiting(None)
        return self._queue.has_waiting(session.name) and self._sessions.holds(session, self._clock())

    def message_came(self, session: str | None) -> None:
        """Take note that there is a message to be received."""
        if session is not None and self._sessions is not None:
            self._sessions.message_came(session)
        if self._receivers:
            self.serve()

    def _hand_out_sessions(self) -> None:
        while self._waiting and self._sessions is not None:
            consumer = next(iter(self._waiting))
            session = self._sessions.accept_next(consumer, self._clock())
            if session is None:
                return
            del self._waiting[consumer]
            consumer.accepted(session)

    @property
    def wake_at(self) -> int | None:
        """When :meth:`tick` has something to do; None: not before something else happens."""
        return min(self._waiting.values()) if self._waiting else None

    def tick(self, now: int) -> None:
        """Send away those who have waited for a session long enough, and those whose session has ended."""
        if self._sessions is not None:
            for session in self._sessions.tick(now):
                owner = session.owner
                for consumer in list(self._receivers):
                    if consumer is owner:
                        consumer.session_ended()
        for consumer in [each for each, until in self._waiting.items() if until <= now]:
            del self._waiting[consumer]
            consumer.gave_up()
