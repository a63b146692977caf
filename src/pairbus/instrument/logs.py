"""What is logged, under ``pairbus.failover``: one line when failover engages for an entity, and one when it ends.

Nothing but names, times and counts: no message, no connection string, no key.
"""

import logging
from typing import Final

from pairbus.core.health import State

_LOGGER: Final = logging.getLogger("pairbus.failover")


def log_turn(entity: str, before: str, state: str, lasted: float, parked: int) -> None:
    """Log that the health of an entity has turned.

    :param before: the state that ends, ``lasted`` seconds long, in which so many messages were ``parked``.
    """
    if state == State.ENGAGED.value:
        _LOGGER.warning("%r took no message for %.1f s: failover engages, messages are parked", entity, lasted)
    elif before == State.ENGAGED.value:
        _LOGGER.warning(
            "%r takes messages again: failover ends after %.1f s, %d messages parked", entity, lasted, parked
        )
    else:
        _LOGGER.debug("%r is %s", entity, state)
