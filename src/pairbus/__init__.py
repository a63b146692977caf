"""pairbus keeps an application's message sends available while its broker is not."""

from importlib import import_module
from typing import TYPE_CHECKING

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
__version__ = "0.1.0"

if TYPE_CHECKING:
    from pairbus.aio.availability import BacklogQueue, EntityAvailability, Turn
    from pairbus.aio.sender import ParkedSchedule
    from pairbus.client import Availability, MessageSender, MessagingFactory
    from pairbus.manager import NamespaceManager
else:
    _NEED_THE_SDK = {
        "Availability": "pairbus.client",
        "BacklogQueue": "pairbus.aio.availability",
        "EntityAvailability": "pairbus.aio.availability",
        "MessageSender": "pairbus.client",
        "MessagingFactory": "pairbus.client",
        "NamespaceManager": "pairbus.manager",
        "ParkedSchedule": "pairbus.aio.sender",
        "Turn": "pairbus.aio.availability",
    }

    def __getattr__(name: str) -> object:
        """Import what needs the SDK when it is asked for: the command line and the rules do without."""
        if name in _NEED_THE_SDK:
            return getattr(import_module(_NEED_THE_SDK[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
