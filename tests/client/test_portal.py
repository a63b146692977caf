"""The loop that synchronous callers share (ADR 0020): who drives it, and that nobody waits for good."""

# pyright: reportPrivateUsage=false

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus import MessagingFactory
from pairbus.client.sync import portal as module
from pairbus.client.sync.portal import OverdueError, Portal
from pairbus.errors import FactoryClosedError, SendTimeoutError
from pairbus.testing import EmbeddedBroker, QueueSettings

WAIT = 10.0


class Owner:
    """Has a portal, as a factory does."""

    def __init__(self) -> None:
        self.portal = Portal("test portal", at_exit=self.end)

    def end(self) -> None:
        self.portal.stop()


@pytest.fixture
def portal() -> Iterator[Portal]:
    owner = Owner()
    yield owner.portal
    owner.end()


async def thread() -> threading.Thread:
    return threading.current_thread()


def test_a_caller_drives_the_loop_itself_also_after_the_background_thread_did(portal: Portal) -> None:
    async def work() -> threading.Thread:
        done.clear()
        asyncio.get_running_loop().call_later(0.01, drove)
        return threading.current_thread()

    def drove() -> None:
        drivers.append(threading.current_thread())
        done.set()

    done, drivers = threading.Event(), list[threading.Thread]()
    for _ in range(3):
        assert portal.run(work()) is threading.current_thread()
        assert done.wait(WAIT)
    assert {driver.name for driver in drivers} == {"test portal"}


def test_many_threads_share_the_loop(portal: Portal) -> None:
    """Some drive, the others follow; each gets its own result or error."""

    async def double(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 3))
        if number % 10 == 0:
            raise ValueError(number)
        return 2 * number

    def call(number: int) -> object:
        try:
            return portal.run(double(number), 5.0)
        except ValueError as error:
            return error.args

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(call, range(400)))
    assert got == [2 * number if number % 10 else (number,) for number in range(400)]
    assert portal._followers == 0


def test_work_that_does_not_end_in_its_time_is_given_up(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10, whether the caller drives or not."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.02)
    ended: list[str] = []

    async def endless(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    with pytest.raises(OverdueError):
        portal.run(endless("driven by its caller"), 0.02)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(portal.run, endless(f"{n}"), 0.05) for n in range(2)]
        assert [type(call.exception(WAIT)) for call in calls] == [OverdueError, OverdueError]
    portal.run(asyncio.sleep(0))
    assert sorted(ended) == ["0", "1", "driven by its caller"]


def test_a_callback_that_blocks_the_loop_does_not_block_callers_for_good(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.02)
    blocked, go_on = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go_on.wait(WAIT)

    portal.run(asyncio.sleep(0))
    portal.soon(block)
    assert blocked.wait(WAIT)
    with pytest.raises(TimeoutError):
        portal.run(asyncio.sleep(0), 0.02)
    go_on.set()
    portal.run(asyncio.sleep(0), 5.0)


def test_s7_a_send_that_a_busy_loop_does_not_end_may_have_been_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: the call returns; whether the message arrived, nobody knows."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.02)
    blocked, go_on = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go_on.wait(WAIT)

    with (
        EmbeddedBroker(queues={"orders": QueueSettings()}) as broker,
        MessagingFactory.from_connection_string(broker.connection_string) as factory,
        factory.get_queue_sender("orders") as sender,
    ):
        factory._portal.soon(block)
        assert blocked.wait(WAIT)
        message = ServiceBusMessage("x")
        later = datetime.now(UTC) + timedelta(hours=1)
        try:
            with pytest.raises(SendTimeoutError, match=r"within 0\.02 s") as sending:
                sender.send_messages(message, timeout=0.02)
            with pytest.raises(SendTimeoutError, match=r"within 0\.02 s") as scheduling:
                sender.schedule_messages(message, later, timeout=0.02)
            with pytest.raises(OperationTimeoutError, match=r"cancelling .* 'orders' took longer than 0\.02 s"):
                sender.cancel_scheduled_messages([1], timeout=0.02)
        finally:
            go_on.set()
        for caught in (sending, scheduling):
            assert caught.value.maybe_sent
            assert isinstance(caught.value, OperationTimeoutError)


def test_a_caller_that_blocks_a_loop_of_its_own_is_served_by_the_background_thread(portal: Portal) -> None:
    async def careless() -> threading.Thread:
        return portal.run(thread(), 5.0)

    assert asyncio.run(careless()).name == "test portal"


def test_a_callback_must_not_wait_for_the_loop_that_it_is_in(portal: Portal) -> None:
    async def nested() -> None:
        portal.run(thread())

    with pytest.raises(RuntimeError, match="must not wait"):
        portal.run(nested())
    assert portal.run(thread()) is threading.current_thread()


def test_stopping_ends_the_calls_of_others(portal: Portal) -> None:
    """C2: those that drive, and those that follow."""
    begun = threading.Barrier(3)

    async def endless() -> None:
        await asyncio.to_thread(begun.wait, WAIT)
        await asyncio.Event().wait()

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(portal.run, endless()) for _ in range(2)]
        begun.wait(WAIT)
        portal.stop()
        assert [type(call.exception(WAIT)) for call in calls] == [FactoryClosedError] * 2
    with pytest.raises(FactoryClosedError):
        portal.run(thread())
    assert "test portal" not in {each.name for each in threading.enumerate()}


def test_an_interrupt_ends_the_call_and_nothing_else() -> None:
    """Ctrl-C while the main thread drives: not in the midst of a background task, and the next call goes on."""
    program = """
import asyncio, signal, threading
from pairbus.client.sync.portal import Portal

class Owner:
    def end(self):
        self.portal.stop()
        print("stopped")

owner = Owner()
owner.portal = Portal("p", at_exit=owner.end)
ended = []

async def background():
    while True:
        await asyncio.sleep(0)
        if not interrupted.is_set():
            interrupted.set()
            signal.raise_signal(signal.SIGINT)

async def endless():
    global task
    task = asyncio.ensure_future(background())
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("endless")

async def look():
    return task.done()

interrupted = threading.Event()
try:
    owner.portal.run(endless())
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(owner.portal.run(look()), ended)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["interrupted True", "False ['endless']", "stopped"]
    assert done.stderr == ""
