"""Sending, receiving and settling: what the cloud does."""

import pytest
from tests.unit.broker.entities.conftest import LOCK, World, message, names, payload, properties_of

from pairbus.amqp.conditions import MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED
from pairbus.broker.entities.message import Held
from pairbus.broker.entities.settings import EntityStatus
from pairbus.broker.refusals import ENTITY_DISABLED, MESSAGE_LOCK_LOST, RefusedError
from pairbus.broker.store.base import RowState, key_of

SETTLEMENTS = ("complete", "abandon", "release", "defer", "dead_letter")
ONE = len(payload("a"))
MEGABYTE = 1024 * 1024


# --- order -----------------------------------------------------------------------------------------------------------


def test_messages_come_in_the_order_in_which_they_were_sent(world: World) -> None:
    assert world.send("a", "b") == [1, 2]
    assert world.send("c") == [3]
    assert names(world.take(2)) == ["a", "b"]
    assert names(world.take()) == ["c"]
    assert world.take() == []


@pytest.mark.parametrize("way", ["abandon", "release", "lock expiry", "restart"])
def test_a_message_that_comes_back_takes_its_old_place(world: World, way: str) -> None:
    world.send("a", "b", "c", "d")
    taken = world.take(3)
    if way == "lock expiry":
        world.tick(LOCK)
    elif way == "restart":
        world.restart()
    else:
        for held in reversed(taken):
            world.settle(way, held)
    assert names(world.take()) == ["a", "b", "c", "d"]
    assert world.is_balanced()


def test_a_message_is_there_only_once_it_is_durable(world: World) -> None:
    world.queue.send([message("a")], world.now, world.answer)
    assert world.queue.take(1, world.now) == []
    world.commit()
    assert (world.answers, world.announced, names(world.take())) == ([None], [None], ["a"])


# --- peek-lock and receive-and-delete --------------------------------------------------------------------------------


def test_a_locked_message_is_nobody_elses_and_still_stored(world: World) -> None:
    world.send("a")
    held = world.take_one()
    assert (held.until, held.deliveries) == (world.now + LOCK, 1)
    assert world.take() == []
    assert world.stored() == [("a", RowState.ACTIVE)]
    assert (world.queue.active_count, world.store.rows()[0].deliveries) == (1, 1)


def test_receive_and_delete_removes_for_good(world: World) -> None:
    world.send("a", "b")
    taken = world.queue.take_away(1, world.now)
    world.commit()
    assert (names(taken), taken[0].token, taken[0].deliveries) == (["a"], None, 1)
    world.restart()
    assert world.stored() == [("b", RowState.ACTIVE)]
    assert world.is_balanced()


def test_a_lock_may_end_when_the_caller_says(world: World) -> None:
    world.send("a")
    (held,) = world.queue.take(1, world.now, until=world.now + 7)
    assert held.until == world.now + 7


# --- settling --------------------------------------------------------------------------------------------------------


def test_a_completed_message_is_gone(world: World) -> None:
    world.send("a")
    world.settle("complete", world.take_one())
    assert (world.answers, world.stored(), world.queue.size) == ([None, None], [], 0)
    assert world.is_balanced()


@pytest.mark.parametrize(("way", "deliveries"), [("abandon", 2), ("release", 1)])
def test_abandoning_counts_as_a_delivery_and_releasing_does_not(world: World, way: str, deliveries: int) -> None:
    world.send("a")
    world.settle(way, world.take_one())
    assert world.announced == [None, None]
    world.restart()
    assert world.take_one().deliveries == deliveries


@pytest.mark.parametrize("way", ["abandon", "defer", "dead_letter"])
def test_settling_may_set_application_properties(world: World, way: str) -> None:
    (number,) = world.send("a")
    world.settle(way, world.take_one(), properties={"why": "later"})
    assert world.is_balanced()
    world.restart()
    assert world.is_balanced()
    if way == "abandon":
        held = world.take_one()
    elif way == "defer":
        (held,) = world.queue.take_deferred([number], world.now)
    else:
        held = world.take_one(queue=world.dead)
    assert properties_of(held)["why"] == "later"


