"""Links between two of our connections: attaching, credit, drain, windows, many frames."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.amqp.linking import attach, deliveries, frames_of, frames_with, options

from pairbus.amqp.composites import decode_one, encode_composite
from pairbus.amqp.conditions import (
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    TRANSFER_LIMIT_EXCEEDED,
    AmqpError,
)
from pairbus.amqp.connection import Connection, ConnectionState, Side
from pairbus.amqp.events import (
    Closed,
    DeliveriesReceived,
    Delivery,
    FlowChanged,
    LinkAttached,
    LinkDetached,
    LinkRequested,
    WindowOpened,
)
from pairbus.amqp.frames import AMQP_HEADER, frame
from pairbus.amqp.link import LinkState
from pairbus.amqp.loopback import Loopback
from pairbus.amqp.performatives import (
    ACCEPTED,
    BATCH_FORMAT,
    RECEIVER,
    SENDER,
    SETTLE_SECOND,
    SETTLE_UNSETTLED,
    Attach,
    Begin,
    Detach,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sender import SenderLink
from pairbus.amqp.types import Described, Symbol

# --- attaching -------------------------------------------------------------------------------------------------------


def test_the_server_sees_all_that_the_client_asks_for_and_echoes_it() -> None:
    loop = Loopback(Connection(Side.CLIENT, options("c")), Connection(Side.SERVER, options("s")))
    loop.exchange()
    source = Source(
        "amqps://host:5671/q",
        filter={Symbol("com.microsoft:session-filter"): Described(Symbol("com.microsoft:session-filter"), None)},
        capabilities=(Symbol("queue"),),
        default_outcome=Modified(delivery_failed=True),
    )
    link = loop.client.begin().attach_receiver(
        "name", source, Target("t"), snd_settle_mode=SETTLE_UNSETTLED, rcv_settle_mode=SETTLE_SECOND,
        properties={Symbol("com.microsoft:timeout"): 5}, capabilities=(Symbol("x"),), max_message_size=77,
    )  # fmt: skip
    requested = loop.take()[1][-1]
    assert isinstance(requested, LinkRequested)
    asked = requested.link.remote
    assert asked is not None
    assert asked.source == source
    assert asked.target == Target("t")
    assert (asked.snd_settle_mode, asked.rcv_settle_mode) == (SETTLE_UNSETTLED, SETTLE_SECOND)
    assert asked.properties == {"com.microsoft:timeout": 5}
    assert asked.desired_capabilities == ("x",)
    assert isinstance(requested.link, SenderLink)
    assert requested.link.max_message_size == 77
    requested.link.accept(properties={Symbol("com.microsoft:locked-until-utc"): 9})
    requested.link.accept()  # a second answer is none
    assert loop.take()[0][-1] == LinkAttached(link)
    assert link.remote is not None
    assert (link.remote.source, link.remote.target) == (source, Target("t"))
    assert (link.remote.snd_settle_mode, link.remote.rcv_settle_mode) == (SETTLE_UNSETTLED, SETTLE_SECOND)
    assert link.remote.properties == {"com.microsoft:locked-until-utc": 9}
    assert link.remote.initial_delivery_count == 0


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_a_refusal_is_an_attach_without_termini_and_a_detach_with_the_error(role: bool) -> None:  # noqa: FBT001
    loop = Loopback(Connection(Side.CLIENT, options("c")), Connection(Side.SERVER, options("s")))
    loop.exchange()
    session = loop.client.begin()
    link = session.attach_sender("l", Target("q")) if role is SENDER else session.attach_receiver("l", Source("q"))
    requested = loop.take()[1][-1]
    assert isinstance(requested, LinkRequested)
    error = Error(NOT_FOUND, "no such queue")
    requested.link.refuse(error)
    first, second = frames_of(loop.server.data_to_send())
    answer = decode_one(Attach, first)
    assert (answer.name, answer.source, answer.target) == ("l", None, None)
    assert decode_one(Detach, second) == Detach(0, closed=True, error=error)
    client_told = loop.client.receive_data(frame(0, first) + frame(0, second), 0.0)
    assert client_told == [LinkDetached(link, error, closed=True, by_peer=True)]
    assert loop.take()[1] == [LinkDetached(requested.link, None, closed=True, by_peer=True)]
    assert not loop.server.sessions[0].links
    assert not loop.client.sessions[0].links


def test_the_answer_may_come_late_and_find_the_link_gone() -> None:
    loop = Loopback(Connection(Side.CLIENT, options("c")), Connection(Side.SERVER, options("s")))
    loop.exchange()
    link = loop.client.begin().attach_receiver("l", Source("q"))
    requested = loop.take()[1][-1]
    assert isinstance(requested, LinkRequested)
    link.detach()
    assert [type(event) for event in loop.take()[1]] == [LinkDetached]
    requested.link.accept()
    requested.link.refuse(Error(NOT_FOUND))
    requested.link.detach()
    assert loop.take() == ([], [])
    assert link.state is LinkState.DETACHED


def test_credit_that_comes_before_the_answer_counts_after_it() -> None:
    server = Connection(Side.SERVER, options("s"))
    asked = Attach("l", 7, RECEIVER, source=Source("q"), target=Target())
    events = server.receive_data(
        AMQP_HEADER + frames_with(Open("c"), Begin(None, 0, 100, 100), asked, Flow(None, 100, 0, 100, 7, 0, 5)), 0.0
    )
    (link,) = [event.link for event in events if isinstance(event, LinkRequested)]
    assert isinstance(link, SenderLink)
    assert link.credit == 5
    with pytest.raises(AmqpError):
        link.send(b"too early", b"tag")
    link.accept()
    link.send(b"now", b"tag")
    assert link.credit == 4


def test_two_links_of_one_name_cannot_be_attached_at_once_in_one_direction() -> None:
    loop = Loopback(Connection(Side.CLIENT, options("c")), Connection(Side.SERVER, options("s")))
    session = loop.client.begin()
    session.attach_sender("l", Target("q"))
    session.attach_receiver("l", Source("q"))
    with pytest.raises(AmqpError):
        session.attach_sender("l", Target("q"))


def test_an_attach_that_crosses_our_detach_is_dropped() -> None:
    """The SDK says attach again before it answers a detach."""
    pair = attach()
    pair.outgoing.detach(Error(NOT_FOUND))
    pair.loop.server.data_to_send()
    remote = pair.outgoing.remote
    assert remote is not None
    again = frame(0, encode_composite(remote)) + frame(0, encode_composite(Detach(remote.handle, closed=True)))
    assert pair.loop.server.receive_data(again, 0.0) == [LinkDetached(pair.outgoing, None, closed=True, by_peer=True)]
    assert pair.loop.server.state is ConnectionState.OPEN


# --- credit ----------------------------------------------------------------------------------------------------------


def test_a_sender_sends_no_more_than_its_credit() -> None:
    pair = attach()
    with pytest.raises(AmqpError) as caught:
        pair.sender.send(b"x", b"t")
    assert caught.value.condition == ILLEGAL_STATE
    pair.incoming.grant(2)
    assert FlowChanged(pair.sender) in pair.loop.take()[0]
    assert [pair.sender.send(b"x", b"t"), pair.sender.send(b"y", b"u")] == [1, 2]
    with pytest.raises(AmqpError):
        pair.sender.send(b"z", b"v")
    received = deliveries(pair.loop.take()[1])
    assert [(d.payload, d.delivery_tag, d.settled, d.message_format) for d in received] == [
        (b"x", b"t", False, 0),
        (b"y", b"u", False, 0),
    ]
    assert pair.incoming.credit == 0


def test_credit_granted_while_messages_are_on_their_way_is_not_counted_twice() -> None:
    pair = attach()
    pair.incoming.grant(3)
    pair.loop.exchange()
    pair.sender.send(b"1", b"1")
    pair.sender.send(b"2", b"2")
    pair.incoming.grant(3)  # before the two have arrived: three counted from what the receiver has seen
    pair.loop.client.receive_data(pair.loop.server.data_to_send(), 0.0)
    assert pair.sender.credit == 1


def test_a_drain_gives_the_credit_back() -> None:
    pair = attach()
    pair.receiver.grant(10, drain=True)
    assert FlowChanged(pair.outgoing) in pair.loop.take()[1]
    assert (pair.outgoing.credit, pair.outgoing.draining) == (10, True)
    pair.outgoing.send(b"all there is", b"t")
    pair.outgoing.drained()
    told = pair.loop.take()[0]
    assert [type(event) for event in told] == [DeliveriesReceived, FlowChanged]
    assert (pair.receiver.credit, pair.receiver.delivery_count) == (0, 10)
    assert (pair.outgoing.credit, pair.outgoing.draining) == (0, False)
    pair.receiver.grant(1)
    pair.loop.exchange()
    assert pair.outgoing.credit == 1


def test_an_echo_is_answered_with_the_flow_state_once() -> None:
    pair = attach()
    pair.receiver.grant(3, echo=True)
    told = pair.loop.take()[0]
    assert [type(event) for event in told] == [FlowChanged]
    assert pair.receiver.credit == 3
    server = pair.loop.server
    assert server.receive_data(frames_with(Flow(1, 100, 1, 100, echo=True)), 0.0) == []
    (answer,) = frames_of(server.data_to_send())
    flow = decode_one(Flow, answer)
    assert (flow.handle, flow.incoming_window, flow.echo) == (None, 5000, False)


@pytest.mark.parametrize("enforced", [False, True])
def test_a_sender_that_ignores_its_credit_is_borne_or_detached_as_told(enforced: bool) -> None:  # noqa: FBT001
    pair = attach(server=options("s", enforce_credit=enforced))
    pair.incoming.grant(1)
    pair.loop.exchange()
    pair.sender.credit = 2
    pair.sender.send(b"1", b"1")
    pair.sender.send(b"2", b"2")
    told_client, told_server = pair.loop.take()
    if not enforced:
        assert len(deliveries(told_server)) == 2
        assert pair.incoming.credit == -1
        return
    assert [type(event) for event in told_server] == [DeliveriesReceived, LinkDetached]
    (detached,) = [event for event in told_client if isinstance(event, LinkDetached)]
    assert detached.error is not None
    assert detached.error.condition == TRANSFER_LIMIT_EXCEEDED


# --- deliveries ------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.booleans(), st.binary(max_size=32)), min_size=1, max_size=12),
    st.integers(512, 2000),
    st.integers(1, 9),
    st.integers(0, 1 << 30),
)
@settings(max_examples=60, deadline=None)
def test_any_deliveries_arrive_whole_in_order_through_any_frame_size_window_and_cutting(
    plan: list[tuple[int, bool, bytes]], frame_size: int, window: int, seed: int
) -> None:
    small = options("c", max_frame_size=frame_size, incoming_window=window)
    pair = attach(client=small, server=options("s", max_frame_size=frame_size, incoming_window=window), seed=seed)
    pair.incoming.grant(len(plan))
    pair.receiver.grant(len(plan))
    pair.loop.take()
    for size, settled, tag in plan:
        payload = random.Random(size).randbytes(size)
        for link in (pair.sender, pair.outgoing):
            link.send(payload, tag, settled=settled, message_format=BATCH_FORMAT if size % 2 else 0)
    for told in pair.loop.take():
        received = deliveries(told)
        assert [(len(d.payload), d.settled, d.delivery_tag) for d in received] == plan
        for got in received:
            assert got.payload == random.Random(len(got.payload)).randbytes(len(got.payload))
            assert got.message_format == (BATCH_FORMAT if len(got.payload) % 2 else 0)
    unsettled = sum(not settled for _, settled, _ in plan)
    assert len(pair.sender.session.sent) == len(pair.outgoing.session.sent) == unsettled


def test_no_frame_is_larger_than_the_peer_takes_and_every_one_but_the_last_is_full() -> None:
    pair = attach(client=options("c", max_frame_size=600))
    pair.receiver.grant(1)
    pair.loop.exchange()
    pair.outgoing.send(bytes(2000), b"t" * 32)
    sizes = [len(body) + 8 for body in frames_of(pair.loop.server.data_to_send())]
    assert len(sizes) == 4
    assert all(590 <= size <= 600 for size in sizes[:-1])


def test_the_hot_frames_have_all_of_their_fields_too() -> None:
    """Older versions of the SDK count on them."""
    pair = attach(client=options("c", max_frame_size=600))
    pair.receiver.grant(2)
    (flow,) = frames_of(pair.loop.client.data_to_send())
    pair.loop.server.receive_data(frame(0, flow), 0.0)
    pair.outgoing.send(b"x", b"t")
    pair.outgoing.send(bytes(800), b"t")
    transfers = frames_of(pair.loop.server.data_to_send())
    pair.outgoing.session.settle(1, ACCEPTED, role=SENDER)
    pair.outgoing.session.settle(2, Rejected(Error(NOT_FOUND, "x" * 300)), role=SENDER)
    short, long = frames_of(pair.loop.server.data_to_send())
    assert [data[5] for data in (flow, *transfers, short)] == [11, 11, 11, 11, 6]
    assert long[11] == 6


def test_a_sender_knows_how_much_can_leave_now() -> None:
    pair = attach(client=options("c", incoming_window=2, replenish_window=False))
    pair.receiver.grant(5)
    pair.loop.take()
    assert pair.outgoing.sendable == 2
    pair.outgoing.send(b"", b"")
    assert pair.outgoing.sendable == 1


def test_what_exceeds_the_window_waits_until_it_opens() -> None:
    pair = attach(client=options("c", incoming_window=2, replenish_window=False))
    pair.receiver.grant(10)
    pair.loop.take()
    for number in range(5):
        pair.outgoing.send(b"%d" % number, b"t")
    assert len(deliveries(pair.loop.take()[0])) == 2
    pair.receiver.session.replenish()
    told_client, told_server = pair.loop.take()
    assert [d.payload for d in deliveries(told_client)] == [b"2", b"3"]
    assert told_server == []  # all of the window was used at once
    pair.receiver.session.replenish()
    told_client, told_server = pair.loop.take()
    assert [d.payload for d in deliveries(told_client)] == [b"4"]
    assert told_server == [WindowOpened(pair.outgoing.session)]


def test_a_link_that_detaches_takes_what_waits_with_it_and_leaves_the_others() -> None:
    pair = attach(client=options("c", incoming_window=1, replenish_window=False))
    other = pair.receiver.session.attach_receiver("other", Source("q2"))
    (requested,) = [event.link for event in pair.loop.take()[1] if isinstance(event, LinkRequested)]
    assert isinstance(requested, SenderLink)
    requested.accept()
    pair.loop.take()
    other.grant(5)
    pair.receiver.grant(5)
    pair.loop.take()
    for _ in range(2):
        pair.outgoing.send(b"a", b"t")
        requested.send(b"b", b"t")
    pair.outgoing.detach()
    pair.loop.take()
    pair.receiver.session.replenish(10)
    assert [d.payload for d in deliveries(pair.loop.take()[0])] == [b"b", b"b"]
    assert {delivery.link for delivery in requested.session.sent.values()} == {requested}


def test_an_aborted_delivery_is_forgotten() -> None:
    pair = attach()
    pair.incoming.grant(5)
    server = pair.loop.server
    parts = frames_with(Transfer(0, 1, b"t", more=True)) + frames_with(Transfer(0, aborted=True))
    assert server.receive_data(parts + frames_with(Transfer(0, 2, b"u", 0, settled=True)), 0.0) == [
        DeliveriesReceived(pair.incoming, [Delivery(2, b"u", 0, settled=True, payload=b"")])
    ]
    assert pair.incoming.credit == 3
    assert server.receive_data(frames_with(Transfer(0, 3, b"v", aborted=True)), 0.0) == []


@pytest.mark.parametrize(
    ("transfers", "condition"),
    [
        ([Transfer(0, None, b"t")], INVALID_FIELD),
        ([Transfer(0, 1, None)], INVALID_FIELD),
        ([Transfer(0, 1, b"t", more=True), Transfer(0, 2, b"u")], NOT_ALLOWED),
    ],
)
def test_a_delivery_that_makes_no_sense_closes_the_connection(transfers: list[Transfer], condition: Symbol) -> None:
    pair = attach()
    closed = pair.loop.server.receive_data(frames_with(*transfers), 0.0)[-1]
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == condition


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_message_too_large_detaches_its_link_and_the_rest_of_it_is_dropped(in_parts: bool) -> None:  # noqa: FBT001
    pair = attach(server=options("s", max_frame_size=512 if in_parts else 65536, max_message_size=1000))
    pair.incoming.grant(5)
    pair.loop.take()
    pair.sender.send(bytes(1000), b"t")
    assert len(deliveries(pair.loop.take()[1])) == 1
    pair.sender.send(bytes(1001), b"t")
    told_client, told_server = pair.loop.take()
    for told in (told_client, told_server):
        (detached,) = [event for event in told if isinstance(event, LinkDetached)]
        assert detached.error is not None
        assert detached.error.condition == MESSAGE_SIZE_EXCEEDED
    assert pair.loop.server.state is ConnectionState.OPEN
    assert pair.incoming.remote_handle not in pair.loop.server.sessions[0].links


def test_a_tag_of_more_than_32_bytes_is_refused() -> None:
    pair = attach()
    pair.receiver.grant(1)
    pair.loop.exchange()
    with pytest.raises(ValueError, match="32"):
        pair.outgoing.send(b"", b"x" * 33)
