"""What an application's own tests need: a broker that runs with them."""

from pairbus.broker.auth.policies import Policy, Right
from pairbus.broker.embedded import EmbeddedBroker
from pairbus.broker.entities.settings import EntityStatus, QueueSettings
from pairbus.broker.running import Endpoint

__all__ = ["EmbeddedBroker", "Endpoint", "EntityStatus", "Policy", "QueueSettings", "Right"]
