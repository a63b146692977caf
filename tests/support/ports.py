"""Ports for brokers that are killed and come back at the same address."""

import socket
from random import SystemRandom

_PORTS = range(10_000, 32_000)
"""Below those that the system gives to whoever connects: else a client may have it while the broker is away."""


def free_port() -> int:
    """Find a port that nobody listens at."""
    while True:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", SystemRandom().choice(_PORTS)))
            except OSError:
                continue
            return one.getsockname()[1]
