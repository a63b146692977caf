"""Values as they stand in XML: durations, times, numbers, truth."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

MAX_DURATION: Final = "P10675199DT2H48M5.4775807S"
"""The longest duration of the cloud, which means: no limit."""
MAX_MILLISECONDS: Final = 922_337_203_685_477
NEVER: Final = "0001-01-01T00:00:00Z"

_SPAN = re.compile(
    r"P(?!$)(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?!$)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,12})(?P<part>\.\d{1,9})?S)?)?",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def span(text: str) -> timedelta:
    """Read a duration of ISO 8601, in days, hours, minutes and seconds."""
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError("a duration of ISO 8601, such as PT1M")
    return sign * timedelta(
        days=int(match["days"] or 0),
        hours=int(match["hours"] or 0),
        minutes=int(match["minutes"] or 0),
        seconds=int(match["seconds"] or 0),
        microseconds=int((match["part"] or ".0")[1:7].ljust(6, "0")),
    )


def span_text(value: timedelta) -> str:
    """Write a duration."""
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    part = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    days = f"{value.days}D" if value.days else ""
    time = (
        (f"{hours}H" if hours else "")
        + (f"{minutes}M" if minutes else "")
        + (f"{seconds}{part}S" if seconds or part else "")
    )
    if not days and not time:
        return "PT0S"
    return f"{sign}P{days}{'T' if time else ''}{time}"


def milliseconds(text: str) -> int | None:
    """Read a duration in milliseconds; None: the longest one, which is no limit."""
    value = span(text) // timedelta(milliseconds=1)
    if value > MAX_MILLISECONDS + 1000:  # what the SDK makes of the longest one is some microseconds beyond it
        raise ValueError(f"a duration of at most {MAX_DURATION}")
    return None if value >= MAX_MILLISECONDS else value


def milliseconds_text(value: int | None) -> str:
    """Write a duration in milliseconds; None: the longest one."""
    return MAX_DURATION if value is None else span_text(timedelta(milliseconds=value))


def time_text(value: int | None) -> str:
    """Write a time in milliseconds since the epoch; None: never."""
    if value is None:
        return NEVER
    at = _EPOCH + timedelta(milliseconds=value)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + (f".{at.microsecond // 1000:03d}".rstrip("0").rstrip(".") + "Z")


def truth(text: str) -> bool:
    """Read a truth value."""
    if text not in ("true", "false", "1", "0"):
        raise ValueError("true or false")
    return text in ("true", "1")


def truth_text(value: bool) -> str:  # noqa: FBT001 (that is the value)
    """Write a truth value."""
    return "true" if value else "false"


def number(text: str) -> int:
    """Read a whole number."""
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise ValueError("a whole number")
    return int(text)
