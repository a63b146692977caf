"""Messages that are dead-lettered, by a receiver or after too many deliveries."""

from tests.unit.broker.entities.conftest import DEAD, LOCK, World, name_of, names, payload, properties_of

from pairbus.amqp.message import Message
from pairbus.broker.entities.message import DEAD_LETTER_SOURCE
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.store.base import key_of

SETTLEMENTS = ("complete", "abandon", "release", "defer", "dead_letter")
ONE = len(payload("a"))
MEGABYTE = 1024 * 1024


# --- dead-lettering --------------------------------------------------------------------------------------------------


def test_a_dead_lettered_message_carries_why_and_from_where(world: World) -> None:
    world.send("a")
    world.settle("dead_letter", world.take_one(), reason="bad", description="very")
    assert world.stored() == []
    (held,) = world.take(queue=world.dead)
    assert properties_of(held) == {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very"}
    assert Message(held.payload).message_annotations()[DEAD_LETTER_SOURCE] == "orders"
    assert world.answers == [None, None]
    assert world.is_balanced()


def test_moving_to_the_dead_letter_queue_is_no_delivery(world: World) -> None:
    world.send("a")
    world.settle("abandon", world.take_one())
    world.settle("dead_letter", world.take_one())
    assert world.take_one(queue=world.dead).deliveries == 3


def test_a_dead_lettered_message_needs_no_reason(world: World) -> None:
    world.send("a")
    world.settle("dead_letter", world.take_one())
    assert properties_of(world.take_one(queue=world.dead)) == {}


def test_dead_lettering_is_one_transaction(world: World) -> None:
    world.send("a")
    held = world.take_one()
    assert held.token is not None
    world.queue.dead_letter(held.token, world.now, world.answer)
    journal = world.store.journal
    assert ([row.key for row in journal.rows], journal.removed) == ([key_of(DEAD, 1)], [key_of(1, 1)])


def test_after_the_last_delivery_a_message_is_dead_lettered(world: World) -> None:
    world.configure(max_delivery_count=2)
    world.send("a", "b")
    world.settle("abandon", world.take_one())
    assert name_of(world.take_one()) == "a"
    world.tick(LOCK)
    assert names(world.take()) == ["b"]
    (held,) = world.take(queue=world.dead)
    assert properties_of(held)["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert "2 delivery attempts" in str(properties_of(held)["DeadLetterErrorDescription"])
    assert world.is_balanced()


def test_a_message_that_was_under_its_last_lock_when_the_broker_ended_is_dead_lettered(world: World) -> None:
    world.configure(max_delivery_count=1)
    world.send("a")
    world.take()
    world.restart()
    world.configure(max_delivery_count=1)
    assert world.take() == []
    assert names(world.take(queue=world.dead)) == ["a"]


def test_a_dead_letter_stays_where_it_is_however_often_it_is_delivered_or_dead_lettered(world: World) -> None:
    announced: list[str | None] = []
    world.dead.on_available = announced.append
    world.dead.change_settings(QueueSettings(max_delivery_count=1))
    world.send("a")
    world.settle("dead_letter", world.take_one(), reason="bad")
    for how in ("abandon", "dead_letter"):
        world.settle(how, world.take_one(queue=world.dead), queue=world.dead)
        assert world.answers[-1] is None
    assert announced == [None] * 3
    assert world.is_balanced()
