"""Auto-forwarding: what arrives, what waits, and what ends in the transfer dead-letter queue."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.entities.conftest import START, name_of, properties_of
from tests.unit.broker.entities.topic_world import World

from pairbus.amqp.message import Message
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Timestamp
from pairbus.broker.entities.message import DEAD_LETTER_SOURCE, ENQUEUED_NUMBER, HOPS, Held, outgoing
from pairbus.broker.entities.settings import MINUTE, EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.refusals import RefusedError
from pairbus.broker.store.base import EntityKind
from pairbus.errors import OptionError

TRANSFER_DEAD = "/$Transfer/$DeadLetterQueue"
HOPS_EXCEEDED = "MaxTransferHopCountExceeded"
KIB = 1024


@pytest.fixture
def world() -> World:
    return World()


def make(world: World, path: str, **settings: Any) -> None:  # noqa: ANN401
    world.namespace.queues.create(path, QueueSettings(**settings), world.answer)
    world.commit()


def held(world: World, path: str) -> list[Held]:
    return world.namespace.entities.get(path).queue.peek(0, 1000, world.now)


def names(world: World, path: str) -> list[str]:
    return [name_of(each) for each in held(world, path)]


def letters(world: World, path: str) -> list[tuple[str, object]]:
    """Return what could not be forwarded, with the reasons."""
    return [(name_of(each), properties_of(each)["DeadLetterReason"]) for each in held(world, path + TRANSFER_DEAD)]


def counts(world: World, path: str) -> tuple[int, int, int]:
    """Return how many messages an entity has that are active, wait to be forwarded, and could not be forwarded."""
    told = world.namespace.entities.get(path).runtime
    return told.active_message_count, told.transfer_message_count, told.transfer_dead_letter_message_count


# --- what arrives ----------------------------------------------------------------------------------------------------


def test_a_subscription_forwards_to_a_queue_and_a_topic(world: World) -> None:
    make(world, "audit")
    world.topics.create("further", TopicSettings(), world.answer)
    world.topics.create_subscription("further", "end", SubscriptionSettings(), world.answer)
    world.subscribe("to-queue", forward_to="AUDIT")
    world.subscribe("to-topic", forward_to="further")
    world.send("skipped", to="further")
    world.send("a")
    world.settle()
    (in_queue,) = held(world, "audit")
    _, in_topic = held(world, "further/subscriptions/end")
    for each in (in_queue, in_topic):
        assert name_of(each) == "a"
        assert Message(each.payload).message_annotations()[ENQUEUED_NUMBER] == 1
    assert world.names("to-queue") == world.names("to-topic") == []


def test_a_queue_forwards_to_a_topic_and_its_dead_too(world: World) -> None:
    world.subscribe("all")
    settings = QueueSettings(forward_dead_lettered_messages_to="orders", dead_lettering_on_message_expiration=True)
    world.namespace.queues.create("in", replace(settings, forward_to="orders"), world.answer)
    world.namespace.queues.create("dying", settings, world.answer)
    world.send("a", to="in")
    world.send("b", to="dying", header=Header(ttl=1000))
    world.tick(1000)
    world.settle()
    assert world.names("all") == ["a", "b"]


def test_a_message_is_forwarded_four_times_and_its_receiver_sees_nothing_of_it(world: World) -> None:
    for number in range(4):
        make(world, f"q{number}", forward_to=f"q{number + 1}")
    make(world, "q4")
    world.send("a", to="q0", message_annotations={"x-opt-mine": 1})
    world.settle()
    (arrived,) = world.namespace.entities.get("q4").queue.take(1, world.now)
    seen = Message(outgoing(arrived)).message_annotations()
    assert seen["x-opt-mine"] == 1
    assert HOPS not in seen
    assert Message(arrived.payload).message_annotations()[HOPS] == 4  # it is stored


@pytest.mark.parametrize("said", [-1, -(2**63), "many", None, 0])
def test_what_a_producer_says_of_hops_gives_no_more_of_them(world: World, said: Any) -> None:  # noqa: ANN401
    make(world, "round", forward_to="round")
    world.send("a", to="round", message_annotations={HOPS: said})
    world.settle()
    assert letters(world, "round") == [("a", HOPS_EXCEEDED)]
    assert world.store.entities()[-1].next_sequence == 2  # it came to the end once


@pytest.mark.parametrize("said", [4, 2**63 - 1, Timestamp(START)])
def test_what_a_producer_says_of_hops_may_leave_fewer(world: World, said: Any) -> None:  # noqa: ANN401
    make(world, "in", forward_to="out")
    make(world, "out")
    world.send("a", to="in", message_annotations={HOPS: said})
    world.settle()
    assert letters(world, "in") == [("a", HOPS_EXCEEDED)]


# --- what waits ------------------------------------------------------------------------------------------------------


def test_what_a_full_entity_does_not_take_waits_until_it_does(world: World) -> None:
    make(world, "in", forward_to="small")
    make(world, "small", max_size_in_megabytes=1, max_message_size_in_kilobytes=1024)
    big = "x" * 900 * KIB
    world.send(big, to="small")
    world.send("y" * 200 * KIB, to="in")
    world.send("b", to="in")
    world.tick(1000)
    world.tick(MINUTE)
    assert counts(world, "in") == (0, 2, 0)
    assert letters(world, "in") == []
    queue = world.namespace.entities.get("small").queue
    (first,) = queue.take(1, world.now)
    assert first.token is not None
    queue.complete(first.token, world.now, world.answer)
    world.settle()
    world.tick(1000)
    world.settle()
    assert [name[:1] for name in names(world, "small")] == ["y", "b"]
    assert counts(world, "in") == (0, 0, 0)


def test_what_the_store_does_not_take_waits_and_arrives_once(world: World) -> None:
    make(world, "in", forward_to="out")
    make(world, "out")
    world.send("a", to="in")  # it is stored, and journalled again for its next place
    world.commit(full=True)
    assert counts(world, "in") == (0, 1, 0)
    world.tick(1000)
    world.settle()
    assert names(world, "out") == ["a"]
    assert names(world, "in") == letters(world, "in") == []


# --- what cannot be forwarded ----------------------------------------------------------------------------------------


def test_what_is_forwarded_to_an_entity_that_is_gone_is_in_the_transfer_dead_letter_queue(world: World) -> None:
    make(world, "in", forward_to="out")
    make(world, "out")
    world.namespace.queues.delete("out", world.answer)
    world.send("a", "b", to="in")
    world.settle()
    assert letters(world, "in") == [("a", "amqp:not-found"), ("b", "amqp:not-found")]
    first = held(world, "in" + TRANSFER_DEAD)[0]
    assert properties_of(first)["DeadLetterErrorDescription"] == "The messaging entity 'out' could not be found."
    assert Message(first.payload).message_annotations()[DEAD_LETTER_SOURCE] == "in"
    assert names(world, "in") == names(world, "in/$DeadLetterQueue") == []
    assert counts(world, "in") == (0, 0, 2)
    told = world.namespace.entities.get("in").runtime
    assert told.total_message_count == 2
    assert told.size_in_bytes == sum(len(each.payload) for each in held(world, "in" + TRANSFER_DEAD))


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_what_is_forwarded_to_a_disabled_entity_is_in_the_transfer_dead_letter_queue(
    world: World, status: EntityStatus
) -> None:
    make(world, "in", forward_to="out")
    make(world, "to-topic", forward_to="orders")
    make(world, "out", status=status)
    world.topics.update("orders", TopicSettings(status=status), world.answer)
    for path in ("in", "to-topic"):
        world.send("a", to=path)
        world.settle()
        assert letters(world, path) == [("a", "com.microsoft:entity-disabled")]
    world.namespace.queues.update("out", QueueSettings(), world.answer)
    world.settle()
    world.send("b", to="in")
    world.settle()
    assert names(world, "out") == ["b"]  # the dead letter stays one


@pytest.mark.parametrize(
    "settings",
    [{"max_message_size_in_kilobytes": 1}, {"max_size_in_megabytes": 1, "max_message_size_in_kilobytes": 4 * KIB}],
)
def test_what_is_too_large_for_an_entity_does_not_keep_back_what_is_behind_it(
    world: World, settings: dict[str, Any]
) -> None:
    make(world, "in", forward_to="out", max_message_size_in_kilobytes=4 * KIB)
    make(world, "out", **settings)
    world.send("x" * 2 * KIB * KIB, "behind", to="in")
    world.settle()
    ((name, reason),) = letters(world, "in")
    assert (name[:1], reason) == ("x", "amqp:link:message-size-exceeded")
    assert names(world, "out") == ["behind"]


def test_what_has_no_session_for_an_entity_that_wants_one_does_not_keep_back_what_is_behind_it(world: World) -> None:
    make(world, "in", forward_to="out")
    make(world, "out", requires_session=True)
    world.send("x", to="in")
    world.send("behind", to="in", properties=Properties(group_id="red"))
    world.settle()
    assert letters(world, "in") == [("x", "amqp:not-allowed")]
    assert names(world, "out") == ["behind"]


def test_a_message_that_is_too_many_hops_away_stops_where_it_has_come_to(world: World) -> None:
    for number in range(6):
        make(world, f"q{number}", forward_to=f"q{number + 1}")
    make(world, "q6")
    world.send("a", to="q0")
    world.settle()
    assert letters(world, "q4") == [("a", HOPS_EXCEEDED)]
    assert names(world, "q6") == []
    world.send("b", to="q2")
    world.settle()
    assert names(world, "q6") == ["b"]


def test_messages_do_not_go_round_for_ever_between_queues(world: World) -> None:
    make(world, "there", forward_to="back")
    make(world, "back", forward_to="there")
    world.send("a", to="there")
    world.settle()
    assert letters(world, "there") == [("a", HOPS_EXCEEDED)]
    assert counts(world, "there") == (0, 0, 1)
    assert counts(world, "back") == (0, 0, 0)


def test_messages_that_would_come_back_to_their_topic_are_not_copied_again_and_again(world: World) -> None:
    make(world, "back", forward_to="orders")
    world.subscribe("other")
    for number in range(10):
        world.subscribe(f"round{number}", forward_to="back" if number else "orders")
    world.send("a")
    world.tick(1000)
    assert world.names("other") == ["a"]
    assert [letters(world, f"orders/subscriptions/round{number}") for number in range(10)] == [
        [("a", HOPS_EXCEEDED)]
    ] * 10
    world.namespace.queues.update("back", QueueSettings(), world.answer)  # which opens the circle
    world.send("b")
    world.settle()
    assert names(world, "back") == ["b"] * 9


def test_dead_letters_that_cannot_be_forwarded_are_in_the_transfer_dead_letter_queue(world: World) -> None:
    make(world, "dying", forward_dead_lettered_messages_to="nowhere", dead_lettering_on_message_expiration=True)
    world.subscribe("dying", forward_dead_lettered_messages_to="nowhere", dead_lettering_on_message_expiration=True)
    for path, to in (("dying", "dying"), ("orders/subscriptions/dying", "orders")):
        world.send("a", to=to, header=Header(ttl=1000))
        world.tick(1000)
        world.settle()
        assert letters(world, path) == [("a", "amqp:not-found")]
        assert names(world, path + "/$DeadLetterQueue") == []
        told = world.namespace.entities.get(path).runtime
        assert (told.dead_letter_message_count, told.transfer_dead_letter_message_count) == (0, 1)


def test_what_a_subscription_could_not_forward_counts_towards_the_size_of_the_topic(world: World) -> None:
    world.subscribe("lost", forward_to="nowhere")
    world.send("a")
    world.settle()
    (letter,) = held(world, "orders/subscriptions/lost" + TRANSFER_DEAD)
    assert world.topics.get("orders").size == len(letter.payload)
    assert world.is_balanced()


# --- the transfer dead-letter queue ----------------------------------------------------------------------------------


def test_what_could_not_be_forwarded_is_there_after_a_restart(world: World) -> None:
    make(world, "in", forward_to="nowhere")
    world.subscribe("lost", forward_to="nowhere")
    world.send("a", to="in")
    world.send("b")
    world.settle()
    world.restart()
    for path, name in (("in", "a"), ("orders/subscriptions/lost", "b")):
        assert letters(world, path) == [(name, "amqp:not-found")]
        assert counts(world, path) == (0, 0, 1)
    world.send("c", to="in")
    world.settle()
    assert [name for name, _ in letters(world, "in")] == ["a", "c"]


def test_it_is_stored_with_its_first_message_however_often_the_store_refuses(world: World) -> None:
    make(world, "in", forward_to="nowhere")
    stored = [row.path for row in world.store.entities()]
    assert names(world, "in" + TRANSFER_DEAD) == []  # a client looks
    world.settle()
    assert [row.path for row in world.store.entities()] == stored
    world.send("a", to="in")
    world.commit(full=True)
    assert counts(world, "in") == (0, 1, 0)
    world.tick(500, full=True)
    world.tick(500, full=True)
    world.tick(1000)
    world.settle()
    assert [row.path for row in world.store.entities()] == [*stored, "in" + TRANSFER_DEAD]
    world.restart()
    assert letters(world, "in") == [("a", "amqp:not-found")]
    assert names(world, "in") == []


def test_a_second_message_that_comes_before_the_first_is_refused_brings_the_queue_too(world: World) -> None:
    make(world, "in", forward_to="nowhere")
    world.send("a", to="in")
    world.flush(full=True)  # refused, and the broker does not know it yet
    world.send("b", to="in")
    world.settle()
    world.tick(1000)
    world.settle()
    world.restart()
    assert sorted(letters(world, "in")) == [("a", "amqp:not-found"), ("b", "amqp:not-found")]


def test_it_has_the_lock_duration_of_its_queue_and_is_deleted_with_it(world: World) -> None:
    make(world, "in", forward_to="nowhere")
    world.send("a", to="in")
    world.settle()
    world.namespace.queues.update("in", QueueSettings(forward_to="nowhere", lock_duration=5 * MINUTE), world.answer)
    world.settle()
    letters_queue = world.namespace.entities.get("in" + TRANSFER_DEAD).queue
    (locked,) = letters_queue.take(1, world.now)
    assert locked.until == world.now + 5 * MINUTE
    world.namespace.queues.delete("in", world.answer)
    world.settle()
    assert [row.path for row in world.store.entities()] == ["orders"]
    assert world.store.rows(letters_queue.id) == []
    with pytest.raises(RefusedError, match="could not be found"):
        world.namespace.entities.get("in" + TRANSFER_DEAD)


def test_a_change_of_settings_that_the_store_refuses_leaves_it_as_it_was(world: World) -> None:
    make(world, "in", forward_to="nowhere")
    world.send("a", to="in")
    world.settle()
    world.namespace.queues.update("in", QueueSettings(forward_to="nowhere", lock_duration=5 * MINUTE), world.answer)
    world.commit(full=True)
    (locked,) = world.namespace.entities.get("in" + TRANSFER_DEAD).queue.take(1, world.now)
    assert locked.until == world.now + MINUTE


def test_what_waits_there_keeps_a_queue_that_deletes_itself_only_while_it_is_received_from(world: World) -> None:
    make(world, "in", forward_to="nowhere", auto_delete_on_idle=5 * MINUTE)
    world.send("a", to="in")
    world.settle()
    world.tick(4 * MINUTE)
    world.namespace.entities.get("in" + TRANSFER_DEAD).queue.take(1, world.now)
    world.tick(4 * MINUTE)
    assert world.namespace.entities.find("in") is not None
    world.tick(6 * MINUTE)
    assert world.namespace.entities.find("in") is None


def test_only_queues_and_subscriptions_have_one_and_no_entity_can_take_its_name(world: World) -> None:
    make(world, "in")
    for path in ("nothing", "orders", "in/$DeadLetterQueue"):
        with pytest.raises(RefusedError, match="could not be found"):
            world.namespace.entities.get(path + TRANSFER_DEAD)
    with pytest.raises(OptionError, match="another last part"):
        make(world, "in/$transfer")
    assert [node.queue.path for node in world.namespace.queues] == ["in"]
    assert world.namespace.entities.find_destination("in" + TRANSFER_DEAD) is None
    assert {row.kind for row in world.store.entities()} == {EntityKind.QUEUE, EntityKind.TOPIC}
