"""K1: every operation becomes one record, and who watches it never breaks it."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from pairbus.core.ledger import Kind, MeteredBy, Outcome, Record, Stage
from pairbus.instrument.hooks import Instrument, Sink, Span, Started

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)


class Broken:
    def record(self, record: Record) -> None:
        raise OSError(f"no place for {record.kind.value}")


class Timer:
    """Elapsed time, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def instrument(*sinks: Sink, timer: Callable[[], float] = lambda: 0.0) -> Instrument:
    numbers = iter(range(1000))
    return Instrument(sinks, client="shop", now=lambda: NOON, elapsed=timer, new_id=lambda: f"id-{next(numbers)}")


def test_an_operation_becomes_a_record() -> None:
    kept, timer = Kept(), Timer()
    watched = instrument(kept, timer=timer)
    operation = watched.begin("fabrikam", "contoso/x-servicebus-transfer/0", Kind.SEND, Stage.PARK, sizes=[100, 70_000])
    timer.now += 0.25
    operation.done()
    assert kept.records == [
        Record(
            id="id-0",
            at=NOON,
            metered_by=MeteredBy.CLIENT,
            client="shop",
            namespace="fabrikam",
            entity="contoso/x-servicebus-transfer/0",
            kind=Kind.SEND,
            stage=Stage.PARK,
            outcome=Outcome.DONE,
            messages=2,
            operations=3,  # K2: steps of 64 KB
            bytes=70_100,
            duration_us=250_000,
        )
    ]


def test_a_receive_says_at_its_end_what_came() -> None:
    kept = Kept()
    watched = instrument(kept)
    oldest = NOON - timedelta(minutes=3)
    watched.begin("a", "orders", Kind.RECEIVE, Stage.SYPHON).done([10, 20], oldest_at=oldest)
    watched.begin("a", "orders", Kind.RECEIVE, Stage.SYPHON).done([])
    watched.begin("a", "orders", Kind.RECEIVE, Stage.DIRECT).done()
    seen = [(record.kind, record.stage, record.messages, record.operations) for record in kept.records]
    assert seen == [
        (Kind.RECEIVE, Stage.SYPHON, 2, 2),
        (Kind.EMPTY_RECEIVE, Stage.IDLE, 0, 1),  # Y2: the syphon, waiting
        (Kind.EMPTY_RECEIVE, Stage.DIRECT, 0, 1),
    ]
    assert kept.records[0].oldest_at == oldest


def test_a_failure_is_told_from_doubt_and_the_first_end_counts() -> None:
    kept = Kept()
    watched = instrument(kept)
    failed = watched.begin("a", "orders", Kind.SEND, Stage.DIRECT, sizes=[1])
    failed.failed(ConnectionError("the key is SECRET"))
    failed.done()
    watched.begin("a", "orders", Kind.SEND, Stage.DIRECT, sizes=[1]).failed(TimeoutError(), in_doubt=True)
    assert [(record.outcome, record.detail) for record in kept.records] == [
        (Outcome.FAILED, "ConnectionError"),  # the name, never the text
        (Outcome.UNKNOWN, "TimeoutError"),
    ]


def test_a_ping_is_an_operation_and_no_message() -> None:
    """G3, as the client meters it."""
    kept = Kept()
    instrument(kept).begin("a", "orders", Kind.PING, Stage.PING, sizes=[60]).done()
    assert (kept.records[0].operations, kept.records[0].messages, kept.records[0].bytes) == (1, 0, 60)


def test_a_sink_that_raises_breaks_nothing_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    watched = instrument(Broken(), kept)
    for _ in range(3):
        watched.begin("a", "orders", Kind.SEND, Stage.DIRECT, sizes=[1]).done()
    assert len(kept.records) == 3
    assert watched.sink_errors == 3
    assert [each.getMessage() for each in caplog.records] == [
        "Broken does not take records: OSError('no place for send'); operations go on, and this is said once"
    ]
    assert caplog.records[0].name == "pairbus.instrument.hooks"


def test_a_tracer_sees_the_beginning_and_the_end_and_may_raise() -> None:
    seen: list[object] = []

    class Spy:
        def begin(self, started: Started) -> Span:
            seen.append(started)
            return self

        def end(self, record: Record, error: BaseException | None) -> None:
            seen.extend((record.outcome, error))
            raise ValueError

    class Clumsy(Spy):
        def begin(self, started: Started) -> Span:
            raise ValueError(started.entity)

    properties: dict[str, object] = {}
    spied = Instrument(tracer=Spy(), client="shop")
    assert spied.traces
    assert not Instrument().traces
    spied.begin("a", "orders", Kind.SEND, Stage.DIRECT, sizes=[1], carriers=[properties]).done()
    assert seen == [Started("shop", "a", "orders", Kind.SEND, Stage.DIRECT, None, [properties]), Outcome.DONE, None]
    clumsy = Instrument(tracer=Clumsy())
    clumsy.begin("a", "orders", Kind.SEND, Stage.DIRECT).done()
    assert (spied.sink_errors, clumsy.sink_errors) == (1, 1)


def test_turns_of_health_are_recorded_and_failover_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kept, timer = Kept(), Timer()
    watched = instrument(kept, timer=timer)

    def park(destination: str) -> None:
        watched.begin("b", "backlog/0", Kind.SEND, Stage.PARK, sizes=[1, 1], destination=destination).done()

    watched.turn("a", "orders", "suspect")
    timer.now += 60
    park("orders")
    watched.turn("a", "orders", "engaged")
    for destination in ("orders", "ORDERS", "bills"):  # S1: names are compared case-insensitively
        park(destination)
    watched.begin("b", "backlog/0", Kind.SEND, Stage.PARK, sizes=[1], destination="orders").failed(OSError())
    timer.now += 312.5
    watched.turn("a", "Orders", "healthy")
    watched.turn("a", "Orders", "suspect")
    watched.turn("a", "Orders", "healthy")
    turns = [record for record in kept.records if record.kind is Kind.TURN]
    assert [(turn.detail, turn.duration_us, turn.messages, turn.operations) for turn in turns[:3]] == [
        ("suspect", 0, 0, 0),
        ("engaged", 60_000_000, 2, 0),
        ("healthy", 312_500_000, 4, 0),
    ]
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("pairbus.failover", "'orders' took no message for 60.0 s: failover engages, messages are parked"),
        ("pairbus.failover", "'Orders' takes messages again: failover ends after 312.5 s, 4 messages parked"),
    ]


def test_without_a_name_the_client_is_the_program_on_its_machine() -> None:
    assert "@" in Instrument().client