@pytest.mark.parametrize("how", [*SETTLEMENTS, "renew"])
@pytest.mark.parametrize("lost", ["settled", "ended", "restarted", "never there"])
def test_whoever_has_lost_the_lock_is_refused(world: World, how: str, lost: str) -> None:
    world.send("a")
    held = world.take_one()
    token = held.token
    assert token is not None
    if lost == "settled":
        world.settle("abandon", held)
    elif lost == "ended":
        world.now += LOCK
    elif lost == "restarted":
        world.restart()
    else:
        token = bytes(16)
    with pytest.raises(RefusedError) as caught:
        getattr(world.queue, how)(token, world.now, *([world.answer] if how != "renew" else []))
    assert caught.value.condition == MESSAGE_LOCK_LOST
    world.commit()
    assert world.stored() == [("a", RowState.ACTIVE)]
    assert world.is_balanced()


def test_a_renewed_lock_holds_on(world: World) -> None:
    world.send("a")
    held = world.take_one()
    world.now += LOCK - 1
    assert held.token is not None
    assert world.queue.renew(held.token, world.now) == world.now + LOCK
    world.tick(LOCK - 1)
    assert world.take() == []
    world.settle("complete", held)
    assert world.answers[-1] is None


def test_no_lock_leaves_anything_behind(world: World) -> None:
    world.send(*"abcdef")
    taken = world.take()
    for how, held in zip(SETTLEMENTS, taken, strict=False):
        world.settle(how, held)
    world.tick(LOCK + 200)
    assert len(world.queue.locks) == 0
    assert (world.queue.locks._by_token, world.queue.locks._ending) == ({}, {})  # pyright: ignore[reportPrivateUsage]
    assert world.queue.wake_at is None


# --- peeking ---------------------------------------------------------------------------------------------------------


def test_peeking_shows_every_message_whatever_its_state_and_changes_nothing(world: World) -> None:
    world.send("a", "b", "c")
    world.send("d", due=world.now + 1000)
    world.settle("defer", world.take_one())
    world.take_one()
    seen = world.queue.peek(1, 10, world.now)
    assert names(seen) == ["a", "b", "c", "d"]
    assert [held.state for held in seen] == [RowState.DEFERRED, RowState.ACTIVE, RowState.ACTIVE, RowState.SCHEDULED]
    assert names(world.queue.peek(2, 2, world.now)) == ["b", "c"]
    assert names(world.take()) == ["c"]


def test_who_peeks_is_told_of_the_deliveries_that_have_ended(world: World) -> None:
    def told() -> int:
        return world.queue.peek(1, 1, world.now)[0].deliveries - 1

    world.send("a")
    assert told() == 0
    held = world.take_one()
    assert told() == 0
    world.settle("abandon", held)
    assert told() == 1


def test_a_message_that_is_going_is_not_peeked(world: World) -> None:
    world.send("a", "b", "c")
    held = world.take_one()
    assert held.token is not None
    world.queue.complete(held.token, world.now, world.answer)
    assert names(world.queue.peek(1, 2, world.now)) == ["b", "c"]


def test_peeking_may_be_limited_to_a_session() -> None:
    world = World(requires_session=True)
    for name, session in zip("abcdef", "xyxyxy", strict=True):
        world.send(name, session_id=session)
    assert names(world.queue.peek(1, 2, world.now, session="y")) == ["b", "d"]
    assert names(world.queue.peek(3, 9, world.now, session="y")) == ["d", "f"]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_queue_takes_bytes_up_to_its_size_and_all_of_a_batch_or_nothing(world: World) -> None:
    world.configure(max_size_in_megabytes=1)
    world.queue.contents.size = MEGABYTE - 2 * ONE
    with pytest.raises(RefusedError) as caught:
        world.send("a", "b", "c")
    assert caught.value.condition == RESOURCE_LIMIT_EXCEEDED
    assert world.store.journal.is_empty()
    assert world.send("a", "b") == [1, 2]
    with pytest.raises(RefusedError):
        world.send("c")


def test_room_is_there_again_after_a_completion(world: World) -> None:
    world.configure(max_size_in_megabytes=1)
    big = "x" * (200 * 1024)
    world.send(*[big] * 5)
    with pytest.raises(RefusedError):
        world.send(big)
    world.settle("complete", world.take_one())
    assert world.send(big) == [6]


def test_a_message_that_is_too_large_spoils_its_batch(world: World) -> None:
    world.configure(max_message_size_in_kilobytes=1)
    largest = "x" * (1024 - len(payload("x" * 300)) + 300)
    with pytest.raises(RefusedError) as caught:
        world.send("a", largest + "x")
    assert caught.value.condition == MESSAGE_SIZE_EXCEEDED
    assert world.send(largest) == [1]


