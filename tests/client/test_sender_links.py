"""The links of paired senders, against a peer that says what the cloud says: batches, order, tokens, heartbeats."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from tests.client.linking import HOUR, MINUTE, paired
from tests.support import moved
from tests.support.peer import Asked, Peer, Transfer, rejected, text_of

from pairbus.aio import MessageSender, MessagingFactory
from pairbus.amqp.conditions import DETACH_FORCED
from pairbus.amqp.message import Message
from pairbus.amqp.performatives import ACCEPTED, DeliveryState
from pairbus.client.send_link import AT_ONCE
from pairbus.core.backoff import Backoff
from pairbus.core.health import State
from pairbus.core.options import TransportName

LATER = datetime(2044, 1, 2, 3, 4, 5, tzinfo=UTC)
SECONDS = 15.0
STALLED = 10.0
"""Seconds after which what should be done at once is taken not to happen."""
DISABLED = "com.microsoft:entity-disabled"
TOO_LARGE = "amqp:link:message-size-exceeded"

pytestmark = pytest.mark.usefixtures("no_idle_timeout")


@pytest.fixture(params=["sdk", "native"])
def carrier(request: pytest.FixtureRequest) -> TransportName:
    return request.param


class Set:
    """A paired factory, its sender to ``orders``, and the peers of both."""

    def __init__(self, peer: Peer, secondary: Peer, factory: MessagingFactory, sender: MessageSender) -> None:
        self.peer = peer
        self.secondary = secondary
        self.factory = factory
        self.sender = sender

    @property
    def state(self) -> State:
        return self.factory.availability.entity("orders").state

    async def suspect(self) -> None:
        """Wait until ``orders`` is suspect, and the link to its backlog queue is open."""
        await self.secondary.heard(lambda: any("/x-" in each.entity for each in self.secondary.attached))
        assert self.state is State.SUSPECT

    def send(self, *messages: ServiceBusMessage) -> "list[asyncio.Task[None]]":
        """Send messages, each by a call of its own, all in one turn of the event loop."""
        return [asyncio.create_task(self.sender.send_messages(message)) for message in messages]


@asynccontextmanager
async def setting(carrier: TransportName, primary: Peer | None = None, **options: Any) -> AsyncGenerator[Set]:  # noqa: ANN401
    async with (
        primary or Peer() as peer,
        Peer() as secondary,
        paired(peer, secondary, carrier, **options) as factory,
        factory.get_queue_sender("orders") as sender,
    ):
        yield Set(peer, secondary, factory, sender)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    moved.run(scenario())


def sessions_of(transfer: Transfer) -> set[str | None]:
    return {properties.group_id if (properties := each.properties()) else None for each in transfer.messages}


def key_of(message: Message) -> str | None:
    return message.message_annotations().get("x-opt-partition-key")


# --- what travels together --------------------------------------------------------------------------------------------


def test_messages_that_wait_travel_together_but_not_those_of_different_sessions_or_keys(carrier: TransportName) -> None:
    """The cloud refuses such a mixture; and the envelope of a batch names the session and the key of all in it."""

    async def scenario() -> None:
        async with setting(carrier) as at:
            await at.sender.send_messages(ServiceBusMessage("first"))
            kinds: list[dict[str, Any]] = [{}, {"session_id": "a"}, {"session_id": "b"}, {"partition_key": "k"}]
            await asyncio.gather(*at.send(*(ServiceBusMessage(f"{n}", **kinds[n % 4]) for n in range(24))))
            assert len(at.peer.transfers) < 24
            for transfer in at.peer.transfers:
                (session,) = sessions_of(transfer)
                (key,) = {key_of(message) for message in transfer.messages}
                if transfer.is_batch:
                    properties = transfer.envelope.properties()
                    assert (properties.group_id if properties else None, key_of(transfer.envelope)) == (session, key)
            for kind in range(4):
                own = [int(text) for text in at.peer.texts[1:] if int(text) % 4 == kind]
                assert own == sorted(own)

    play(scenario)


def test_a_faulty_message_does_not_take_its_batch_down(carrier: TransportName) -> None:
    """The peer refuses a whole batch for one of its messages, as brokers do: each gets an outcome of its own."""

    async def scenario() -> None:
        async with setting(carrier) as at:

            def judge(transfer: Transfer) -> DeliveryState:
                return rejected(TOO_LARGE) if "bad" in transfer.texts else ACCEPTED

            at.peer.judge = judge
            await at.sender.send_messages(ServiceBusMessage("first"))
            texts = ["0", "1", "bad", "3", "4"]
            outcomes = await asyncio.gather(*at.send(*map(ServiceBusMessage, texts)), return_exceptions=True)
            assert any(transfer.is_batch and "bad" in transfer.texts for transfer in at.peer.transfers)
            assert isinstance(outcomes.pop(2), MessageSizeExceededError)
            assert outcomes == [None] * 4
            taken = [text for each in at.peer.transfers if "bad" not in each.texts for text in each.texts]
            assert sorted(taken) == ["0", "1", "3", "4", "first"]
            assert at.state is State.HEALTHY
            assert at.secondary.transfers == []

    play(scenario)


def test_what_is_sent_behind_a_list_does_not_overtake_it(carrier: TransportName) -> None:
    """Nor do those that the lane sends without waiting for more to come."""
    behind = [f"{n}" for n in range(2 * AT_ONCE)]

    async def scenario() -> None:
        async with setting(carrier) as at:
            await at.sender.send_messages(ServiceBusMessage("first"))
            several = [ServiceBusMessage("c"), ServiceBusMessage("d")]
            sending: list[Coroutine[Any, Any, None]] = [
                at.sender.send_messages(ServiceBusMessage("a")),
                at.sender.send_messages(ServiceBusMessage("b")),
                at.sender.send_messages(several),
                *(at.sender.send_messages(ServiceBusMessage(each)) for each in behind),
            ]
            await asyncio.gather(*sending)
            assert at.peer.texts == ["first", "a", "b", "c", "d", *behind]

    play(scenario)


def test_scheduled_messages_name_their_session_and_partition_key(carrier: TransportName) -> None:
    async def scenario() -> None:
        async with setting(carrier) as at:
            at.peer.respond = numbered
            messages = [
                ServiceBusMessage("both", session_id="s", partition_key="s", message_id="1"),
                ServiceBusMessage("key", partition_key="k", message_id="2"),
                ServiceBusMessage("neither", message_id="3"),
            ]
            assert await at.sender.schedule_messages(messages, LATER) == [1, 2, 3]
            (asked,) = at.peer.asked
            entries = list(asked.body["messages"])
            assert [each.get("session-id") for each in entries] == ["s", None, None]
            assert [each.get("partition-key") for each in entries] == ["s", "k", None]
            assert [each["message-id"] for each in entries] == ["1", "2", "3"]
            bodies = [Message(bytes(each["message"])) for each in entries]
            assert [key_of(each) for each in bodies] == ["s", "k", None]

    def numbered(asked: Asked) -> None:
        asked.answer(200, {"sequence-numbers": [n + 1 for n in range(len(asked.body["messages"]))]})

    play(scenario)


# --- links that end ---------------------------------------------------------------------------------------------------


def test_an_idle_link_that_the_cloud_detaches_is_no_failure(carrier: TransportName) -> None:
    """Ten minutes without a send: the next one opens another link. Any failure would be parked, and none is."""

    async def scenario() -> None:
        async with setting(carrier) as at:
            await at.sender.send_messages(ServiceBusMessage("one"))
            moved.move(10 * MINUTE)
            at.peer.detach("orders", DETACH_FORCED)
            await at.sender.send_messages(ServiceBusMessage("two"))
            assert at.peer.texts == ["one", "two"]
            assert (at.state, at.secondary.transfers) == (State.HEALTHY, [])

    play(scenario)


@pytest.mark.parametrize("others_answer", [True, False])
def test_s10_a_link_that_did_not_answer_is_not_used_again(carrier: TransportName, *, others_answer: bool) -> None:
    """Natively a connection on which nothing is heard is given up with all its links, and else the one link is."""

    async def scenario() -> None:
        async with setting(carrier, failover_interval=HOUR) as at:
            await at.sender.send_messages(ServiceBusMessage("one"))
            at.peer.judge = lambda _transfer: None
            sending = at.send(ServiceBusMessage("two"))[0]
            await at.peer.heard(lambda: len(at.peer.transfers) == 2)
            at.peer.judge = lambda _transfer: ACCEPTED
            if others_answer:
                async with at.factory.get_queue_sender("bills") as other:
                    await other.send_messages(ServiceBusMessage("other"))
            moved.move(SECONDS)
            await sending  # it is held, and tried again
            first, second, again = (each for each in at.peer.transfers if each.entity == "orders")
            assert (second.texts, again.texts) == (["two"], ["two"])
            assert first.link is second.link is not again.link
            await at.peer.heard(lambda: len(at.peer.open_links("orders")) == 1)

    play(scenario)


def test_natively_a_lane_sends_no_more_than_the_broker_gives_credit_for() -> None:
    async def scenario() -> None:
        async with setting("native", Peer(credit=1)) as at:
            await at.sender.send_messages(ServiceBusMessage("one"))
            waiting = at.send(ServiceBusMessage("two"))[0]
            await asyncio.sleep(0)
            assert at.peer.texts == ["one"]
            at.peer.grant("orders", 1)
            await waiting
            assert at.peer.texts == ["one", "two"]

    play(scenario)


# --- tokens and heartbeats --------------------------------------------------------------------------------------------


def test_a_token_is_renewed_before_it_expires(carrier: TransportName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of a key last an hour. By the SDK the next send renews it, natively a timer does."""

    def utc_now() -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    for module in ("cbs", "aio._cbs_async"):  # the one clock of the SDK that cannot be moved from outside
        monkeypatch.setattr(f"azure.servicebus._pyamqp.{module}.utc_now", utc_now)

    async def scenario() -> None:
        async with setting(carrier) as at:
            await at.sender.send_messages(ServiceBusMessage("one"))
            shown = len(at.peer.tokens)
            for _ in range(20):  # so that the link does not rest
                moved.move(0.95 * HOUR / 20)
                await at.sender.send_messages(ServiceBusMessage("another"))
            await at.peer.heard(lambda: len(at.peer.tokens) > shown)
            assert len(at.peer.tokens) == shown + 1
            assert (at.state, len(at.peer.links("orders"))) == (State.HEALTHY, 1)

    play(scenario)


