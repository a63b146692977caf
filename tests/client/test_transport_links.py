"""Both transports of the movers against a peer that says what the cloud says: links, locks, tokens, pages."""

# pyright: reportPrivateUsage=false

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from tests.client.linking import HOUR, MINUTE, outgoing, transport_on
from tests.support import moved
from tests.support.peer import LOCK_LOST, Asked, Peer, Settled, Transfer, rejected, stored

from pairbus.amqp.conditions import DETACH_FORCED
from pairbus.amqp.message import build_message, encode_data_section
from pairbus.amqp.performatives import ACCEPTED, RELEASED, DeliveryState, Modified, Rejected
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.core.options import TransportName
from pairbus.core.routing import DeadLetter, DeadLetterReason
from pairbus.links.transport import Received, Settlement, Transport

QUEUE = "contoso/x-servicebus-transfer/0"
SECONDS = 15.0

pytestmark = pytest.mark.usefixtures("no_idle_timeout")


@pytest.fixture(params=["sdk", "native"])
def carrier(request: pytest.FixtureRequest) -> TransportName:
    return request.param


# --- links that the cloud ends ----------------------------------------------------------------------------------------


def test_y2_a_receiver_that_is_detached_because_it_was_idle_goes_on_waiting(carrier: TransportName) -> None:
    """The cloud detaches an idle link after ten minutes, and a long poll takes fifteen."""

    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            receiving = asyncio.ensure_future(transport.receive(QUEUE, 10, 15 * MINUTE))
            await peer.heard(lambda: bool(peer.open_links(QUEUE)))
            moved.move(10 * MINUTE)
            peer.detach(QUEUE, DETACH_FORCED)
            await peer.heard(lambda: len(peer.links(QUEUE)) == 2)
            peer.give(QUEUE, stored(7))
            assert [each.sequence_number for each in await receiving] == [7]

    moved.run(play())