def test_a_queue_with_sessions_takes_no_message_without_one() -> None:
    world = World(requires_session=True)
    with pytest.raises(RefusedError) as caught:
        world.send(message("a", session_id="x"), message("b"))
    assert caught.value.condition == NOT_ALLOWED
    assert world.stored() == []


def test_a_queue_without_sessions_pays_no_heed_to_them(world: World) -> None:
    world.send("a", session_id="x")
    assert names(world.take()) == ["a"]


@pytest.mark.parametrize(
    ("status", "takes", "gives"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_the_status_says_what_a_queue_may_be_used_for(
    world: World,
    status: EntityStatus,
    takes: bool,  # noqa: FBT001
    gives: bool,  # noqa: FBT001
) -> None:
    world.send("a", "b")
    world.settle("defer", world.take_one())
    world.configure(status=status)
    uses = [
        (takes, lambda: world.queue.send([message("c")], world.now, world.answer)),
        (gives, lambda: world.queue.take(1, world.now)),
        (gives, lambda: world.queue.take_away(1, world.now)),
        (gives, lambda: world.queue.take_deferred([1], world.now)),
    ]
    for allowed, use in uses:
        if allowed:
            use()
        else:
            with pytest.raises(RefusedError) as caught:
                use()
            assert caught.value.condition == ENTITY_DISABLED


# --- pings (G3) ------------------------------------------------------------------------------------------------------


def test_a_ping_is_accepted_and_leaves_no_trace(world: World) -> None:
    assert world.send(message("ping", is_ping=True), message("a"), message("ping", is_ping=True)) == [0, 1, 0]
    assert world.answers == [None]
    assert world.stored() == [("a", RowState.ACTIVE)]
    assert names(world.queue.peek(0, 9, world.now)) == ["a"]
    assert (world.queue.active_count, world.queue.size) == (1, ONE)


def test_a_ping_is_checked_as_any_message(world: World) -> None:
    world.configure(status=EntityStatus.SEND_DISABLED)
    with pytest.raises(RefusedError):
        world.send(message("ping", is_ping=True))


def test_a_full_queue_takes_no_ping(world: World) -> None:
    world.configure(max_size_in_megabytes=1)
    world.queue.contents.size = MEGABYTE
    with pytest.raises(RefusedError) as caught:
        world.send(message("", is_ping=True))
    assert caught.value.condition == RESOURCE_LIMIT_EXCEEDED


# --- memory and the store --------------------------------------------------------------------------------------------


def test_messages_beyond_the_pool_are_read_when_they_are_needed(world: World) -> None:
    world.send(*(str(number) for number in range(1500)))
    assert names(world.take(1500)) == [str(number) for number in range(1500)]
    assert world.is_balanced()


def test_a_message_that_the_store_has_lost_is_passed_over(world: World) -> None:
    world.send("a", "b")
    world.restart()
    world.store.journal.removed.append(key_of(1, 1))
    world.commit()
    assert names(world.take()) == ["b"]


def test_the_queue_knows_when_it_was_last_used(world: World) -> None:
    uses = [
        lambda: world.send("a"),
        lambda: world.take(0),
        lambda: world.queue.peek(1, 1, world.now),
        lambda: world.settle("release", world.take_one()),
    ]
    for use in uses:
        world.now += 10
        use()
        assert world.queue.used_at == world.now


def tokens(messages: list[Held]) -> list[bytes]:
    return [held.token for held in messages if held.token is not None]


def test_many_are_completed_with_one_answer(world: World) -> None:
    world.send("a", "b", "c")
    world.queue.complete_all(tokens(world.take(2)), world.now, world.answer)
    assert world.answers == [None], "not before it is durable"
    world.commit()
    assert (world.answers, world.stored()) == ([None, None], [("c", RowState.ACTIVE)])
    assert world.is_balanced()


def test_of_many_none_is_completed_if_one_lock_does_not_hold(world: World) -> None:
    world.send("a", "b")
    taken = world.take()
    kept = tokens(taken)
    world.settle("abandon", taken[0])
    with pytest.raises(RefusedError):
        world.queue.complete_all(kept, world.now, world.answer)
    world.commit()
    assert [name for name, _ in world.stored()] == ["a", "b"]
    assert world.is_balanced()


def test_many_whose_completion_the_store_refuses_come_again(world: World) -> None:
    world.send("a", "b")
    world.queue.complete_all(tokens(world.take()), world.now, world.answer)
    world.commit(full=True)
    assert world.answers[-1] is not None
    assert names(world.take()) == ["a", "b"]
    assert world.is_balanced()
