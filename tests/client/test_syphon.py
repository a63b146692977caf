"""The syphon with the unmodified SDK between two brokers: Y1 to Y5."""

# ruff: noqa: ANN401 (options are handed on)
# pyright: reportUnknownMemberType=false, reportPrivateUsage=false

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageLockLostError, OperationTimeoutError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.client.syphoning import IGNORED, Pair, count_of, receive, send, until
from tests.support.ports import free_port

from pairbus.amqp.message import HEADER, Message
from pairbus.core.envelope import RESERVED
from pairbus.core.moving import Limits
from pairbus.core.options import TransportName
from pairbus.core.routing import DeadLetterReason, WaitReason
from pairbus.links.sdk.links import QueueLink, receiver_of
from pairbus.links.sdk.transport import SdkTransport
from pairbus.links.transport import Outgoing
from pairbus.messages.sdk_messages import parked
from pairbus.syphon.mover import Mover
from pairbus.syphon.transports import TRANSPORTS, transport_to
from pairbus.testing import EntityStatus, QueueSettings

pytestmark = [pytest.mark.filterwarnings(each) for each in IGNORED]


@pytest.fixture(scope="module", autouse=True, params=TRANSPORTS)
def carrier(request: pytest.FixtureRequest) -> Iterator[TransportName]:
    """Carry messages by each of the two transports."""
    before, Pair.carrier = Pair.carrier, request.param
    yield request.param
    Pair.carrier = before


by_the_sdk = pytest.mark.parametrize("carrier", ["sdk"], indirect=True)


def texts(prefix: str, number: int, **options: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{prefix}{index}", message_id=f"{prefix}{index}", **options) for index in range(number)]


async def drain(mover: Mover) -> int:
    return await mover.move(Limits(wait=0.3, until_empty=True), asyncio.Event())


# --- the same message -----------------------------------------------------------------------------------------------

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),  # all that the SDK can send
    st.floats(allow_nan=False),
    text,
    st.uuids(),
    st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
names = text.filter(lambda name: name not in RESERVED)
bodies = st.one_of(
    st.fixed_dictionaries({"data_body": st.lists(st.binary(max_size=30), min_size=1, max_size=3)}),
    st.fixed_dictionaries(
        {
            "value_body": st.recursive(
                scalars | st.binary(max_size=10),
                lambda some: st.lists(some, max_size=3) | st.dictionaries(text, some, max_size=3),
                max_leaves=4,
            )
        }
    ),
    st.fixed_dictionaries(
        {"sequence_body": st.lists(st.lists(scalars | st.binary(max_size=10), max_size=3), min_size=1, max_size=2)}
    ),
)


@st.composite
def messages(draw: st.DrawFn) -> AmqpAnnotatedMessage:
    """Draw any message that the SDK can send."""
    session = draw(st.none() | st.text("abc", min_size=1, max_size=3))
    made = AmqpAnnotatedMessage(**cast("Any", draw(bodies)))
    made.application_properties = cast("Any", draw(st.dictionaries(names, scalars, max_size=4)) or None)
    made.annotations = cast("Any", draw(st.dictionaries(st.sampled_from(["x-own", "x-mine"]), scalars, max_size=2)))
    made.header = AmqpMessageHeader(
        time_to_live=draw(st.none() | st.integers(60_000, 2**31 - 1)),
        durable=draw(st.none() | st.booleans()),
        priority=draw(st.none() | st.integers(0, 9)),
    )
    made.properties = AmqpMessageProperties(
        message_id=draw(st.text("id0123456789", min_size=1, max_size=20)),
        correlation_id=draw(st.none() | text),
        user_id=draw(st.none() | st.binary(max_size=5)),
        to=draw(st.none() | text),
        subject=draw(st.none() | text),
        reply_to=draw(st.none() | text),
        content_type=draw(st.none() | st.sampled_from(["application/json", "text/plain"])),
        content_encoding=draw(st.none() | st.just("gzip")),
        group_id=session,
        group_sequence=draw(st.none() | st.integers(0, 9)),
        reply_to_group_id=draw(st.none() | text),
    )
    partition_key = session if session is not None else draw(st.none() | st.just("p"))
    if partition_key is not None and draw(st.booleans()):
        made.annotations = {**(made.annotations or {}), "x-opt-partition-key": partition_key}
    if draw(st.booleans()):  # a time that has come, so that it can be received
        made.annotations = {
            **(made.annotations or {}),
            "x-opt-scheduled-enqueue-time": draw(st.datetimes(datetime(1980, 1, 1), datetime(2020, 1, 1))),  # noqa: DTZ001
        }
    return made


