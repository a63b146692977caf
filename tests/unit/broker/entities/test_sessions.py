"""Sessions: who has which, until when, and what each remembers."""

import pytest
from tests.unit.broker.entities.conftest import LOCK, World, names

from pairbus.broker.refusals import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, RefusedError

ME, OTHER = object(), object()


@pytest.fixture
def world() -> World:
    world = World(requires_session=True)
    _connect(world)
    return world


def _connect(world: World) -> None:
    def available(session: str | None) -> None:
        world.announced.append(session)
        if session is not None:
            world.sessions.message_came(session)

    world.queue.on_available = available


def next_name(world: World, owner: object = ME) -> str | None:
    session = world.sessions.accept_next(owner, world.now)
    return None if session is None else session.name


def test_a_session_is_locked_by_its_name_with_messages_or_without(world: World) -> None:
    world.send("a", session_id="x")
    for name in ("x", "y"):
        session = world.sessions.accept(name, ME, world.now)
        assert (session.name, session.owner, session.until) == (name, ME, world.now + LOCK)
        with pytest.raises(RefusedError) as caught:
            world.sessions.accept(name, OTHER, world.now)
        assert caught.value.condition == SESSION_CANNOT_BE_LOCKED


def test_the_session_that_has_waited_longest_is_the_next(world: World) -> None:
    for session in ("b", "a", "c", "a"):
        world.send("m", session_id=session)
    world.sessions.accept("a", OTHER, world.now)
    assert [next_name(world) for _ in range(3)] == ["b", "c", None]


def test_a_session_that_is_given_up_with_messages_waits_again_behind_the_others(world: World) -> None:
    world.send("1", session_id="a")
    world.send("2", session_id="b")
    session = world.sessions.accept_next(ME, world.now)
    assert session is not None
    world.take(session="a")
    world.sessions.release(session, world.now)
    world.sessions.release(session, world.now)
    assert [next_name(world) for _ in range(3)] == ["b", "a", None]


def test_an_empty_session_is_not_the_next_one_and_leaves_nothing_behind(world: World) -> None:
    world.send("1", session_id="a")
    session = world.sessions.accept("a", ME, world.now)
    world.settle("complete", world.take_one("a"))
    world.sessions.release(session, world.now)
    assert next_name(world) is None
    assert world.queue.contents.waiting == {}


def test_a_session_gives_its_own_messages_in_order(world: World) -> None:
    for name, session in zip("abcd", "xyxy", strict=True):
        world.send(name, session_id=session)
    assert names(world.take(session="x")) == ["a", "c"]
    assert names(world.queue.take_away(5, world.now, session="y")) == ["b", "d"]
    assert world.take() == []


def test_giving_up_a_session_puts_its_messages_back_in_their_places(world: World) -> None:
    world.send("a", "b", "c", session_id="x")
    world.send("o", session_id="y")
    world.take(session="y")
    session = world.sessions.accept("x", ME, world.now)
    world.take(2, session="x")
    world.sessions.release(session, world.now)
    assert len(world.queue.locks) == 1
    assert names(world.take(session="x")) == ["a", "b", "c"]


def test_whoever_is_told_of_a_ready_session_is_told_once(world: World) -> None:
    ready: list[int] = []
    world.sessions.on_ready = lambda: ready.append(1)
    world.send("a", "b", session_id="x")
    assert ready == [1]


def test_the_lock_of_a_session_ends_and_its_messages_come_back(world: World) -> None:
    world.send("a", "b", session_id="x")
    session = world.sessions.accept("x", ME, world.now)
    assert world.sessions.wake_at == world.now + LOCK
    world.take(1, session="x")
    assert world.sessions.tick(world.now + LOCK - 1) == []
    world.now += LOCK
    assert world.sessions.tick(world.now) == [session]
    assert world.sessions.wake_at is None
    assert next_name(world, OTHER) == "x"
    assert names(world.take(session="x")) == ["a", "b"]


def test_renewing_a_session_renews_the_locks_of_its_messages(world: World) -> None:
    world.send("a", session_id="x")
    world.sessions.accept("x", ME, world.now)
    held = world.take_one("x")
    world.now += LOCK - 1
    assert world.sessions.renew("x", world.now) == held.until == world.now + LOCK
    world.tick(LOCK - 1)
    world.settle("complete", held)
    assert world.answers[-1] is None


