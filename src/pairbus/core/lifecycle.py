"""Open, closed, faulted; and what becomes of a pair when one of the two ends (C1)."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pairbus.errors import FactoryClosedError, FactoryFaultedError

GRACE = 5.0
"""How long, in seconds, the other one of a pair has to end by itself."""


class FactoryState(enum.Enum):
    """What a factory is."""

    OPEN = "open"
    CLOSED = "closed"
    FAULTED = "faulted"


OPEN: Final = FactoryState.OPEN  # looking a member up in its enum takes longer than all else about it


class Ending(enum.Enum):
    """How a factory may end."""

    CLOSE = "close"
    FAULT = "fault"


ENDINGS: Mapping[tuple[FactoryState, Ending], FactoryState] = MappingProxyType(
    {
        (FactoryState.OPEN, Ending.CLOSE): FactoryState.CLOSED,
        (FactoryState.OPEN, Ending.FAULT): FactoryState.FAULTED,
        (FactoryState.CLOSED, Ending.CLOSE): FactoryState.CLOSED,
        (FactoryState.CLOSED, Ending.FAULT): FactoryState.CLOSED,  # what is closed cannot fail any more
        (FactoryState.FAULTED, Ending.CLOSE): FactoryState.CLOSED,
        (FactoryState.FAULTED, Ending.FAULT): FactoryState.FAULTED,  # the first cause is kept
    }
)


@dataclass(slots=True)
class Lifecycle:
    """The life of one factory."""

    state: FactoryState = FactoryState.OPEN
    cause: BaseException | str = ""

    def close(self) -> None:
        """Close the factory."""
        self.state = ENDINGS[self.state, Ending.CLOSE]

    def fault(self, cause: BaseException | str) -> None:
        """Let the factory fault; its operations raise an error naming the cause."""
        if self.state is FactoryState.OPEN:
            self.cause = cause
        self.state = ENDINGS[self.state, Ending.FAULT]

    def check_open(self) -> None:
        """Raise if the factory takes no more operations."""
        if self.state is OPEN:
            return
        if self.state is FactoryState.CLOSED:
            raise FactoryClosedError
        raise FactoryFaultedError(self.cause)


class Side(enum.Enum):
    """One of a pair."""

    PRIMARY = "primary"
    SECONDARY = "secondary"

    @property
    def other(self) -> "Side":
        """The other one of the pair."""
        return Side.SECONDARY if self is Side.PRIMARY else Side.PRIMARY


@dataclass(slots=True)
class SharedFate:
    """The five-second rule, for a process that hosts the syphon.

    When one of the pair faults or is closed, the other one has :data:`GRACE` seconds to end as well;
    then :meth:`overdue` names it, to be faulted.
    """

    _ended_at: dict[Side, float] = field(default_factory=dict[Side, float], init=False)

    def ended(self, side: Side, now: float) -> None:
        """Note that one of the pair has ended."""
        self._ended_at.setdefault(side, now)

    @property
    def wake_at(self) -> float | None:
        """When :meth:`overdue` has something to say; None: not before something else happens."""
        if len(self._ended_at) != 1:
            return None
        return next(iter(self._ended_at.values())) + GRACE

    def overdue(self, now: float) -> Side | None:
        """Return the one that is to be faulted now, if any."""
        if self.wake_at is None or now < self.wake_at:
            return None
        return next(iter(self._ended_at)).other
