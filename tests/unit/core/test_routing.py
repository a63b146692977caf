"""Routing: Y3."""

from datetime import timedelta
from random import Random

import pytest

from pairbus.core.backoff import Backoff
from pairbus.core.envelope import Label, Properties, park
from pairbus.core.routing import (
    AFTER_FAILURE,
    DISABLED_FOR_GOOD,
    DeadLetter,
    DeadLetterReason,
    Deliver,
    Destinations,
    Wait,
    WaitReason,
    route,
)
from pairbus.core.verdict import Cause, ErrorFacts

EXACT = Backoff(first=1.0, cap=8.0, jitter=0.0)


def destinations() -> Destinations:
    return Destinations(EXACT, Random(0))


def failure(cause: Cause, retry_after: timedelta | None = None) -> ErrorFacts:
    return ErrorFacts(cause, RuntimeError("no"), retry_after)


def test_y3_a_parked_message_is_delivered_where_it_belongs_as_it_was() -> None:
    label = Label(session_id="s", application_properties={"a": 1})
    assert route(park(label, "Orders")) == Deliver("Orders", label)


@pytest.mark.parametrize(
    ("properties", "ruling"),
    [
        (
            {},
            DeadLetter(
                DeadLetterReason.NO_DESTINATION,
                "application property x-ms-path is missing or empty: where the message belongs is not known",
            ),
        ),
        (
            {"x-ms-path": 7},
            DeadLetter(DeadLetterReason.NO_DESTINATION, "application property x-ms-path is int, not text"),
        ),
        (
            {"x-ms-path": "q", "x-ms-sessionid": 7},
            DeadLetter(DeadLetterReason.BAD_PROPERTY, "application property x-ms-sessionid is int, not text"),
        ),
    ],
)
def test_y3_what_can_never_be_delivered_is_dead_lettered_with_a_reason(
    properties: Properties, ruling: DeadLetter
) -> None:
    assert route(Label(application_properties=properties)) == ruling


def test_y3_every_cause_has_an_outcome() -> None:
    assert {cause: outcome.name for cause, outcome in AFTER_FAILURE.items()} == {
        Cause.TIMEOUT: "OUTAGE",
        Cause.CONNECTION: "OUTAGE",
        Cause.INTERNAL: "OUTAGE",
        Cause.SETTLEMENT: "OUTAGE",
        Cause.UNEXPECTED: "UNEXPECTED",
        Cause.BUSY: "BUSY",
        Cause.FULL: "FULL",
        Cause.DISABLED: "DISABLED",
        Cause.UNAUTHORIZED: "DENIED",
        Cause.NOT_FOUND: "DESTINATION_GONE",
        Cause.TOO_LARGE: "TOO_LARGE",
        Cause.BAD_ARGUMENT: "REFUSED",
    }
    assert AFTER_FAILURE.keys() == set(Cause)


@pytest.mark.parametrize("reason", DeadLetterReason)
def test_y3_the_reasons_of_dead_letters_are_words_an_operator_can_filter_by(reason: DeadLetterReason) -> None:
    assert reason.value.isalpha()


def test_y3_what_can_be_delivered_later_waits_and_its_destination_is_left_alone() -> None:
    known = destinations()
    assert known.failed("Orders", failure(Cause.CONNECTION), now=10.0) == Wait(WaitReason.OUTAGE, 11.0)
    assert known.set_aside_until("orders", now=10.9) == 11.0
    assert known.set_aside_until("orders", now=11.0) is None


def test_y3_the_other_destinations_go_on() -> None:
    known = destinations()
    known.failed("orders", failure(Cause.FULL), now=10.0)
    assert known.set_aside_until("invoices", now=10.0) is None


def test_y3_the_pauses_grow_up_to_a_cap() -> None:
    known = destinations()
    untils = [known.failed("orders", failure(Cause.FULL), now=100.0) for _ in range(6)]
    assert untils == [Wait(WaitReason.FULL, 100.0 + pause) for pause in (1, 2, 4, 8, 8, 8)]


def test_y3_a_success_ends_the_trouble() -> None:
    known = destinations()
    known.failed("orders", failure(Cause.FULL), now=0.0)
    known.failed("orders", failure(Cause.FULL), now=0.0)
    known.accepted("ORDERS")
    known.accepted("never heard of")
    assert known.set_aside_until("orders", now=0.5) is None
    assert known.failed("orders", failure(Cause.FULL), now=5.0) == Wait(WaitReason.FULL, 6.0)


@pytest.mark.parametrize(("told", "until"), [(30.0, 40.0), (0.5, 11.0)])
def test_y3_a_destination_that_says_how_long_is_left_alone_at_least_so_long(told: float, until: float) -> None:
    facts = failure(Cause.BUSY, timedelta(seconds=told))
    assert destinations().failed("orders", facts, now=10.0) == Wait(WaitReason.BUSY, until)


def test_y3_a_destination_that_is_gone_dead_letters_the_message_and_is_no_trouble_to_others() -> None:
    known = destinations()
    assert known.failed("Orders", failure(Cause.NOT_FOUND), now=0.0) == DeadLetter(
        DeadLetterReason.DESTINATION_GONE, "Orders: entity not found: no"
    )
    assert known.set_aside_until("orders", now=0.0) is None


def test_y3_disabled_for_good_means_each_time_it_was_tried_for_a_day() -> None:
    known = destinations()
    disabled = failure(Cause.DISABLED)
    assert known.failed("Orders", disabled, now=100.0) == Wait(WaitReason.DISABLED, 101.0)
    just_before = 100.0 + DISABLED_FOR_GOOD - 1
    assert known.failed("Orders", disabled, now=just_before) == Wait(WaitReason.DISABLED, just_before + 2)
    assert isinstance(known.failed("Orders", disabled, now=100.0 + DISABLED_FOR_GOOD), DeadLetter)
    assert known.failed("Orders", disabled, now=100.0 + 240 * 3600) == DeadLetter(
        DeadLetterReason.DESTINATION_DISABLED, "Orders: disabled for 240.0 hours: no"
    )
    assert DISABLED_FOR_GOOD == 24 * 60 * 60


@pytest.mark.parametrize("between", [Cause.CONNECTION, None])
def test_y3_disabled_for_good_is_counted_anew_after_anything_else(between: Cause | None) -> None:
    known = destinations()
    known.failed("orders", failure(Cause.DISABLED), now=0.0)
    if between is None:
        known.accepted("orders")
    else:
        known.failed("orders", failure(between), now=1.0)
    ruling = known.failed("orders", failure(Cause.DISABLED), now=DISABLED_FOR_GOOD + 1)
    assert isinstance(ruling, Wait)


def test_how_long_for_good_is_can_be_set() -> None:
    known = Destinations(EXACT, Random(0), disabled_for_good=10.0)
    known.failed("orders", failure(Cause.DISABLED), now=0.0)
    assert isinstance(known.failed("orders", failure(Cause.DISABLED), now=10.0), DeadLetter)
