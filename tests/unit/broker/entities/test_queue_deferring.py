"""Messages that are deferred, and received by their numbers."""

import pytest
from tests.unit.broker.entities.conftest import LOCK, World, names, payload, properties_of

from pairbus.broker.refusals import MESSAGE_NOT_FOUND, RefusedError
from pairbus.broker.store.base import RowState

SETTLEMENTS = ("complete", "abandon", "release", "defer", "dead_letter")
ONE = len(payload("a"))
MEGABYTE = 1024 * 1024


# --- deferring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_deferred_message_is_received_by_its_number_only(world: World, restart: bool) -> None:  # noqa: FBT001
    numbers = world.send("a", "b", "c")
    for held in world.take(2):
        world.settle("defer", held)
    if restart:
        world.restart()
    assert names(world.take()) == ["c"]
    taken = world.queue.take_deferred([numbers[1], numbers[0]], world.now)
    assert names(taken) == ["b", "a"]
    assert [held.deliveries for held in taken] == [2, 2]
    for held in taken:
        world.settle("complete", held)
    assert world.stored() == [("c", RowState.ACTIVE)]


def test_a_deferred_message_can_be_received_and_deleted(world: World) -> None:
    numbers = world.send("a")
    world.settle("defer", world.take_one())
    assert names(world.queue.take_deferred(numbers, world.now, delete=True)) == ["a"]
    world.commit()
    assert world.stored() == []
    assert world.is_balanced()


@pytest.mark.parametrize("way", ["abandon", "release", "defer", "lock expiry", "restart"])
def test_a_deferred_message_that_comes_back_is_deferred(world: World, way: str) -> None:
    numbers = world.send("a")
    world.settle("defer", world.take_one())
    (held,) = world.queue.take_deferred(numbers, world.now)
    world.commit()
    if way == "lock expiry":
        world.tick(LOCK)
    elif way == "restart":
        world.restart()
    else:
        world.settle(way, held)
    assert world.take() == []
    assert world.is_balanced()
    (held,) = world.queue.take_deferred(numbers, world.now)
    assert held.deliveries == (2 if way == "release" else 3)


def test_a_message_that_was_just_deferred_is_received_as_it_is(world: World) -> None:
    numbers = world.send("a")
    held = world.queue.take(1, world.now)[0]
    for deliveries in (2, 3):
        assert held.token is not None
        world.queue.defer(held.token, world.now, world.answer, {"n": deliveries})
        (held,) = world.queue.take_deferred(numbers, world.now)
        assert (held.deliveries, properties_of(held)) == (deliveries, {"n": deliveries})
    world.commit()
    assert world.is_balanced()
    world.settle("abandon", held)
    assert (world.stored(), world.store.rows()[0].deliveries) == ([("a", RowState.DEFERRED)], 3)
    assert len(world.queue.contents.cache) == 0


def test_deferred_messages_are_received_all_or_none(world: World) -> None:
    numbers = world.send("a", "b")
    world.settle("defer", world.take_one())
    with pytest.raises(RefusedError) as caught:
        world.queue.take_deferred(numbers, world.now)
    assert caught.value.condition == MESSAGE_NOT_FOUND
    assert world.queue.deferred == {1}
    assert len(world.queue.locks) == 0


def test_a_number_that_is_asked_for_twice_is_received_once(world: World) -> None:
    world.send("a")
    world.settle("defer", world.take_one())
    assert names(world.queue.take_deferred([1, 1], world.now)) == ["a"]
    assert len(world.queue.locks) == 1
