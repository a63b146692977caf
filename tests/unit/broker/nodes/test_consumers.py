"""Whose turn it is to get messages, and who waits for a session."""

from collections.abc import Callable

import pytest
from tests.unit.broker.entities.conftest import LOCK, World, names

from pairbus.broker.entities.sessions import LockedSession
from pairbus.broker.entities.settings import EntityStatus
from pairbus.broker.nodes.consumers import TURN, Consumers
from pairbus.broker.refusals import RefusedError, not_found


class Receiver:
    """Has credit, and takes note of what it gets."""

    def __init__(self, scene: "Scene", credit: int = 0) -> None:
        self.session: LockedSession | None = None
        self.wants = credit
        self.got: list[str] = []
        self.told: list[str] = []
        self.on_give: Callable[[], None] = lambda: None
        self._scene = scene

    def give(self, most: int) -> int:
        world = self._scene.world
        session = self.session
        until, name = (None, None) if session is None else (session.until, session.name)
        taken = world.queue.take(most, world.now, until=until, session=name)
        self.wants -= len(taken)
        self.got += names(taken)
        self.on_give()
        return len(taken)

    def accepted(self, session: LockedSession) -> None:
        self.session = session
        self.told.append(session.name)
        self._scene.consumers.add(self)

    def gave_up(self) -> None:
        self.told.append("gave up")

    def session_ended(self) -> None:
        self.told.append("ended")

    def send_away(self, refused: RefusedError) -> None:
        self.told.append(refused.condition)


class Scene:
    """A world with receivers."""

    def __init__(self, *, sessions: bool = False) -> None:
        self.world = World(requires_session=sessions)
        self.consumers = Consumers(self.world.queue, self.world.sessions if sessions else None, lambda: self.world.now)

    def receiver(self, credit: int = 0) -> Receiver:
        receiver = Receiver(self, credit)
        self.consumers.add(receiver)
        return receiver

    def waiting(self, credit: int = 10, wait: int = 1000) -> Receiver:
        receiver = Receiver(self, credit)
        self.consumers.wait_for_session(receiver, self.world.now + wait)
        return receiver

    def accept(self, name: str, credit: int = 10) -> Receiver:
        receiver = Receiver(self, credit)
        receiver.accepted(self.world.sessions.accept(name, receiver, self.world.now))
        self.consumers.serve()
        return receiver

    def tick(self, passed: int) -> None:
        """As a namespace does it: first the queue, then those who wait."""
        self.world.now += passed
        self.world.queue.tick(self.world.now)
        self.consumers.tick(self.world.now)
        self.world.commit()


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def sessions() -> Scene:
    return Scene(sessions=True)


def test_a_message_goes_to_whoever_wants_it(scene: Scene) -> None:
    idle, eager = scene.receiver(), scene.receiver(5)
    scene.world.send("a")
    assert (idle.got, eager.got) == ([], ["a"])


def test_a_message_waits_until_somebody_wants_it(scene: Scene) -> None:
    receiver = scene.receiver()
    scene.world.send("a", "b")
    receiver.wants = 1
    scene.consumers.serve()
    assert receiver.got == ["a"]


def test_receivers_take_turns(scene: Scene) -> None:
    first, second = scene.receiver(10), scene.receiver(10)
    for name in "abcd":
        scene.world.send(name)
    assert (first.got, second.got) == (["a", "c"], ["b", "d"])


def test_receivers_share_what_comes_at_once(scene: Scene) -> None:
    first, second = scene.receiver(10), scene.receiver(10)
    scene.world.send(*"abcd")
    assert (first.got, second.got) == (["a", "b"], ["c", "d"])


def test_a_turn_has_an_end_however_many_messages_there_are(scene: Scene) -> None:
    scene.world.send(*(str(number) for number in range(3 * TURN)))
    greedy, other = scene.receiver(10_000), scene.receiver(10_000)
    scene.consumers.serve()
    assert len(greedy.got) == len(other.got) == 3 * TURN // 2


def test_whoever_leaves_in_the_middle_gets_nothing_more(scene: Scene) -> None:
    receiver = scene.receiver(1000)
    receiver.on_give = lambda: scene.consumers.remove(receiver)
    scene.world.send(*(str(number) for number in range(2 * TURN)))
    scene.consumers.serve()
    assert len(receiver.got) == TURN
    assert scene.world.queue.active_count == 2 * TURN


