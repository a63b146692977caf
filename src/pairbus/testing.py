"""What an application's own tests need: a broker that runs with them."""

# ruff: noqa: E402 (an extra that is not installed is told before anything needs it)

from pairbus.extras import require

require("broker", "pairbus.testing")

from pairbus.broker.access.policies import Policy, Right
from pairbus.broker.config.topic_documents import SubscriptionConfig, TopicConfig
from pairbus.broker.entities.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from pairbus.broker.run.embedded import EmbeddedBroker
from pairbus.broker.run.running import Endpoint

__all__ = [
    "CorrelationFilter",
    "EmbeddedBroker",
    "Endpoint",
    "EntityStatus",
    "FalseFilter",
    "Policy",
    "QueueSettings",
    "Right",
    "Rule",
    "SqlAction",
    "SqlFilter",
    "SubscriptionConfig",
    "SubscriptionSettings",
    "TopicConfig",
    "TopicSettings",
    "TrueFilter",
]
