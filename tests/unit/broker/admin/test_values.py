"""Durations, times and truth in XML."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.admin.values import (
    MAX_DURATION,
    milliseconds,
    milliseconds_text,
    number,
    span,
    span_text,
    time_text,
    truth,
    truth_text,
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("PT1M", 60_000),
        ("PT60S", 60_000),
        ("PT0.5S", 500),
        ("P1DT2H3M4.567S", 93_784_567),
        ("P14D", 14 * 86_400_000),
        ("PT0S", 0),
        ("-PT1S", -1000),
        ("P10675199D", 10675199 * 86_400_000),
        (MAX_DURATION, None),
        ("P10675199DT2H48M5.477581S", None),  # what the SDK makes of the longest one
        ("P10675199DT2H48M5.477539S", None),
    ],
)
def test_durations_are_read(written: str, expected: int | None) -> None:
    assert milliseconds(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "P", "PT", "P1DT", "1M", "00:01:00", "PT1", "PT1M ", "PT\u0661M", "P1Y", "P10675200D", "P999999999D"],
)
def test_what_is_no_duration(written: str) -> None:
    with pytest.raises(ValueError, match="a duration of"):
        milliseconds(written)


@given(st.timedeltas(min_value=timedelta(days=-10675199), max_value=timedelta(days=10675199)))
def test_durations_are_read_as_they_were_written(value: timedelta) -> None:
    assert span(span_text(value)) == value


@given(st.none() | st.integers(0, 10675199 * 86_400_000))
def test_limits_are_read_as_they_were_written(value: int | None) -> None:
    assert milliseconds(milliseconds_text(value)) == value


@pytest.mark.parametrize(
    ("time", "written"),
    [
        (None, "0001-01-01T00:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
        (1_600_000_000_000, "2020-09-13T12:26:40Z"),
        (1_600_000_000_120, "2020-09-13T12:26:40.12Z"),
    ],
)
def test_times(time: int | None, written: str) -> None:
    assert time_text(time) == written


def test_truth_and_numbers() -> None:
    assert [truth(text) for text in ("true", "1", "false", "0")] == [True, True, False, False]
    assert [truth_text(value) for value in (True, False)] == ["true", "false"]
    assert number("-12") == -12
    for wrong in ("", "1.0", "1_0", " 1", "\u0663", "9" * 20):
        with pytest.raises(ValueError, match="a whole number"):
            number(wrong)
    with pytest.raises(ValueError, match="true or false"):
        truth("True")
