"""The asynchronous client: thin I/O over ``azure.servicebus.aio``, driven by the rules in ``pairbus.core``."""
