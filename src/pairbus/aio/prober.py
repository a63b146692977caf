"""Pings, which find out whether an entity is back (G1 to G4)."""

import uuid
from datetime import timedelta
from typing import Final

from azure.servicebus import ServiceBusMessage

from pairbus.aio.lane import Lane, Submission
from pairbus.aio.native.lane import NativeLane
from pairbus.aio.sdk import facts
from pairbus.core.ledger import Kind
from pairbus.core.verdict import Cause

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
PING_TIME_TO_LIVE: Final = timedelta(seconds=1)


def ping_message(session_id: str | None) -> ServiceBusMessage:
    """Make a ping (G1)."""
    return ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE, session_id=session_id)


async def ping(lane: Lane | NativeLane, deadline: float, *, session: bool) -> bool:
    """Send one ping, past the failover logic, and raise what hinders it.

    :param session: whether the entity is known to demand sessions.
    :return: whether it does. Only the broker knows: it is asked without one, and with one if it refuses that as not
        valid (G4).
    """
    try:
        await _send(lane, deadline, str(uuid.uuid4()) if session else None)
    except Exception as error:
        if session or facts(error).cause is not Cause.BAD_ARGUMENT:
            raise
        await _send(lane, deadline, str(uuid.uuid4()))
        return True
    return session


async def _send(lane: Lane | NativeLane, deadline: float, session_id: str | None) -> None:
    submission: Submission[None] = Submission(Kind.PING, (ping_message(session_id),), deadline, retries=False)
    await lane.submit(submission)
