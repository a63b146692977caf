"""Filters that Spark pushes down: what can be decided before a message is turned into a row.

Spark applies every filter again, so one that is not understood here is no harm.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from pyspark.sql.datasource import Filter

from pairbus.spark.connector.incoming import Found, value_of
from pairbus.spark.connector.ranges import FIRST

_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND: Final = timedelta(microseconds=1)

_SIMPLE: Final = {
    name.lower(): name
    for name in (
        "entity",
        "sequenceNumber",
        "enqueuedTime",
        "expiresAt",
        "deliveryCount",
        "state",
        "messageId",
        "sessionId",
        "subject",
        "contentType",
        "correlationId",
        "destination",
        "deadLetterReason",
        "scheduledEnqueueTime",
    )
}
"""Columns of which one value is enough to decide, and is cheap to come by."""

_TESTS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, wanted: value in wanted,
}
"""By the names of Spark's filters."""


@dataclass(frozen=True, slots=True)
class Test:
    """One filter that was understood: what a column's value must be, compared with what is wanted."""

    kind: str
    column: str
    wanted: Any

    def passes(self, value: object) -> bool:
        """Tell whether a value may pass."""
        return value is not None and _TESTS[self.kind](value, self.wanted)

    @property
    def bounds(self) -> tuple[int, int | None]:
        """Between which numbers a value may pass: the first, and the one after the last."""
        if self.kind == "In":
            return min(self.wanted), max(self.wanted) + 1
        first = {"GreaterThan": self.wanted + 1, "LessThan": FIRST, "LessThanOrEqual": FIRST}
        end = {"GreaterThan": None, "GreaterThanOrEqual": None, "LessThan": self.wanted}
        return first.get(self.kind, self.wanted), end.get(self.kind, self.wanted + 1)


class Pushed:
    """The filters that were understood."""

    def __init__(self, filters: Sequence[Filter] = ()) -> None:
        self.tests = [test for each in filters if (test := _understood(each)) is not None]

    def keeps(self, found: Found) -> bool:
        """Tell whether a message may pass."""
        return all(test.passes(value_of(found, test.column)) for test in self.tests)

    def keeps_entity(self, path: str) -> bool:
        """Tell whether an entity's messages may pass."""
        return all(test.passes(path) for test in self.tests if test.column == "entity")

    def bounds(self) -> tuple[int, int | None]:
        """Return between which sequence numbers messages may pass: the first, and the one after the last."""
        bounds = [test.bounds for test in self.tests if test.column == "sequenceNumber"]
        ends = [end for _, end in bounds if end is not None]
        return max([FIRST, *(first for first, _ in bounds)]), min(ends) if ends else None


def _understood(given: Filter) -> Test | None:
    kind = type(given).__name__
    if kind not in _TESTS:
        return None
    any_filter = cast("Any", given)
    path: tuple[str, ...] = any_filter.attribute
    column = _SIMPLE.get(path[0].lower()) if len(path) == 1 else None
    wanted = [_plain(each) for each in any_filter.value] if kind == "In" else _plain(any_filter.value)
    if column is None or wanted is None or wanted == [] or (isinstance(wanted, list) and None in wanted):
        return None
    return Test(kind, column, wanted)


def _plain(value: object) -> object:
    """Return a literal as :func:`value_of` gives values; None for one that is of no such type."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND if value.tzinfo is not None else None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
