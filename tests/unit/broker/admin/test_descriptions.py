"""Descriptions of queues, topics and subscriptions in XML, both ways, and what is checked in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.access.policies import Policy, Right
from pairbus.broker.admin.descriptions import QUEUE, SUBSCRIPTION, TOPIC, Kind, counts, path_of
from pairbus.broker.admin.documents import tag
from pairbus.broker.admin.problems import ProblemError
from pairbus.broker.admin.validation import check_name, check_path, check_settings
from pairbus.broker.admin.xml import CONNECT, INSTANCE, parse
from pairbus.broker.entities.runtime import Runtime
from pairbus.broker.entities.settings import (
    EntityStatus,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)

TEXTS = st.none() | st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1
)
PATHS = st.none() | st.from_regex(r"[a-zA-Z0-9._-]+(/[a-zA-Z0-9._-]+)?", fullmatch=True)
DAYS = 86_400_000
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "lock_duration": st.integers(5000, 300_000),
    "max_size_in_megabytes": st.integers(1, 80 * 1024),
    "default_message_time_to_live": st.none() | st.integers(1000, 10_000_000 * DAYS),
    "duplicate_detection_history_time_window": st.integers(20_000, 7 * DAYS),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "status": st.sampled_from(EntityStatus),
    "auto_delete_on_idle": st.none() | st.integers(300_000, 10_000_000 * DAYS),
    "forward_to": PATHS,
    "forward_dead_lettered_messages_to": PATHS,
    "max_message_size_in_kilobytes": st.integers(1, 100 * 1024),
    "user_metadata": TEXTS,
    "authorization_rules": st.lists(
        st.builds(
            Policy,
            st.sampled_from(["checkout", "web <shop>", "\u00fc"]),
            st.lists(st.sampled_from(Right), min_size=1).map(tuple),
            st.just("a2V5+/="),
        ),
        unique_by=lambda policy: policy.name,
    ).map(tuple),
}


def settings_of(kind: Kind, cls: type[Any]) -> st.SearchStrategy[Any]:
    """Make any settings of a kind; what is not listed above is true or false."""
    names = [each.setting for each in kind.properties if each.setting and each.setting != "requires_session"]
    return st.builds(cls, **{name: SETTINGS.get(name, st.booleans()) for name in names})


KINDS = [(QUEUE, QueueSettings), (TOPIC, TopicSettings), (SUBSCRIPTION, SubscriptionSettings)]


@pytest.mark.parametrize(("kind", "cls"), KINDS, ids=lambda value: getattr(value, "name", ""))
@given(data=st.data())
def test_settings_are_read_as_they_were_written(kind: Kind, cls: type[Any], data: st.DataObject) -> None:
    settings = data.draw(settings_of(kind, cls))
    written = kind.write(settings, {}, host="127.0.0.1:5672", version="2021-05")
    assert cls(**kind.read(parse(written.encode()))) == settings


@pytest.mark.parametrize(("kind", "cls"), KINDS, ids=lambda value: getattr(value, "name", ""))
def test_elements_are_the_settings_and_nothing_is_forgotten(kind: Kind, cls: type[Any]) -> None:
    named = [each.setting for each in kind.properties if each.setting]
    assert sorted(named) == sorted(cls.__dataclass_fields__)
    check_settings(kind, {name: getattr(cls(), name) for name in named}, None)


def read(content: str, kind: Kind = QUEUE) -> dict[str, Any]:
    body = f'<{kind.element} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{content}</{kind.element}>'
    return kind.read(parse(body.encode()))


def test_what_the_broker_tells_is_read_over() -> None:
    told = tag("SizeInBytes", "7") + tag("CountDetails", counts(Runtime(active_message_count=3)))
    assert read(f'{told}<ForwardTo i:nil="true"/><MaxDeliveryCount>3</MaxDeliveryCount>') == {"max_delivery_count": 3}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<Surprise/>", "The element 'Surprise' is not expected in 'QueueDescription'"),
        ("<MaxDeliveryCount>1</MaxDeliveryCount><MaxDeliveryCount>2</MaxDeliveryCount>", "or not again"),
        ('<LockDuration xmlns="urn:other">PT1M</LockDuration>', "'LockDuration' is not expected"),
        ("<LockDuration>5 minutes</LockDuration>", "'5 minutes' of the property 'LockDuration'"),
        ("<LockDuration/>", "a duration of ISO 8601"),
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "a whole number"),
        ("<RequiresSession>maybe</RequiresSession>", "true or false"),
        ("<Status>Renaming</Status>", "one of Active, Disabled, SendDisabled, ReceiveDisabled"),
    ],
)
def test_descriptions_that_cannot_be_read(content: str, why: str) -> None:
    with pytest.raises(ProblemError) as refused:
        read(content)
    assert why in refused.value.detail


def test_an_old_version_of_the_api_does_not_know_everything() -> None:
    def elements(version: str) -> set[str]:
        return {child.name for child in parse(QUEUE.write(QueueSettings(), {}, host="h", version=version).encode())}

    assert elements("2021-05") - elements("2017-04") == {"MaxMessageSizeInKilobytes"}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("orders", "orders"),
        ("sb://127.0.0.1:5672/a/b", "a/b"),
        ("https://contoso.servicebus.windows.net/a/", "a"),
        ("sb://host", None),
        ("", None),
    ],
)
def test_paths_and_uris(uri: str, path: str | None) -> None:
    assert path_of(uri) == path


def test_names() -> None:
    for path in ("a", "txt/.-_123", "x" * 260):
        check_path(path, "uri")
    for path in ("", "/a", "a//b", "a b", "$a", "x" * 261):
        with pytest.raises(ProblemError):
            check_path(path, "uri")
    for name in ("all", "$Default", "x" * 50):
        check_name("rule", name, "uri")
    for name in ("", "a/b", "a b", "x" * 51):
        with pytest.raises(ProblemError):
            check_name("rule", name, "uri")
