"""What happens when the store refuses a commit: nothing is lost, nothing comes twice, and the counts are right."""

import pytest
from tests.unit.broker.entities.conftest import LOCK, World, message, names, properties_of

from pairbus.amqp.conditions import INTERNAL_ERROR
from pairbus.broker.store.base import RowState

MINUTE = 60_000


def was_refused(world: World) -> bool:
    last = world.answers[-1]
    return last is not None and last.condition == INTERNAL_ERROR  # of the server; only a full entity is quota


def test_a_refused_message_is_not_there_and_its_room_is_free(world: World) -> None:
    world.send("a", full=True)
    assert was_refused(world)
    assert (world.take(), world.queue.size) == ([], 0)
    world.send("b", due=world.now + MINUTE, full=True)
    assert world.is_balanced()
    assert world.queue.wake_at is None


def test_the_id_of_a_refused_message_is_not_a_duplicate() -> None:
    world = World(requires_duplicate_detection=True)
    world.send("a", message_id="x", full=True)
    assert world.send("b", message_id="x") == [2]
    assert names(world.take()) == ["b"]


@pytest.mark.parametrize("full", [False, True])
def test_a_duplicate_of_a_message_that_is_refused_is_refused_too(full: bool) -> None:  # noqa: FBT001
    world = World(requires_duplicate_detection=True)
    world.queue.send([message("a", message_id="x")], world.now, world.answer)
    world.store.full = full
    world.store.flush()
    world.queue.send([message("b", message_id="x"), message("c")], world.now, world.answer)
    world.commit()
    assert [refused is not None for refused in world.answers] == [full, full]
    assert world.send("b", message_id="x") == ([3] if full else [0])
    assert world.is_balanced()


def test_a_refusal_that_comes_late_does_not_forget_the_id_of_a_later_message() -> None:
    world = World(requires_duplicate_detection=True, duplicate_detection_history_time_window=MINUTE)
    world.queue.send([message("a", message_id="x")], world.now, world.answer)
    world.store.full = True
    world.store.flush()
    world.now += MINUTE
    world.queue.send([message("b", message_id="x"), message("c", message_id="x")], world.now, world.answer)
    world.commit()
    assert [refused is not None for refused in world.answers] == [True, False]
    assert names(world.take(9)) == ["b"]
    assert world.send("d", message_id="x") == [0]
    assert world.is_balanced()


def test_a_duplicate_is_accepted_also_if_its_id_is_forgotten_before_the_store_answers() -> None:
    world = World(requires_duplicate_detection=True, duplicate_detection_history_time_window=MINUTE)
    world.queue.send([message("a", message_id="x"), message("b", message_id="x")], world.now, world.answer)
    world.queue.send([message("c", message_id="x")], world.now, world.answer)
    world.now += MINUTE
    world.queue.send([message("d", message_id="x")], world.now, world.answer)
    world.commit()
    assert world.answers == [None, None, None]
    assert names(world.take(9)) == ["a", "d"]


