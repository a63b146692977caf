"""pairbus keeps an application's message sends available while its broker is not."""

from importlib import import_module
from typing import TYPE_CHECKING

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
__version__ = "0.1.0"

if TYPE_CHECKING:
    from pairbus.client.availability import BacklogQueue, EntityAvailability, Turn
    from pairbus.client.send_outcomes import ParkedSchedule
    from pairbus.client.sync.factory import Availability, MessageSender, MessagingFactory
    from pairbus.client.sync.manager import NamespaceManager
    from pairbus.core.options import SendAvailabilityPairedNamespaceOptions
else:
    _WHERE = {
        "Availability": "pairbus.client.sync.factory",
        "BacklogQueue": "pairbus.client.availability",
        "EntityAvailability": "pairbus.client.availability",
        "MessageSender": "pairbus.client.sync.factory",
        "MessagingFactory": "pairbus.client.sync.factory",
        "NamespaceManager": "pairbus.client.sync.manager",
        "ParkedSchedule": "pairbus.client.send_outcomes",
        "SendAvailabilityPairedNamespaceOptions": "pairbus.core.options",
        "Turn": "pairbus.client.availability",
    }

    def __getattr__(name: str) -> object:
        """Import when it is asked for: the SDK takes long, and the command line and the broker do without."""
        if name in _WHERE:
            return getattr(import_module(_WHERE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
