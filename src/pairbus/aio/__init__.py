"""The asynchronous client: thin I/O over ``azure.servicebus.aio``, driven by the rules in ``pairbus.core``."""

from pairbus.client.availability import Availability, BacklogQueue, EntityAvailability, Turn
from pairbus.client.factory import MessagingFactory
from pairbus.client.send_outcomes import ParkedSchedule
from pairbus.client.sender import MessageSender
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions
from pairbus.links.sdk.administration import NamespaceManager

__all__ = [
    "Availability",
    "BacklogQueue",
    "EntityAvailability",
    "MessageSender",
    "MessagingFactory",
    "NamespaceManager",
    "ParkedSchedule",
    "SendAvailabilityPairedNamespaceOptions",
    "Turn",
]