@pytest.mark.parametrize("how", ["complete", "dead_letter", "defer"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_message_whose_settlement_was_refused_is_back_in_its_place(
    world: World,
    how: str,
    restart: bool,  # noqa: FBT001
) -> None:
    world.send("a", "b")
    held = world.take_one()
    world.announced.clear()
    world.settle(how, held, full=True)
    assert was_refused(world)
    assert world.announced == [None], "somebody may be waiting for it"
    assert world.is_balanced()
    if restart:
        world.restart()
    taken = world.take()
    assert (names(taken), taken[0].deliveries) == (["a", "b"], 2)
    world.settle(how, taken[0])
    assert world.answers[-1] is None
    assert world.is_balanced()


@pytest.mark.parametrize("how", ["abandon", "release"])
def test_a_message_that_was_given_up_is_back_even_if_the_store_has_no_note_of_it(world: World, how: str) -> None:
    world.send("a")
    world.settle(how, world.take_one(), full=True)
    assert was_refused(world)
    assert names(world.take()) == ["a"]
    assert world.is_balanced()


@pytest.mark.parametrize("how", ["complete", "dead_letter", "defer", "abandon"])
def test_a_deferred_message_whose_settlement_was_refused_is_still_deferred(world: World, how: str) -> None:
    numbers = world.send("a")
    world.settle("defer", world.take_one())
    (held,) = world.queue.take_deferred(numbers, world.now)
    world.settle(how, held, full=True)
    assert was_refused(world)
    assert world.take() == []
    assert world.is_balanced()
    assert names(world.queue.take_deferred(numbers, world.now)) == ["a"]


def test_a_message_that_was_taken_before_its_deferral_was_refused_goes_back_to_the_line(world: World) -> None:
    numbers = world.send("a")
    held = world.take_one()
    assert held.token is not None
    world.queue.defer(held.token, world.now, world.answer, {"k": "v"})
    (held,) = world.queue.take_deferred(numbers, world.now)
    world.commit(full=True)
    assert was_refused(world)
    world.settle("abandon", held)
    taken = world.take_one()
    assert properties_of(taken) == {"k": "v"}
    world.settle("complete", taken)
    assert world.is_balanced()


@pytest.mark.parametrize("buried", [False, True])
@pytest.mark.parametrize("where", ["in line", "deferred", "locked"])
def test_what_expires_is_dealt_with_once_the_store_takes_it(where: str, buried: bool) -> None:  # noqa: FBT001
    world = World(dead_lettering_on_message_expiration=buried)
    world.send("a", time_to_live=1000)
    if where == "deferred":
        world.settle("defer", world.take_one())
    elif where == "locked":
        world.take_one()
        world.now += LOCK
    world.tick(1000, full=True)
    assert names(world.take()) == []
    for _ in range(3):
        wake = world.queue.wake_at
        assert wake is None or wake > world.now, "it does not try again and again at once"
        world.tick(1000)
    assert world.stored() == []
    assert names(world.take(queue=world.dead)) == (["a"] if buried else [])
    assert world.is_balanced()
    assert world.queue.wake_at is None


def test_a_message_beyond_its_last_delivery_is_dead_lettered_once_the_store_takes_it(world: World) -> None:
    world.configure(max_delivery_count=1)
    world.send("a", "b")
    world.announced.clear()
    world.settle("abandon", world.take_one(), full=True)
    assert (world.announced, world.dead.size) == ([], 0)
    assert world.is_balanced()
    assert names(world.take()) == ["b"]
    assert names(world.take(queue=world.dead)) == ["a"]
    assert world.is_balanced()


@pytest.mark.parametrize("deferred", [False, True])
def test_what_was_received_and_deleted_does_not_come_again(world: World, deferred: bool) -> None:  # noqa: FBT001
    numbers = world.send("a", "b")
    if deferred:
        world.settle("defer", world.take_one())
        world.queue.take_deferred(numbers[:1], world.now, delete=True)
    else:
        world.queue.take_away(1, world.now)
    world.commit(full=True)
    assert names(world.queue.peek(1, 9, world.now)) == ["b"]
    world.tick(1000, full=True)
    assert len(world.stored()) == 2
    world.tick(1000)
    assert world.stored() == [("b", RowState.ACTIVE)]
    assert names(world.take()) == ["b"]
    assert world.is_balanced()


def test_a_scheduled_message_comes_once_the_store_takes_it(world: World) -> None:
    world.send("a", due=world.now + MINUTE)
    world.tick(MINUTE, full=True)
    assert world.stored() == [("a", RowState.SCHEDULED)]
    assert world.is_balanced()
    world.tick(1000)
    assert names(world.take()) == ["a"]
    assert world.is_balanced()


def test_a_message_whose_cancellation_was_refused_is_still_scheduled(world: World) -> None:
    numbers = world.send("a", due=world.now + MINUTE)
    world.queue.cancel_scheduled(numbers, world.now, world.answer)
    world.commit(full=True)
    assert was_refused(world)
    assert world.is_balanced()
    world.tick(MINUTE)
    assert names(world.take()) == ["a"]


def test_a_commit_that_succeeds_after_a_refused_one_stands_alone(world: World) -> None:
    world.queue.send([message("a")], world.now, world.answer)
    world.store.full = True
    world.store.flush()
    world.store.full = False
    world.queue.send([message("b")], world.now, world.answer)
    world.commit()
    assert [refused is None for refused in world.answers] == [False, True]
    assert names(world.take()) == ["b"]
    assert world.is_balanced()
