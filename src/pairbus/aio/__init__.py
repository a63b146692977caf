"""The asynchronous client: thin I/O over ``azure.servicebus.aio``, driven by the rules in ``pairbus.core``."""

from pairbus.aio.manager import NamespaceManager

__all__ = ["NamespaceManager"]
