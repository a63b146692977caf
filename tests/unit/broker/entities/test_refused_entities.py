"""Entities, and changes of them, that the store refuses."""

import pytest
from tests.unit.broker.entities.conftest import payload
from tests.unit.broker.entities.test_topic import SOON, World

from pairbus.broker.entities.message import read_incoming
from pairbus.broker.entities.settings import MINUTE, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import Rule, SqlFilter, TrueFilter


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def furnished(world: World) -> World:
    """A world with a queue and a subscription."""
    world.namespace.queues.create("queue", QueueSettings(), world.answer)
    world.subscribe("kept")
    world.answers.clear()
    return world


def test_what_the_store_refuses_to_make_is_not_there(world: World) -> None:
    topics, namespace = world.topics, world.namespace
    world.subscribe("kept")
    world.answers.clear()
    namespace.queues.create("queue", QueueSettings(), world.answer)
    topics.create("topic", TopicSettings(), world.answer)
    topics.create_subscription("orders", "new", SubscriptionSettings(), world.answer)
    topics.create_rule("orders", "kept", Rule("odd", TrueFilter()), world.answer)
    world.commit(full=True)
    world.commit()
    assert len(world.answers) == 4
    assert all(world.answers)
    assert namespace.entities.find("queue") is None
    assert namespace.entities.find("queue/$deadletterqueue") is None
    assert topics.find("topic") is None
    assert topics.get("orders").find_subscription("new") is None
    assert list(topics.get_subscription("orders", "kept").rules) == ["$default"]
    namespace.queues.create("queue", QueueSettings(), world.answer)
    topics.create("topic", TopicSettings(), world.answer)
    topics.create_subscription("orders", "new", SubscriptionSettings(), world.answer)
    topics.create_rule("orders", "kept", Rule("odd", TrueFilter()), world.answer)
    world.commit()
    assert world.answers[4:] == [None] * 4


def update_all(world: World, metadata: str) -> None:
    """Change a queue, a topic, a subscription and a rule."""
    world.namespace.queues.update("queue", QueueSettings(user_metadata=metadata, lock_duration=MINUTE), world.answer)
    world.topics.update("orders", TopicSettings(user_metadata=metadata), world.answer)
    changed = SubscriptionSettings(user_metadata=metadata, lock_duration=MINUTE)
    world.topics.update_subscription("orders", "kept", changed, world.answer)
    world.topics.update_rule("orders", "kept", Rule("$Default", SqlFilter(f"n = '{metadata}'")), world.answer)


def described(world: World) -> list[str]:
    """Say how a queue, its dead-letter queue, a topic, a subscription and a rule are, and what is stored of them."""
    topic, kept = world.topics.get("orders"), world.topics.get_subscription("orders", "kept")
    paths = ("queue", "queue/$deadletterqueue", "orders/subscriptions/kept")
    nodes = [world.namespace.entities.get(path) for path in paths]
    rule = world.topics.get_rule("orders", "kept", "$Default")
    return [
        *(f"{node.queue.settings} {node.row.description} {node.row.updated}" for node in nodes),
        f"{topic.settings} {topic.row.description} {topic.row.updated}",
        f"{kept.settings}",
        f"{rule.rule} {rule.row.description} {rule.row.updated}",
    ]


def test_a_change_that_the_store_refuses_is_not_made(furnished: World) -> None:
    before = described(furnished)
    furnished.now += SOON
    update_all(furnished, "refused")
    furnished.commit(full=True)
    assert len(furnished.answers) == 4
    assert all(furnished.answers)
    assert described(furnished) == before
    update_all(furnished, "stored")
    furnished.commit()
    assert furnished.answers[4:] == [None] * 4
    after = described(furnished)
    assert after != before
    furnished.restart()
    assert described(furnished) == after


def test_none_of_several_changes_is_made_if_the_store_refuses_all(furnished: World) -> None:
    before = described(furnished)
    update_all(furnished, "one")
    update_all(furnished, "other")
    furnished.commit(full=True)
    assert len(furnished.answers) == 8
    assert all(furnished.answers)
    assert described(furnished) == before
    furnished.commit()
    furnished.restart()
    assert described(furnished) == before


def test_what_is_noted_of_an_entity_does_not_bring_a_refused_change(furnished: World) -> None:
    before = described(furnished)
    furnished.now += 10 * MINUTE
    update_all(furnished, "refused")
    furnished.flush(full=True)
    furnished.namespace.tick()  # which notes that they were used
    furnished.store.flush()
    furnished.commit()
    assert described(furnished) == before
    furnished.commit()
    furnished.restart()
    assert described(furnished) == before


def test_a_later_change_stands_when_an_earlier_one_is_refused(furnished: World) -> None:
    update_all(furnished, "refused")
    furnished.flush(full=True)
    update_all(furnished, "stored")
    furnished.commit()
    assert [refused is None for refused in furnished.answers] == [False] * 4 + [True] * 4
    after = described(furnished)
    assert "stored" in after[0]
    furnished.restart()
    assert described(furnished) == after


def test_what_was_sent_to_a_queue_that_the_store_has_refused_goes_with_it(world: World) -> None:
    world.namespace.queues.create("queue", QueueSettings(), world.answer)
    queue = world.namespace.entities.get("queue").queue
    world.flush(full=True)
    queue.send([read_incoming(payload("a"))], world.now, world.answer)
    world.commit()
    world.commit()
    assert world.namespace.entities.find("queue") is None
    assert world.store.rows(queue.id) == []
