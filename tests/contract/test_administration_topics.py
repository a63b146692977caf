"""Topics, subscriptions and rules as the SDK's administration client makes, shows, lists, changes and deletes them."""

# The SDK's models are not typed throughout.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from tests.contract.conftest import Manage, Run
from tests.contract.lab import Lab, eventually, one, receive, send
from tests.contract.test_administration_queues import LONGEST

from pairbus.aio import NamespaceManager

VALUES: Mapping[str, Any] = {
    "text": "str1",
    "int": 2,
    "long": 2147483650,
    "double": 1.5,
    "bool": False,
    "time": datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC),
    "span": timedelta(days=1, hours=2, minutes=3),
}


def test_topics(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        made = await manager.create_topic("Events")
        assert dict(made.items()) == {
            "name": "Events",
            "default_message_time_to_live": LONGEST,
            "max_size_in_megabytes": 1024,
            "requires_duplicate_detection": False,
            "duplicate_detection_history_time_window": timedelta(minutes=10),
            "enable_batched_operations": True,
            "size_in_bytes": 0,
            "filtering_messages_before_publishing": False,
            "authorization_rules": None,
            "status": "Active",
            "support_ordering": True,
            "auto_delete_on_idle": LONGEST,
            "enable_partitioning": False,
            "availability_status": "Available",
            "enable_express": False,
            "user_metadata": None,
            "max_message_size_in_kilobytes": 256,
        }
        settings: dict[str, Any] = {
            "default_message_time_to_live": timedelta(minutes=11),
            "max_size_in_megabytes": 2048,
            "requires_duplicate_detection": True,
            "duplicate_detection_history_time_window": timedelta(minutes=12),
            "enable_batched_operations": False,
            "support_ordering": False,
            "auto_delete_on_idle": timedelta(minutes=10),
            "enable_partitioning": True,
            "user_metadata": "about it",
            "status": "SendDisabled",
        }
        await manager.create_topic("full/topic", **settings)
        with pytest.raises(ResourceExistsError, match=r"SubCode=40900\. Conflict"):
            await manager.create_topic("EVENTS")
        with pytest.raises(ResourceExistsError):  # queues and topics share their names
            await manager.create_queue("events")
        with pytest.raises(ResourceExistsError):
            await manager.create_topic("orders")
        await lab.restart()
        manager = lab.manager()
        shown = await manager.get_topic("full/topic")
        assert {name: shown[name] for name in settings} == settings
        assert [topic.name async for topic in manager.list_topics()] == ["Events", "full/topic"]
        assert [queue.name async for queue in manager.list_queues()] == ["orders"]
        assert [topic.name async for topic in manager.list_topics(start_index=1, max_page_size=1)] == ["full/topic"]
        await manager.update_topic(shown, status="Active", user_metadata=None, max_size_in_megabytes=1024)
        changed = await manager.get_topic("full/topic")
        assert (changed.status, changed.user_metadata, changed.max_size_in_megabytes) == ("Active", None, 1024)
        for wrong, why in (
            ({"requires_duplicate_detection": False}, "of an existing Topic cannot be changed"),
            ({"enable_partitioning": False}, "Partitioning cannot be changed for Topic"),
            ({"max_size_in_megabytes": 7}, "must be one of the following values"),
        ):
            with pytest.raises(HttpResponseError, match=why):
                await manager.update_topic(changed, **wrong)
        await manager.delete_topic("full/topic")
        with pytest.raises(ResourceNotFoundError, match="No service is hosted"):
            await manager.delete_topic("full/topic")
        with pytest.raises(ResourceNotFoundError, match="SubCode=40400"):
            await manager.update_topic(changed)
        with pytest.raises(ResourceNotFoundError, match="does not exist"):
            await manager.get_topic_runtime_properties("full/topic")

    run_durable(scenario)


def test_subscriptions(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        await manager.create_topic("events")
        made = await manager.create_subscription("events", "All")
        assert dict(made.items()) == {
            "name": "All",
            "lock_duration": timedelta(minutes=1),
            "requires_session": False,
            "default_message_time_to_live": LONGEST,
            "dead_lettering_on_message_expiration": False,
            "dead_lettering_on_filter_evaluation_exceptions": True,
            "max_delivery_count": 10,
            "enable_batched_operations": True,
            "status": "Active",
            "forward_to": None,
            "user_metadata": None,
            "forward_dead_lettered_messages_to": None,
            "auto_delete_on_idle": LONGEST,
            "availability_status": "Available",
        }
        settings: dict[str, Any] = {
            "lock_duration": timedelta(seconds=12),
            "default_message_time_to_live": timedelta(minutes=11),
            "dead_lettering_on_message_expiration": True,
            "dead_lettering_on_filter_evaluation_exceptions": False,
            "max_delivery_count": 14,
            "enable_batched_operations": False,
            "auto_delete_on_idle": timedelta(minutes=10),
            "user_metadata": "about it",
            "status": "ReceiveDisabled",
        }
        await manager.create_subscription(
            "Events", "full", forward_to="orders", forward_dead_lettered_messages_to="events", **settings
        )
        await manager.create_subscription("events", "sessions", requires_session=True)
        with pytest.raises(ResourceExistsError, match=r"Topic:events\|ALL' already exists"):
            await manager.create_subscription("events", "ALL")
        await lab.restart()
        manager = lab.manager()
        shown = await manager.get_subscription("events", "FULL")
        assert {name: shown[name] for name in settings} == settings
        assert str(shown.forward_to).endswith("/orders")
        assert str(shown.forward_dead_lettered_messages_to).endswith("/events")
        listed = [each.name async for each in manager.list_subscriptions("events")]
        assert listed == ["All", "full", "sessions"]
        assert [each.name async for each in manager.list_subscriptions("events", max_page_size=2)] == listed
        await manager.update_subscription("events", shown, max_delivery_count=3, forward_to=None, status="Active")
        changed = await manager.get_subscription("events", "full")
        assert (changed.max_delivery_count, changed.forward_to, changed.status) == (3, None, "Active")
        for wrong, why in (
            ({"requires_session": True}, "RequiresSession property of an existing Subscription cannot be changed"),
            ({"lock_duration": timedelta(days=25)}, "exceeds the allowed maximum of '5' minutes"),
            ({"forward_to": "nowhere"}, "destination entity does not exist"),
        ):
            with pytest.raises(HttpResponseError, match=why):
                await manager.update_subscription("events", changed, **wrong)
        await manager.delete_subscription("events", "FULL")
        for ask in (manager.get_subscription, manager.get_subscription_runtime_properties, manager.delete_subscription):
            with pytest.raises(ResourceNotFoundError, match=r"Topic:events\|full' was not found"):
                await ask("events", "full")
            with pytest.raises(ResourceNotFoundError):
                await ask("nowhere", "full")
        with pytest.raises(ResourceNotFoundError):
            await manager.update_subscription("events", changed)
        with pytest.raises(ResourceNotFoundError):
            await manager.create_subscription("nowhere", "all")
        with pytest.raises(ResourceNotFoundError):
            [each async for each in manager.list_subscriptions("nowhere")]
        await manager.delete_topic("events")
        await manager.create_topic("events")
        assert [each.name async for each in manager.list_subscriptions("events")] == []

    run_durable(scenario)


def test_counts_of_topics_and_subscriptions_are_true(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        await manager.create_topic("events")
        await manager.create_subscription("events", "all")
        await manager.create_subscription("events", "some")
        await manager.create_rule("events", "all", "sql", filter=SqlRuleFilter("color = 'red'"))
        await manager.create_rule("events", "all", "same", filter=CorrelationRuleFilter(correlation_id="1"))
        await manager.delete_rule("events", "some", "$Default")
        sender = await lab.topic_sender("events")
        await send(sender, "a", "b", "c")
        await sender.schedule_messages(ServiceBusMessage("later"), lab.clock.utc(3600))
        receiver = await lab.subscription_receiver("events", "all")
        locked, dead = await receive(receiver, 2)
        await receiver.dead_letter_message(dead)
        topic = await manager.get_topic_runtime_properties("events")
        assert (topic.subscription_count, topic.scheduled_message_count) == (2, 1)
        assert (topic.sql_filter_count, topic.correlation_filter_count) == (2, 1)
        assert cast("int", topic.size_in_bytes) > 100
        assert cast("Any", topic.created_at_utc) <= cast("Any", topic.accessed_at_utc)
        got = await manager.get_subscription_runtime_properties("events", "all")
        assert (got.active_message_count, got.dead_letter_message_count, got.total_message_count) == (2, 1, 3)
        listed = manager.list_subscriptions_runtime_properties("events")
        assert {each.name: each.total_message_count async for each in listed} == {"all": 3, "some": 0}
        assert [each.subscription_count async for each in manager.list_topics_runtime_properties()] == [2]
        await receiver.complete_message(locked)
        await eventually(
            lambda: manager.get_subscription_runtime_properties("events", "all"),
            lambda now: now.active_message_count == 1,
        )

    run(scenario)


def test_rules(run_durable: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        await manager.create_topic("events")
        await manager.create_subscription("events", "all")
        rules: dict[str, tuple[Any, Any]] = {
            "acts": (TrueRuleFilter(), SqlRuleAction("SET priority = @p", parameters={"@p": VALUES["time"]})),
            "correlates": (
                CorrelationRuleFilter(
                    correlation_id="1",
                    message_id="2",
                    to="3",
                    reply_to="4",
                    label="5",
                    session_id="6",
                    reply_to_session_id="7",
                    content_type="8",
                    properties=dict(VALUES),
                ),
                None,
            ),
            "nothing": (FalseRuleFilter(), None),
            "sql": (SqlRuleFilter("priority = @a", parameters={"@a": "x", "@b": 1}), SqlRuleAction("REMOVE priority")),
        }
        for name, (each, action) in rules.items():
            check(await manager.create_rule("events", "all", name, filter=each, action=action), name, each, action)
        with pytest.raises(ResourceExistsError, match=r"Topic:events\|all\|SQL' already exists"):
            await manager.create_rule("events", "all", "SQL", filter=TrueRuleFilter())
        await lab.restart()
        manager = lab.manager()
        for name, (each, action) in rules.items():
            check(await manager.get_rule("events", "all", name), name, each, action)
        listed = [rule async for rule in manager.list_rules("events", "all")]
        assert [rule.name for rule in listed] == ["$Default", *rules]
        check(listed[0], "$Default", TrueRuleFilter(), None)
        check(listed[2], "correlates", *rules["correlates"])
        pages = manager.list_rules("events", "all", start_index=1, max_page_size=2)
        assert [rule.name async for rule in pages] == list(rules)
        await manager.update_rule("events", "all", listed[4], filter=CorrelationRuleFilter(label="new"), action=None)
        check(await manager.get_rule("events", "all", "sql"), "sql", CorrelationRuleFilter(label="new"), None)
        await manager.delete_rule("events", "all", "SQL")
        for ask in (manager.get_rule, manager.delete_rule):
            with pytest.raises(ResourceNotFoundError, match=r"Topic:events\|all\|sql' was not found"):
                await ask("events", "all", "sql")
            with pytest.raises(ResourceNotFoundError):
                await ask("events", "nowhere", "sql")
        with pytest.raises(ResourceNotFoundError):
            await manager.update_rule("events", "all", listed[4])
        with pytest.raises(ResourceNotFoundError):
            await manager.create_rule("events", "nowhere", "sql", filter=TrueRuleFilter())
        with pytest.raises(ResourceNotFoundError):
            [rule async for rule in manager.list_rules("events", "nowhere")]

    run_durable(scenario)


def check(rule: RuleProperties, name: str, expected: Any, action: Any) -> None:  # noqa: ANN401 (any filter)
    assert rule.name == name
    assert type(rule.filter) is type(expected)
    shown: dict[str, Any] = vars(rule.filter)
    wanted: dict[str, Any] = vars(expected)
    for values in (shown, wanted):
        for part in ("properties", "parameters"):
            if part in values:
                values[part] = {**(values[part] or {})}
    if not isinstance(expected, FalseRuleFilter):  # the SDK writes 1>1, the cloud 1=0
        assert shown == wanted
    assert (rule.action is None) == (action is None)
    if action is not None:
        assert rule.action is not None
        assert rule.action.sql_expression == action.sql_expression
        assert dict(rule.action.parameters or {}) == dict(action.parameters or {})
    assert rule.created_at_utc is not None


def test_rules_take_effect(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        manager = lab.manager()
        await manager.create_topic("events")
        await manager.create_subscription("events", "red")
        await manager.delete_rule("events", "red", "$Default")
        await manager.create_rule(
            "events",
            "red",
            "red",
            filter=SqlRuleFilter("color = @c", parameters={"@c": "red"}),
            action=SqlRuleAction("SET seen = @s", parameters={"@s": 7}),
        )
        sender = await lab.topic_sender("events")
        receiver = await lab.subscription_receiver("events", "red")
        await sender.send_messages(
            [ServiceBusMessage(color, application_properties={"color": color}) for color in ("blue", "red")]
        )
        message = await one(receiver)
        assert str(message) == "red"
        names = {key if isinstance(key, bytes) else key.encode() for key in message.application_properties or {}}
        assert {b"color", b"seen"} <= names
        rule = await manager.get_rule("events", "red", "red")
        rule.filter = CorrelationRuleFilter(properties={"color": "blue"})
        await manager.update_rule("events", "red", rule)
        await sender.send_messages(
            [ServiceBusMessage(color, application_properties={"color": color}) for color in ("red", "blue")]
        )
        assert str(await one(receiver)) == "blue"

    run(scenario)


@pytest.mark.parametrize(
    ("each", "action", "why"),
    [
        (SqlRuleFilter("color ="), None, "There was an error parsing the SQL expression"),
        (SqlRuleFilter("a = '" + "x" * 1024 + "'"), None, "1024 at most"),
        (CorrelationRuleFilter(), None, "at least one condition"),
        (TrueRuleFilter(), SqlRuleAction("color = 1"), "There was an error parsing the SQL expression"),
    ],
    ids=["sql", "long", "empty", "action"],
)
def test_rules_that_cannot_be(manage: Manage, each: Any, action: Any, why: str) -> None:  # noqa: ANN401 (any filter)
    async def scenario(manager: NamespaceManager) -> None:
        await manager.create_topic("ruled")
        await manager.create_subscription("ruled", "all")
        try:
            with pytest.raises(HttpResponseError, match=why) as refused:
                await manager.create_rule("ruled", "all", "bad", filter=each, action=action)
            assert refused.value.status_code == 400
            assert [rule.name async for rule in manager.list_rules("ruled", "all")] == ["$Default"]
        finally:
            await manager.delete_topic("ruled")

    manage(scenario)


@pytest.mark.parametrize("name", ["a b", "a#b", "x" * 51, "\u00fc"])
def test_names_that_no_subscription_or_rule_can_have(manage: Manage, name: str) -> None:
    async def scenario(manager: NamespaceManager) -> None:
        await manager.create_topic("named")
        try:
            await manager.create_subscription("named", "x" * 50)
            for wrong in (
                manager.create_subscription("named", name),
                manager.create_rule("named", "x" * 50, name, filter=TrueRuleFilter()),
            ):
                with pytest.raises(HttpResponseError, match=r"not allowed by Service Bus|exceeds the '50'") as refused:
                    await wrong
                assert refused.value.status_code == 400
        finally:
            await manager.delete_topic("named")

    manage(scenario)


def test_the_namespace_itself(manage: Manage) -> None:
    async def scenario(manager: NamespaceManager) -> None:
        shown = await manager.get_namespace_properties()
        assert (shown.name, shown.messaging_sku, shown.namespace_type) == ("localhost", "Standard", "Messaging")
        assert shown.alias is None
        assert cast("datetime", shown.created_at_utc) <= datetime.now(UTC)

    manage(scenario)
