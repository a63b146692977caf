"""Topics, subscriptions and rules, as they are made, changed, deleted and recalled."""

from typing import Any

import pytest
from tests.unit.broker.entities.conftest import START, payload
from tests.unit.broker.entities.topic_world import World

from pairbus.amqp.sections import Properties
from pairbus.amqp.types import Timestamp
from pairbus.broker.entities.message import SCHEDULED_TIME, read_incoming
from pairbus.broker.entities.settings import (
    DAY,
    MINUTE,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)
from pairbus.broker.filters import CorrelationFilter, Rule, SqlAction, SqlFilter
from pairbus.broker.refusals import EntityExistsError, RefusedError
from pairbus.errors import OptionError

SOON = 10_000
BROKEN = SqlFilter("n / 0 > 1")


@pytest.fixture
def world() -> World:
    return World()


def schedule(after: int = SOON) -> dict[Any, Any]:
    return {SCHEDULED_TIME: Timestamp(START + after)}


# --- administration --------------------------------------------------------------------------------------------------


def test_names_are_compared_without_case_and_kept_as_they_were_given(world: World) -> None:
    world.subscribe("All")
    assert world.topics.get("ORDERS/").path == "orders"
    assert world.topics.get_subscription("Orders", "ALL").name == "All"
    assert world.topics.get_rule("orders", "all", "$default").rule == Rule()
    with pytest.raises(EntityExistsError):
        world.topics.create("Orders", TopicSettings(), world.answer)
    with pytest.raises(EntityExistsError):
        world.namespace.queues.create("Orders", QueueSettings(), world.answer)
    with pytest.raises(EntityExistsError):
        world.subscribe("ALL")
    with pytest.raises(EntityExistsError):
        world.topics.create_rule("orders", "all", Rule("$DEFAULT"), world.answer)


@pytest.mark.parametrize("name", ["", "a" * 51, "a/b", "-a", "a.", "a b"])
def test_a_name_that_no_subscription_can_have_is_refused(world: World, name: str) -> None:
    with pytest.raises(OptionError, match="subscription"):
        world.subscribe(name)


def test_what_is_not_there_is_refused(world: World) -> None:
    world.subscribe("all")
    for ask in (
        lambda: world.topics.get("none"),
        lambda: world.topics.get_subscription("orders", "none"),
        lambda: world.topics.get_rule("orders", "all", "none"),
        lambda: world.namespace.queues.get("orders"),
        lambda: world.namespace.queues.get("orders/subscriptions/all"),
        lambda: world.namespace.entities.get_destination("orders/subscriptions/all"),
        lambda: world.namespace.entities.get("orders"),
    ):
        with pytest.raises(RefusedError, match="could not be found"):
            ask()


def test_what_was_settled_when_it_was_made_cannot_be_changed(world: World) -> None:
    world.subscribe("all")
    with pytest.raises(OptionError, match="requires_duplicate_detection"):
        world.topics.update("orders", TopicSettings(requires_duplicate_detection=True), world.answer)
    with pytest.raises(OptionError, match="requires_session"):
        world.topics.update_subscription("orders", "all", SubscriptionSettings(requires_session=True), world.answer)


def test_rule_changes_count_from_the_next_message_on(world: World) -> None:
    world.subscribe("s")
    world.send("a")
    world.topics.delete_rule("orders", "s", "$Default", world.answer)
    world.send("b")
    world.topics.create_rule("orders", "s", Rule("c", SqlFilter("sys.Label = 'c'")), world.answer)
    world.send("c", properties=Properties(subject="c"))
    world.restart()
    world.send("d", properties=Properties(subject="c"))
    assert world.names("s") == ["a", "c", "d"]


