"""pairbus keeps an application's message sends available while its broker is not."""

__version__ = "0.1.0"
