"""The settings of entities."""

from typing import Any

import pytest

from pairbus.broker.access.policies import Policy, Right
from pairbus.broker.entities.settings import (
    DAY,
    MINUTE,
    SECOND,
    EntityStatus,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)
from pairbus.errors import OptionError


def test_the_defaults_are_the_clouds() -> None:
    settings = QueueSettings()
    assert (settings.lock_duration, settings.max_delivery_count) == (MINUTE, 10)
    assert (settings.max_bytes, settings.max_message_bytes) == (1 << 30, 256 * 1024)
    assert settings.status is EntityStatus.ACTIVE


def test_settings_survive_being_stored() -> None:
    settings = QueueSettings(
        lock_duration=5 * SECOND,
        requires_session=True,
        default_message_time_to_live=DAY,
        auto_delete_on_idle=5 * MINUTE,
        status=EntityStatus.SEND_DISABLED,
        user_metadata="é",
        authorization_rules=(Policy("a", (Right.SEND, Right.LISTEN)), Policy("b", (Right.MANAGE,))),
    )
    assert QueueSettings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("option", "low", "high"),
    [
        ("lock_duration", 5 * SECOND, 5 * MINUTE),
        ("max_size_in_megabytes", 1, 80 * 1024),
        ("max_delivery_count", 1, 2**31 - 1),
        ("max_message_size_in_kilobytes", 1, 100 * 1024),
        ("duplicate_detection_history_time_window", 20 * SECOND, 7 * DAY),
        ("default_message_time_to_live", SECOND, 2**63),
        ("auto_delete_on_idle", 5 * MINUTE, 2**63),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(option: str, low: int, high: int) -> None:
    values: dict[str, Any] = {}
    for values[option] in (low, high):
        assert getattr(QueueSettings(**values), option) == values[option]
    for values[option] in (low - 1, high + 1):
        with pytest.raises(OptionError, match=option):
            QueueSettings(**values)


@pytest.mark.parametrize("values", [{"status": "Broken"}, {"requires_session": True, "forward_to": "other"}])
def test_what_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Broken|sessions cannot forward"):
        QueueSettings(**values)


def test_topics_and_subscriptions_have_the_clouds_defaults_and_survive_being_stored() -> None:
    topic = TopicSettings(status=EntityStatus.SEND_DISABLED, default_message_time_to_live=DAY)
    subscription = SubscriptionSettings(forward_to="audit", auto_delete_on_idle=5 * MINUTE)
    assert TopicSettings.from_json(topic.to_json()) == topic
    assert SubscriptionSettings.from_json(subscription.to_json()) == subscription
    assert subscription.dead_lettering_on_filter_evaluation_exceptions
    assert (subscription.lock_duration, subscription.max_delivery_count) == (MINUTE, 10)
    assert topic.max_message_bytes == 256 * 1024


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TopicSettings, {"max_size_in_megabytes": 0}),
        (TopicSettings, {"duplicate_detection_history_time_window": SECOND}),
        (TopicSettings, {"auto_delete_on_idle": SECOND}),
        (SubscriptionSettings, {"lock_duration": SECOND}),
        (SubscriptionSettings, {"max_delivery_count": 0}),
        (SubscriptionSettings, {"default_message_time_to_live": 1}),
        (SubscriptionSettings, {"requires_session": True, "forward_to": "other"}),
    ],
)
def test_what_a_topic_or_a_subscription_cannot_have_is_refused(kind: type[Any], values: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=list(values)[-1]):
        kind(**values)


def test_a_subscription_to_a_disabled_topic_gives_nothing() -> None:
    of_disabled = SubscriptionSettings().for_queue(TopicSettings(status=EntityStatus.DISABLED))
    assert of_disabled.status is EntityStatus.DISABLED
    assert SubscriptionSettings().for_queue(TopicSettings(status=EntityStatus.SEND_DISABLED)).status.gives_messages
