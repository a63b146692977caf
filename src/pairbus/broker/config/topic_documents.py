"""The topics of a ``Config.json`` of Microsoft's emulator: ``Topics``, ``Subscriptions``, ``Rules``, both ways."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.broker.access.documents import ENTRY, from_entries, to_entries
from pairbus.broker.config.documents import DURATION, Properties, read_properties, table, tables, text, write_properties
from pairbus.broker.entities.settings import EntityStatus, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    InvalidRuleError,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.errors import OptionError


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """A subscription; without rules it gets every message."""

    settings: SubscriptionSettings = field(default_factory=SubscriptionSettings)
    rules: Sequence[Rule] = ()


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic with its subscriptions, by name."""

    settings: TopicSettings = field(default_factory=TopicSettings)
    subscriptions: Mapping[str, SubscriptionConfig] = field(default_factory=dict[str, SubscriptionConfig])


_TOPIC: Final[Properties] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle", DURATION),
    "DefaultMessageTimeToLive": ("default_message_time_to_live", DURATION),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window", DURATION),
    "EnableBatchedOperations": ("enable_batched_operations", bool),
    "EnableExpress": ("enable_express", bool),
    "EnablePartitioning": ("enable_partitioning", bool),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", int),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", int),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", bool),
    "Status": ("status", EntityStatus),
    "SupportOrdering": ("support_ordering", bool),
    "UserMetadata": ("user_metadata", str),
}
_SUBSCRIPTION: Final[Properties] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle", DURATION),
    "DeadLetteringOnFilterEvaluationExceptions": ("dead_lettering_on_filter_evaluation_exceptions", bool),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", bool),
    "DefaultMessageTimeToLive": ("default_message_time_to_live", DURATION),
    "EnableBatchedOperations": ("enable_batched_operations", bool),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", str),
    "ForwardTo": ("forward_to", str),
    "LockDuration": ("lock_duration", DURATION),
    "MaxDeliveryCount": ("max_delivery_count", int),
    "RequiresSession": ("requires_session", bool),
    "Status": ("status", EntityStatus),
    "UserMetadata": ("user_metadata", str),
}
_CORRELATION: Final[Properties] = {
    "ContentType": ("content_type", str),
    "CorrelationId": ("correlation_id", str),
    "Label": ("subject", str),
    "MessageId": ("message_id", str),
    "ReplyTo": ("reply_to", str),
    "ReplyToSessionId": ("reply_to_session_id", str),
    "SessionId": ("session_id", str),
    "To": ("to", str),
}
_PLAIN: Final[Mapping[str, type[Filter]]] = {"True": TrueFilter, "False": FalseFilter}
_TYPES: Final = "Sql, with a SqlFilter, or Correlation, with a CorrelationFilter, or True, or False"


def read_topic(entry: Mapping[str, Any], where: str) -> tuple[str, TopicConfig]:
    """Read a topic with its subscriptions and their rules; return its name and what it is."""
    subscriptions = dict(_subscription(*found) for found in tables(entry, "Subscriptions", where))
    properties = read_properties(table(entry.get("Properties") or {}, where), _TOPIC, where)
    rules = from_entries(entry.get(ENTRY) or [], f"{where}.{ENTRY}")
    settings = TopicSettings(**properties, authorization_rules=rules)
    return text(entry, "Name", where), TopicConfig(settings, subscriptions)


def write_topic(name: str, topic: TopicConfig) -> dict[str, Any]:
    """Return what :func:`read_topic` reads."""
    return {
        "Name": name,
        "Properties": write_properties(topic.settings, _TOPIC),
        ENTRY: to_entries(topic.settings.authorization_rules),
        "Subscriptions": [
            {
                "Name": each,
                "Properties": write_properties(subscription.settings, _SUBSCRIPTION),
                "Rules": [{"Name": rule.name, "Properties": _written(rule)} for rule in subscription.rules],
            }
            for each, subscription in topic.subscriptions.items()
        ],
    }


def _subscription(entry: Mapping[str, Any], where: str) -> tuple[str, SubscriptionConfig]:
    properties = read_properties(table(entry.get("Properties") or {}, where), _SUBSCRIPTION, where)
    rules = tuple(_rule(*found) for found in tables(entry, "Rules", where))
    return text(entry, "Name", where), SubscriptionConfig(SubscriptionSettings(**properties), rules)


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    properties = table(entry.get("Properties") or {}, where)
    action = properties.get("Action")
    try:
        return Rule(
            text(entry, "Name", where),
            _filter(properties, where),
            None if not action else SqlAction(text(table(action, f"{where}.Action"), "SqlExpression", where)),
        )
    except InvalidRuleError as error:
        raise OptionError(where, entry.get("Name"), f"a rule that can be understood ({error.description})") from None


def _filter(properties: Mapping[str, Any], where: str) -> Filter:
    kind = properties.get("FilterType")
    if kind == "Correlation":
        here = f"{where}.CorrelationFilter"
        found = dict(table(properties.get("CorrelationFilter"), here))
        given = table(found.pop("Properties", None) or {}, here)
        return CorrelationFilter(**read_properties(found, _CORRELATION, here), properties=given)
    if kind == "Sql":
        here = f"{where}.SqlFilter"
        return SqlFilter(text(table(properties.get("SqlFilter"), here), "SqlExpression", here))
    if kind not in _PLAIN:
        raise OptionError(f"{where}.FilterType", kind, _TYPES)
    return _PLAIN[kind]()


def _written(rule: Rule) -> dict[str, Any]:
    return {**_written_filter(rule), "Action": None if rule.action is None else _written_sql(rule, rule.action)}


def _written_filter(rule: Rule) -> dict[str, Any]:
    match rule.filter:
        case CorrelationFilter() as correlation:
            given = write_properties(correlation, _CORRELATION)
            for name, value in correlation.properties.items():
                if not isinstance(value, str | int | float):
                    raise OptionError(f"rule {rule.name}: {name}", value, "a text, a number or a boolean, in a file")
            found = {**given, "Properties": dict(correlation.properties)}
            return {"FilterType": "Correlation", "CorrelationFilter": found}
        case SqlFilter() as sql:
            return {"FilterType": "Sql", "SqlFilter": _written_sql(rule, sql)}
        case TrueFilter():
            return {"FilterType": "True"}
        case FalseFilter():
            return {"FilterType": "False"}


def _written_sql(rule: Rule, sql: SqlFilter | SqlAction) -> dict[str, Any]:
    if sql.parameters:
        raise OptionError(f"rule {rule.name}", dict(sql.parameters), "an expression without parameters, in a file")
    return {"SqlExpression": sql.expression}