class Both:
    """Sends messages directly and by way of the backlog, and receives both as they come off the wire."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.pair = Pair({"direct": QueueSettings(), "carried": QueueSettings()})

    async def open(self) -> None:
        await self.pair.__aenter__()
        self.direct = await self.pair.sender("direct")
        self.backlog = await self.pair.sender(self.pair.backlogs[0])
        self.mover = self.pair.mover()
        client = self.pair.clients[self.pair.primary]
        self.links = [await receiver_of(client, queue).open() for queue in ("direct", "carried")]

    async def close(self) -> None:
        for link in self.links:
            await link.close()
        await self.pair.__aexit__(None, None, None)

    async def send(self, message: AmqpAnnotatedMessage) -> tuple[Message, Message]:
        await self.backlog.send_messages(parked(message, "carried"))
        await self.direct.send_messages(message)
        assert await self.mover.move(Limits(wait=10, quota=1), asyncio.Event()) == 1
        direct, carried = [await self._one(link) for link in self.links]
        return direct, carried

    @staticmethod
    async def _one(link: QueueLink) -> Message:
        ((message, payload),) = await link.receive(1, 10)
        await link.receiver.complete_message(message)
        return Message(payload)


@pytest.fixture(scope="module")
def both(carrier: TransportName) -> Iterator[Both]:
    assert carrier == Pair.carrier
    with asyncio.Runner() as runner:
        made = Both(runner)
        runner.run(made.open())
        yield made
        runner.run(made.close())


def sections(message: Message) -> dict[str, Any]:
    """Return all that a receiver sees, with its types, but for what tells where and when it was received."""
    header = message.header()
    standard = message.properties()
    assert header is not None
    assert standard is not None
    if standard.absolute_expiry_time is not None:
        assert standard.creation_time is not None
        standard.absolute_expiry_time -= standard.creation_time
        standard.creation_time = None
    annotations: dict[Any, tuple[type, Any]] = {
        name: (type(value), value)
        for name, value in message.message_annotations().items()
        if name not in {"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"}
    }
    assert message.has(HEADER)
    return {
        "header": header,
        "properties": standard,
        "ids": (type(standard.message_id), type(standard.correlation_id)),
        "annotations": annotations,
        "application properties": {
            name: (type(value), value) for name, value in message.application_properties().items()
        },
        "body": [(kind, message.data[start:end]) for kind, start, end in message.body],
    }


@settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.generate],  # each example costs five round trips
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(messages())
def test_what_is_carried_equals_what_is_sent_directly(both: Both, message: AmqpAnnotatedMessage) -> None:
    """E1, E2: every body kind, every property, every type."""
    direct, carried = both.runner.run(both.send(message))
    assert sections(carried) == sections(direct)


def test_a_message_of_many_frames_is_carried_whole(both: Both) -> None:
    body = bytes(range(256)) * 900
    direct, carried = both.runner.run(both.send(AmqpAnnotatedMessage(data_body=body)))
    assert carried.data_sections() == direct.data_sections() == [body]


# --- delivering -----------------------------------------------------------------------------------------------------


def test_ten_queues_are_drained_and_what_comes_later_comes_at_once() -> None:
    """Y1: nothing is lost, nothing comes twice, the backlog is empty."""

    async def play() -> None:
        async with Pair({"orders": QueueSettings(), "bills": QueueSettings()}, backlogs=3) as pair:
            for index, queue in enumerate(pair.backlogs):
                await pair.park(texts(f"o{index}-", 250), queue=queue)
                await pair.park(texts(f"b{index}-", 20), "bills", queue=queue)
            syphon = pair.syphon()
            syphon.start()
            await until(lambda: syphon.report().total().delivered == 810)
            await pair.park(texts("late", 1))
            await until(lambda: syphon.report().total().delivered == 811)
            await syphon.stop()
            orders = await receive(await pair.receiver("orders"), 751)
            assert len({message.message_id for message in orders}) == 751
            assert not any(message.application_properties for message in orders)
            assert len(await receive(await pair.receiver("bills"), 60)) == 60
            for queue in pair.backlogs:
                assert await count_of(await pair.receiver(queue)) == 0
            report = syphon.report()
            assert (report.of("orders").found, report.of("bills").found) == (751, 60)
            assert report.total().duplicates_suspected == 0

    asyncio.run(play())


def test_two_syphons_keep_the_order_of_sessions() -> None:
    """Y4, Y5: on the same queue, with bursts that interleave."""

    async def play() -> None:
        async with Pair({"orders": QueueSettings(requires_session=True)}) as pair:
            sessions = [texts(f"{name}-", 12, session_id=name) for name in "xyz"]
            mixed = [message for one_each in zip(*sessions, strict=True) for message in one_each]
            await pair.park(mixed)
            stop = asyncio.Event()
            movers = [pair.mover(burst=7), pair.mover(burst=11)]
            moving = [asyncio.create_task(mover.move(Limits(), stop)) for mover in movers]
            await until(lambda: sum(mover.moving.reconciliation().total().delivered for mover in movers) == 36)
            stop.set()
            await asyncio.gather(*moving)
            for session in "xyz":
                receiver = await pair.receiver("orders", session_id=session)
                arrived = await receiver.peek_messages(100, sequence_number=1)
                assert [message.message_id for message in arrived] == [f"{session}-{index}" for index in range(12)]

    asyncio.run(play())


def test_what_cannot_be_delivered_is_dead_lettered_with_reason_and_description() -> None:
    """Y3."""

    async def play() -> None:
        async with Pair() as pair:
            backlog = await pair.sender(pair.backlogs[0])
            await send(backlog, [ServiceBusMessage("a", message_id="nowhere")])
            odd = {"x-ms-path": "orders", "x-ms-sessionid": 3}
            await send(backlog, [ServiceBusMessage("a", message_id="odd", application_properties=cast("Any", odd))])
            await pair.park(texts("gone", 2), "no/such/queue")
            await pair.park(texts("good", 2))
            mover = pair.mover()
            await drain(mover)
            dead = await receive(await pair.receiver(pair.backlogs[0], sub_queue=ServiceBusSubQueue.DEAD_LETTER), 4)
            why = {message.message_id: message.dead_letter_reason for message in dead}
            assert why == {
                "nowhere": "NoDestination",
                "odd": "BadProperty",
                "gone0": "DestinationGone",
                "gone1": "DestinationGone",
            }
            assert all("no/such/queue" in str(m.dead_letter_error_description) for m in dead[2:])
            assert len(await receive(await pair.receiver("orders"), 2)) == 2
            assert mover.moving.reconciliation().total().dead_lettered[DeadLetterReason.DESTINATION_GONE] == 2

    asyncio.run(play())


def test_a_disabled_destination_is_waited_for_while_the_others_go_on() -> None:
    """Y3."""

    async def play() -> None:
        async with Pair({"orders": QueueSettings(), "bills": QueueSettings()}) as pair:
            pair.primary.update_queue("orders", QueueSettings(status=EntityStatus.DISABLED))
            await pair.park(texts("o", 30))
            await pair.park(texts("b", 30), "bills")
            syphon = pair.syphon()
            syphon.start()
            await until(lambda: syphon.report().of("bills").delivered == 30)
            await until(lambda: syphon.report().of("orders").waiting.total() == 30)
            assert set(syphon.report().of("orders").waiting) <= {WaitReason.DISABLED, WaitReason.SET_ASIDE}
            pair.primary.update_queue("orders", QueueSettings())
            await until(lambda: syphon.report().of("orders").delivered == 30)
            await syphon.stop()
            assert len({m.message_id for m in await receive(await pair.receiver("orders"), 30)}) == 30

    asyncio.run(play())


# --- the transport --------------------------------------------------------------------------------------------------


def test_settling_tells_how_it_ended_for_each_message() -> None:
    async def play() -> None:
        ahead = [0]

        def clock() -> int:
            return round(datetime.now(UTC).timestamp() * 1000) + ahead[0]

        async with Pair(clock=clock) as pair:
            queue = pair.backlogs[0]
            await pair.park(texts("m", 6))
            source = pair.transport(pair.secondary)
            first = await source.receive(queue, 3, 5)
            assert [message.sequence_number for message in first] == [1, 2, 3]
            assert await source.renew(queue, first[:1]) == [None]
            assert await source.settle(queue, first[1:], "abandon") == [None, None]
            assert await source.settle(queue, first[:1], "complete") == [None]
            ahead[0] = 120_000
            pair.secondary.wake()
            assert await source.settle(queue, [], "complete") == []
            again = await source.receive(queue, 5, 5)
            assert [message.sequence_number for message in again] == [2, 3, 4, 5, 6]
            ahead[0] = 240_000
            pair.secondary.wake()
            lost = await source.settle(queue, again[:2], "complete")
            assert [type(error) for error in lost] == [MessageLockLostError, MessageLockLostError]
            assert type((await source.renew(queue, again[2:3]))[0]) is MessageLockLostError
            assert [message.sequence_number for message in await source.browse(queue, 4)] == [2, 3, 4]

            # A link that was given up is replaced, and what came by it is settled by its token.
            held = await source.receive(queue, 5, 5)
            waiting = asyncio.create_task(source.receive(queue, 1, 30))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait({waiting})
            assert await source.settle(queue, held, "complete") == [None] * 5
            assert await source.browse(queue, 100) == []

    asyncio.run(play())


@by_the_sdk
def test_messages_that_lie_around_for_long_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker sends as long as it has credit; what nobody asked for in time would lose its lock."""

    async def play() -> None:
        async with Pair() as pair:
            await pair.park(texts("m", 1))
            link = await receiver_of(pair.clients[pair.secondary], pair.backlogs[0]).open()
            ((message, _),) = await link.receive(5, 5)
            await pair.park(texts("n", 2))
            await until_buffered(link, 2)
            monkeypatch.setattr("pairbus.links.sdk.links.FRESH_SECONDS", -1.0)
            receiving = asyncio.create_task(link.receive(5, 5))
            await asyncio.sleep(0.3)
            monkeypatch.setattr("pairbus.links.sdk.links.FRESH_SECONDS", 10.0)
            got = [(each.message_id, each.delivery_count) for each, _ in await receiving]
            assert got[0][0] == "n0"
            assert got[0][1], "it was not put back"
            await link.settle_run([message], "complete")
            await link.close()

    async def until_buffered(link: QueueLink, number: int) -> None:
        inside: Any = link.receiver
        while inside._handler._received_messages.qsize() < number:
            await inside._handler._connection.listen(wait=0.05)

    asyncio.run(play())


