"""Pings, which find out whether an entity is back (G1 to G4)."""

import uuid
from datetime import timedelta
from typing import Final

from azure.servicebus import ServiceBusMessage

from pairbus.client.send_link import SendLink
from pairbus.client.submission import Submission
from pairbus.core.ledger import Kind
from pairbus.core.verdict import Cause
from pairbus.links.errors import facts
from pairbus.messages.sdk_batches import STANDARD_BATCH_BYTES

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
PING_TIME_TO_LIVE: Final = timedelta(seconds=1)
ENVELOPE: Final = 1024
"""More than a ping has beside its body."""


def ping_message(session_id: str | None, size: int = 0) -> ServiceBusMessage:
    """Make a ping (G1), which is empty unless it is to find out whether so many bytes fit."""
    return ServiceBusMessage(
        bytes(size), content_type=PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE, session_id=session_id
    )


async def ping(link: SendLink, deadline: float, *, session: bool, size: int = 0) -> bool:
    """Send one ping, past the failover logic, and raise what hinders it.

    :param session: whether the entity is known to demand sessions.
    :param size: how many bytes a full entity had no room for: a smaller ping would not prove that it takes messages.
    :return: whether it demands sessions. Only the broker knows: it is asked without one, and with one if it refuses
        that as not valid (G4).
    """
    size = max(0, min(size, (link.batch_bytes or STANDARD_BATCH_BYTES) - ENVELOPE))
    try:
        await _send(link, deadline, ping_message(str(uuid.uuid4()) if session else None, size))
    except Exception as error:
        if session or facts(error).cause is not Cause.BAD_ARGUMENT:
            raise
        await _send(link, deadline, ping_message(str(uuid.uuid4()), size))
        return True
    return session


async def _send(link: SendLink, deadline: float, message: ServiceBusMessage) -> None:
    submission: Submission[None] = Submission(Kind.PING, (message,), deadline, retries=False)
    await link.submit(submission)
