"""Asynchronous work for a caller that is not: in a thread of its own, and ended in order by KeyboardInterrupt."""

import asyncio
import signal
import threading
from types import FrameType

import pytest

from pairbus.syphon.draining import run_in_thread


def interrupt() -> None:
    """Send the caller's thread what Ctrl-C sends it."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_work_has_a_loop_of_its_own_also_beside_a_running_one() -> None:
    async def work(_stop: asyncio.Event) -> str:
        return threading.current_thread().name

    async def caller() -> str:
        return run_in_thread(work)

    assert run_in_thread(work) == asyncio.run(caller()) == "pairbus drain"


def test_an_error_of_the_work_is_the_callers() -> None:
    async def work(_stop: asyncio.Event) -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        run_in_thread(work)


def test_an_interrupt_ends_the_work_in_order_and_its_result_is_returned() -> None:
    async def work(stop: asyncio.Event) -> str:
        interrupt()
        await stop.wait()
        return "as far as it came"

    assert run_in_thread(work) == "as far as it came"


def test_a_second_interrupt_is_raised_while_the_work_still_ends() -> None:
    ended, go_on = threading.Event(), threading.Event()

    async def work(stop: asyncio.Event) -> None:
        interrupt()
        await stop.wait()
        interrupt()
        await asyncio.to_thread(go_on.wait)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_in_thread(work)
    go_on.set()
    assert ended.wait(60)


def test_sparks_handler_which_cancels_jobs_is_put_aside_meanwhile() -> None:
    cancelled: list[int] = []

    def cancel_all_jobs(number: int, _frame: FrameType | None) -> None:
        cancelled.append(number)

    cancel_all_jobs.__module__ = "pyspark.core.context"

    async def work(stop: asyncio.Event) -> str:
        interrupt()
        await stop.wait()
        return "in order"

    before = signal.signal(signal.SIGINT, cancel_all_jobs)
    try:
        assert run_in_thread(work) == "in order"
        assert signal.getsignal(signal.SIGINT) is cancel_all_jobs
    finally:
        signal.signal(signal.SIGINT, before)
    assert cancelled == []
