"""What happens by itself when time passes: expiry, schedules, the window of duplicates."""

import pytest
from tests.unit.broker.entities.conftest import LOCK, World, message, names, properties_of

from pairbus.broker.entities.duplicates import Duplicates
from pairbus.broker.refusals import MESSAGE_NOT_FOUND, RefusedError
from pairbus.broker.store.base import RowState

MINUTE = 60_000


# --- time to live ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "default", "lives"),
    [(None, None, None), (5000, None, 5000), (None, 7000, 7000), (5000, 7000, 5000), (9000, 7000, 7000)],
)
def test_a_message_lives_as_long_as_it_says_and_the_queue_allows(
    own: int | None, default: int | None, lives: int | None
) -> None:
    world = World(default_message_time_to_live=default)
    world.send("a", time_to_live=own)
    assert world.store.rows()[0].expires == (None if lives is None else world.now + lives)


@pytest.mark.parametrize("lives", [922_337_203_685_477, 2**64])
def test_a_life_beyond_all_time_has_no_end(world: World, lives: int) -> None:
    world.send("a", time_to_live=lives)
    assert world.store.rows()[0].expires is None


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ticked", [False, True])
def test_an_expired_message_is_not_given_out_and_leaves(restart: bool, ticked: bool) -> None:  # noqa: FBT001
    world = World()
    world.send("a", time_to_live=1000)
    world.send("b", time_to_live=1001)
    if restart:
        world.restart()
    assert world.queue.wake_at == world.now + 1000
    world.now += 1000
    if ticked:
        world.tick()
    assert names(world.take()) == ["b"]
    assert world.stored() == [("b", RowState.ACTIVE)]
    assert world.is_balanced()


@pytest.mark.parametrize("where", ["in line", "deferred", "locked"])
@pytest.mark.parametrize("buried", [False, True])
def test_a_message_expires_wherever_it_is(where: str, buried: bool) -> None:  # noqa: FBT001
    world = World(dead_lettering_on_message_expiration=buried)
    world.send("a", time_to_live=1000)
    if where == "deferred":
        world.settle("defer", world.take_one())
    elif where == "locked":
        world.take_one()
    world.tick(1000)
    if where == "locked":
        assert world.stored() == [("a", RowState.ACTIVE)], "a lock outlives its message's time"
        world.tick(LOCK)
    assert (world.stored(), world.queue.size, world.queue.active_count) == ([], 0, 0)
    dead = world.take(queue=world.dead)
    assert names(dead) == (["a"] if buried else [])
    assert not buried or properties_of(dead[0])["DeadLetterReason"] == "TTLExpiredException"
    assert world.is_balanced()


def test_a_message_that_expires_before_it_has_arrived_expires_once() -> None:
    world = World(dead_lettering_on_message_expiration=True)
    world.send("a", time_to_live=1000)
    world.queue.send([message("b", time_to_live=500), message("c")], world.now, world.answer)
    world.store.flush()
    world.now += 1000
    world.queue.tick(world.now)
    world.commit()
    assert names(world.take()) == ["c"]
    world.tick(1000)
    assert names(world.take(queue=world.dead)) == ["a", "b"]
    assert world.is_balanced()


def test_a_locked_message_can_be_completed_after_it_has_expired(world: World) -> None:
    world.send("a", time_to_live=1000)
    held = world.take_one()
    world.tick(2000)
    world.settle("complete", held)
    assert (world.answers[-1], world.stored()) == (None, [])


def test_an_abandoned_message_that_has_expired_is_not_given_out(world: World) -> None:
    world.send("a", time_to_live=1000)
    held = world.take_one()
    world.now += 2000
    world.settle("abandon", held)
    assert (world.take(), world.stored()) == ([], [])


def test_a_dead_lettered_message_never_expires() -> None:
    world = World(dead_lettering_on_message_expiration=True)
    world.send("a", time_to_live=1000)
    world.tick(1000)
    assert world.dead.wake_at is None


# --- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_scheduled_message_becomes_active_with_a_new_number_when_it_is_due(
    world: World,
    restart: bool,  # noqa: FBT001
) -> None:
    assert world.send("late", due=world.now + MINUTE) == [1]
    assert world.send("a") == [2]
    if restart:
        world.restart()
    assert (world.queue.scheduled_count, world.queue.active_count) == (1, 1)
    assert world.queue.wake_at == world.now + MINUTE
    world.settle("complete", world.take_one())
    world.tick(MINUTE - 1)
    assert world.take() == []
    world.tick(1)
    assert (world.queue.scheduled_count, world.queue.active_count) == (0, 1)
    (held,) = world.take()
    assert (held.sequence, held.enqueued, held.state) == (3, world.now, RowState.ACTIVE)
    assert world.is_balanced()


def test_what_is_due_already_is_active_at_once(world: World) -> None:
    world.send("a", due=world.now)
    assert names(world.take()) == ["a"]


def test_messages_become_active_in_the_order_in_which_they_are_due(world: World) -> None:
    for name, wait in (("c", 3000), ("a", 1000), ("b", 2000)):
        world.send(name, due=world.now + wait)
    assert world.queue.wake_at == world.now + 1000
    world.tick(5000)
    assert names(world.take()) == ["a", "b", "c"]


def test_a_scheduled_messages_life_begins_when_it_is_due(world: World) -> None:
    world.send("a", due=world.now + MINUTE, time_to_live=1000)
    world.tick(MINUTE)
    assert world.store.rows()[0].expires == world.now + 1000
    world.tick(1000)
    assert world.stored() == []


