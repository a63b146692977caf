"""A queue against a simple model, through commits that succeed, fail or never end, the passing of time, and restarts.

The model knows of each message where it may be. Whatever happens, no message is lost, doubled or out of order.
"""

from dataclasses import dataclass
from enum import Enum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.entities.conftest import DEAD, QUEUE, World, message, name_of

from pairbus.broker.entities.message import Held
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

    def may_be_dead(self, now: int) -> bool:
        return self.deliveries >= MOST or (self.expires is not None and self.expires <= now)


class Comparison(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(max_delivery_count=MOST, dead_lettering_on_message_expiration=True, lock_duration=5000)
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
        sent = [message(name, time_to_live=lives, due=due) for name in names]

        def answer(refused: RefusedError | None) -> None:
            for name in names:
                entry = self.entries[name]
                arrived = Place.LINE if due is None else Place.SCHEDULED
                entry.place = arrived if refused is None else Place.GONE
                if refused is None:
                    assert entry.number > self.highest, "a sequence number has come twice"
                    self.highest = entry.number

        for name, number in zip(names, self.world.queue.send(sent, self.now, answer), strict=True):
            ends = None if lives is None else (due or self.now) + lives
            self.entries[name] = Entry(number, Place.COMING, ends, due)

    def given_out(self, taken: list[Held], most: int) -> None:
        numbers = [held.sequence for held in taken]
        assert numbers == sorted(numbers)
        fit = [each for name in self.at(Place.LINE) if not (each := self.entries[name]).may_be_dead(self.now)]
        last = numbers[-1] if len(taken) == most else 1 << 40
        assert {each.number for each in fit if each.number <= last} <= set(numbers), "one was passed over"
        for held in taken:
            entry = self.entries[name_of(held)]
            became_active = entry.place == Place.SCHEDULED and entry.due is not None and entry.due <= self.now
            assert became_active or entry.place in (Place.LINE, Place.MOVING)
            assert became_active or not entry.may_be_dead(self.now)

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


TestQueue = Comparison.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=50)