@pytest.mark.parametrize("use", ["held_by", "held", "renew", "state", "set_state"])
@pytest.mark.parametrize("lost", ["ended", "given up", "never had"])
def test_whoever_has_lost_a_session_is_refused(world: World, use: str, lost: str) -> None:
    if lost != "never had":
        session = world.sessions.accept("x", ME, world.now)
        if lost == "given up":
            world.sessions.release(session, world.now)
        world.now += LOCK
    arguments = {"held_by": (ME, world.now), "set_state": (b"", world.now, world.answer)}.get(use, (world.now,))
    with pytest.raises(RefusedError) as caught:
        getattr(world.sessions, use)("x", *arguments)
    assert caught.value.condition == SESSION_LOCK_LOST
    assert world.store.journal.is_empty()


def test_a_session_is_its_owners(world: World) -> None:
    session = world.sessions.accept("x", ME, world.now)
    assert world.sessions.held_by("x", ME, world.now) is session
    assert world.sessions.held("x", world.now) is session
    with pytest.raises(RefusedError):
        world.sessions.held_by("x", OTHER, world.now)


def test_a_session_remembers_its_state_until_it_is_cleared(world: World) -> None:
    session = world.sessions.accept("x", ME, world.now)
    assert world.sessions.state("x", world.now) is None
    world.sessions.set_state("x", b"half", world.now, world.answer)
    world.commit()
    world.sessions.release(session, world.now)
    world.restart()
    world.sessions.accept("x", OTHER, world.now)
    assert world.sessions.state("x", world.now) == b"half"
    world.sessions.set_state("x", None, world.now, world.answer)
    world.commit()
    assert world.sessions.state("x", world.now) is None
    assert world.answers == [None, None]
    world.restart()
    assert world.sessions.names(0, 10) == []


def test_sessions_are_listed_by_name_with_messages_waiting_or_locked_or_a_state(world: World) -> None:
    for session in ("c", "a", "b"):
        world.send("m", session_id=session)
    world.sessions.accept("c", ME, world.now)
    world.take(session="c")
    world.sessions.accept("d", ME, world.now)
    world.sessions.set_state("d", b"s", world.now, world.answer)
    world.sessions.accept("empty", ME, world.now)
    assert world.sessions.names(0, 10) == ["a", "b", "c", "d"]
    assert world.sessions.names(1, 2) == ["b", "c"]


def test_after_a_restart_all_sessions_with_messages_are_to_be_had(world: World) -> None:
    world.send("1", session_id="b")
    world.send("2", session_id="a")
    world.sessions.accept("a", ME, world.now)
    world.restart()
    assert [next_name(world) for _ in range(3)] == ["b", "a", None]


def test_a_session_whose_messages_have_expired_is_neither_the_next_one_nor_listed(world: World) -> None:
    world.send("1", session_id="a", time_to_live=1000)
    world.send("2", session_id="b")
    world.tick(1000)
    assert world.sessions.names(0, 10) == ["b"]
    assert [next_name(world) for _ in range(2)] == ["b", None]
    assert list(world.queue.contents.waiting) == ["b"]


def test_a_session_that_comes_back_to_life_is_the_next_one_again(world: World) -> None:
    world.send("1", session_id="a", time_to_live=1000)
    world.tick(1000)
    assert next_name(world) is None
    world.send("2", session_id="a")
    assert next_name(world) == "a"


def test_a_state_that_the_store_refuses_is_not_remembered(world: World) -> None:
    world.sessions.accept("x", ME, world.now)
    for before in (None, b"old"):
        world.sessions.set_state("x", b"new", world.now, world.answer)
        world.commit(full=True)
        assert world.answers[-1] is not None
        assert world.sessions.state("x", world.now) == before
        world.sessions.set_state("x", b"old", world.now, world.answer)
        world.commit()


def test_a_state_that_was_set_after_a_refused_one_stays(world: World) -> None:
    world.sessions.accept("x", ME, world.now)
    world.sessions.set_state("x", b"first", world.now, world.answer)
    world.store.full = True
    world.store.flush()
    world.sessions.set_state("x", b"second", world.now, world.answer)
    world.commit()
    assert [refused is None for refused in world.answers] == [False, True]
    assert world.sessions.state("x", world.now) == b"second"


@pytest.mark.parametrize(("passed", "holds"), [(0, True), (LOCK - 1, True), (LOCK, False)])
def test_a_session_is_held_until_its_lock_ends(world: World, passed: int, holds: bool) -> None:  # noqa: FBT001
    session = world.sessions.accept("x", ME, world.now)
    assert world.sessions.holds(session, world.now + passed) is holds
    world.sessions.release(session, world.now)
    world.sessions.accept("x", OTHER, world.now)
    assert not world.sessions.holds(session, world.now)
