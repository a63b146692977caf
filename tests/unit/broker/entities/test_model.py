"""A queue against a simple model, through commits that succeed, fail or never end, the passing of time, and restarts.

The model knows of each message where it may be. Whatever happens, no message is lost, doubled or out of order. Two more
know who has which session, and which message ids are remembered.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.entities.conftest import DEAD, QUEUE, World, message, name_of

from pairbus.broker.entities.message import Held, Incoming
from pairbus.broker.entities.sessions import LockedSession
from pairbus.broker.refusals import RefusedError
from pairbus.broker.store.base import RowState, sequence_of

MOST = 3
"""Deliveries, before a message is dead-lettered."""


class Place(Enum):
    COMING = "sent, and not answered yet"
    LINE = "in line"
    LOCKED = "under lock"
    DEFERRED = "set aside"
    SCHEDULED = "scheduled"
    DEAD = "dead-lettered"
    MOVING = "given back, or its settlement was refused"
    LEAVING = "on its way out, which may be refused"
    TAKEN = "received and deleted, which a crash may undo"
    GONE = "completed, cancelled or never stored"


STORED = {RowState.ACTIVE: Place.LINE, RowState.DEFERRED: Place.DEFERRED, RowState.SCHEDULED: Place.SCHEDULED}


@dataclass
class Entry:
    """What the model knows of a message."""

    number: int
    place: Place
    expires: int | None
    due: int | None
    deliveries: int = 0
    held: Held | None = None
    session: str | None = None
    was_stored: bool = False

    def may_be_dead(self, now: int) -> bool:
        return self.deliveries >= MOST or (self.expires is not None and self.expires <= now)


class Comparison(RuleBasedStateMachine):
    more: ClassVar[dict[str, Any]] = {}
    """More settings."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            max_delivery_count=MOST, dead_lettering_on_message_expiration=True, lock_duration=5000, **self.more
        )
        self.entries: dict[str, Entry] = {}
        self.highest = 0

    @property
    def now(self) -> int:
        return self.world.now

    def at(self, *places: Place) -> list[str]:
        return [name for name, entry in self.entries.items() if entry.place in places]

    # --- what clients do ---------------------------------------------------------------------------------------------

    @rule(count=st.integers(2, 5))
    def send_and_commit(self, count: int) -> None:
        self.send(count, None, None)
        self.world.commit()

    @rule(count=st.integers(1, 3), lives=st.none() | st.integers(0, 9000), wait=st.none() | st.integers(1, 9000))
    def send(self, count: int, lives: int | None, wait: int | None) -> None:
        names = [f"{'x' * (len(self.entries) % 7)}{len(self.entries) + each}" for each in range(count)]
        due = None if wait is None else self.now + wait
        sent = [self.message(name, time_to_live=lives, due=due) for name in names]

        def answer(refused: RefusedError | None) -> None:
            for name in names:
                entry = self.entries[name]
                arrived = Place.LINE if due is None else Place.SCHEDULED
                entry.place = arrived if refused is None else Place.GONE
                entry.was_stored = refused is None
                if refused is None:
                    assert entry.number > self.highest, "a sequence number has come twice"
                    self.highest = entry.number

        for name, number in zip(names, self.world.queue.send(sent, self.now, answer), strict=True):
            ends = None if lives is None else (due or self.now) + lives
            self.entries[name] = Entry(number, Place.COMING, ends, due)
        for name, each in zip(names, sent, strict=True):
            self.entries[name].session = each.session_id

    def message(self, name: str, **facts: Any) -> Incoming:  # noqa: ANN401
        return message(name, **facts)

    def given_out(self, taken: list[Held], most: int, session: str | None = None) -> None:
        numbers = [held.sequence for held in taken]
        assert numbers == sorted(numbers)
        fit = [each for name in self.at(Place.LINE) if not (each := self.entries[name]).may_be_dead(self.now)]
        fit = [each for each in fit if each.session == session]
        last = numbers[-1] if len(taken) == most else 1 << 40
        assert {each.number for each in fit if each.number <= last} <= set(numbers), "one was passed over"
        for held in taken:
            entry = self.entries[name_of(held)]
            became_active = entry.place == Place.SCHEDULED and entry.due is not None and entry.due <= self.now
            assert became_active or entry.place in (Place.LINE, Place.MOVING)
            assert became_active or not entry.may_be_dead(self.now)
            assert entry.session == session

    def lock(self, taken: list[Held]) -> None:
        for held in taken:
            entry = self.entries[name_of(held)]
            entry.place, entry.held, entry.number = Place.LOCKED, held, held.sequence
            entry.deliveries += 1
            assert held.deliveries == entry.deliveries

    @rule(most=st.integers(1, 3))
    def take(self, most: int) -> None:
        taken = self.world.queue.take(most, self.now)
        self.given_out(taken, most)
        self.lock(taken)

    @rule(most=st.integers(1, 2))
    def take_away(self, most: int) -> None:
        taken = self.world.queue.take_away(most, self.now)
        self.given_out(taken, most)
        for held in taken:
            self.entries[name_of(held)].place = Place.TAKEN

    @precondition(lambda self: self.at(Place.DEFERRED))
    @rule(data=st.data(), delete=st.booleans())
    def take_deferred(self, data: st.DataObject, delete: bool) -> None:  # noqa: FBT001
        name = data.draw(st.sampled_from(self.at(Place.DEFERRED)))
        entry = self.entries[name]
        try:
            taken = self.world.queue.take_deferred([entry.number], self.now, delete=delete)
        except RefusedError:
            assert entry.may_be_dead(self.now)
            entry.place = Place.MOVING
            return
        if delete:
            entry.place = Place.TAKEN
        else:
            self.lock(taken)

    @precondition(lambda self: self.at(Place.LOCKED))
    @rule(data=st.data(), how=st.sampled_from(["complete", "abandon", "release", "defer", "dead_letter", "renew"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        entry = self.entries[data.draw(st.sampled_from(self.at(Place.LOCKED)))]
        held = entry.held
        assert held is not None
        assert held.token is not None
        if held.until <= self.now:
            return
        if how == "renew":
            assert self.world.queue.renew(held.token, self.now) == held.until
            return
        origin = Place.DEFERRED if held.state == RowState.DEFERRED else Place.LINE
        entry.place = {"abandon": origin, "release": origin, "defer": Place.DEFERRED}.get(how, Place.LEAVING)
        entry.deliveries -= how == "release"
        if how in ("abandon", "release") and entry.may_be_dead(self.now):
            entry.place = Place.MOVING

        def answer(refused: RefusedError | None) -> None:
            if how in ("complete", "dead_letter"):
                done = Place.GONE if how == "complete" else Place.DEAD
                entry.place = done if refused is None else Place.MOVING
            elif refused is not None and how == "defer" and entry.place == Place.DEFERRED:
                entry.place = Place.MOVING

        getattr(self.world.queue, how)(held.token, self.now, answer)

    @precondition(lambda self: self.at(Place.SCHEDULED))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        entry = self.entries[data.draw(st.sampled_from(self.at(Place.SCHEDULED)))]

        def answer(refused: RefusedError | None) -> None:
            entry.place = Place.GONE if refused is None else Place.SCHEDULED

        try:
            self.world.queue.cancel_scheduled([entry.number], self.now, answer)
        except RefusedError:
            assert entry.due is not None
            assert entry.due <= self.now
        else:
            entry.place = Place.LEAVING

    # --- what happens by itself --------------------------------------------------------------------------------------

    @rule(passed=st.integers(0, 1500) | st.just(6000))
    def tick(self, passed: int) -> None:
        self.world.now += passed
        self.world.queue.tick(self.now)
        self.look_for_ended_locks()

    def look_for_ended_locks(self) -> None:
        for name in self.at(Place.LOCKED):
            entry = self.entries[name]
            if entry.held is not None and entry.held.token is None:
                entry.place = Place.MOVING

    @rule(full=st.booleans())
    def flush(self, full: bool) -> None:  # noqa: FBT001
        self.world.store.full = full
        self.world.store.flush()

    @rule()
    def call_back(self) -> None:
        if self.world.inbox:
            self.world.inbox.popleft()()

    @rule(full=st.booleans())
    def commit(self, full: bool) -> None:  # noqa: FBT001
        self.world.commit(full=full)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        for name in self.at(Place.LOCKED):
            self.entries[name].place = Place.MOVING
        self.compare(after_restart=True)

    # --- what must be so ---------------------------------------------------------------------------------------------

    @invariant()
    def agrees_when_all_is_settled(self) -> None:
        world = self.world
        if not world.inbox and world.store.journal.is_empty():
            self.compare()
            if not self.at(Place.TAKEN):
                assert world.is_balanced()

    def compare(self, *, after_restart: bool = False) -> None:
        queue = self.world.queue
        locked = {held.sequence for held in queue.locks}
        found: dict[str, tuple[Place, int]] = {}
        for entity in (QUEUE, DEAD):
            for row in self.world.store.rows(entity):
                name, number = name_of(row), sequence_of(row.key)
                assert name not in found, "doubled"
                place = Place.DEAD if entity == DEAD else STORED[RowState(row.state)]
                if entity == QUEUE and number in locked:
                    place = Place.LOCKED
                found[name] = place, number
                if place == Place.LINE:
                    self.entries[name].expires = row.expires  # what was scheduled lives from when it became active
                if after_restart:
                    assert row.deliveries <= self.entries[name].deliveries + 1, "a release may be lost"
                    self.entries[name].deliveries = row.deliveries
        for name, entry in self.entries.items():
            self.compare_one(entry, found.get(name), after_restart=after_restart)

    def compare_one(self, entry: Entry, found: tuple[Place, int] | None, *, after_restart: bool) -> None:
        if found is None:
            lost = entry.place in (Place.GONE, Place.TAKEN) or (
                after_restart and entry.place in (Place.COMING, Place.LEAVING)
            )
            assert lost, f"lost: {entry}"
            entry.place = Place.GONE
            return
        place, number = found
        entry.was_stored = True
        assert entry.place != Place.GONE, f"back from the dead: {entry}"
        if entry.place == Place.TAKEN and not after_restart:
            return
        if place != entry.place and not after_restart:
            self.may_move(entry, place)
        assert number == entry.number or place == Place.DEAD or entry.due is not None
        entry.place = place
        if place == Place.LINE and entry.due is not None and number != entry.number:
            assert number > entry.number
            self.highest = max(self.highest, number)
        entry.number = number

    def may_move(self, entry: Entry, place: Place) -> None:
        if place == Place.DEAD:
            assert entry.place == Place.LEAVING or entry.may_be_dead(self.now)
        elif entry.place == Place.SCHEDULED:
            assert entry.due is not None
            assert entry.due <= self.now
        else:
            assert entry.place == Place.MOVING, f"{entry} is at {place}"


class WithSessions(Comparison):
    """Messages of two sessions, which receivers accept, renew, lose and give up."""

    more: ClassVar[dict[str, Any]] = {"requires_session": True}

    def __init__(self) -> None:
        super().__init__()
        self.had: dict[str, LockedSession] = {}
        self.direct()

    def direct(self) -> None:
        def announce(session: str | None) -> None:
            assert session is not None
            self.world.sessions.message_came(session)

        self.world.queue.on_available = announce

    def message(self, name: str, **facts: Any) -> Incoming:  # noqa: ANN401
        return message(name, session_id="ab"[len(name) % 2], **facts)

    @rule(name=st.sampled_from("ab"))
    def accept(self, name: str) -> None:
        try:
            self.had[name] = self.world.sessions.accept(name, self, self.now)
        except RefusedError:
            assert name in self.had
        else:
            assert self.had[name].until == self.now + 5000

    @rule()
    def accept_next(self) -> None:
        session = self.world.sessions.accept_next(self, self.now)
        if session is None:
            there = [self.entries[name] for name in self.at(Place.LINE)]
            waiting = {entry.session for entry in there if not entry.may_be_dead(self.now)}
            assert waiting <= set(self.had), "a session with messages was passed over"
        else:
            assert session.name not in self.had
            self.had[session.name] = session

    @precondition(lambda self: self.had)
    @rule(data=st.data(), renewed=st.booleans())
    def renew_or_release(self, data: st.DataObject, renewed: bool) -> None:  # noqa: FBT001
        session = self.had[data.draw(st.sampled_from(sorted(self.had)))]
        if not renewed:
            self.world.sessions.release(session, self.now)
            del self.had[session.name]
            self.look_for_ended_locks()
        elif session.until > self.now:
            until = self.world.sessions.renew(session.name, self.now)
            held = [held for held in self.world.queue.locks if held.session == session.name]
            assert {until} >= {each.until for each in held}

    @precondition(lambda self: self.had)
    @rule(data=st.data(), state=st.none() | st.binary(max_size=2))
    def set_state(self, data: st.DataObject, state: bytes | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.had)))
        if self.had[name].until > self.now:
            self.world.sessions.set_state(name, state, self.now, lambda _refused: None)
            assert self.world.sessions.state(name, self.now) == state

    def receive(self, most: int, *, delete: bool) -> None:
        for session in self.had.values():
            if self.world.sessions.holds(session, self.now):
                queue, name = self.world.queue, session.name
                if delete:
                    taken = queue.take_away(most, self.now, session=name)
                else:
                    taken = queue.take(most, self.now, until=session.until, session=name)
                self.given_out(taken, most, name)
                if delete:
                    for held in taken:
                        self.entries[name_of(held)].place = Place.TAKEN
                else:
                    self.lock(taken)

    @rule(most=st.integers(1, 3))
    def take(self, most: int) -> None:
        self.receive(most, delete=False)

    @rule(most=st.integers(1, 2))
    def take_away(self, most: int) -> None:
        self.receive(most, delete=True)

    @rule(passed=st.integers(0, 1500) | st.just(6000))
    def tick(self, passed: int) -> None:
        self.world.now += passed
        ended = self.world.sessions.tick(self.now)
        assert {session.name for session in ended} == {
            name for name, session in self.had.items() if session.until <= self.now
        }
        for session in ended:
            del self.had[session.name]
        self.world.queue.tick(self.now)
        self.look_for_ended_locks()

    @rule()
    def restart(self) -> None:
        self.had.clear()
        super().restart()
        self.direct()

    @invariant()
    def remembers_what_is_stored(self) -> None:
        world = self.world
        if not world.inbox and world.store.journal.is_empty():
            stored = dict(world.store.session_states(QUEUE))
            for name, session in self.had.items():
                if session.until > self.now:
                    assert world.sessions.state(name, self.now) == stored.get(name)


WINDOW = 20_000


class WithDuplicates(Comparison):
    """Messages that are sent again, in time or too late, or after the first one was refused."""

    more: ClassVar[dict[str, Any]] = {
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": WINDOW,
    }

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, tuple[str, int]] = {}
        """The message that had each id last, and until when the id is remembered if that is stored."""

    def message(self, name: str, **facts: Any) -> Incoming:  # noqa: ANN401
        self.ids[name] = name, self.now + WINDOW
        return message(name, message_id=name, **facts)

    def is_known(self, message_id: str) -> bool:
        """Tell whether the id is remembered: also of a message that has gone, but not of one that never came."""
        name, until = self.ids[message_id]
        return until > self.now and name not in self.refused

    @property
    def refused(self) -> set[str]:
        return {name for name, entry in self.entries.items() if entry.place == Place.GONE and not entry.was_stored}

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), twice=st.booleans())
    def send_again(self, data: st.DataObject, twice: bool) -> None:  # noqa: FBT001
        message_id = data.draw(st.sampled_from(sorted(self.ids)))
        name = f"{message_id}+{len(self.entries)}"
        expected = self.is_known(message_id)
        answers: list[RefusedError | None] = []
        first = self.ids[message_id][0]

        def answer(refused: RefusedError | None) -> None:
            answers.append(refused)
            if expected:
                assert refused is not None or self.entries[first].place != Place.COMING
                return
            entry = self.entries[name]
            entry.place = Place.LINE if refused is None else Place.GONE
            if refused is None:
                entry.was_stored = True
                self.highest = max(self.highest, entry.number)

        sent = [message(name, message_id=message_id) for _ in range(1 + twice)]
        numbers = self.world.queue.send(sent, self.now, answer)
        assert numbers[1:] == [0] * twice, "a duplicate within what was sent together"
        assert (numbers[0] == 0) == expected
        if not expected:
            self.entries[name] = Entry(numbers[0], Place.COMING, None, None)
            self.ids[message_id] = name, self.now + WINDOW

    @rule()
    def much_later(self) -> None:
        self.tick(WINDOW)


TestQueue = Comparison.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=50)
TestSessions = WithSessions.TestCase
TestSessions.settings = TestQueue.settings
TestDuplicates = WithDuplicates.TestCase
TestDuplicates.settings = TestQueue.settings
