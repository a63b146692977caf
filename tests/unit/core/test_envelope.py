"""The envelope: E1 to E3, and the sizes of S8."""

import uuid
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.envelope import (
    RESERVED,
    Label,
    NotParked,
    Properties,
    PropertyValue,
    Unparked,
    check_label,
    park,
    parked_size,
    split,
    unpark,
)
from pairbus.errors import ParkedMessageTooLargeError, ReservedPropertyError

WHEN = datetime(2026, 1, 31, 12, 30, 15, 250_000, tzinfo=UTC)
FULL = Label(
    session_id="s1",
    time_to_live=timedelta(seconds=90, milliseconds=5),
    scheduled_enqueue_time_utc=WHEN,
    application_properties={"amount": 7, b"raw": b"\x00"},
)

property_values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.datetimes(timezones=st.just(UTC))
)
property_names = (st.text() | st.binary()).filter(
    lambda name: (name.decode(errors="replace") if isinstance(name, bytes) else name) not in RESERVED
)
labels = st.builds(
    Label,
    session_id=st.none() | st.text(),
    time_to_live=st.none() | st.timedeltas(timedelta(0), timedelta(days=36_500)),
    scheduled_enqueue_time_utc=st.none()
    | st.datetimes()
    | st.datetimes(timezones=st.just(timezone(timedelta(hours=2)))),
    application_properties=st.dictionaries(property_names, property_values, max_size=4),
)
paths = st.text(min_size=1)


