"""C1: of a pair whose syphon runs here, the one that has not ended five seconds after the other is faulted."""

import asyncio
from collections.abc import Callable

import pytest
from tests.support.virtual import run

from pairbus.client.shared_fate import share_fate


class Factory:
    """Ends when it is told to."""

    def __init__(self, name: str) -> None:
        self.fully_qualified_namespace = name
        self.faults: list[tuple[str, float]] = []
        self._callbacks: list[Callable[[], None]] = []

    def when_ended(self, callback: Callable[[], None], /) -> None:
        self._callbacks.append(callback)

    def fault(self, cause: BaseException | str, /) -> None:
        self.faults.append((str(cause), asyncio.get_running_loop().time()))

    def end(self) -> None:
        for callback in self._callbacks:
            callback()


@pytest.mark.parametrize("first", [0, 1])
def test_c1_the_one_that_is_left_is_faulted_after_five_seconds(first: int) -> None:
    async def play() -> None:
        pair = Factory("contoso"), Factory("fabrikam")
        share_fate(*pair)
        began = asyncio.get_running_loop().time()
        pair[first].end()
        await asyncio.sleep(4.9)
        assert pair[1 - first].faults == []
        await asyncio.sleep(10)
        ((cause, at),) = pair[1 - first].faults
        assert pair[first].fully_qualified_namespace in cause
        assert at == pytest.approx(began + 5)
        assert pair[first].faults == []

    run(play())


def test_c1_nobody_is_faulted_when_both_end() -> None:
    async def play() -> None:
        pair = Factory("contoso"), Factory("fabrikam")
        share_fate(*pair)
        pair[1].end()
        await asyncio.sleep(3)
        pair[0].end()
        await asyncio.sleep(10)
        assert [each.faults for each in pair] == [[], []]

    run(play())
