"""S10, C2: deadlines that hold, and tasks that are not forgotten."""

import asyncio
import gc
import logging
from collections.abc import Callable

import pytest
from tests.support.virtual import run

from pairbus.links.deadlines import within


async def fail_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise OSError("refused")


def test_work_that_does_not_end_is_given_up_at_its_deadline() -> None:
    async def play() -> None:
        cut: list[float] = []
        began = asyncio.get_running_loop().time()

        def note() -> None:
            cut.append(asyncio.get_running_loop().time() - began)

        with pytest.raises(TimeoutError, match="within 5 s"):
            await within(5, asyncio.sleep(60), overrun=note)
        assert cut == [pytest.approx(5)]
        with pytest.raises(OSError, match="refused"):
            await within(5, fail_after(1), overrun=note)
        assert await within(5, asyncio.sleep(1, "done"), overrun=note) == "done"
        assert len(cut) == 1

    run(play())


@pytest.mark.parametrize("when", [0.5, 1.0])
def test_c2_work_that_fails_when_nobody_waits_any_more_is_not_complained_about(
    when: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Cancelled before it fails, and in the same turn of the loop."""

    async def play() -> None:
        waiting = asyncio.ensure_future(within(5, fail_after(1)))
        stop: Callable[[], object] = waiting.cancel
        asyncio.get_running_loop().call_later(when, stop)
        await asyncio.wait({waiting})
        assert waiting.cancelled() or when == 1.0
        if not waiting.cancelled():
            waiting.exception()
        await asyncio.sleep(1)

    run(play())
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
