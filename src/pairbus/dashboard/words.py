"""How the page writes times, counts and money."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pairbus.core.charging import GB
from pairbus.core.pricing import NANOS

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_TEN: Final = 10
_NAMED: Final = 3


def clock(moment: datetime) -> str:
    """Return the time of day, UTC."""
    return f"{moment.astimezone(UTC):%H:%M:%S}"


def stamp(moment: datetime) -> str:
    """Return day and time, UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def lasting(duration: timedelta) -> str:
    """Return a duration in its two largest units: ``4 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    seconds = max(0, round(duration.total_seconds()))
    for unit, name, smaller, smaller_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if seconds >= unit:
            rest = seconds % unit // smaller
            return f"{seconds // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{seconds} s"


def count(number: float) -> str:
    """Return a whole number with its thousands apart."""
    return f"{number:,.0f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return a number of things."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def rate(per_second: float) -> str:
    """Return messages per second: small ones with a decimal."""
    if not per_second:
        return "0"
    return f"{per_second:.1f}" if per_second < _TEN else count(per_second)


def amount(nanos: int) -> str:
    """Return an amount of money: to the cent, or to more digits if it is less than one."""
    digits = 2 if nanos == 0 or nanos >= NANOS // 100 else 6
    return f"{nanos / NANOS:,.{digits}f}"


def volume(size: int) -> str:
    """Return bytes in GB: to three digits, or to six if it is less than that."""
    digits = 3 if size == 0 or size >= GB // 1000 else 6
    return f"{size / GB:,.{digits}f}"


def names(given: Sequence[str]) -> str:
    """Return names as a list in words; of many, the first ones."""
    shown = list(given[:_NAMED])
    more = len(given) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