def test_a_peer_that_stays_silent_is_given_up_within_the_deadline(carrier: TransportName) -> None:
    async def play() -> None:
        ends: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _reader, writer: ends.append(writer), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        where = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"
        async with ServiceBusClient.from_connection_string(where, retry_total=0) as client:
            transport = transport_to(client, carrier, attempt_timeout=0.5)
            with pytest.raises(OperationTimeoutError, match="'orders' took longer than"):
                await transport.send("orders", Outgoing([b""]))
            with pytest.raises(OperationTimeoutError):
                await transport.receive("orders", 1, 0.1)
            await transport.close()
        silent.close()
        for end in ends:
            end.close()
            await end.wait_closed()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []

    asyncio.run(play())


@by_the_sdk
def test_links_that_rest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with Pair({"orders": QueueSettings(), "bills": QueueSettings()}) as pair:
            target = pair.transport(pair.primary)
            assert isinstance(target, SdkTransport)
            one = Outgoing([b"\x00\x53\x75\xa0\x01x"])
            await asyncio.gather(*(target.send("orders", one) for _ in range(8)))
            assert 1 <= len(target._entities["orders"].resting) <= 4
            monkeypatch.setattr("pairbus.links.sdk.transport.STALE_SECONDS", -1.0)
            await target.send("bills", one)
            assert target._entities["orders"].resting == []
            assert len(await receive(await pair.receiver("orders"), 8)) == 8

    asyncio.run(play())