def test_everything_is_recalled(world: World) -> None:
    rules = [Rule("one", SqlFilter("n = 1")), Rule("two", CorrelationFilter(to="x"), SqlAction("SET a = 1"))]
    world.subscribe("s", *rules, lock_duration=5000, requires_session=True)
    world.now += 1000
    world.topics.update("orders", TopicSettings(user_metadata="changed"), world.answer)
    world.send("a", application_properties={"n": 1}, properties=Properties(group_id="eu"))
    world.restart()
    topic = world.topics.get("orders")
    (subscription,) = topic.subscriptions
    assert topic.settings == TopicSettings(user_metadata="changed")
    assert subscription.settings == SubscriptionSettings(lock_duration=5000, requires_session=True)
    assert [stored.rule for stored in subscription.rules.values()] == rules
    assert (topic.row.created, topic.row.updated) == (START, START + 1000)
    assert world.names("s") == ["a"]
    assert world.send("b", properties=Properties(to="x", group_id="eu")) == [2]
    assert world.names("s") == ["a", "b"]


def test_a_deleted_subscription_or_topic_leaves_nothing(world: World) -> None:
    world.subscribe("one")
    world.subscribe("two", Rule("a"), Rule("b"))
    world.send("a")
    world.topics.delete_subscription("orders", "two", world.answer)
    world.commit()
    assert [subscription.name for subscription in world.topics.get("orders").subscriptions] == ["one"]
    world.send("b")
    topic = world.topics.get("orders")
    world.topics.delete("orders", world.answer)
    world.commit()
    with pytest.raises(RefusedError, match="could not be found"):
        topic.send([read_incoming(payload("c"))], world.now, world.answer)
    assert list(world.store.entities()) == []
    assert list(world.namespace.entities) == []


def test_runtime_properties_count_what_there_is(world: World) -> None:
    world.subscribe("s", dead_lettering_on_message_expiration=True)
    world.send("a", "b", "c")
    world.send("later", message_annotations=schedule())
    queue = world.namespace.entities.get("orders/subscriptions/s").queue
    first, second = queue.take(2, world.now)
    assert first.token is not None
    assert second.token is not None
    queue.dead_letter(first.token, world.now, world.answer)
    queue.defer(second.token, world.now, world.answer)
    world.commit()
    runtime = world.topics.subscription_runtime(world.topics.get_subscription("orders", "s"))
    assert (runtime.active_message_count, runtime.dead_letter_message_count) == (2, 1)
    assert (runtime.total_message_count, runtime.created_at, runtime.accessed_at) == (3, START, START)
    runtime = world.topics.runtime(world.topics.get("orders"))
    assert (runtime.scheduled_message_count, runtime.subscription_count) == (1, 1)
    assert runtime.size_in_bytes == world.topics.get("orders").size


def test_the_last_use_is_stored_by_the_minute(world: World) -> None:
    world.namespace.queues.create("q", QueueSettings(), world.answer)
    world.subscribe("s")
    world.commit()
    assert world.namespace.queues.get("q").runtime.accessed_at == 0
    world.now += 5000
    world.send("a", to="q")
    world.send("a")
    world.tick()
    world.now += DAY
    world.restart()
    assert world.namespace.queues.get("q").runtime.accessed_at == START + 5000
    assert world.topics.runtime(world.topics.get("orders")).accessed_at == START + 5000
    assert world.topics.subscription_runtime(world.topics.get_subscription("orders", "s")).accessed_at == 0


def test_what_is_idle_deletes_itself() -> None:
    world = World(auto_delete_on_idle=20 * MINUTE)
    world.subscribe("idle", auto_delete_on_idle=10 * MINUTE)
    world.subscribe("used", auto_delete_on_idle=10 * MINUTE)
    world.now += 9 * MINUTE
    world.send("a")  # a use of the topic, not of its subscriptions
    world.namespace.entities.get("orders/subscriptions/used").queue.peek(0, 1, world.now)
    world.tick(MINUTE)
    assert [subscription.name for subscription in world.topics.get("orders").subscriptions] == ["used"]
    world.tick(18 * MINUTE)
    assert world.topics.get("orders").subscriptions == []
    world.tick(MINUTE)
    assert world.topics.find("orders") is None
