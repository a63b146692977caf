"""What an application's own tests need: a broker that runs with them."""

from pairbus.broker.embedded import EmbeddedBroker
from pairbus.broker.entities.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.filters import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from pairbus.broker.running import Endpoint

__all__ = [
    "CorrelationFilter",
    "EmbeddedBroker",
    "Endpoint",
    "EntityStatus",
    "FalseFilter",
    "QueueSettings",
    "Rule",
    "SqlAction",
    "SqlFilter",
    "SubscriptionSettings",
    "TopicSettings",
    "TrueFilter",
]