def test_heartbeats_go_on_while_nothing_is_sent(carrier: TransportName) -> None:
    """The peer asks for a sign of life at least every minute."""

    async def scenario() -> None:
        async with setting(carrier, Peer(idle_timeout=MINUTE)) as at:
            await at.sender.send_messages(ServiceBusMessage("one"))
            for _ in range(4):
                heard = at.peer.heartbeats
                moved.move(MINUTE / 2)
                await at.peer.heard(lambda heard=heard: at.peer.heartbeats > heard)
            assert len(at.peer.connections) == 1

    play(scenario)


# --- when failover engages --------------------------------------------------------------------------------------------


def test_s4_sends_under_way_are_given_up_when_failover_engages(carrier: TransportName) -> None:
    """One send gets no answer, another one's failure engages failover: both are parked, within no attempt's time."""

    async def scenario() -> None:
        async with setting(carrier, attempt_timeout=600) as at, asyncio.timeout(STALLED):

            def judge(transfer: Transfer) -> DeliveryState | None:
                return None if "unanswered" in transfer.texts else rejected("amqp:internal-error")

            at.peer.judge = judge
            unanswered = at.send(ServiceBusMessage("unanswered"))[0]
            await at.peer.heard(lambda: at.peer.texts == ["unanswered"])
            async with at.factory.get_queue_sender("ORDERS") as other:  # S1: whatever the spelling
                await other.send_messages(ServiceBusMessage("refused"))
                await unanswered
            assert sorted(at.secondary.texts) == ["refused", "unanswered"]
            assert at.peer.texts == ["unanswered", "refused"]
            assert id_of("unanswered", at.secondary) == id_of("unanswered", at.peer)  # S7: it may have arrived

    play(scenario)


