"""Bursts of the syphon: Y1, Y3, Y4, Y5."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.backoff import Backoff
from pairbus.core.burst import (
    EARLIER_PAUSE,
    Decided,
    LockedMessage,
    OrderedMessages,
    Parked,
    RememberedMessages,
    WaitingMessages,
    keeps_order,
    plan,
)
from pairbus.core.envelope import PATH, SESSION_ID, Label, park
from pairbus.core.routing import DeadLetter, DeadLetterReason, Deliver, Destinations, Wait, WaitReason
from pairbus.core.verdict import Cause, ErrorFacts

LOST = Parked(99, Label())
"""A message without a destination."""


def parked(number: int, destination: str = "orders", session: str | None = None, size: int = 10) -> Parked:
    return Parked(number, park(Label(session_id=session), destination), size)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Known(Parked):
    """A message with an id."""

    message_id: object = None  # pyright: ignore[reportIncompatibleMethodOverride]


def known(number: int, enqueued_at: datetime | None = NOON, message_id: object = "a") -> Known:
    made = Known(number, parked(number).label, 10, enqueued_at=enqueued_at)
    made.message_id = message_id
    return made


def destinations() -> Destinations:
    return Destinations(Backoff(first=1.0, cap=8.0, jitter=0.0), Random(0))


def facts(cause: Cause) -> ErrorFacts:
    return ErrorFacts(cause, RuntimeError("no"))


def numbers(messages: Sequence[Parked]) -> list[int]:
    return [each.sequence_number for each in messages]


def decided(rulings: Sequence[Decided[Parked]]) -> dict[int, object]:
    return {each.parked.sequence_number: each.ruling for each in rulings}


def ordered_of(*messages: Parked, limit: int = 1000) -> list[OrderedMessages[Parked]]:
    return list(plan(messages, destinations=destinations(), batch_limit=limit, now=0.0).ordered)


def test_y4_messages_are_sent_in_batches_per_destination_in_the_order_of_the_queue() -> None:
    sent_apart = ordered_of(parked(3, "Orders"), parked(1), parked(2, "invoices"))
    assert [(ordered.destination, numbers(ordered.next_batch())) for ordered in sent_apart] == [
        ("orders", [1, 3]),
        ("invoices", [2]),
    ]


def test_y4_each_session_and_each_partition_key_is_sent_apart() -> None:
    sent_apart = ordered_of(
        parked(1, session="a"), parked(2, session="b"), parked(3), Parked(4, parked(4).label, 1, partition_key="p")
    )
    assert [numbers(ordered.next_batch()) for ordered in sent_apart] == [[1], [2], [3], [4]]


def test_y1_messages_are_sent_with_the_label_they_had_before_they_were_parked() -> None:
    (ordered,) = ordered_of(parked(1, session="a"))
    assert [message.unparked for message in ordered.next_batch()] == [Label(session_id="a")]


def test_y4_batches_keep_the_limit_but_a_message_that_is_larger_goes_alone() -> None:
    (ordered,) = ordered_of(parked(1, size=60), parked(2, size=40), parked(3, size=1), parked(4, size=500), limit=100)
    known = destinations()
    sent: list[list[int]] = []
    while batch := ordered.next_batch():
        assert ordered.next_batch() == batch, "the same until it has ended"
        sent.append(numbers(batch))
        ordered.accepted(batch, known)
    assert sent == [[1, 2], [3], [4]]


def test_y3_a_message_that_cannot_be_read_is_dead_lettered_and_the_others_go_on() -> None:
    planned = plan([LOST, parked(1)], destinations=destinations(), batch_limit=1000, now=0.0)
    (ruling,) = decided(planned.decided).values()
    assert isinstance(ruling, DeadLetter)
    assert ruling.reason is DeadLetterReason.NO_DESTINATION
    assert [numbers(ordered.next_batch()) for ordered in planned.ordered] == [[1]]


def test_y3_a_destination_that_is_set_aside_waits_and_the_others_go_on() -> None:
    known = destinations()
    known.failed("orders", facts(Cause.FULL), now=0.0)
    planned = plan([parked(1, "ORDERS"), parked(2, "invoices")], destinations=known, batch_limit=1000, now=0.5)
    assert decided(planned.decided) == {1: Wait(WaitReason.SET_ASIDE, 1.0)}
    assert [numbers(ordered.next_batch()) for ordered in planned.ordered] == [[2]]


def test_y1_what_was_sent_before_and_could_not_be_completed_is_completed_and_not_sent_again() -> None:
    remembered = RememberedMessages()
    remembered.add([known(1), known(99)], now=0.0)
    planned = plan(
        [known(1), known(2), known(99)],
        sent_before=remembered,
        destinations=destinations(),
        batch_limit=1000,
        now=1.0,
    )
    assert numbers(planned.sent_before) == [1, 99]
    assert [numbers(ordered.next_batch()) for ordered in planned.ordered] == [[2]]
    assert planned.decided == []


@pytest.mark.parametrize(
    "other",
    [
        {"enqueued_at": NOON + timedelta(milliseconds=1)},
        {"enqueued_at": None},
        {"message_id": "b"},
        {"message_id": None},
        {"number": 2},
    ],
)
def test_y1_a_message_with_the_number_of_one_that_was_sent_before_is_another_message(other: dict[str, Any]) -> None:
    """A queue that is deleted and created again counts from 1 again."""
    remembered = RememberedMessages()
    remembered.add([known(1)], now=0.0)
    assert remembered.has(known(1), now=1.0)
    given: dict[str, Any] = {"number": 1, **other}
    message = known(**given)
    assert not remembered.has(message, now=1.0)
    planned = plan([message], sent_before=remembered, destinations=destinations(), batch_limit=1000, now=1.0)
    assert planned.sent_before == []
    assert [ordered.next_batch() for ordered in planned.ordered] == [[message]]


def test_y1_a_message_that_cannot_be_told_from_others_is_not_remembered() -> None:
    """By its time or by its id it can; with neither it is sent again."""
    remembered = RememberedMessages()
    messages = [known(1, enqueued_at=None), known(2, message_id=None), parked(3)]
    remembered.add(messages, now=0.0)
    assert [remembered.has(each, now=1.0) for each in messages] == [True, True, False]


def test_only_so_much_is_remembered_and_only_for_so_long() -> None:
    remembered = RememberedMessages(most=3, seconds=10.0)
    remembered.add([known(number) for number in range(5)], now=0.0)
    assert [number for number in range(5) if remembered.has(known(number), now=9.9)] == [2, 3, 4]
    remembered.add([known(2)], now=5.0)
    assert [number for number in range(5) if remembered.has(known(number), now=10.0)] == [2]
    remembered.add([known(7)], now=15.0)
    assert len(remembered) == 1
    remembered.discard(known(7))
    remembered.discard(known(7))
    assert len(remembered) == 0
    remembered.add([known(8)], now=15.0)
    remembered.add([], now=25.0)
    assert len(remembered) == 0


def test_y5_a_message_waits_for_the_earlier_ones_of_its_session_that_somebody_else_has() -> None:
    others = [parked(3, session="a"), parked(1, "ORDERS", session="a"), parked(4, session="b"), LOST]
    burst = [parked(2, session="a"), parked(5, session="b"), parked(6, session="c"), parked(7, "other", session="a")]
    planned = plan(burst, others=others, destinations=destinations(), batch_limit=1000, now=10.0)
    earlier = Wait(WaitReason.EARLIER, 10.0 + EARLIER_PAUSE)
    assert decided(planned.decided) == {2: earlier, 5: earlier}
    assert [numbers(ordered.next_batch()) for ordered in planned.ordered] == [[6], [7]]


def test_y5_its_own_messages_later_ones_and_messages_without_a_session_hold_nothing_up() -> None:
    burst = [parked(1, session="a"), parked(2, session="a"), parked(3)]
    others = [*burst, parked(9, session="a"), parked(0)]
    planned = plan(burst, others=others, destinations=destinations(), batch_limit=1000, now=0.0)
    assert planned.decided == []
    assert [numbers(ordered.next_batch()) for ordered in planned.ordered] == [[1, 2], [3]]


def test_y5_only_messages_of_sessions_need_a_look_at_the_others() -> None:
    assert not keeps_order([])
    assert not keeps_order([parked(1), LOST])
    assert not keeps_order([Parked(2, Label(application_properties={SESSION_ID: "a session without a destination"}))])
    assert keeps_order([parked(1), parked(2, session="")])


def test_y3_an_outage_lets_all_that_are_ordered_wait() -> None:
    (ordered,) = ordered_of(parked(1, size=60), parked(2, size=60), limit=100)
    known = destinations()
    rulings = ordered.failed(ordered.next_batch(), facts(Cause.TIMEOUT), known, now=5.0)
    assert decided(rulings) == {1: Wait(WaitReason.OUTAGE, 6.0), 2: Wait(WaitReason.OUTAGE, 6.0)}
    assert ordered.next_batch() == []
    assert known.set_aside_until("orders", now=5.0) == 6.0


def test_y3_a_destination_that_is_gone_dead_letters_all_that_are_ordered() -> None:
    (ordered,) = ordered_of(parked(1), parked(2))
    rulings = ordered.failed(ordered.next_batch(), facts(Cause.NOT_FOUND), destinations(), now=5.0)
    assert {number: type(ruling) for number, ruling in decided(rulings).items()} == {1: DeadLetter, 2: DeadLetter}
    assert ordered.next_batch() == []


def test_y3_in_a_batch_that_is_refused_the_message_at_fault_is_found_and_the_others_are_sent() -> None:
    (ordered,) = ordered_of(parked(1), parked(2), parked(3), parked(4, size=990))
    known = destinations()
    assert ordered.failed(ordered.next_batch(), facts(Cause.TOO_LARGE), known, now=0.0) == ()
    ends: list[object] = []
    while batch := ordered.next_batch():
        ends.append(numbers(batch))
        if numbers(batch) == [2]:
            ends.append(decided(ordered.failed(batch, facts(Cause.BAD_ARGUMENT), known, now=0.0)))
        else:
            ordered.accepted(batch, known)
    refused = DeadLetter(DeadLetterReason.REFUSED, "orders: request not valid: no")
    assert ends == [[1], [2], {2: refused}, [3], [4]]


def test_y3_after_the_one_at_fault_batches_are_batches_again() -> None:
    (ordered,) = ordered_of(parked(1, size=50), parked(2, size=50), parked(3, size=50), parked(4, size=50), limit=100)
    known = destinations()
    ordered.failed(ordered.next_batch(), facts(Cause.TOO_LARGE), known, now=0.0)
    sizes: list[int] = []
    while batch := ordered.next_batch():
        sizes.append(len(batch))
        ordered.accepted(batch, known)
    assert sizes == [1, 1, 2]


def test_y4_a_batch_that_is_accepted_ends_its_destinations_trouble() -> None:
    (ordered,) = ordered_of(parked(1))
    known = destinations()
    known.failed("orders", facts(Cause.FULL), now=0.0)
    ordered.accepted(ordered.next_batch(), known)
    assert known.set_aside_until("orders", now=0.5) is None


def waiting(number: int) -> LockedMessage:
    return LockedMessage(number, Label(), locked_until=NOON)


def until(time: float) -> Wait:
    return Wait(WaitReason.BUSY, time)


def test_y3_messages_that_have_waited_long_enough_are_given_back() -> None:
    waits = WaitingMessages[LockedMessage](room=3)
    assert waits.wake_at == math.inf
    waits.put(waiting(1), until(10.0))
    waits.put(waiting(2), until(5.0))
    assert (waits.wake_at, waits.full) == (5.0, False)
    waits.put(waiting(3), until(20.0))
    assert waits.full
    assert [(each.sequence_number, reason) for each, reason in waits.messages()] == [
        (1, WaitReason.BUSY),
        (2, WaitReason.BUSY),
        (3, WaitReason.BUSY),
    ]
    assert waits.take_due(4.9) == []
    assert numbers(waits.take_due(10.0)) == [1, 2]
    assert (waits.wake_at, waits.full) == (20.0, False)
    waits.forget([3, 4])
    waits.forget([3])
    assert waits.wake_at == math.inf


def test_y3_a_message_that_comes_again_waits_again() -> None:
    waits = WaitingMessages[LockedMessage](room=1)
    waits.put(waiting(1), until(5.0))
    waits.put(waiting(1), until(9.0))
    assert waits.take_due(5.0) == []
    assert numbers(waits.take_due(9.0)) == [1]


@pytest.mark.parametrize(
    ("message", "destination"),
    [
        (parked(1, "Orders"), "Orders"),
        (LOST, ""),
        (Parked(1, Label(application_properties={PATH: 7})), ""),
        (Parked(1, Label(application_properties={PATH: "orders", SESSION_ID: 7})), "orders"),
    ],
)
def test_a_message_belongs_where_it_says_also_if_it_cannot_be_delivered(message: Parked, destination: str) -> None:
    assert message.destination == destination


@given(
    st.lists(
        st.tuples(st.sampled_from(["orders", "Orders", "invoices"]), st.sampled_from([None, "a", "b"]), st.booleans()),
        max_size=20,
    ),
    st.data(),
)
def test_every_message_of_a_burst_is_decided_about_once_and_sessions_keep_their_order(
    messages: list[tuple[str, str | None, bool]], data: st.DataObject
) -> None:
    """Y1, Y4, Y5: whatever the destinations answer."""
    known = destinations()
    everything = [parked(number, where, session) for number, (where, session, _) in enumerate(messages)]
    mine = [each for each, (_, _, is_mine) in zip(everything, messages, strict=True) if is_mine]
    planned = plan(mine, others=everything, destinations=known, batch_limit=35, now=0.0)
    ends = numbers([each.parked for each in planned.decided])
    for ordered in planned.ordered:
        while batch := ordered.next_batch():
            answer = data.draw(st.sampled_from([None, Cause.TIMEOUT, Cause.TOO_LARGE, Cause.NOT_FOUND]))
            if answer is None:
                assert numbers(batch) == sorted(numbers(batch))
                for sent in batch:
                    earlier = [
                        each
                        for each in everything[: sent.sequence_number]
                        if sent.unparked.session_id is not None
                        and each.label.application_properties.get("x-ms-sessionid") == sent.unparked.session_id
                        and str(each.label.application_properties["x-ms-path"]).lower() == ordered.destination.lower()
                    ]
                    assert all(each in mine for each in earlier)
                ordered.accepted(batch, known)
                ends += numbers(batch)
            else:
                ends += numbers([each.parked for each in ordered.failed(batch, facts(answer), known, now=0.0)])
    assert sorted(ends) == numbers(mine)


class Routed(Parked):
    """A message whose transport knows where it goes, without its label."""

    way = Deliver("orders", Label())

    @property
    def routed(self) -> Deliver:
        return self.way


def test_messages_that_are_routed_as_one_are_sent_together_if_they_share_a_partition_key() -> None:
    burst = [Routed(1, LOST.label), Routed(2, LOST.label), Routed(3, LOST.label, partition_key="p")]
    assert [numbers(ordered.next_batch()) for ordered in ordered_of(*burst)] == [[1, 2], [3]]
