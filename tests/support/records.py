"""Records of a ledger, in as few words as a test needs."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from pairbus.core.ledger import Kind, Outcome, Record, Stage
from pairbus.dashboard.health import Heard

NOON = datetime(2026, 3, 5, 12, 0, 0, tzinfo=UTC)
_IDS = count(1)


def at(seconds: float) -> datetime:
    """Return a moment, in seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def record(kind: Kind, seconds: float, **fields: Any) -> Record:  # noqa: ANN401 (a record's own)
    """Make a record of a client of contoso's queue ``orders``, unless it is said otherwise."""
    given: dict[str, Any] = {
        "id": f"{next(_IDS)}",
        "client": "shop",
        "namespace": "contoso",
        "entity": "orders",
        "stage": Stage.DIRECT,
        "outcome": Outcome.DONE,
        "messages": 0 if kind in (Kind.PING, Kind.TURN) else 1,
        **fields,
    }
    return Record(kind=kind, at=at(seconds), **given)


def heard(kind: Kind, seconds: float, *, writer: str = "host-1", **fields: Any) -> Heard:  # noqa: ANN401 (as above)
    """Make a record that was read from the ledger of a process."""
    return Heard(writer, record(kind, seconds, **fields))


def turn(state: str, seconds: float, **fields: Any) -> Heard:  # noqa: ANN401 (as above)
    """Make a record of a turn of health."""
    return heard(Kind.TURN, seconds, detail=state, **fields)


def park(seconds: float, messages: int = 1, **fields: Any) -> Heard:  # noqa: ANN401 (as above)
    """Make a record of messages that were parked."""
    given = {"namespace": "fabrikam", "entity": "contoso/x-servicebus-transfer/0", "destination": "Orders", **fields}
    return heard(Kind.SEND, seconds, stage=Stage.PARK, messages=messages, **given)


def outage(began: float = 0, **fields: Any) -> list[Heard]:  # noqa: ANN401 (as above)
    """Make the records of one outage: a minute of doubt, nine of failover, eight messages parked."""
    return [
        heard(Kind.SEND, began - 1, **fields),
        turn("suspect", began, **fields),
        turn("engaged", began + 60, **fields),
        turn("healthy", began + 600, messages=8, **fields),
    ]
