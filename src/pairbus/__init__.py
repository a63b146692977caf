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
    from pairbus.aio.availability import BacklogQueue, EntityAvailability, Turn
    from pairbus.aio.sender import ParkedSchedule
    from pairbus.client import Availability, MessageSender, MessagingFactory
    from pairbus.core.options import SendAvailabilityPairedNamespaceOptions
    from pairbus.manager import NamespaceManager
else:
    _WHERE = {
        "Availability": "pairbus.client",
        "BacklogQueue": "pairbus.aio.availability",
        "EntityAvailability": "pairbus.aio.availability",
        "MessageSender": "pairbus.client",
        "MessagingFactory": "pairbus.client",
        "NamespaceManager": "pairbus.manager",
        "ParkedSchedule": "pairbus.aio.sender",
        "SendAvailabilityPairedNamespaceOptions": "pairbus.core.options",
        "Turn": "pairbus.aio.availability",
    }

    def __getattr__(name: str) -> object:
        """Import when it is asked for: the SDK takes long, and the command line and the broker do without."""
        if name in _WHERE:
            return getattr(import_module(_WHERE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