def test_a_receiver_that_is_detached_soon_has_failed(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            receiving = asyncio.ensure_future(transport.receive(QUEUE, 10, 15 * MINUTE))
            await peer.heard(lambda: bool(peer.open_links(QUEUE)))
            peer.detach(QUEUE, DETACH_FORCED)
            with pytest.raises(ServiceBusError):
                await receiving
            assert len(peer.links(QUEUE)) == 1

    moved.run(play())


def test_y2_a_sender_that_is_detached_because_it_was_idle_is_replaced(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            await transport.send("orders", outgoing("one"))
            moved.move(10 * MINUTE)
            peer.detach("orders", DETACH_FORCED)
            await transport.send("orders", outgoing("two"))
            assert peer.texts == ["one", "two"]
            assert len(peer.links("orders")) == 2

    moved.run(play())


def test_a_sender_that_has_rested_long_is_closed_before_the_cloud_detaches_it(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            await transport.send("orders", outgoing("one"))
            moved.move(5 * MINUTE)
            await transport.send("bills", outgoing("two"))
            await peer.heard(lambda: not peer.open_links("orders"))
            await transport.send("bills", outgoing("three"))
            assert len(peer.links("bills")) == 1

    moved.run(play())


def test_a_link_that_did_not_answer_is_not_used_again(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            await transport.send("orders", outgoing("one"))
            peer.judge = lambda _transfer: None
            sending = asyncio.ensure_future(transport.send("orders", outgoing("two")))
            await peer.heard(lambda: len(peer.transfers) == 2)
            moved.move(SECONDS)
            with pytest.raises(OperationTimeoutError) as late:
                await sending
            assert transport.facts(late.value).in_doubt
            peer.judge = lambda _transfer: ACCEPTED
            await transport.send("orders", outgoing("three"))
            assert peer.transfers[1].link is peer.transfers[0].link
            assert peer.transfers[2].link is not peer.transfers[0].link
            await peer.heard(lambda: len(peer.open_links("orders")) == 1)

    moved.run(play())


def test_what_was_sent_when_the_link_was_lost_is_in_doubt(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.judge = lambda _transfer: None
            sending = asyncio.ensure_future(transport.send("orders", outgoing("one")))
            await peer.heard(lambda: len(peer.transfers) == 1)
            peer.detach("orders", "amqp:internal-error")
            with pytest.raises(ServiceBusError) as lost:
                await sending
            assert transport.facts(lost.value).in_doubt

    moved.run(play())


def test_what_was_never_sent_is_not_in_doubt(carrier: TransportName) -> None:
    """The peer takes the connection and no link: the time-out of an attempt says nothing about a message."""

    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.admit = lambda _asked: None
            sending = asyncio.ensure_future(transport.send("orders", outgoing("one")))
            await peer.heard(lambda: bool(peer.tokens))
            moved.move(SECONDS)
            with pytest.raises(OperationTimeoutError) as late:
                await sending
            assert not transport.facts(late.value).in_doubt
            assert peer.transfers == []

    moved.run(play())


@pytest.mark.parametrize("ends", ["in time", "with its link"])
def test_natively_what_waits_for_credit_is_not_in_doubt(ends: str) -> None:
    async def play() -> None:
        async with Peer(credit=1) as peer, transport_on(peer, "native") as transport:
            await transport.send("orders", outgoing("one"))
            sending = asyncio.ensure_future(transport.send("orders", outgoing("waits")))
            await asyncio.sleep(0)
            if ends == "in time":
                moved.move(SECONDS)
            else:
                peer.detach("orders", "amqp:internal-error")
            with pytest.raises(ServiceBusError) as failed:
                await sending
            assert not transport.facts(failed.value).in_doubt
            assert peer.texts == ["one"]

    moved.run(play())


# --- limits -----------------------------------------------------------------------------------------------------------


def test_natively_no_more_is_sent_than_the_broker_gives_credit_for() -> None:
    """The SDK's senders know no credit (they have one batch under way on a link, which is how little they send)."""

    async def play() -> None:
        async with Peer(credit=3) as peer, transport_on(peer, "native") as transport:
            peer.judge = lambda _transfer: None
            sending = [asyncio.ensure_future(transport.send("orders", outgoing(f"{n}"))) for n in range(10)]
            await peer.heard(lambda: len(peer.transfers) == 3)
            assert peer.transfers[0].link.credit == 0
            peer.grant("orders", 5)
            await peer.heard(lambda: len(peer.transfers) >= 8)
            assert peer.transfers[0].link.credit == 0
            peer.grant("orders", 5)
            await peer.heard(lambda: len(peer.transfers) == 10)
            assert peer.texts == [f"{n}" for n in range(10)]
            for transfer in peer.transfers:
                transfer.answer(ACCEPTED)
            await asyncio.gather(*sending)

    moved.run(play())


def test_a_message_beyond_the_brokers_limit_is_its_senders_error(carrier: TransportName) -> None:
    """Natively it is not even sent; the SDK leaves it to the broker to refuse it."""

    async def play() -> None:
        async with Peer(max_message_size=1000) as peer, transport_on(peer, carrier) as transport:
            peer.judge = too_large_for(1000)
            for _ in range(2):
                with pytest.raises(MessageSizeExceededError) as refused:
                    await transport.send("orders", outgoing("x" * 1001))
                assert not transport.facts(refused.value).in_doubt
            await transport.send("orders", outgoing("small"))
            assert peer.texts[-1] == "small"
            if carrier == "native":
                assert len(peer.transfers) == len(peer.links("orders")) == 1

    moved.run(play())


def too_large_for(limit: int) -> Callable[[Transfer], DeliveryState]:
    def judge(transfer: Transfer) -> DeliveryState:
        too_large = len(transfer.delivery.payload) > limit
        return rejected("amqp:link:message-size-exceeded") if too_large else ACCEPTED

    return judge


@pytest.mark.parametrize("outcome", [RELEASED, Modified(delivery_failed=True)])
def test_what_the_broker_gives_back_is_not_the_callers_error(carrier: TransportName, outcome: DeliveryState) -> None:
    """Released, or modified: not taken, and may be tried again; the link is good."""

    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.judge = lambda _transfer: outcome
            with pytest.raises(ServiceBusServerBusyError) as given_back:
                await transport.send("orders", outgoing("one", "two"))
            assert not transport.facts(given_back.value).in_doubt
            peer.judge = lambda _transfer: ACCEPTED
            await transport.send("orders", outgoing("one", "two"))

    moved.run(play())


@pytest.mark.parametrize("outcome", [Rejected(None), Modified(undeliverable_here=True)])
def test_what_the_broker_refuses_without_a_reason_is_refused(carrier: TransportName, outcome: DeliveryState) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.judge = lambda _transfer: outcome
            with pytest.raises(ServiceBusError) as refused:
                await transport.send("orders", outgoing("one"))
            assert type(refused.value) is ServiceBusError
            assert not transport.facts(refused.value).in_doubt

    moved.run(play())


def test_the_envelope_of_a_batch_tells_the_session_and_the_partition_key(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            await transport.send("orders", outgoing("one", "two", session_id="s", partition_key="s"))
            await transport.send("orders", outgoing("three", "four", partition_key="p"))
            await transport.send("orders", outgoing("five", "six"))
        assert [transfer.texts for transfer in peer.transfers] == [["one", "two"], ["three", "four"], ["five", "six"]]
        assert [told_of(transfer) for transfer in peer.transfers] == [("s", "s"), (None, "p"), (None, None)]

    moved.run(play())


def told_of(transfer: Transfer) -> tuple[str | None, str | None]:
    assert transfer.is_batch
    properties = transfer.envelope.properties()
    key = transfer.envelope.message_annotations().get("x-opt-partition-key")
    return properties.group_id if properties is not None else None, key


# --- messages under lock ----------------------------------------------------------------------------------------------


async def received(peer: Peer, transport: Transport, count: int) -> list[Received]:
    """Receive messages with the numbers from 1 on."""
    peer.give(QUEUE, *(stored(number + 1) for number in range(count)))
    got: list[Received] = []
    while len(got) < count:
        got += await transport.receive(QUEUE, count - len(got), MINUTE)
    assert [each.sequence_number for each in got] == list(range(1, count + 1))
    return got


def tokens_of(asked: Asked) -> list[uuid.UUID]:
    return list(asked.body["lock-tokens"])


@pytest.mark.parametrize("settlement", ["complete", "abandon", DeadLetter(DeadLetterReason.NO_DESTINATION, "why")])
def test_what_came_by_a_link_that_was_lost_is_settled_by_its_token(
    carrier: TransportName, settlement: Settlement
) -> None:
    """The lock is good all the same: a request with its token settles the message, and no disposition does."""

    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            messages = await received(peer, transport, 3)
            peer.cut()
            await peer.heard(lambda: not peer.open_links(QUEUE))
            with suppress(ServiceBusError):  # by which the SDK notices it
                await transport.receive(QUEUE, 1, 0.01)
            peer.give(QUEUE, stored(9))  # by a new link, where it has the number that the first one had by the old
            assert [each.sequence_number for each in await transport.receive(QUEUE, 1, MINUTE)] == [9]
            assert await transport.settle(QUEUE, messages, settlement) == [None] * 3
            asked = [each for each in peer.asked if each.operation == "update-disposition"]
            assert peer.settled == []
            assert len({token for each in asked for token in tokens_of(each)}) == 3
            statuses = {"complete": "completed", "abandon": "abandoned"}
            status = statuses.get(cast("Any", settlement), "suspended")
            assert {each.body["disposition-status"] for each in asked} == {status}

    moved.run(play())


def test_a_lock_that_is_lost_is_told_of_its_message_alone(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            messages = await received(peer, transport, 5)
            lost: list[uuid.UUID] = []

            def respond(asked: Asked) -> None:
                if any(token in lost for token in tokens_of(asked)):
                    asked.answer(410, None, LOCK_LOST)
                else:
                    asked.answer(200, {"expirations": [Timestamp(0)] * len(tokens_of(asked))})

            peer.respond = respond
            assert await transport.renew(QUEUE, messages) == [None] * 5
            lost.append(tokens_of(peer.asked[0])[0])
            if carrier == "native":  # one request for all
                assert len(tokens_of(peer.asked[0])) == 5
            answers = await transport.renew(QUEUE, messages)
            assert [type(answer) for answer in answers] == [MessageLockLostError] + [type(None)] * 4

    moved.run(play())


def test_natively_one_refused_settlement_is_told_of_its_message_alone() -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, "native") as transport:
            messages = await received(peer, transport, 3)
            seen: list[bytes] = []

            def confirm(settled: Settled) -> DeliveryState | None:
                seen.append(settled.tag)
                return rejected(LOCK_LOST) if settled.tag == seen[0] else settled.state

            peer.confirm = confirm
            answers = await transport.settle(QUEUE, messages, "complete")
            assert [type(answer) for answer in answers] == [MessageLockLostError, type(None), type(None)]

    moved.run(play())


def test_a_settlement_that_is_never_answered_ends_in_time_and_its_link_is_replaced(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            messages = await received(peer, transport, 2)
            peer.confirm = lambda _settled: None
            peer.respond = lambda _asked: None
            settling = asyncio.ensure_future(transport.settle(QUEUE, messages, "complete"))
            await peer.heard(lambda: len(peer.settled) == 2)
            for connection in peer.connections:
                connection.beat()  # it is there: what does not answer is the link
            while not settling.done():
                moved.move(SECONDS)
                await asyncio.wait({settling}, timeout=SECONDS)
            answers = settling.result()
            assert all(answer is not None and transport.facts(answer).in_doubt for answer in answers)
            peer.confirm = lambda settled: settled.state
            peer.give(QUEUE, stored(9))
            assert [each.sequence_number for each in await transport.receive(QUEUE, 1, MINUTE)] == [9]
            assert len(peer.links(QUEUE)) == 2

    moved.run(play())


def page_of(asked: Asked, stock: int) -> None:
    """Answer a peek as a queue with so many messages does, of which each page is at most 100."""
    first = int(asked.body["from-sequence-number"])
    last = min(stock, first + min(100, int(asked.body["message-count"])) - 1)
    entries = [{"message": parked(number)} for number in range(first, last + 1)]
    if entries:
        asked.answer(200, {"messages": entries})
    else:
        asked.answer(204)


def parked(number: int) -> bytes:
    return build_message(
        encode_data_section(b"x"),
        message_annotations={Symbol("x-opt-sequence-number"): number},
        application_properties={"x-ms-path": "orders"},
    )


def test_y5_a_queue_is_looked_at_beyond_one_page(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.respond = lambda asked: page_of(asked, 350)
            seen = await transport.browse(QUEUE, 320)
            assert [each.sequence_number for each in seen] == list(range(1, 321))
            assert [each.sequence_number for each in await transport.browse(QUEUE, 1000)] == list(range(1, 351))

    moved.run(play())


def test_a_node_answers_more_requests_than_it_had_credit_for_at_first(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.respond = lambda asked: page_of(asked, 0)
            for _ in range(210):
                assert await transport.browse(QUEUE, 1) == []
            assert len(peer.asked) == 210
            assert len(peer.links(f"{QUEUE}/$management")) == 2

    moved.run(play())


def test_a_request_that_is_never_answered_ends_in_time(carrier: TransportName) -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.respond = lambda _asked: None
            looking = asyncio.ensure_future(transport.browse(QUEUE, 1))
            await peer.heard(lambda: bool(peer.asked))
            moved.move(SECONDS)
            with pytest.raises(OperationTimeoutError):
                await looking
            peer.respond = lambda asked: page_of(asked, 1)
            assert len(await transport.browse(QUEUE, 1)) == 1

    moved.run(play())


@pytest.mark.parametrize("crosses", [False, True])
def test_a_message_that_lay_around_is_put_back_and_not_handed_out(carrier: TransportName, *, crosses: bool) -> None:
    """Its lock may end too soon, also if it was on its way when its credit was withdrawn."""

    async def play() -> None:
        async with Peer() as peer, transport_on(peer, carrier) as transport:
            peer.respond = lambda asked: page_of(asked, 0)
            receiving = asyncio.ensure_future(transport.receive(QUEUE, 5, MINUTE))
            await peer.heard(lambda: bool(peer.open_links(QUEUE)))
            peer.give(QUEUE, stored(1))
            assert len(await receiving) == 1
            if crosses:
                moved.move(11)
                await transport.browse(QUEUE, 1)  # by then it has withdrawn its credit, if it does
            peer.give(QUEUE, stored(2), unasked=True)
            await transport.browse(QUEUE, 1)  # by then it has come
            assert peer.settled == []
            moved.move(11)
            if carrier == "native":
                await peer.heard(lambda: bool(peer.settled))
            receiving = asyncio.ensure_future(transport.receive(QUEUE, 1, MINUTE))
            await peer.heard(lambda: bool(peer.settled))
            (settled,) = peer.settled
            assert isinstance(settled.state, Modified)
            assert settled.state.delivery_failed
            peer.give(QUEUE, stored(3))
            assert [each.sequence_number for each in await receiving] == [3]

    moved.run(play())


# --- tokens --------------------------------------------------------------------------------------------------------


class Identity:
    """A credential whose tokens last an hour."""

    def __init__(self) -> None:
        self.given: list[float] = []

    async def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        self.given.append(time.time())
        return AccessToken(f"token {len(self.given)}", int(time.time() + HOUR))


def test_natively_a_renewal_that_failed_is_tried_again_while_the_old_token_is_good() -> None:
    async def play() -> None:
        async with Peer() as peer, transport_on(peer, "native", credential=Identity()) as transport:
            await transport.send("orders", outgoing("one"))
            peer.admit = lambda _asked: 500
            moved.move(0.92 * HOUR)
            await peer.heard(lambda: len(peer.tokens) == 2)
            peer.admit = lambda _asked: 202
            while len(peer.tokens) < 3:
                moved.move(5)
                await asyncio.sleep(0)
            assert len(peer.tokens) == 3

    moved.run(play())
