"""Nemesis runs: small ones, each about one way in which a send once failed although it could have been parked.

Every run has real brokers in processes of their own, real factories, a journal of the calls, and the official SDK as
the reader of both namespaces at the end (``tests/chaos/nemesis``).
"""

import asyncio
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError
from tests.chaos.nemesis.clients import Client, paired
from tests.chaos.nemesis.journal import Call, body_of
from tests.chaos.nemesis.reader import FILLER, peek, remove
from tests.chaos.nemesis.run import Run, every, play
from tests.client.twins import KINDS

from pairbus.aio import NamespaceManager
from pairbus.errors import BacklogUnavailableError
from pairbus.testing import QueueSettings

pytestmark = [
    pytest.mark.parametrize("kind", KINDS),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ORDERS = {"orders": QueueSettings()}


class Until:
    """Tells whether the event loop's clock has reached a time from now."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + seconds

    def __call__(self) -> bool:
        return self._loop.time() >= self._at


def errors(calls: list[Call]) -> str:
    failed = [call for call in calls if not call.acknowledged]
    return f"{len(failed)} of {len(calls)} failed"


def test_one_sender_per_request_while_links_are_being_opened(kind: str, tmp_path: Path) -> None:
    """S4, S6: failover that engages while a link is being opened is no error of whoever waits for the link."""
    run = Run(tmp_path, ORDERS, attempt_timeout=15)

    async def scenario() -> None:
        async with run.brokers():
            async with paired(
                kind, run.journal, run.primary, run.secondary, failover_interval=5, **run.pairing
            ) as client:
                numbers = iter(range(10_000))

                async def request() -> None:
                    await client.send("per request", "orders", as_batch=next(numbers) % 3 == 0)

                await every(0.15, Until(3), request)
                async with run.primary.killed():
                    await every(0.15, Until(9), request)
            print(f"\n{kind}: {errors(run.journal.calls)}")
            run.checker(await run.read()).check()

    play(scenario, seconds=120)


def test_one_impatient_caller_among_patient_ones(kind: str, tmp_path: Path) -> None:
    """S5: a queue is pulled for what the queue did, not because a caller had no time."""
    run = Run(tmp_path, ORDERS)

    async def scenario() -> None:
        async with run.brokers():
            async with (
                paired(kind, run.journal, run.primary, run.secondary, failover_interval=0, **run.pairing) as client,
                run.primary.killed(),
                client.factory.get_queue_sender("orders") as sender,
                run.secondary.fault("slow", blocks=False, latency="200ms"),
            ):
                until = Until(15)
                await asyncio.gather(
                    every(0.5, until, lambda: client.send("impatient", "orders", sender=sender, timeout=0.3)),
                    every(0.2, until, lambda: client.send("patient", "orders", sender=sender, timeout=20)),
                    every(0.5, until, lambda: client.send("patient, own sender", "orders")),
                )
            patient = [call for call in run.journal.calls if call.caller != "impatient"]
            print(f"\n{kind}: {errors(patient)}")
            run.checker(await run.read()).check()
        assert all(call.acknowledged for call in patient)

    play(scenario, seconds=180)


def test_the_secondary_away_for_35_seconds_and_back(kind: str, tmp_path: Path) -> None:
    """S13: a queue that failed is out of rotation, never out of reach: when it is back, sends are parked at once."""
    run = Run(tmp_path, ORDERS, backlog_queue_count=3)

    async def scenario() -> None:
        async with run.brokers():
            async with (
                paired(kind, run.journal, run.primary, run.secondary, failover_interval=1, **run.pairing) as client,
                run.primary.killed(),
                client.factory.get_queue_sender("orders") as sender,
            ):
                away, back = asyncio.Event(), asyncio.Event()

                async def nemesis() -> None:
                    await asyncio.sleep(4)
                    async with run.secondary.killed():
                        away.set()
                        await asyncio.sleep(35)
                    await asyncio.sleep(20)
                    back.set()

                await asyncio.gather(
                    nemesis(),
                    every(0.2, back.is_set, lambda: client.send("20 s", "orders", sender=sender, timeout=20)),
                    every(1, back.is_set, lambda: client.send("no time-out", "orders", sender=sender)),
                )
            print(f"\n{kind}: {errors(run.journal.calls)}")
            checker = run.checker(await run.read())
            checker.check()
            _check_both_causes(run.journal.calls)

    play(scenario, seconds=240)


def _check_both_causes(calls: list[Call]) -> None:
    """S5: the error carries both causes, always."""
    unavailable = [call.error for call in calls if isinstance(call.error, BacklogUnavailableError)]
    silent = [error for error in unavailable if error.primary_cause is None or error.backlog_cause is None]
    assert not silent, f"{len(silent)} of {len(unavailable)} errors lack a cause: {silent[0]}"


def test_restarts_of_an_idle_secondary_with_one_backlog_queue(kind: str, tmp_path: Path) -> None:
    """S13: a stale link to the only backlog queue costs another attempt, not the sends."""
    run = Run(tmp_path, ORDERS, backlog_queue_count=1)

    async def scenario() -> None:
        async with run.brokers():
            async with (
                paired(
                    kind,
                    run.journal,
                    run.primary,
                    run.secondary,
                    factory={"retry_total": 0},
                    failover_interval=0,
                    **run.pairing,
                ) as client,
                client.factory.get_queue_sender("orders") as sender,
            ):
                for end in (run.secondary.stopped, run.secondary.killed, run.secondary.stopped):
                    async with run.primary.killed():
                        await every(0.05, Until(4), lambda: client.send("20 s", "orders", sender=sender, timeout=20))
                    await until_healthy(client, "orders")
                    async with end():
                        pass
            print(f"\n{kind}: {errors(run.journal.calls)}")
            run.checker(await run.read()).check()
        assert all(call.acknowledged for call in run.journal.calls)

    play(scenario, seconds=180)


async def until_healthy(client: Client, entity: str) -> None:
    """Wait until the pings have found the primary."""
    ends = Until(60)
    while client.factory.availability.entity(entity).state.value != "healthy":
        assert not ends(), f"{entity!r} is not healthy again"
        await asyncio.sleep(0.05)


def test_the_primary_takes_it_its_answer_is_lost_and_no_backlog_is_there(kind: str, tmp_path: Path) -> None:
    """S7: an error of a send knows whether the message may have arrived."""
    run = Run(tmp_path, ORDERS, backlog_queue_count=2, attempt_timeout=2)

    async def scenario() -> None:
        async with run.brokers():
            async with (
                paired(kind, run.journal, run.primary, run.secondary, failover_interval=0, **run.pairing) as client,
                client.factory.get_queue_sender("orders") as sender,
                run.secondary.killed(),
                run.primary.fault("lose-answers"),
            ):
                await asyncio.gather(
                    *(client.send("no time-out", "orders", sender=sender) for _ in range(5)),
                    *(client.send("20 s", "orders", sender=sender, timeout=20) for _ in range(5)),
                    client.send("a list", "orders", sender=sender, count=5),
                )
            there = await run.read()
            print(f"\n{kind}: {errors(run.journal.calls)}, {len(there)} arrived")
            assert there, "nothing arrived: the scenario proves nothing"
            run.checker(there).check()
            _check_both_causes(run.journal.calls)

    play(scenario, seconds=120)


def test_a_list_partly_parked_and_the_primary_back(kind: str, tmp_path: Path) -> None:
    """S14: what is retried is what is missing: nothing comes twice without a lost answer."""
    run = Run(tmp_path, ORDERS, backlog_queue_count=1, attempt_timeout=15)
    size = 1000
    count = _fitting(kind, size)

    async def scenario() -> None:
        async with run.brokers():
            queue = run.backlog_queues[0]
            async with (
                paired(
                    kind,
                    run.journal,
                    run.primary,
                    run.secondary,
                    factory={"retry_total": 0},
                    failover_interval=0,
                    **run.pairing,
                ) as client,
                client.factory.get_queue_sender("orders") as sender,
            ):
                async with run.secondary.fault("slow", queue, blocks=False, latency="1s"):
                    async with run.primary.fault("full", "orders"):
                        sending = asyncio.create_task(
                            client.send("list", "orders", sender=sender, count=count, size=size)
                        )
                        parked = 0
                        while not parked:  # the answer to the first part takes a second, and so does the rest
                            parked = await _count(run, queue)
                        await asyncio.to_thread(run.secondary.broker.fault, f"localhost/{queue}", "busy")
                        assert parked < count, "the list was not split: the scenario proves nothing"
                        await asyncio.sleep(2.5)  # in which the rest is refused
                    await until_healthy(client, "orders")
                    await asyncio.sleep(1)  # in which a sender that does it wrong sends all of it to the primary
                await sending
            there = await run.read()
            print(f"\n{kind}: {parked} of {count} parked first, {len(there)} found")
            run.checker(there).check(stories=1)

    play(scenario, seconds=120)


def _fitting(kind: str, size: int) -> int:
    """Return how many messages fill a batch, which is too small for them once they are rewritten."""
    batch, count = ServiceBusMessageBatch(max_size_in_bytes=262_144), 0
    while True:
        message_id = f"{kind}-0.{count}"
        try:
            batch.add_message(ServiceBusMessage(body_of(message_id, size), message_id=message_id))
        except MessageSizeExceededError:
            return count
        count += 1


async def _count(run: Run, queue: str) -> int:
    async with NamespaceManager.from_connection_string(run.secondary.connection_string) as manager:
        return (await manager.get_queue_runtime_properties(queue)).active_message_count or 0


def test_a_nearly_full_queue_does_not_flap(kind: str, tmp_path: Path) -> None:
    """G2 after a quota failure: a ping that fits where the message does not is no sign that the entity is back."""
    run = Run(tmp_path, {"orders": QueueSettings(max_size_in_megabytes=1)}, backlog_queue_count=2)

    async def scenario() -> None:
        async with run.brokers():
            fillers = await _fill(run, room=80 * 1024)
            async with (
                paired(
                    kind,
                    run.journal,
                    run.primary,
                    run.secondary,
                    failover_interval=0,
                    enable_syphon=True,
                    **run.pairing,
                ) as client,
                client.factory.get_queue_sender("orders") as sender,
            ):
                async with run.primary.trouble("nearly full", "orders", blocks=False):
                    until = Until(15)
                    await asyncio.gather(
                        every(0.3, until, lambda: client.send("small", "orders", sender=sender, size=200)),
                        every(3, until, lambda: client.send("large", "orders", sender=sender, size=120_000)),
                    )
                    turns = [turn for turn in run.journal.turns if turn.state == "engaged"]
                    await remove(run.primary.connection_string, "orders", fillers)
                await until_healthy(client, "orders")
                await client.send("large", "orders", sender=sender, size=120_000)
                await run.drain()
            print(f"\n{kind}: failover engaged {len(turns)} times in 15 s")
            run.checker(await run.read()).check()
        assert all(call.acknowledged for call in run.journal.calls)
        assert len(turns) <= 2

    play(scenario, seconds=240)


async def _fill(run: Run, room: int) -> int:
    """Fill the queue of 1 MB with messages of 16 KB, up to a little room; return how many there are."""
    count = (1024 * 1024 - room) // (17 * 1024)
    async with (
        ServiceBusClient.from_connection_string(run.primary.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for number in range(count):
            await sender.send_messages(ServiceBusMessage(b"x" * 17 * 1000, message_id=f"{FILLER}-{number}"))
    return count


def test_a_backlog_queue_deleted_and_made_again_between_bursts(kind: str, tmp_path: Path) -> None:
    """Y1: a syphon that could not complete what it sent does not take a message of the new queue for one of the old."""
    run = Run(tmp_path, ORDERS, backlog_queue_count=1, attempt_timeout=2)
    transport = "native" if kind.endswith("native") else "sdk"

    async def scenario() -> None:
        async with run.brokers():
            queue = run.backlog_queues[0]
            async with paired(
                kind,
                run.journal,
                run.primary,
                run.secondary,
                failover_interval=0,
                enable_syphon=True,
                syphon_transport=transport,
                **run.pairing,
            ) as client:
                for _ in range(2):
                    await _park(run, client, 5)
                    async with run.secondary.fault("lose-answers", queue, blocks=False):
                        await _until_arrived(run)
                    await _make_again(run, queue)
                await _park(run, client, 5)
                await run.drain()
            run.checker(await run.read()).check()

    async def _park(run: Run, client: Client, count: int) -> None:
        async with run.primary.killed(), client.factory.get_queue_sender("orders") as sender:
            for _ in range(count):
                await client.send("burst", "orders", sender=sender)

    play(scenario, seconds=240)


async def _until_arrived(run: Run) -> None:
    """Wait until the primary has everything that was sent so far."""
    wanted = {each for call in run.journal.calls for each in call.ids} - run.destroyed
    ends = Until(90)
    while missing := wanted - {each.message_id for each in await peek(run.primary.connection_string, "orders")}:
        assert not ends(), f"{len(missing)} messages have not arrived: {missing}"
        await asyncio.sleep(0.2)


async def _make_again(run: Run, queue: str) -> None:
    """Delete a backlog queue, and make it again as it was."""
    async with (
        NamespaceManager.from_connection_string(run.secondary.connection_string) as manager,
        run.secondary.trouble("delete"),
    ):
        settings = await manager.get_queue(queue)
        run.destroyed.update(each.message_id for each in await peek(run.secondary.connection_string, queue))
        await manager.delete_queue(queue)
        await manager.create_queue(queue, lock_duration=settings.lock_duration)