def as_received(label: Label) -> Label:
    """What the SDK makes of a label on its way: keys and text may be bytes, a timestamp is a number."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def value(sent: PropertyValue) -> PropertyValue:
        if isinstance(sent, datetime):
            return (sent - epoch) // timedelta(milliseconds=1)
        return sent.encode() if isinstance(sent, str) else sent

    return Label(
        application_properties={
            name.encode(): value(label.application_properties[name])
            for name in RESERVED
            if name in label.application_properties
        }
    )


def test_e1_parking_clears_what_the_backlog_must_not_act_on_and_keeps_it_as_properties() -> None:
    parked = park(FULL, "Orders/Eu")
    assert (parked.session_id, parked.time_to_live, parked.scheduled_enqueue_time_utc) == (None, None, None)
    assert parked.application_properties == {
        "amount": 7,
        b"raw": b"\x00",
        "x-ms-path": "Orders/Eu",
        "x-ms-sessionid": "s1",
        "x-ms-timetolive": 90_005,
        "x-ms-scheduledenqueuetimeutc": WHEN,
    }


def test_e2_only_what_was_set_is_added() -> None:
    assert park(Label(), "orders").application_properties == {"x-ms-path": "orders"}


def test_e2_an_empty_session_id_and_a_time_to_live_of_zero_are_set() -> None:
    label = Label(session_id="", time_to_live=timedelta(0))
    assert unpark(park(label, "orders")) == Unparked("orders", label)


@given(labels, paths)
def test_e2_unparking_a_parked_message_gives_the_same_message(label: Label, path: str) -> None:
    assert unpark(park(label, path)) == Unparked(path, label)


@given(labels.filter(lambda label: not label.application_properties), paths)
def test_e2_also_when_the_sdk_gives_names_and_text_as_bytes_and_times_as_numbers(label: Label, path: str) -> None:
    assert unpark(as_received(park(label, path))) == Unparked(path, label)


@given(labels, paths)
def test_e2_parking_leaves_the_original_alone(label: Label, path: str) -> None:
    before = dict(label.application_properties)
    park(label, path)
    assert label.application_properties == before


def test_unparking_drops_what_the_backlog_queue_gave_the_message() -> None:
    parked = Label(time_to_live=timedelta(days=1), application_properties={"x-ms-path": "orders"})
    assert unpark(parked) == Unparked("orders", Label())


@pytest.mark.parametrize("name", RESERVED)
def test_e3_a_property_of_ours_is_refused_by_name(name: str) -> None:
    for key in (name, name.encode()):
        label = Label(application_properties={key: None})
        with pytest.raises(ReservedPropertyError, match=f"application property {name}: reserved") as caught:
            check_label(label)
        assert caught.value.names == (name,)
        with pytest.raises(ReservedPropertyError):
            park(label, "orders")


def test_e3_all_of_them_are_named_and_other_properties_are_free() -> None:
    label = Label(application_properties={"x-ms-sessionid": 1, "x-ms-path": 1, "x-ms-other": 1})
    with pytest.raises(ReservedPropertyError, match="properties x-ms-path, x-ms-sessionid"):
        check_label(label)
    check_label(Label(application_properties={"x-ms-other": 1}))


@pytest.mark.parametrize(
    ("properties", "name", "problem"),
    [
        ({}, "x-ms-path", "is missing or empty: where the message belongs is not known"),
        ({"x-ms-path": ""}, "x-ms-path", "is missing or empty: where the message belongs is not known"),
        ({"x-ms-path": 7}, "x-ms-path", "is int, not text"),
        ({"x-ms-path": None}, "x-ms-path", "is NoneType, not text"),
        ({"x-ms-path": b"\xff"}, "x-ms-path", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        ({"x-ms-path": "q", "x-ms-sessionid": uuid.UUID(int=0)}, "x-ms-sessionid", "is UUID, not text"),
        ({"x-ms-path": "q", "x-ms-timetolive": "1"}, "x-ms-timetolive", "is str, not a whole number of milliseconds"),
        ({"x-ms-path": "q", "x-ms-timetolive": True}, "x-ms-timetolive", "is bool, not a whole number of milliseconds"),
        ({"x-ms-path": "q", "x-ms-timetolive": -1}, "x-ms-timetolive", "is -1, less than nothing"),
        (
            {"x-ms-path": "q", "x-ms-scheduledenqueuetimeutc": 1.5},
            "x-ms-scheduledenqueuetimeutc",
            "is float, not a whole number of milliseconds",
        ),
    ],
)
def test_y3_a_message_that_was_not_parked_is_told_apart_with_the_reason(
    properties: Properties, name: str, problem: str
) -> None:
    assert unpark(Label(application_properties=properties)) == NotParked(name, problem)


@pytest.mark.parametrize("name", ["x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"])
def test_y3_a_time_beyond_all_times_is_told_apart(name: str) -> None:
    unparked = unpark(Label(application_properties={"x-ms-path": "q", name: 2**62}))
    assert isinstance(unparked, NotParked)
    assert unparked.property == name


def test_times_have_the_precision_of_the_wire() -> None:
    label = Label(
        time_to_live=timedelta(milliseconds=5, microseconds=999),
        scheduled_enqueue_time_utc=datetime(2026, 1, 1, 0, 0, 0, 5_999),  # noqa: DTZ001 (naive on purpose)
    )
    assert label.time_to_live == timedelta(milliseconds=5)
    assert label.scheduled_enqueue_time_utc == datetime(2026, 1, 1, 0, 0, 0, 5_000, tzinfo=UTC)


def test_a_time_of_another_zone_is_the_same_moment_in_utc() -> None:
    label = Label(scheduled_enqueue_time_utc=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert label.scheduled_enqueue_time_utc == datetime(2026, 1, 1, tzinfo=UTC)
    assert label.scheduled_enqueue_time_utc is not None
    assert label.scheduled_enqueue_time_utc.tzinfo is UTC


def test_s8_how_much_parking_adds_worked_out_by_hand() -> None:
    # 12 for the section and its map; 5 + length for each text; 9 for a long or a timestamp
    assert parked_size(1000, Label(), "orders") == 1000 + 12 + (5 + 9) + (5 + 6)
    assert parked_size(0, Label(session_id="ä"), "q") == 12 + (5 + 9) + (5 + 1) + (5 + 14) + (5 + 2)
    assert parked_size(0, Label(time_to_live=timedelta(1)), "q") == 12 + (5 + 9) + (5 + 1) + (5 + 15) + 9
    assert parked_size(0, Label(scheduled_enqueue_time_utc=WHEN), "q") == 12 + (5 + 9) + (5 + 1) + (5 + 28) + 9


def test_s8_a_batch_is_split_where_it_no_longer_fits() -> None:
    assert split([1, 1, 1], [40, 60, 1], limit=100) == [range(2), range(2, 3)]
    assert split([1, 1], [100, 100], limit=100) == [range(1), range(1, 2)]
    assert split([], [], limit=100) == []


def test_s8_one_message_that_no_longer_fits_is_an_error_naming_both_sizes() -> None:
    with pytest.raises(ParkedMessageTooLargeError, match=r"98 bytes would be 101 bytes .* takes 100 at most") as caught:
        split([10, 98], [13, 101], limit=100)
    assert (caught.value.size, caught.value.parked_size, caught.value.limit) == (98, 101, 100)


def test_s8_sizes_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        split([1, 2], [1], limit=10)


@given(st.lists(st.integers(1, 100), max_size=30))
def test_s8_splitting_keeps_every_message_once_in_order_and_within_the_limit(sizes: list[int]) -> None:
    runs = split(sizes, sizes, limit=100)
    assert [index for run in runs for index in run] == list(range(len(sizes)))
    assert all(0 < sum(sizes[index] for index in run) <= 100 for run in runs)
    # and no cut was needless
    assert all(sum(sizes[index] for index in run) + sizes[following.start] > 100 for run, following in pairwise(runs))
