"""The syphon on Spark: a plan that is read, a sink that moves, and books that add up (Y1 to Y6)."""

# ruff: noqa: ANN401 (options are handed on)

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.spark.stage import Pair, arrived, for_orders, pair

from pairbus.core.envelope import Label, park
from pairbus.core.ledger import Kind, Outcome, Stage
from pairbus.core.routing import DeadLetterReason
from pairbus.instrument.ledger import LedgerFile, read_ledger
from pairbus.spark.syphon.account_server import AccountServer
from pairbus.spark.syphon.job import SparkEngine
from pairbus.spark.syphon.reconciliation import append
from pairbus.syphon.accounts import Accounts
from pairbus.syphon.rounds import Drain


@asynccontextmanager
async def drain(spark: SparkSession, stage: Pair, **options: Any) -> AsyncGenerator[tuple[Drain, asyncio.Event]]:
    async with AccountServer(stage.accounts, bind="127.0.0.1", host="127.0.0.1") as account_server:
        engine = SparkEngine(spark, account_server, stage.primary.connection_string, stage.secondary.connection_string)
        stop = asyncio.Event()
        yield Drain(stage.depths(), engine, stage.accounts, stop=stop, **options), stop


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 (the books are kept by others)
            await asyncio.sleep(0.05)


def test_a_backlog_is_carried_home_and_the_books_add_up(spark: SparkSession, tmp_path: Path) -> None:
    """Y1, Y3, Y6; K1: each send is in the ledger before its messages are completed."""
    ledger = LedgerFile(tmp_path / "ledger")

    async def scenario(stage: Pair) -> None:
        await stage.park(
            [
                *for_orders(300, 0),
                *for_orders(50, 1, "n"),
                *for_orders(4, 1, "gone", "nowhere"),
                (2, "bad", Label()),
                (2, "session", park(Label(session_id="s"), "orders")),
            ]
        )
        async with drain(spark, stage, metered=True) as (drained, _stop):
            await drained.once()
        assert set(drained.depths.values()) == {0}
        assert Counter(await arrived(stage)) == Counter(
            [*(f"m{number}" for number in range(300)), *(f"n{number}" for number in range(50)), "session"]
        )

    with pair(3) as stage:
        stage.accounts = Accounts(ledger)
        asyncio.run(scenario(stage))
        lines = {(line.queue.rpartition("/")[2], line.destination): line for line in stage.accounts.rows()}
    ledger.close()
    assert {key: line.counts.delivered for key, line in lines.items()} == {
        ("0", "orders"): 300,
        ("1", "nowhere"): 0,
        ("1", "orders"): 50,
        ("2", ""): 0,
        ("2", "orders"): 1,
    }
    assert lines["1", "nowhere"].counts.dead_lettered == {DeadLetterReason.DESTINATION_GONE: 4}
    assert lines["2", ""].counts.dead_lettered == {DeadLetterReason.NO_DESTINATION: 1}
    assert sum(line.found for line in lines.values()) == 356
    done = [record for record in read_ledger(tmp_path / "ledger") if record.outcome is Outcome.DONE]
    counted = {kind: sum(each.messages for each in done if each.kind is kind) for kind in Kind}
    assert (counted[Kind.RECEIVE], counted[Kind.SEND], counted[Kind.COMPLETE], counted[Kind.DEAD_LETTER]) == (
        356,
        351,
        351,
        5,
    )
    first = {kind: min(each.at for each in done if each.kind is kind) for kind in (Kind.SEND, Kind.COMPLETE)}
    assert first[Kind.SEND] <= first[Kind.COMPLETE]