def id_of(text: str, peer: Peer) -> object:
    (message,) = [each for transfer in peer.transfers for each in transfer.messages if text_of(each) == text]
    properties = message.properties()
    return properties.message_id if properties is not None else None


def test_s4_sends_that_are_held_are_parked_at_once_when_failover_engages(
    carrier: TransportName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for their next attempt, which is far off, and are woken."""
    monkeypatch.setattr("pairbus.core.sending.HELD", Backoff(first=HOUR, cap=HOUR))

    async def scenario() -> None:
        async with setting(carrier, failover_interval=MINUTE, attempt_timeout=600) as at:
            at.peer.judge = lambda _transfer: rejected(DISABLED)
            held = at.send(*map(ServiceBusMessage, "abc"))
            await at.peer.heard(lambda: sorted(at.peer.texts) == ["a", "b", "c"])
            await at.suspect()
            assert at.secondary.transfers == []
            moved.move(MINUTE)
            async with asyncio.timeout(STALLED):
                await asyncio.gather(*held)
            assert sorted(at.secondary.texts) == ["a", "b", "c"]
            assert len(at.peer.texts) == 3

    play(scenario)


def test_s4_a_send_that_waits_for_its_link_is_parked_at_once_when_failover_engages(
    carrier: TransportName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.core.sending.HELD", Backoff(first=HOUR, cap=HOUR))

    async def scenario() -> None:
        async with setting(carrier, failover_interval=MINUTE, attempt_timeout=600) as at:
            at.peer.judge = lambda _transfer: rejected(DISABLED)
            held = at.send(ServiceBusMessage("held"))[0]
            await at.suspect()
            at.peer.ignore = lambda entity: entity == "orders"
            other = at.factory.get_queue_sender("orders")
            waiting = asyncio.create_task(other.send_messages(ServiceBusMessage("waits")))
            await at.peer.heard(lambda: at.peer.ignored == ["orders"])
            moved.move(MINUTE)
            async with asyncio.timeout(STALLED):
                await asyncio.gather(held, waiting)
            assert sorted(at.secondary.texts) == ["held", "waits"]
            assert at.peer.texts == ["held"]

    play(scenario)


def test_s14_an_error_after_a_part_was_parked_says_how_many_and_names_what_is_missing(carrier: TransportName) -> None:
    async def scenario() -> None:
        async with setting(carrier) as at:
            at.peer.judge = lambda _transfer: rejected(DISABLED)
            await at.sender.send_messages(ServiceBusMessage("engages"))
            at.secondary.judge = lambda _transfer: rejected(TOO_LARGE) if parts() else ACCEPTED
            batch = await at.sender.create_message_batch()
            with pytest.raises(MessageSizeExceededError):  # noqa: PT012 (until it is full; rewritten it no longer fits)
                while True:
                    batch.add_message(ServiceBusMessage("x" * 1000, message_id=f"m{len(batch)}"))

            def parts() -> list[Transfer]:
                return [each for each in at.secondary.transfers if each.is_batch][1:]

            with pytest.raises(MessageSizeExceededError) as failed:
                await at.sender.send_messages(batch)
            first, *_ = (each for each in at.secondary.transfers if each.is_batch)
            parked = len(first.messages)
            assert 0 < parked < len(batch)
            (note,) = failed.value.__notes__
            assert note.startswith(f"{parked} of {len(batch)} messages were parked before it failed")
            assert f"missing are: m{parked}" in note
            assert f"m{parked - 1}" not in note
            assert vars(failed.value)["maybe_sent"] is False

    play(scenario)