def test_a_cancelled_message_never_comes(world: World) -> None:
    world.send("a", "b", "c", due=world.now + MINUTE)
    world.queue.cancel_scheduled([1, 3, 1], world.now, world.answer)
    world.commit()
    assert world.answers == [None, None]
    assert world.stored() == [("b", RowState.SCHEDULED)]
    assert world.is_balanced()
    world.tick(MINUTE)
    assert names(world.take()) == ["b"]


@pytest.mark.parametrize("numbers", [[1, 2], [99], [1, 99]])
def test_all_that_is_cancelled_must_be_there(world: World, numbers: list[int]) -> None:
    world.send("a", due=world.now + MINUTE)
    world.send("b")
    with pytest.raises(RefusedError) as caught:
        world.queue.cancel_scheduled(numbers, world.now, world.answer)
    assert caught.value.condition == MESSAGE_NOT_FOUND
    assert world.is_balanced()


def test_what_becomes_active_can_no_longer_be_cancelled(world: World) -> None:
    world.send("a", due=world.now + MINUTE)
    world.now += MINUTE
    world.queue.tick(world.now)
    with pytest.raises(RefusedError):
        world.queue.cancel_scheduled([1], world.now, world.answer)
    world.commit()
    assert names(world.take()) == ["a"]


@pytest.mark.parametrize("kind", ["scheduled", "expired"])
def test_a_burst_is_dealt_with_in_bites_one_after_the_other(world: World, kind: str) -> None:
    texts = [str(number) for number in range(700)]
    if kind == "scheduled":
        world.send(*texts, due=world.now + 1000)
        world.send("later", due=world.now + 5000)
    else:
        world.send(*texts, time_to_live=1000)
        world.send("later", time_to_live=5000)
    world.now += 1000
    bites = 0
    while world.queue.wake_at is not None and world.queue.wake_at <= world.now:
        world.tick()
        bites += 1
    assert bites == 3
    assert world.queue.wake_at == world.now + 4000
    assert names(world.take()) == (texts[:100] if kind == "scheduled" else ["later"])
    assert world.is_balanced()


def test_what_is_locked_or_going_when_its_time_comes_is_looked_at_again_a_second_later(world: World) -> None:
    world.send("locked", time_to_live=1000)
    world.take_one()
    (number,) = world.send("cancelled", due=world.now + 1000)
    world.queue.cancel_scheduled([number], world.now, world.answer)
    world.now += 1000
    world.queue.tick(world.now)
    assert world.queue.wake_at == world.now + 1000
    world.commit()
    assert world.stored() == [("locked", RowState.ACTIVE)]


def test_a_message_that_becomes_active_late_has_its_whole_life_before_it(world: World) -> None:
    world.send("a", due=world.now + MINUTE, time_to_live=1000)
    world.tick(10 * MINUTE)
    (held,) = world.take()
    assert (held.enqueued, held.expires) == (world.now, world.now + 1000)


# --- duplicates ------------------------------------------------------------------------------------------------------


@pytest.fixture
def once() -> World:
    return World(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)


@pytest.mark.parametrize("restart", [False, True])
def test_an_id_is_taken_once_within_the_window(once: World, restart: bool) -> None:  # noqa: FBT001
    assert once.send("a", message_id="x") == [1]
    if restart:
        once.restart()
    once.now += 19_999
    assert once.send(message("b", message_id="x"), message("c", message_id="X")) == [0, 2]
    once.now += 1
    assert once.send("d", message_id="x") == [3]
    assert names(once.take()) == ["a", "c", "d"]
    assert once.answers == [None] * 3


def test_a_batch_may_hold_an_id_twice_and_is_taken_once(once: World) -> None:
    twins = [message(name, message_id="x") for name in "ab"]
    assert once.send(*twins, "c", "d") == [1, 0, 2, 3]
    assert names(once.take()) == ["a", "c", "d"]


def test_the_id_of_a_ping_is_nobodys(once: World) -> None:
    twins = [message(name, message_id="x") for name in "ab"]
    assert once.send(message("", is_ping=True, message_id="p"), *twins) == [0, 1, 0]
    assert once.answers == [None]
    assert once.send("c", message_id="p") == [2]


def test_an_id_stays_known_when_its_message_is_gone(once: World) -> None:
    once.send("a", message_id="x")
    once.settle("complete", once.take_one())
    assert once.send("b", message_id="x") == [0]


def test_old_ids_are_forgotten_in_memory_and_in_the_store(once: World) -> None:
    for number in range(10):
        once.send("a", message_id=str(number))
        once.now += 10_000
    assert len(list(once.store.seen(1, 0))) <= 5
    once.restart()
    assert once.send("a", message_id="9") == [0]
    assert once.send("a", message_id="7") == [11]


def test_without_duplicate_detection_ids_mean_nothing(world: World) -> None:
    assert world.send("a", "b", message_id="x") == [1, 2]


def test_ids_are_forgotten_when_their_window_has_passed() -> None:
    duplicates = Duplicates(100, [("old", 50), ("older", 40)])
    assert duplicates.remember("new", 0) == 100
    assert [duplicates.is_known(name, 45) for name in ("old", "older", "new", "never")] == [True, False, True, False]
    duplicates.forget("new", 100)
    duplicates.forget("new", 100)
    duplicates.remember("new", 30)
    duplicates.forget("new", 100)
    assert duplicates.is_known("new", 100), "its first end is not its last"
    assert not duplicates.is_known("new", 130)
    assert len(duplicates) == 0
