"""Outcomes of deliveries, the end of a link, and the limits of peers that are not trusted yet."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.amqp.linking import attach, deliveries, dispositions, frames_with, options

from pairbus.amqp.conditions import (
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
)
from pairbus.amqp.connection import Connection, Side
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    DispositionReceived,
    LinkDetached,
    LinkRequested,
    SessionEnded,
)
from pairbus.amqp.loopback import Loopback
from pairbus.amqp.options import ConnectionOptions
from pairbus.amqp.performatives import (
    ACCEPTED,
    RECEIVER,
    RELEASED,
    SENDER,
    Disposition,
    Error,
    Modified,
    Rejected,
    Target,
)
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.types import Described, Symbol

# --- outcomes --------------------------------------------------------------------------------------------------------


def test_outcomes_of_neighbours_go_out_as_one_range() -> None:
    pair = attach()
    pair.incoming.grant(10)
    pair.loop.take()
    for number in range(6):
        pair.sender.send(b"", b"%d" % number, context=number)
    received = deliveries(pair.loop.take()[1])
    rejected = Rejected(Error(NOT_FOUND, "no"))
    for index, outcome in ((0, ACCEPTED), (1, ACCEPTED), (2, ACCEPTED), (3, rejected), (5, ACCEPTED)):
        pair.incoming.settle(received[index], outcome)
    told = dispositions(pair.loop.take()[0])
    assert [(d.first, d.last, d.state, d.settled, d.role) for d in told] == [
        (1, 3, ACCEPTED, True, RECEIVER),
        (4, 4, rejected, True, RECEIVER),
        (6, 6, ACCEPTED, True, RECEIVER),
    ]
    assert [[s.context for s in d.deliveries] for d in told] == [[0, 1, 2], [3], [5]]
    assert list(pair.sender.session.sent) == [5]


def test_equal_outcomes_that_are_not_the_same_object_make_a_range_too() -> None:
    pair = attach()
    pair.incoming.grant(2)
    pair.loop.take()
    pair.sender.send(b"", b"1")
    pair.sender.send(b"", b"2")
    for delivery in deliveries(pair.loop.take()[1]):
        pair.incoming.settle(delivery, Rejected(Error(NOT_FOUND, "x" * 300)))
    (told,) = dispositions(pair.loop.take()[0])
    assert (told.first, told.last, told.state) == (1, 2, Rejected(Error(NOT_FOUND, "x" * 300)))


def test_a_receiver_that_settles_second_hears_the_outcome_that_was_applied() -> None:
    pair = attach()
    pair.receiver.grant(2)
    pair.loop.take()
    pair.outgoing.send(b"1", b"tag-1", context="one")
    pair.outgoing.send(b"2", b"tag-2", context="two")
    for delivery in deliveries(pair.loop.take()[0]):
        pair.receiver.settle(delivery, Modified(delivery_failed=True), settled=False)
    (told,) = dispositions(pair.loop.take()[1])
    assert (told.settled, told.state) == (False, Modified(delivery_failed=True))
    assert [(sent.tag, sent.context) for sent in told.deliveries] == [(b"tag-1", "one"), (b"tag-2", "two")]
    assert len(pair.outgoing.session.sent) == 2
    for sent in told.deliveries:
        sent.link.settle(sent, told.state)
    (echo,) = dispositions(pair.loop.take()[0])
    assert (echo.role, echo.first, echo.last, echo.settled) == (SENDER, 1, 2, True)
    assert not pair.outgoing.session.sent


@pytest.mark.parametrize("outcome", [None, RELEASED, ACCEPTED, Described(Symbol("own"), ["x"])])
def test_every_kind_of_outcome_is_carried(outcome: Described | None) -> None:
    pair = attach()
    pair.incoming.grant(1)
    pair.loop.take()
    pair.sender.send(b"", b"1")
    pair.incoming.settle(deliveries(pair.loop.take()[1])[0], outcome, settled=False)
    (told,) = dispositions(pair.loop.take()[0])
    assert (told.state, told.settled) == (outcome, False)


@given(
    st.sets(st.integers(0, 30), max_size=20),
    st.integers(0, 40),
    st.sampled_from([0, 1, 5, 40, 1 << 20, (1 << 31) - 1]),
    st.sampled_from([1, (1 << 32) - 15]),
)
@settings(deadline=None)
def test_a_range_of_any_size_finds_what_is_unsettled_and_costs_no_more(
    settled: set[int], first: int, span: int, origin: int
) -> None:
    """Also across the point where ids begin again at 0."""
    pair = attach()
    pair.receiver.grant(31)
    pair.loop.take()
    session = pair.outgoing.session
    session.next_delivery_id = origin
    ids = [pair.outgoing.send(b"", b"") for _ in range(31)]
    for index in settled:
        session.settle(ids[index], ACCEPTED, role=SENDER)
    start = (origin + first) & 0xFFFFFFFF
    frames = frames_with(Disposition(RECEIVER, start, (start + span) & 0xFFFFFFFF, settled=True, state=ACCEPTED))
    (told,) = dispositions(pair.loop.server.receive_data(frames, 0.0))
    expected = {index for index in range(31) if first <= index <= first + span} - settled
    assert {delivery.delivery_id for delivery in told.deliveries} == {ids[index] for index in expected}
    assert len(session.sent) == 31 - len(expected | settled)


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_detach_from_either_side_ends_the_link_once_on_both() -> None:
    pair = attach()
    pair.sender.detach()
    pair.outgoing.detach(Error(NOT_FOUND), closed=False)
    told_client, told_server = pair.loop.take()
    assert told_server == [
        LinkDetached(pair.incoming, None, closed=True, by_peer=True),
        LinkDetached(pair.outgoing, None, closed=False, by_peer=True),
    ]
    assert sorted((e.link.name, e.closed, e.error) for e in told_client if isinstance(e, LinkDetached)) == [
        ("in", True, None),
        ("out", False, Error(NOT_FOUND)),
    ]
    pair.sender.detach()
    pair.incoming.grant(5)
    pair.outgoing.drained()
    assert pair.loop.take() == ([], [])


def test_outcomes_told_before_a_detach_end_or_close_arrive_before_it() -> None:
    for end in ("detach", "end", "close"):
        pair = attach()
        pair.incoming.grant(1)
        pair.loop.take()
        pair.sender.send(b"", b"1")
        pair.incoming.settle(deliveries(pair.loop.take()[1])[0], ACCEPTED)
        if end == "detach":
            pair.incoming.detach()
        elif end == "end":
            pair.incoming.session.end()
        else:
            pair.loop.server.close()
        told = pair.loop.take()[0]
        assert isinstance(told[0], DispositionReceived)
        assert len(told) > 1


def test_what_is_done_to_a_session_that_has_ended_does_nothing() -> None:
    pair = attach()
    pair.incoming.grant(1)
    pair.loop.take()
    pair.sender.send(b"", b"1")
    (received,) = deliveries(pair.loop.take()[1])
    pair.sender.session.end()
    told_client, told_server = pair.loop.take()
    assert (
        [type(e) for e in told_server] == [type(e) for e in told_client] == [LinkDetached, LinkDetached, SessionEnded]
    )
    pair.incoming.settle(received, ACCEPTED)
    pair.incoming.grant(3)
    pair.incoming.session.replenish()
    pair.incoming.session.end()
    assert pair.loop.server.data_to_send() == b""
    with pytest.raises(AmqpError):
        pair.incoming.session.attach_sender("x", Target("q"))
    with pytest.raises(AmqpError):
        pair.outgoing.send(b"", b"")


# --- peers that are not trusted yet ----------------------------------------------------------------------------------


def _stranger() -> Loopback:
    loop = Loopback(Connection(Side.CLIENT, options("c")), Connection(Side.SERVER, ConnectionOptions("s")))
    loop.exchange()
    return loop


def test_a_stranger_gets_few_links_and_sessions_until_it_is_trusted() -> None:
    loop = _stranger()
    session = loop.client.begin()
    for number in range(4):
        session.attach_sender(str(number), Target("q"))
    ended = loop.take()[1][-1]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == RESOURCE_LIMIT_EXCEEDED
    for _ in range(3):
        loop.client.begin()
    closed = loop.take()[1][-1]
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize("trusted", [False, True])
def test_a_strangers_messages_are_small_until_it_is_trusted(trusted: bool) -> None:  # noqa: FBT001
    loop = _stranger()
    link = loop.client.begin().attach_sender("s", Target("$cbs"))
    requested = loop.take()[1][-1]
    assert isinstance(requested, LinkRequested)
    assert isinstance(requested.link, ReceiverLink)
    requested.link.accept()
    requested.link.grant(10)
    loop.take()
    link.send(bytes(4000), b"t")
    assert len(deliveries(loop.take()[1])) == 1
    if trusted:
        loop.server.trust()
    link.session.peer_max_frame_size = 8000
    link.send(bytes(9000), b"t")
    assert [type(event) for event in loop.take()[1]] == [DeliveriesReceived if trusted else LinkDetached]


def test_a_strangers_frames_are_small_until_it_is_trusted() -> None:
    loop = _stranger()
    session = loop.client.begin()
    session.attach_sender("s" * 1100, Target("q"))
    closed = loop.take()[1][-1]
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == RESOURCE_LIMIT_EXCEEDED
