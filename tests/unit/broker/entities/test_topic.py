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
    MINUTE,
    EntityStatus,
    TopicSettings,
)
from pairbus.broker.filters import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter
from pairbus.broker.refusals import RefusedError

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
    queue = world.namespace.entities.get("orders/subscriptions/s").queue
    (held,) = queue.take(1, world.now)
    assert held.token is not None
    world.commit()
    queue.defer(held.token, world.now, world.answer)
    assert (world.store.journal.rows, len(world.store.journal.states)) == ([], 1)
    world.commit()
    world.restart()
    queue = world.namespace.entities.get("orders/subscriptions/s").queue
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
    queue = world.namespace.entities.get("orders/subscriptions/one").queue
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
    queue = world.namespace.entities.get("orders/subscriptions/all").queue
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
        world.namespace.entities.get("orders/subscriptions/off").queue.take(1, world.now)


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
