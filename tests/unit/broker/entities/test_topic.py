"""A topic and its subscriptions in a namespace on a store in memory that can refuse."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.entities.conftest import START, name_of, payload, properties_of
from tests.unit.broker.entities.topic_world import World

from pairbus.amqp.message import Message
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.entities.message import ENQUEUED_NUMBER, PING, SCHEDULED_TIME, read_incoming
from pairbus.broker.entities.settings import (
    DAY,
    MINUTE,
    EntityStatus,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)
from pairbus.broker.filters import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter
from pairbus.broker.refusals import EntityExistsError, RefusedError
from pairbus.errors import OptionError

SOON = 10_000
BROKEN = SqlFilter("n / 0 > 1")


@pytest.fixture
def world() -> World:
    return World()


def schedule(after: int = SOON) -> dict[Any, Any]:
    return {SCHEDULED_TIME: Timestamp(START + after)}


# --- fan-out ---------------------------------------------------------------------------------------------------------


def test_each_subscription_that_has_a_rule_for_it_gets_a_copy(world: World) -> None:
    world.subscribe("all")
    world.subscribe("red", Rule("red", SqlFilter("color = 'red'")))
    world.subscribe("blue", Rule("blue", CorrelationFilter(properties={"color": "blue"})))
    world.subscribe("none", Rule("none", FalseFilter()))
    world.send("a", application_properties={"color": "red"})
    world.send("b", application_properties={"color": "blue"})
    world.send("c")
    found = {name: world.names(name) for name in ("all", "red", "blue", "none")}
    assert found == {"all": ["a", "b", "c"], "red": ["a"], "blue": ["b"], "none": []}
    assert world.answers[-3:] == [None, None, None]
    assert world.is_balanced()


def test_numbers_are_the_subscriptions_and_the_topics(world: World) -> None:
    world.subscribe("all")
    world.subscribe("b", Rule("b", SqlFilter("sys.Label = 'b'")))
    world.send("a", properties=Properties(subject="a"))
    assert world.send("b", properties=Properties(subject="b")) == [2]
    (held,) = world.held("b")
    assert held.sequence == 1
    assert Message(held.payload).message_annotations()[ENQUEUED_NUMBER] == 2


def test_copies_share_their_bytes(world: World) -> None:
    for name in ("one", "two", "three"):
        world.subscribe(name)
    world.send("a")
    payloads = [world.held(name)[0].payload for name in ("one", "two", "three")]
    assert payloads[0] is payloads[1] is payloads[2]


def test_a_copy_that_is_deferred_leaves_its_body_where_it_is(world: World) -> None:
    world.subscribe("s")
    world.send("a")
    queue = world.namespace.get("orders/subscriptions/s").queue
    (held,) = queue.take(1, world.now)
    assert held.token is not None
    world.commit()
    queue.defer(held.token, world.now, world.answer)
    assert (world.store.journal.rows, len(world.store.journal.states)) == ([], 1)
    world.commit()
    world.restart()
    queue = world.namespace.get("orders/subscriptions/s").queue
    assert [name_of(each) for each in queue.take_deferred([1], world.now)] == ["a"]


def test_rules_without_an_action_make_one_copy_and_those_with_one_a_copy_each(world: World) -> None:
    rules = [Rule(name, SqlFilter("n > 0")) for name in "abc"]
    rules += [Rule(f"Set{name}", SqlFilter("n > 0"), SqlAction(f"SET {name} = n")) for name in "xy"]
    world.subscribe("five", *rules)
    world.send("a", application_properties={"n": 1})
    properties = [properties_of(held) for held in world.held("five")]
    assert properties == [{"n": 1}, {"n": 1, "x": 1, "RuleName": "Setx"}, {"n": 1, "y": 1, "RuleName": "Sety"}]
    world.send("b", application_properties={"n": 0})
    assert len(world.held("five")) == 3


def test_what_an_action_sets_is_acted_upon(world: World) -> None:
    world.topics.update("orders", TopicSettings(default_message_time_to_live=5000), world.answer)
    world.subscribe("s", Rule("r", SqlFilter("1=1"), SqlAction("SET sys.SessionId = region")), requires_session=True)
    world.send("a", application_properties={"region": "eu"})
    (held,) = world.held("s")
    assert (held.session, held.expires) == ("eu", START + 5000)


def test_nothing_is_there_if_the_store_refuses(world: World) -> None:
    world.subscribe("one")
    world.subscribe("two", Rule("r", SqlFilter("1=1"), SqlAction("SET a = 1")))
    world.send("lost", full=True)
    assert isinstance(world.answers[-1], RefusedError)
    assert world.names("one") == world.names("two") == []
    assert world.is_balanced()
    world.send("kept")
    assert world.names("one") == world.names("two") == ["kept"]


def test_a_batch_is_taken_or_refused_as_one(world: World) -> None:
    world.topics.update("orders", TopicSettings(max_message_size_in_kilobytes=1), world.answer)
    world.subscribe("all")
    with pytest.raises(RefusedError):
        world.send("a", "b" * 2000)
    assert world.names("all") == []
    assert world.send("a", "b", "c") == [1, 2, 3]
    assert world.names("all") == ["a", "b", "c"]


def test_a_ping_reaches_no_subscription(world: World) -> None:
    """G3."""
    world.subscribe("all")
    assert world.send("", properties=Properties(content_type=Symbol(PING))) == [0]
    assert world.names("all") == []
    assert world.answers[-1] is None


@given(
    filters=st.dictionaries(
        st.sampled_from("abcde"),
        st.lists(
            st.builds("color = '{}'".format, st.sampled_from(("red", "blue")))
            | st.builds("n > {}".format, st.integers(0, 3))
            | st.builds("color = '{}' AND n = {}".format, st.sampled_from(("red", "blue")), st.integers(0, 3)),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
    ),
    messages=st.lists(
        st.dictionaries(st.sampled_from(("color", "n")), st.none(), max_size=2).flatmap(
            lambda names: st.fixed_dictionaries(
                {
                    name: st.sampled_from(("red", "blue", "green")) if name == "color" else st.integers(0, 4)
                    for name in names
                }
            )
        ),
        max_size=8,
    ),
    in_batches=st.booleans(),
)
def test_fan_out_is_each_subscription_judging_for_itself(
    filters: dict[str, list[str]], messages: list[dict[str, Any]], *, in_batches: bool
) -> None:
    world = World()
    for name, expressions in filters.items():
        rules = [
            Rule(f"r{index}", SqlFilter(each), SqlAction("SET hit = 1") if index % 2 else None)
            for index, each in enumerate(expressions)
        ]
        world.subscribe(name, *rules)
    incoming = [
        read_incoming(payload(str(index), application_properties=properties))
        for index, properties in enumerate(messages)
    ]
    topic = world.topics.get("orders")
    if in_batches and incoming:
        topic.send(incoming, world.now, world.answer)
    else:
        for each in incoming:
            topic.send([each], world.now, world.answer)
    world.commit()
    world.restart()
    for name, expressions in filters.items():
        expected: Counter[str] = Counter()
        for index, properties in enumerate(messages):
            hits = [judged(each, properties) for each in expressions]
            expected[str(index)] += any(hits[::2]) + sum(hits[1::2])
        assert Counter(world.names(name)) == +expected
    assert world.is_balanced()


def judged(expression: str, properties: dict[str, Any]) -> bool:
    """Evaluate one of the expressions above, by other means."""
    parts = expression.split(" AND ")
    for part in parts:
        name, operator, value = part.split(" ")
        if name not in properties:
            return False
        if operator == ">" and not properties[name] > int(value):
            return False
        if operator == "=" and str(properties[name]) != value.strip("'"):
            return False
    return True


# --- what cannot be had ----------------------------------------------------------------------------------------------


def test_a_filter_that_fails_sends_the_message_to_the_dead(world: World) -> None:
    world.subscribe("told", Rule("broken", BROKEN), Rule("fine"))
    world.subscribe("silent", Rule("broken", BROKEN), dead_lettering_on_filter_evaluation_exceptions=False)
    world.subscribe("fine")
    world.send("a", application_properties={"n": 1})
    assert (world.names("told"), world.dead("told")) == ([], [("a", "FilterEvaluationException")])
    assert (world.names("silent"), world.dead("silent")) == ([], [])
    assert world.names("fine") == ["a"]
    assert world.is_balanced()


def test_an_action_that_fails_does_so_too(world: World) -> None:
    world.subscribe("told", Rule("broken", SqlFilter("1=1"), SqlAction("SET a = n / 0")))
    world.send("a", application_properties={"n": 1})
    assert (world.names("told"), world.dead("told")) == ([], [("a", "FilterEvaluationException")])


def test_a_message_without_a_session_is_dead_where_one_is_needed(world: World) -> None:
    world.subscribe("sessions", requires_session=True)
    world.subscribe("plain")
    world.send("a")
    world.send("b", properties=Properties(group_id="eu"))
    assert [(name_of(held), held.session) for held in world.held("sessions")] == [("b", "eu")]
    assert world.dead("sessions") == [("a", "Session ID is null.")]
    assert world.names("plain") == ["a", "b"]


def test_a_topic_is_full_when_its_subscriptions_are(world: World) -> None:
    world.topics.update("orders", TopicSettings(max_size_in_megabytes=1), world.answer)
    world.subscribe("one")
    world.subscribe("two")
    for _ in range(5):
        world.send("x" * 100_000)
    world.send("x" * 40_000)
    with pytest.raises(RefusedError, match="maximum entity size"):
        world.send("x" * 40_000)
    queue = world.namespace.get("orders/subscriptions/one").queue
    queue.take_away(3, world.now)
    world.commit()
    world.send("x" * 40_000)
    assert world.is_balanced()


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_a_disabled_topic_takes_nothing_but_publishes_what_is_due(world: World, status: EntityStatus) -> None:
    world.subscribe("all")
    world.send("later", message_annotations=schedule())
    world.topics.update("orders", TopicSettings(status=status), world.answer)
    with pytest.raises(RefusedError, match="disabled"):
        world.send("a")
    world.tick(SOON)
    assert world.names("all") == ["later"]
    queue = world.namespace.get("orders/subscriptions/all").queue
    if status is EntityStatus.DISABLED:
        with pytest.raises(RefusedError, match="disabled"):
            queue.take(1, world.now)
        world.topics.update("orders", TopicSettings(), world.answer)
    assert len(queue.take(1, world.now)) == 1


def test_a_disabled_subscription_gets_its_copies(world: World) -> None:
    world.subscribe("off", status=EntityStatus.DISABLED)
    world.send("a")
    assert world.names("off") == ["a"]
    with pytest.raises(RefusedError, match="disabled"):
        world.namespace.get("orders/subscriptions/off").queue.take(1, world.now)


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_shortest_life_counts(world: World) -> None:
    world.topics.update("orders", TopicSettings(default_message_time_to_live=5000), world.answer)
    world.subscribe("long", default_message_time_to_live=9000)
    world.subscribe("short", default_message_time_to_live=2000)
    world.send("a")
    world.send("b", header=Header(ttl=1000))
    assert [held.expires for held in world.held("long")] == [START + 5000, START + 1000]
    assert [held.expires for held in world.held("short")] == [START + 2000, START + 1000]


def test_a_scheduled_message_waits_with_the_topic_and_meets_the_rules_of_then(world: World) -> None:
    world.subscribe("early", Rule("r", SqlFilter("color = 'red'")))
    (number,) = world.send("a", message_annotations=schedule(), application_properties={"color": "red"})
    assert number == 1
    assert world.topics.runtime(world.topics.get("orders")).scheduled_message_count == 1
    world.topics.update_rule("orders", "early", Rule("r", SqlFilter("color = 'blue'")), world.answer)
    world.subscribe("late")
    world.tick(SOON - 1)
    assert world.names("late") == []
    world.tick(1)
    assert (world.names("early"), world.names("late")) == ([], ["a"])
    (held,) = world.held("late")
    assert (held.enqueued, Message(held.payload).message_annotations()[ENQUEUED_NUMBER]) == (START + SOON, 2)
    assert world.is_balanced()


def test_a_scheduled_message_can_be_cancelled_once(world: World) -> None:
    world.subscribe("all")
    numbers = world.send("a", "b", message_annotations=schedule())
    topic = world.topics.get("orders")
    topic.cancel_scheduled([numbers[0]], world.now, world.answer)
    with pytest.raises(RefusedError, match="Failed to find"):
        topic.cancel_scheduled([numbers[0]], world.now, world.answer)
    world.commit()
    world.tick(SOON)
    assert world.names("all") == ["b"]
    assert world.is_balanced()


def test_scheduled_messages_survive_a_restart_and_a_store_that_refuses(world: World) -> None:
    world.subscribe("all")
    world.send("a", message_annotations=schedule(), header=Header(ttl=5000))
    world.restart()
    assert world.namespace.wake_at == START + SOON
    world.tick(SOON, full=True)
    assert world.names("all") == []
    world.tick(1000)
    (held,) = world.held("all")
    assert held.expires == START + SOON + 1000 + 5000
    world.tick(1000)
    assert world.names("all") == ["a"]
    assert world.is_balanced()


def test_duplicates_are_left_out_also_after_a_restart() -> None:
    world = World(requires_duplicate_detection=True)
    world.subscribe("all")
    same = Properties(message_id="1")
    assert world.send("a", properties=same) == [1]
    assert world.send("again", properties=same) == [0]
    world.restart()
    assert world.send("again", properties=same) == [0]
    assert world.names("all") == ["a"]
    world.now += 10 * MINUTE
    world.send("new", properties=same)
    assert world.names("all") == ["a", "new"]


def test_a_duplicate_of_a_message_that_is_refused_is_refused_too_and_the_id_is_free_again() -> None:
    world = World(requires_duplicate_detection=True)
    world.subscribe("all")
    same = Properties(message_id="1")
    topic, before = world.topics.get("orders"), len(world.answers)
    topic.send([read_incoming(payload("lost", properties=same))], world.now, world.answer)
    world.store.full = True
    world.store.flush()
    topic.send([read_incoming(payload("again", properties=same))], world.now, world.answer)
    world.commit()
    assert [refused is not None for refused in world.answers[before:]] == [True, True]
    world.send("new", properties=same)
    assert world.send("new again", properties=same) == [0]
    assert world.names("all") == ["new"]
    assert world.is_balanced()


# --- administration --------------------------------------------------------------------------------------------------


def test_names_are_compared_without_case_and_kept_as_they_were_given(world: World) -> None:
    world.subscribe("All")
    assert world.topics.get("ORDERS/").path == "orders"
    assert world.topics.get_subscription("Orders", "ALL").name == "All"
    assert world.topics.get_rule("orders", "all", "$default").rule == Rule()
    with pytest.raises(EntityExistsError):
        world.topics.create("Orders", TopicSettings(), world.answer)
    with pytest.raises(EntityExistsError):
        world.namespace.create_queue("Orders", QueueSettings(), world.answer)
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
        lambda: world.namespace.get_queue("orders"),
        lambda: world.namespace.get_queue("orders/subscriptions/all"),
        lambda: world.namespace.get_destination("orders/subscriptions/all"),
        lambda: world.namespace.get("orders"),
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
    assert list(world.namespace) == []


def test_runtime_properties_count_what_there_is(world: World) -> None:
    world.subscribe("s", dead_lettering_on_message_expiration=True)
    world.send("a", "b", "c")
    world.send("later", message_annotations=schedule())
    queue = world.namespace.get("orders/subscriptions/s").queue
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
    world.namespace.create_queue("q", QueueSettings(), world.answer)
    world.subscribe("s")
    world.commit()
    assert world.namespace.get_queue("q").runtime.accessed_at == 0
    world.now += 5000
    world.send("a", to="q")
    world.send("a")
    world.tick()
    world.now += DAY
    world.restart()
    assert world.namespace.get_queue("q").runtime.accessed_at == START + 5000
    assert world.topics.runtime(world.topics.get("orders")).accessed_at == START + 5000
    assert world.topics.subscription_runtime(world.topics.get_subscription("orders", "s")).accessed_at == 0


def test_what_is_idle_deletes_itself() -> None:
    world = World(auto_delete_on_idle=20 * MINUTE)
    world.subscribe("idle", auto_delete_on_idle=10 * MINUTE)
    world.subscribe("used", auto_delete_on_idle=10 * MINUTE)
    world.now += 9 * MINUTE
    world.send("a")  # a use of the topic, not of its subscriptions
    world.namespace.get("orders/subscriptions/used").queue.peek(0, 1, world.now)
    world.tick(MINUTE)
    assert [subscription.name for subscription in world.topics.get("orders").subscriptions] == ["used"]
    world.tick(18 * MINUTE)
    assert world.topics.get("orders").subscriptions == []
    world.tick(MINUTE)
    assert world.topics.find("orders") is None
