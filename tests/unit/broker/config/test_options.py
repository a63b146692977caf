"""What a broker is told to serve."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.config.options import BrokerConfig, NamespaceConfig, from_file, from_options, to_document
from pairbus.broker.config.topic_documents import SubscriptionConfig, TopicConfig
from pairbus.broker.entities.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter
from pairbus.errors import OptionError


def written(tmp_path: Path, document: object) -> Path:
    file = tmp_path / "Config.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return file


def one_queue(properties: object, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "q", "Properties": properties}], **more}]}}


def one_topic(rule: object) -> dict[str, Any]:
    subscriptions = [{"Name": "s", "Rules": [{"Name": "r", "Properties": rule}]}]
    return one_queue({}, Topics=[{"Name": "t", "Subscriptions": subscriptions}])


# --- options ---------------------------------------------------------------------------------------------------------


def test_without_options_there_is_one_namespace() -> None:
    assert from_options([], []) == BrokerConfig((NamespaceConfig("localhost", 5672),))


def test_namespaces_without_a_port_of_their_own_get_the_next_ones() -> None:
    config = from_options(["a", "b:5700", "c"], [], port=6000, host="::1", data=Path("d"))
    assert [(each.name, each.port) for each in config.namespaces] == [("a", 6000), ("b", 5700), ("c", 6001)]
    assert (config.host, config.data) == ("::1", Path("d"))


def test_port_0_is_any_for_all() -> None:
    assert [each.port for each in from_options(["a", "b"], [], port=0).namespaces] == [0, 0]


@pytest.mark.parametrize(
    ("namespaces", "queue", "where", "path"),
    [
        (["a"], "orders", 0, "orders"),
        (["a"], "a/orders", 0, "orders"),
        (["a"], "orders/eu", 0, "orders/eu"),
        (["a", "B"], "b/orders/eu", 1, "orders/eu"),
    ],
)
def test_a_queue_is_named_with_its_namespace_or_without(
    namespaces: list[str], queue: str, where: int, path: str
) -> None:
    config = from_options(namespaces, [queue, queue])
    assert config.namespaces[where].queues == {path: QueueSettings()}


@pytest.mark.parametrize(
    ("namespaces", "queues", "option"),
    [
        (["1st"], [], "namespace"),
        (["a b"], [], "namespace"),
        ([""], [], "namespace"),
        (["a:b"], [], "namespace"),
        (["x" * 51], [], "namespace"),
        (["a", "A:1"], [], "namespace"),
        (["a", "b"], ["orders"], "queue"),
        (["a", "b"], ["c/orders"], "queue"),
    ],
)
def test_bad_options_are_refused_by_name(namespaces: list[str], queues: list[str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_options(namespaces, queues)
    assert caught.value.option == option


def test_a_queue_may_come_with_its_settings() -> None:
    settings = QueueSettings(requires_session=True)
    assert from_options([], {"orders": settings}).namespaces[0].queues == {"orders": settings}


# --- the emulator's file ---------------------------------------------------------------------------------------------


def test_a_file_of_the_emulator_is_read(tmp_path: Path) -> None:
    properties = {
        "DeadLetteringOnMessageExpiration": True,
        "DefaultMessageTimeToLive": "PT1H",
        "DuplicateDetectionHistoryTimeWindow": "PT20S",
        "ForwardDeadLetteredMessagesTo": "",
        "ForwardTo": None,
        "LockDuration": "PT1M30.5S",
        "MaxDeliveryCount": 3,
        "RequiresDuplicateDetection": False,
        "RequiresSession": True,
    }
    config = from_file(written(tmp_path, one_queue(properties, Topics=[])), port=7000)
    (namespace,) = config.namespaces
    assert (namespace.name, namespace.port) == ("ns", 7000)
    assert namespace.queues["q"] == QueueSettings(
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live=3_600_000,
        duplicate_detection_history_time_window=20_000,
        lock_duration=90_500,
        max_delivery_count=3,
        requires_session=True,
    )


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    settings = QueueSettings(status=EntityStatus.SEND_DISABLED, lock_duration=5001, default_message_time_to_live=10**12)
    config = from_options(["a:1", "b"], {"a/q": settings, "b/r": QueueSettings()})
    assert from_file(written(tmp_path, to_document(config))) == config


def test_topics_are_read_as_the_emulator_writes_them(tmp_path: Path) -> None:
    correlation = {"ContentType": "application/json", "Label": "new", "Properties": {"kind": "a"}}
    rules = [
        {"Name": "c", "Properties": {"FilterType": "Correlation", "CorrelationFilter": correlation}},
        {
            "Name": "s",
            "Properties": {
                "FilterType": "Sql",
                "SqlFilter": {"SqlExpression": "n > 1"},
                "Action": {"SqlExpression": "SET sys.To = 'x'"},
            },
        },
    ]
    subscription = {"Name": "s", "Properties": {"MaxDeliveryCount": 3, "ForwardTo": ""}, "Rules": rules}
    topic = {
        "Name": "t",
        "Properties": {"DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": True},
        "Subscriptions": [subscription, {"Name": "plain"}],
    }
    (namespace,) = from_file(written(tmp_path, one_queue({}, Topics=[topic]))).namespaces
    assert namespace.topics == {
        "t": TopicConfig(
            TopicSettings(default_message_time_to_live=3_600_000, requires_duplicate_detection=True),
            {
                "s": SubscriptionConfig(
                    SubscriptionSettings(max_delivery_count=3),
                    (
                        Rule(
                            "c",
                            CorrelationFilter(content_type="application/json", subject="new", properties={"kind": "a"}),
                        ),
                        Rule("s", SqlFilter("n > 1"), SqlAction("SET sys.To = 'x'")),
                    ),
                ),
                "plain": SubscriptionConfig(),
            },
        )
    }


def test_topics_that_were_written_are_read_again(tmp_path: Path) -> None:
    rules = (Rule("t"), Rule("f", FalseFilter()), Rule("c", CorrelationFilter(to="a", properties={"n": 1})))
    subscriptions = {"s": SubscriptionConfig(SubscriptionSettings(requires_session=True), rules)}
    topics = {"t": TopicConfig(TopicSettings(max_size_in_megabytes=2), subscriptions), "u": ["one", "two"]}
    config = from_options(["a"], [], topics, ["a/u/three", "v/w/four"])
    assert list(config.namespaces[0].topics["u"].subscriptions) == ["one", "two", "three"]
    assert list(config.namespaces[0].topics) == ["t", "u", "v/w"]
    assert from_file(written(tmp_path, to_document(config))) == config


@pytest.mark.parametrize(
    "rule",
    [
        Rule("r", SqlFilter("a = @b", {"@b": 1})),
        Rule("r", CorrelationFilter(properties={"since": datetime(2026, 1, 1, tzinfo=UTC)})),
    ],
)
def test_a_rule_that_a_file_cannot_say_is_refused(rule: Rule) -> None:
    subscription = SubscriptionConfig(rules=(rule,))
    config = from_options([], [], {"t": TopicConfig(subscriptions={"s": subscription})})
    with pytest.raises(OptionError, match="in a file"):
        to_document(config)


@pytest.mark.parametrize(
    ("namespaces", "topics", "subscriptions", "option"),
    [
        (["a", "b"], ["orders"], [], "topic"),
        (["a", "b"], [], ["orders/all"], "subscription"),
        (["a"], [], ["all"], "subscription"),
    ],
)
def test_a_topic_that_cannot_be_placed_is_refused(
    namespaces: list[str], topics: list[str], subscriptions: list[str], option: str
) -> None:
    with pytest.raises(OptionError) as caught:
        from_options(namespaces, [], topics, subscriptions)
    assert caught.value.option == option


def test_a_queue_needs_no_properties_and_each_namespace_has_a_port(tmp_path: Path) -> None:
    entries = [{"Name": "a", "Queues": [{"Name": "q"}]}, {"Name": "b"}]
    config = from_file(written(tmp_path, {"UserConfig": {"Namespaces": entries}}))
    assert [(each.port, dict(each.queues)) for each in config.namespaces] == [
        (5672, {"q": QueueSettings()}),
        (5673, {}),
    ]


TOPIC = "Namespaces[0].Topics[0]"
RULE = f"{TOPIC}.Subscriptions[0].Rules[0]"

BAD_FILES: list[tuple[object, str]] = [
    ("{", "config"),
    (one_queue({}, Port=65536), "Namespaces[0].Port"),
    (one_queue({}, Port="1"), "Namespaces[0].Port"),
    (one_queue({"Status": "Broken"}), "Namespaces[0].Queues[0].Status"),
    ([], "the file"),
    ({}, "UserConfig"),
    ({"UserConfig": {"Namespaces": {"a": 1}}}, "UserConfig.Namespaces"),
    ({"UserConfig": {"Namespaces": [1]}}, "Namespaces[0]"),
    ({"UserConfig": {"Namespaces": [{"Queues": []}]}}, "Namespaces[0].Name"),
    (one_queue({}, Topics=[{"Name": "t", "Properties": {"LockDuration": "PT1M"}}]), f"{TOPIC}.LockDuration"),
    (one_queue({}, Topics=[{"Properties": {}}]), f"{TOPIC}.Name"),
    (one_topic({"FilterType": "Magic"}), f"{RULE}.FilterType"),
    (one_topic({"FilterType": "Sql"}), f"{RULE}.SqlFilter"),
    (one_topic({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}}), RULE),
    (one_topic({"FilterType": "Correlation", "CorrelationFilter": {}}), RULE),
    (
        one_topic({"FilterType": "Correlation", "CorrelationFilter": {"Colour": "red"}}),
        f"{RULE}.CorrelationFilter.Colour",
    ),
    (one_queue([1]), "Namespaces[0].Queues[0]"),
    (one_queue({"Colour": 1}), "Namespaces[0].Queues[0].Colour"),
    (one_queue({"RequiresSession": "yes"}), "Namespaces[0].Queues[0].RequiresSession"),
    (one_queue({"MaxDeliveryCount": True}), "Namespaces[0].Queues[0].MaxDeliveryCount"),
    (one_queue({"MaxDeliveryCount": 0}), "max_delivery_count"),
    *[
        (one_queue({"LockDuration": value}), "Namespaces[0].Queues[0].LockDuration")
        for value in ("60", "P", "PT", "PT1X", 60, "PT-1S")
    ],
]


@pytest.mark.parametrize(("document", "option"), BAD_FILES)
def test_a_bad_file_is_refused_with_the_place_of_the_fault(tmp_path: Path, document: object, option: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_file(written(tmp_path, document))
    assert caught.value.option == option


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a JSON file that can be read"):
        from_file(tmp_path / "none.json")
