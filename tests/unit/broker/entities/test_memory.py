"""What a message costs in memory, and what stays behind when it is gone."""

import gc
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from tests.unit.broker.entities.conftest import LOCK, START, RefusingStore, World, payload, properties_of

from pairbus.broker.entities.cache import FETCH, KEPT, MessageCache
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.store.base import EntityRow, IndexRow, Row, key_of, sequence_of

MESSAGES = 100_000


class DiskLike(RefusingStore):
    """Says that it has many messages and makes up each when it is asked, so that only the queue's memory counts."""

    def index(self, entity: int) -> Iterator[IndexRow]:
        return (IndexRow(key_of(entity, number), 0, None, None, None, 1000) for number in range(1, MESSAGES + 1))

    def load(self, keys: Sequence[int]) -> list[Row]:
        return [Row(key, 0, START, None, None, None, 0, payload(f"{sequence_of(key):01000}")) for key in keys]


def test_a_waiting_message_costs_less_than_100_bytes() -> None:
    store = DiskLike(lambda _function: None)
    gc.collect()
    tracemalloc.start()
    queue = Queue(EntityRow(1, "orders", "{}", MESSAGES + 1), QueueSettings(), store, lambda: bytes(16))
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert queue.active_count == MESSAGES
    assert used < 100 * MESSAGES


def test_messages_are_held_in_memory_up_to_a_number_and_a_size(world: World) -> None:
    cache = world.queue.contents.cache
    world.send(*["x"] * (KEPT + 500))
    assert len(cache) == KEPT
    other = World()
    other.send(*["x" * 100_000] * 30)
    assert len(other.queue.contents.cache) < 30


@pytest.mark.parametrize("way", ["lock expiry", "abandon"])
def test_messages_that_came_back_do_not_stay_in_memory(world: World, way: str) -> None:
    count = 2 * KEPT
    world.send(*["x"] * count)
    taken = world.take(count)
    assert len(world.queue.locks) == count
    if way == "lock expiry":
        world.tick(LOCK)
    else:
        for held in taken:
            assert held.token is not None
            world.queue.abandon(held.token, world.now, world.answer, {"k": "v"})
        world.commit()
    assert len(world.queue.contents.cache) <= KEPT + FETCH
    assert [held.deliveries for held in world.take(count)] == [2] * count


def test_a_message_that_was_read_anew_is_not_let_go_for_the_old_one() -> None:
    cache = MessageCache(1, RefusingStore(lambda _function: None))
    row = Row(key_of(1, 1), 0, START, None, None, None, 0, b"x")
    old = cache.hold(row)
    cache.release(old)
    cache.release(old)
    new = cache.hold(row)
    cache.release(old)
    assert cache.find(1) is new


@pytest.mark.parametrize("way", ["abandon", "defer"])
def test_what_the_store_has_refused_stays_in_memory(world: World, way: str) -> None:
    world.send(*["x"] * KEPT)
    world.settle(way, world.take_one(), full=True, properties={"k": "v"})
    for _ in range(2):
        held = world.take_one()
        assert properties_of(held) == {"k": "v"}
        world.settle("abandon", held)
    assert properties_of(world.take_one()) == {"k": "v"}


def test_a_queue_that_has_been_emptied_remembers_nothing(world: World) -> None:
    world.send(*["x"] * 300, time_to_live=LOCK)
    for held in world.take(200):
        world.settle("complete", held)
    world.tick(LOCK)
    world.tick(1000)
    queue = world.queue
    assert (world.stored(), queue.size, queue.active_count, queue.contents.waiting) == ([], 0, 0, {})
    for left in (queue.contents.cache._held, queue.contents._leaving, queue.contents._unremoved):  # pyright: ignore[reportPrivateUsage]
        assert not left
    assert queue.contents.cache._bytes == 0  # pyright: ignore[reportPrivateUsage]