def test_a_skewed_backlog_is_shared_by_all_cores(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Y4, Y5: two slots at one queue, each in a task of its own; a session's messages keep their order."""
    monkeypatch.setattr("pairbus.core.slots.SLOT_DEPTH", 100)
    labels = [park(Label(session_id=f"s{number % 4}"), "orders") for number in range(8)]
    workers: set[tuple[str, int]] = set()

    async def scenario(stage: Pair) -> None:
        enter = stage.accounts.enter

        async def watched(entry: Any) -> None:
            workers.add((entry.worker, entry.slot))
            await enter(entry)

        monkeypatch.setattr(stage.accounts, "enter", watched)
        await stage.park([*for_orders(600), *((0, f"o{number}", label) for number, label in enumerate(labels))])
        async with drain(spark, stage) as (drained, _stop):
            await drained.once()
        ids = await arrived(stage)
        assert Counter(ids) == Counter([*(f"m{number}" for number in range(600)), *(f"o{each}" for each in range(8))])
        for session in range(4):
            assert ids.index(f"o{session}") < ids.index(f"o{session + 4}")

    with pair(2) as stage:
        asyncio.run(scenario(stage))
    assert {slot for _, slot in workers} == {0, 1}
    assert len({carrier for carrier, _ in workers}) >= 2


def test_an_idle_syphon_holds_one_long_poll_and_stops_in_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Y2: polls follow each other, one at a time per queue, however long it idles; what comes is moved at once."""
    poll = 1.0
    monkeypatch.setattr("pairbus.syphon.rounds.IDLE_QUOTA", 20)
    ledger = LedgerFile(tmp_path / "ledger")

    def empty_polls() -> Counter[str]:
        ledger.flush()
        return Counter(each.entity for each in read_ledger(tmp_path / "ledger") if each.stage is Stage.IDLE)

    async def scenario(stage: Pair) -> None:
        async with drain(spark, stage, metered=True, long_poll=poll) as (drained, stop):
            keeping = asyncio.create_task(drained.keep())
            await until(lambda: len(empty_polls()) == 2 and min(empty_polls().values()) >= 3)
            counted = empty_polls()
            lasted: Counter[str] = Counter()
            for each in read_ledger(tmp_path / "ledger"):
                if each.kind is Kind.EMPTY_RECEIVE:
                    lasted[each.entity] += each.duration_us
            for queue, count in counted.items():
                assert lasted[queue] >= 0.95 * count * poll * 1e6  # each was held, none was cut short
            await stage.park([*for_orders(5), *for_orders(50, 1, "n")])  # more than a share's quota: a new round
            await until(lambda: stage.accounts.total().counts.delivered == 55)
            stop.set()
            await asyncio.wait_for(keeping, 60)
        assert Counter(await arrived(stage)) == Counter([f"m{n}" for n in range(5)] + [f"n{n}" for n in range(50)])

    with pair(2) as stage:
        stage.accounts = Accounts(ledger)
        asyncio.run(scenario(stage))
    ledger.close()


def test_a_stop_in_the_middle_finishes_bursts_and_the_next_run_does_the_rest(spark: SparkSession) -> None:
    """Y1: nothing is lost, nothing twice, and the books of both runs together are the backlog."""

    async def scenario(stage: Pair) -> None:
        await stage.park(for_orders(1500))
        async with drain(spark, stage) as (drained, stop):
            draining = asyncio.create_task(drained.once())
            await until(lambda: stage.accounts.total().counts.delivered > 0)
            stop.set()
            await draining
        at_stop = stage.accounts.total().counts.delivered
        assert len(await arrived(stage)) == at_stop
        stage.accounts = Accounts()
        async with drain(spark, stage) as (drained, stop):
            await drained.once()
        assert at_stop + stage.accounts.total().counts.delivered == 1500
        assert Counter(await arrived(stage)) == Counter(f"m{number}" for number in range(1500))

    with pair(1, lock_seconds=5) as stage:
        asyncio.run(scenario(stage))


def test_secrets_show_in_no_plan_no_log_and_no_process(spark: SparkSession) -> None:
    async def scenario(stage: Pair) -> None:
        await stage.park(for_orders(3))
        async with drain(spark, stage) as (drained, _stop):
            await drained.once()

    with pair(1) as stage:
        asyncio.run(scenario(stage))
        keys = [
            part.partition("=")[2]
            for broker in (stage.primary, stage.secondary)
            for part in broker.connection_string.split(";")
            if part.startswith("SharedAccessKey=")
        ]
    executions = cast("Any", spark)._jsparkSession.sharedState().statusStore().executionsList()
    shown = "\n".join(executions.apply(each).physicalPlanDescription() for each in range(executions.size()))
    tracker: Any = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    shown += "\n".join(stage.name for stage in stages if stage is not None)
    assert "foreachPartition" in shown
    log = next(file.readlink() for file in _files_of_java(spark) if file.name == "2")
    processes = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if _is_readable(file)]
    for key in keys:
        assert key not in shown
        assert key not in log.read_text()
        assert not any(key.encode() in each for each in processes)


def _files_of_java(spark: SparkSession) -> list[Path]:
    return list(Path(f"/proc/{cast('Any', spark).sparkContext._gateway.proc.pid}/fd").iterdir())


def _is_readable(file: Path) -> bool:
    try:
        file.read_bytes()
    except OSError:  # it has ended meanwhile
        return False
    return True


def test_reconciliations_are_appended_to_a_table(spark: SparkSession, tmp_path: Path) -> None:
    row = {
        "at": None,
        "queue": "q",
        "destination": "orders",
        "found": 3,
        "delivered": 1,
        "dead_lettered": {"DestinationGone": 1},
        "waiting": {"outage": 1},
        "duplicates_suspected": 0,
        "oldest_at": None,
        "seconds": 1.5,
    }
    append(spark, str(tmp_path / "table"), [row])
    append(spark, str(tmp_path / "table"), [row])
    append(spark, str(tmp_path / "table"), [])
    read = spark.read.parquet(str(tmp_path / "table")).collect()
    assert [each.asDict() for each in read] == [row, row]