def test_a_message_that_comes_while_others_are_given_out_is_given_out_too(scene: Scene) -> None:
    receiver = scene.receiver(10)

    def give_up_the_first() -> None:
        if receiver.got == ["a"]:
            scene.world.settle("abandon", next(iter(scene.world.queue.locks)))

    receiver.on_give = give_up_the_first
    scene.world.send("a")
    assert receiver.got == ["a", "a"]


def test_expired_messages_are_passed_over(scene: Scene) -> None:
    scene.world.send("a", time_to_live=1000)
    scene.world.now += 1000
    receiver = scene.receiver(10)
    scene.consumers.serve()
    assert receiver.got == []


def test_a_queue_that_does_not_give_still_takes(scene: Scene) -> None:
    receiver = scene.receiver(10)
    scene.world.configure(status=EntityStatus.RECEIVE_DISABLED)
    scene.world.send("a")
    assert (receiver.got, scene.world.answers) == ([], [None])
    scene.world.configure(status=EntityStatus.ACTIVE)
    scene.consumers.serve()
    assert receiver.got == ["a"]


def test_a_receiver_gets_the_messages_of_its_session_only(sessions: Scene) -> None:
    x, y = sessions.accept("x"), sessions.accept("y")
    for name, session in zip("abc", "xyz", strict=True):
        sessions.world.send(name, session_id=session)
    assert (x.got, y.got) == (["a"], ["b"])


def test_sessions_go_to_those_who_wait_in_turn(sessions: Scene) -> None:
    sessions.world.send("1", session_id="early")
    first, second, third = (sessions.waiting() for _ in range(3))
    assert (first.told, second.told) == (["early"], [])
    sessions.world.send("2", "3", session_id="next")
    assert (second.told, second.got, third.told) == (["next"], ["2", "3"], [])


def test_a_session_that_is_left_goes_to_the_next_with_all_its_messages(sessions: Scene) -> None:
    sessions.world.send("a", "b", session_id="x")
    first = sessions.accept("x", credit=1)
    second = sessions.waiting()
    sessions.consumers.remove(first)
    assert second.told == ["x"]
    sessions.consumers.serve()
    assert second.got == ["a", "b"]
    sessions.consumers.remove(first)
    assert second.session is not None
    assert sessions.world.sessions.holds(second.session, sessions.world.now)


def test_whoever_waits_too_long_is_sent_away_and_gets_no_session_later(sessions: Scene) -> None:
    short, long = sessions.waiting(wait=500), sessions.waiting(wait=900)
    assert sessions.consumers.wake_at == sessions.world.now + 500
    sessions.tick(500)
    assert (short.told, long.told) == (["gave up"], [])
    sessions.world.send("a", session_id="x")
    assert (short.told, long.told) == (["gave up"], ["x"])
    assert sessions.consumers.wake_at is None


def test_whoever_stops_waiting_is_not_told_of_anything(sessions: Scene) -> None:
    receiver = sessions.waiting()
    sessions.consumers.remove(receiver)
    sessions.world.send("a", session_id="x")
    sessions.tick(5000)
    assert receiver.told == []


def test_a_receiver_whose_session_has_ended_is_told_and_gets_nothing_more(sessions: Scene) -> None:
    sessions.world.send("a", "b", session_id="x")
    late, other = sessions.accept("x", credit=1), sessions.accept("other")
    late.wants = 10
    waiting = sessions.waiting(wait=2 * LOCK)
    assert late.got == ["a"]
    other.told.clear()
    sessions.world.sessions.renew("other", sessions.world.now + 1)
    sessions.tick(LOCK)
    assert (late.got, late.told, other.told) == (["a"], ["x", "ended"], [])
    sessions.consumers.serve()
    assert (waiting.told, waiting.got) == (["x"], ["a", "b"])


def test_an_ended_lock_counts_before_anybody_has_looked(sessions: Scene) -> None:
    receiver = sessions.accept("x")
    sessions.world.now += LOCK
    sessions.world.send("a", session_id="x")
    assert receiver.got == []


def test_without_sessions_nobody_waits(scene: Scene) -> None:
    scene.tick(1000)
    assert scene.consumers.wake_at is None


def test_all_receivers_are_told_why_they_get_no_more() -> None:
    scene = Scene(sessions=True)
    waiting = scene.waiting()
    scene.consumers.send_away(not_found("orders"))
    assert waiting.told == ["amqp:not-found"]
    assert scene.consumers.wake_at is None