# --- crashes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["primary", "secondary"])
def test_a_broker_that_is_killed_in_the_middle_of_a_drain_costs_no_message(victim: str, tmp_path: Path) -> None:
    """Y1: kill -9, twice; every message arrives."""

    async def play() -> None:
        ports = free_port(), free_port()
        async with Pair(backlogs=2, data=tmp_path, ports=ports) as pair:
            for index, queue in enumerate(pair.backlogs):
                await pair.park(texts(f"m{index}-", 600), queue=queue)
            broker = pair.primary if victim == "primary" else pair.secondary
            syphon = pair.syphon()
            syphon.start()
            for some in (100, 400):
                await until(lambda some=some: syphon.report().total().delivered >= some)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await until(lambda: syphon.report().total().delivered >= 1200)
            report = syphon.report().total()
            await syphon.stop()
            got = [message.message_id for message in await receive(await pair.receiver("orders"), 1200)]
            receiver = await pair.receiver("orders")
            while more := await receiver.receive_messages(100, max_wait_time=1):
                got += [message.message_id for message in more]
            assert set(got) == {f"m{queue}-{index}" for queue in range(2) for index in range(600)}
            assert len(got) - 1200 <= report.duplicates_suspected

    asyncio.run(play())


def test_a_syphon_that_is_cut_off_leaves_everything_to_the_next_one() -> None:
    async def play() -> None:
        ahead = [0]

        def clock() -> int:
            return round(datetime.now(UTC).timestamp() * 1000) + ahead[0]

        async with Pair(clock=clock) as pair:
            await pair.park(texts("m", 500))
            mover = pair.mover(burst=50)
            moving = asyncio.create_task(mover.move(Limits(), asyncio.Event()))
            await until(lambda: mover.moving.reconciliation().total().delivered >= 100)
            moving.cancel()
            await asyncio.wait({moving})
            ahead[0] = int(timedelta(minutes=2).total_seconds() * 1000)
            pair.secondary.wake()
            left, another = await pair.receiver(pair.backlogs[0]), pair.mover()
            while await count_of(left):
                await drain(another)
            receiver = await pair.receiver("orders")
            names: set[str | None] = set()
            while len(names) < 500:  # else it is in the queue no more
                more = await receiver.receive_messages(200, max_wait_time=30)
                assert more, f"{len(names)} of 500 have come"
                names |= {message.message_id for message in more}
            assert names == {f"m{index}" for index in range(500)}

    asyncio.run(play())
