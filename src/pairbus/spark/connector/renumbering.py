"""Notices that an entity was deleted and made again, whose sequence numbers have therefore begun again.

A stream's offset is the sequence number to go on from. From there on a new entity has no messages for a long time, or
its first ones are passed over, and neither is an error by itself. What gives it away is time: in one entity, a message
with a lower number was enqueued no later than one with a higher number. So the offset also has when the newest message
before it was enqueued, by the broker's clock. A message with a lower number that was enqueued later belongs to a new
entity.

A look at the first messages of an entity costs one operation. It is taken when a query starts, before an offset
advances, and once a minute while nothing comes. What a consumer of the new entity completes in between is never seen.

Sub-queues are left out: their messages keep the time at which they came to the queue that they were moved from.
Messages that wait to be enqueued are left out too, since they get another number when they are.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pairbus.errors import OptionError
from pairbus.spark.connector.incoming import Found

EVERY: Final = 60.0
"""Seconds between two looks while nothing comes."""
FIRST_MESSAGES: Final = 16
"""At how many messages one look looks, of which some may be scheduled ones."""
_JITTER_MS: Final = 1000
"""By how much the clocks of two nodes of a broker may differ, of which one takes over from the other."""
_MARK: Final = "?enqueued"
"""What follows an entity's path in the offset; no path has a question mark."""


def newest_in(offset: Mapping[str, int], path: str) -> int | None:
    """Return when the newest message before an offset was enqueued; None: the offset does not say so."""
    return offset.get(path + _MARK)


def newest_of(seen: Mapping[int, Found]) -> int | None:
    """Return when the newest of some messages was enqueued, by their numbers; None: the last one does not say so."""
    times = [at for each in seen.values() if (at := each.enqueued_at) is not None]
    return max(times) if seen and seen[max(seen)].enqueued_at is not None else None


def noting(offset: Mapping[str, int], path: str, newest: int | None) -> dict[str, int]:
    """Return an offset that says when the newest message before it was enqueued.

    It never says less than it did: the broker's clock may have been set back.

    :param newest: None: it is not known, and the offset says nothing of it.
    """
    others = {name: number for name, number in offset.items() if name != path + _MARK}
    if newest is None:
        return others
    return {**others, path + _MARK: max(newest, offset.get(path + _MARK, newest))}


def check(path: str, start: int, newest: int, first: Sequence[Found]) -> None:
    """Compare the first messages of an entity with what an offset says.

    :param newest: of the offset.
    :raises OptionError: they are another entity's.
    """
    for each in first:
        enqueued = each.enqueued_at
        if each.sequence_number < start and enqueued is not None and enqueued > newest + _JITTER_MS:
            raise OptionError(
                "checkpointLocation",
                path,
                f"{path!r} was deleted and made again since this checkpoint was written: its message "
                f"{each.sequence_number} was enqueued at {_time(enqueued)}, and the newest one before the "
                f"checkpoint's {start} at {_time(newest)}; begin with an empty directory",
            )


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
