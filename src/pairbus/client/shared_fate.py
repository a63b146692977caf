"""The five-second rule of a pair whose syphon runs here (C1)."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pairbus.core.lifecycle import GRACE, SharedFate, Side


class EndingFactory(Protocol):
    """What can end, and can be made to."""

    @property
    def fully_qualified_namespace(self) -> str:
        """The namespace that it stands for."""
        ...

    def when_ended(self, callback: Callable[[], None], /) -> None:
        """Have a function called once when it has ended."""
        ...

    def fault(self, cause: BaseException | str, /) -> None:
        """Let it fault, unless it has ended."""
        ...


def share_fate(primary: EndingFactory, secondary: EndingFactory) -> None:
    """Fault the one of a pair that has not ended five seconds after the other.

    The rule outlives the syphon, which ends with the primary.
    """
    pair = {Side.PRIMARY: primary, Side.SECONDARY: secondary}
    fate = SharedFate()
    loop = asyncio.get_running_loop()

    def look(ended: Side) -> None:
        overdue = fate.overdue(max(loop.time(), fate.wake_at or 0.0))
        if overdue is not None:
            other = pair[ended].fully_qualified_namespace
            pair[overdue].fault(f"{other!r}, with which it is paired, has ended, and this did not within {GRACE:g} s")

    def end(side: Side) -> None:
        fate.ended(side, loop.time())
        if fate.wake_at is not None:
            loop.call_at(fate.wake_at, look, side)

    for side, factory in pair.items():
        factory.when_ended(lambda side=side: end(side))
