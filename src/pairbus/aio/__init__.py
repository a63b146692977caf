"""The asynchronous client: thin I/O over ``azure.servicebus.aio``, driven by the rules in ``pairbus.core``."""

from pairbus.aio.availability import Availability, BacklogQueue, EntityAvailability, Turn
from pairbus.aio.factory import MessagingFactory
from pairbus.aio.manager import NamespaceManager
from pairbus.aio.sender import MessageSender, ParkedSchedule
from pairbus.core.options import SendAvailabilityPairedNamespaceOptions

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
