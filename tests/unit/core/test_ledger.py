"""The ledger's record: K1, and the steps of K2."""

import enum
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.ledger import Kind, MeteredBy, Outcome, Record, Stage, operations
from pairbus.errors import LedgerError

AT = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
LEAST: dict[str, Any] = {
    "id": "r1",
    "at": "2026-01-31T12:00:00.25Z",
    "client": "till-7",
    "namespace": "contoso",
    "entity": "orders",
    "kind": "send",
    "stage": "direct",
    "outcome": "done",
}

NO_NAME: tuple[object, ...] = ("lost", "", 7, [], {})

times = st.datetimes(
    datetime(1971, 1, 1),  # noqa: DTZ001 (the strategy wants it so)
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-8)), timezone(timedelta(hours=5, minutes=30))]),
).filter(lambda moment: moment.year < 9999)
counts = st.integers(0, 2**63 - 1)
records = st.builds(
    Record,
    id=st.text(),
    at=times,
    metered_by=st.sampled_from(MeteredBy),
    client=st.text(),
    namespace=st.text(),
    entity=st.text(),
    kind=st.sampled_from(Kind),
    stage=st.sampled_from(Stage),
    outcome=st.sampled_from(Outcome),
    messages=counts,
    operations=counts,
    bytes=counts,
    duration_us=counts,
    destination=st.none() | st.text(),
    oldest_at=st.none() | times,
    detail=st.none() | st.text(),
)


def line(**changed: object) -> str:
    return json.dumps(LEAST | changed)


def least() -> Record:
    return Record(
        id="r1",
        at=AT,
        client="till-7",
        namespace="contoso",
        entity="orders",
        kind=Kind.SEND,
        stage=Stage.DIRECT,
        outcome=Outcome.DONE,
    )


@given(records)
def test_k1_any_record_can_be_read_back(record: Record) -> None:
    written = record.to_json()
    assert Record.from_json(written) == record
    assert Record.from_json(written).to_json() == written


@given(records)
def test_k1_a_record_is_one_line(record: Record) -> None:
    assert not set(record.to_json()) & {"\n", "\r"}


def test_k1_a_record_tells_when_who_where_what_how_many_and_how_it_ended() -> None:
    record = Record(
        id="r2",
        at=AT,
        metered_by=MeteredBy.BROKER,
        client="kasse-\u2028",
        namespace="contoso-dr",
        entity="contoso/x-servicebus-transfer/0",
        kind=Kind.EMPTY_RECEIVE,
        stage=Stage.IDLE,
        outcome=Outcome.UNKNOWN,
        messages=3,
        operations=4,
        bytes=70_000,
        duration_us=1_500,
        destination="orders",
        oldest_at=AT - timedelta(minutes=1),
        detail="TimeoutError",
    )
    assert record.to_json() == (
        '{"v":1,"id":"r2","at":"2026-01-31T12:00:00.250000Z","metered_by":"broker","client":"kasse-\\u2028",'
        '"namespace":"contoso-dr","entity":"contoso/x-servicebus-transfer/0","kind":"empty-receive","stage":"idle",'
        '"outcome":"unknown","messages":3,"operations":4,"bytes":70000,"duration_us":1500,"destination":"orders",'
        '"oldest_at":"2026-01-31T11:59:00.250000Z","detail":"TimeoutError"}'
    )


def test_k1_what_is_not_known_is_not_written() -> None:
    written = json.loads(least().to_json())
    assert written.keys() == {
        *("v", "id", "at", "metered_by", "client", "namespace", "entity", "kind", "stage", "outcome"),
        *("messages", "operations", "bytes", "duration_us"),
    }


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (
            Kind,
            (
                "send receive empty-receive peek complete abandon defer dead-letter renew ping "
                "schedule cancel session-state management turn dropped"
            ),
        ),
        (Stage, "direct park ping syphon idle setup"),
        (Outcome, "done failed unknown"),
        (MeteredBy, "client broker"),
    ],
)
def test_k1_names_in_a_ledger_stay_what_they_are(names: type[enum.Enum], written: str) -> None:
    """K1: among the kinds are send, receive, complete, renew, ping, empty long poll and management."""
    assert [name.value for name in names] == written.split()


def test_k1_times_are_utc() -> None:
    there = timezone(timedelta(hours=2))
    written = Record.from_json(line(at="2026-01-31T14:00:00.25+02:00"))
    assert written == least()
    assert written.at.tzinfo is UTC
    assert Record.from_json(line(oldest_at="2026-01-31T14:00:00+02:00")).oldest_at == datetime(
        2026, 1, 31, 14, tzinfo=there
    )


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"v": 1},
        {"shard": 4, "tags": ["new"], "nested": {"deep": None}},
        {"messages": None, "destination": None, "oldest_at": None, "detail": None, "metered_by": None},
    ],
)
def test_k1_defaults_and_fields_of_newer_versions(extra: dict[str, object]) -> None:
    """K1: what a newer version added is passed over; null means absent."""
    read = Record.from_json(line(**extra))
    assert read == least()
    assert (read.metered_by, read.messages, read.operations, read.bytes, read.duration_us) == (
        *(MeteredBy.CLIENT, 0, 1, 0, 0),
    )
    assert (read.destination, read.oldest_at, read.detail) == (None, None, None)


@pytest.mark.parametrize("field", LEAST)
def test_k1_a_field_that_is_missing_is_named(field: str) -> None:
    for without in (json.dumps({name: LEAST[name] for name in LEAST if name != field}), line(**{field: None})):
        with pytest.raises(LedgerError, match=f"^field '{field}' is missing$"):
            Record.from_json(without)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, 7) for name in ("id", "client", "namespace", "entity", "destination", "detail")),
        *((name, value) for name in ("kind", "stage", "outcome", "metered_by") for value in NO_NAME),
        *(
            (name, value)
            for name in ("messages", "operations", "bytes", "duration_us")
            for value in (-1, 1.0, True, "1", [1])
        ),
        *(
            (name, value)
            for name in ("at", "oldest_at")
            for value in ("yesterday", "", "2026-01-31T12:00:00", "2026-01-31", "2026-02-30T12:00:00Z", 1_769_860_800)
        ),
    ],
)
def test_k1_a_field_that_cannot_be_read_is_named_with_its_value(field: str, value: object) -> None:
    with pytest.raises(LedgerError) as caught:
        Record.from_json(line(**{field: value}))
    assert str(caught.value).startswith(f"field '{field}' is {value!r}: ")


@pytest.mark.parametrize("bad", ["", "{", "no JSON", line()[:-1], line() + line()])
def test_k1_half_a_line_is_no_record(bad: str) -> None:
    with pytest.raises(LedgerError, match=r"^not a line of JSON: "):
        Record.from_json(bad)


@pytest.mark.parametrize(("bad", "what"), [("[1]", "list"), ("7", "int"), ('"text"', "str"), ("null", "NoneType")])
def test_k1_only_an_object_is_a_record(bad: str, what: str) -> None:
    with pytest.raises(LedgerError, match=f"^a record is a JSON object, not {what}$"):
        Record.from_json(bad)


@pytest.mark.parametrize(
    ("sizes", "charged"),
    [
        ([], 1),
        ([0], 1),
        ([1], 1),
        ([65_536], 1),
        ([65_537], 2),
        ([131_072], 2),
        ([131_073], 3),
        ([0, 0, 0], 3),
        ([1, 65_536, 65_537], 4),
        ([40_000, 40_000], 2),
    ],
)
def test_k2_size_counts_in_steps_of_64_kb_message_by_message(sizes: list[int], charged: int) -> None:
    """K2: a call is at least one operation, and so is each of its messages."""
    assert operations(sizes) == charged
    assert operations(iter(sizes)) == charged


@pytest.mark.parametrize("kind", [Kind.TURN, Kind.DROPPED])
def test_k1_a_turn_of_health_and_a_gap_in_the_ledger_are_no_operations(kind: Kind) -> None:
    assert replace(least(), kind=kind, operations=1).operations == 0


NAIVE = AT.replace(tzinfo=None)


@pytest.mark.parametrize(("field", "value"), [("at", NAIVE), ("oldest_at", NAIVE), ("messages", -1), ("bytes", -1)])
def test_k1_a_record_that_could_not_be_read_back_is_not_made(field: str, value: Any) -> None:  # noqa: ANN401 (wrong on purpose)
    with pytest.raises(LedgerError, match=f"field '{field}' is"):
        replace(least(), **{field: value})


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_k1_a_time_beyond_all_times_is_refused(at: str) -> None:
    line = json.dumps({**json.loads(least().to_json()), "at": at})
    with pytest.raises(LedgerError, match="field 'at' is"):
        Record.from_json(line)


def test_k1_a_line_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(LedgerError, match="not a line of JSON"):
        Record.from_json("[" * 100_000)
