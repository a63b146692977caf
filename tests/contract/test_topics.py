"""Topics, subscriptions and rules, as the SDK's own clients see them."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from tests.contract.conftest import Scenario, play
from tests.contract.lab import Lab, bodies, nothing, one, peek, receive, send
from tests.contract.sdk import Sdk

from pairbus.testing import (
    CorrelationFilter,
    EntityStatus,
    QueueSettings,
    Rule,
    SqlAction,
    SqlFilter,
    SubscriptionConfig,
    SubscriptionSettings,
    TopicConfig,
    TopicSettings,
)

Topics: TypeAlias = Mapping[str, TopicConfig | Iterable[str]]
Run: TypeAlias = Callable[..., None]

RED = Rule("red", SqlFilter("color = 'red'"))
BLUE = Rule("blue", CorrelationFilter(properties={"color": "blue"}))
MARKED = Rule("marked", SqlFilter("sys.Label = 'hot'"), SqlAction("SET mark = sys.Label + '!'"))
DEAD = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}


def topic(settings: TopicSettings | None = None, **subscriptions: SubscriptionConfig) -> Topics:
    return {"orders": TopicConfig(settings or TopicSettings(), subscriptions)}


def subscription(*rules: Rule, settings: SubscriptionSettings | None = None) -> SubscriptionConfig:
    return SubscriptionConfig(settings or SubscriptionSettings(), rules)


@pytest.fixture(params=["sync-memory", "aio-sqlite"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a scenario on a broker with topics, with each client of the SDK and each store."""
    kind, _, store = str(request.param).partition("-")

    def run(scenario: Scenario, topics: Topics, **queues: QueueSettings) -> None:
        play(scenario, Sdk(kind), queues, tmp_path if store == "sqlite" else None, topics=topics)

    return run


def test_each_subscription_gets_what_its_rules_select(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, everything, red, blue, marked = await asyncio.gather(
            lab.topic_sender("Orders"),
            lab.subscriber("All", "ORDERS"),
            lab.subscriber("red"),
            lab.subscriber("blue"),
            lab.subscriber("marked"),
        )
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("1", application_properties={"color": "red"}, correlation_id="c"))
        batch.add_message(ServiceBusMessage("2", application_properties={"color": "blue"}))
        await sender.send_messages(batch)
        await sender.send_messages(
            [ServiceBusMessage("3", subject="hot"), ServiceBusMessage("4", application_properties={"color": "red"})]
        )
        got = await receive(everything, 4)
        assert bodies(got) == ["1", "2", "3", "4"]
        assert [(each.sequence_number, each.enqueued_sequence_number) for each in got] == [(n, n) for n in range(1, 5)]
        got = await receive(red, 2)
        assert [(str(each), each.sequence_number, each.enqueued_sequence_number) for each in got] == [
            ("1", 1, 1),
            ("4", 2, 4),
        ]
        assert got[0].correlation_id == "c"
        for each in got:
            await red.complete_message(each)
        assert bodies(await receive(blue, 1)) == ["2"]
        hot = await one(marked)
        assert hot.application_properties == {b"mark": b"hot!", b"RuleName": b"marked"}
        assert await nothing(red)

    topics = topic(all=subscription(), red=subscription(RED), blue=subscription(BLUE), marked=subscription(MARKED))
    run(scenario, topics)


def test_rules_and_subscriptions_change_while_it_runs(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.topic_sender(), lab.subscriber("s"))
        await send(sender, "1")
        await asyncio.to_thread(lab.broker.create_rule, "orders", "s", RED)
        await asyncio.to_thread(lab.broker.delete_rule, "orders", "s", "$Default")
        await send(sender, "2")
        await send(sender, "3", application_properties={"color": "red"})
        await asyncio.to_thread(lab.broker.update_rule, "orders", "s", replace(RED, filter=SqlFilter("color = 'blue'")))
        await send(sender, "4", application_properties={"color": "red"})
        await send(sender, "5", application_properties={"color": "blue"})
        assert bodies(await receive(receiver, 3)) == ["1", "3", "5"]
        await asyncio.to_thread(lab.broker.create_subscription, "orders", "late", None, [BLUE])
        late = await lab.subscriber("late")
        await send(sender, "6", application_properties={"color": "blue"})
        assert str(await one(late)) == "6"
        await asyncio.to_thread(lab.broker.delete_subscription, "orders", "late")
        with pytest.raises(ServiceBusError):
            await late.receive_messages(max_wait_time=5)
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.subscriber("late")
        await asyncio.to_thread(lab.broker.delete_topic, "orders")
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.topic_sender()

    run(scenario, {"orders": ["s"]})


def test_each_copy_is_settled_on_its_own(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, first, second, dead = await asyncio.gather(
            lab.topic_sender(), lab.subscriber("one"), lab.subscriber("two"), lab.subscriber("one", **DEAD)
        )
        await send(sender, "completed", "abandoned", "deferred", "dead")
        completed, abandoned, deferred, buried = await receive(first, 4)
        await first.complete_message(completed)
        await first.abandon_message(abandoned)
        await first.defer_message(deferred)
        await first.dead_letter_message(buried, reason="why")
        again = await one(first)
        assert (str(again), again.delivery_count) == ("abandoned", 1)
        assert bodies(await first.receive_deferred_messages(deferred.sequence_number or 0)) == ["deferred"]
        found = await one(dead)
        assert (str(found), found.dead_letter_reason, found.enqueued_sequence_number) == ("dead", "why", 4)
        untouched = await receive(second, 4)
        assert [(str(each), each.delivery_count) for each in untouched] == [
            (name, 0) for name in ("completed", "abandoned", "deferred", "dead")
        ]
        assert len(await peek(second)) == 4

    run(scenario, {"orders": ["one", "two"]})


def test_sessions(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, in_eu, plain = await asyncio.gather(
            lab.topic_sender(), lab.subscriber("sessions", session_id="eu"), lab.subscriber("plain")
        )
        await send(sender, "us", session_id="us")
        await send(sender, "eu", session_id="eu")
        await send(sender, "none")
        assert str(await one(in_eu)) == "eu"
        await in_eu.session.set_state("seen")
        assert await in_eu.session.get_state() == b"seen"
        assert bodies(await receive(plain, 3)) == ["us", "eu", "none"]
        dead = await lab.subscriber("sessions", **DEAD)
        found = await one(dead)
        assert (str(found), found.dead_letter_reason) == ("none", "Session ID is null.")

    sessions = subscription(settings=SubscriptionSettings(requires_session=True))
    run(scenario, topic(sessions=sessions, plain=subscription()))


def test_scheduled_messages_wait_with_the_topic(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.topic_sender(), lab.subscriber("s"))
        due = lab.clock.utc(60)
        messages = [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")]
        numbers = await sender.schedule_messages(messages, due)
        await sender.cancel_scheduled_messages(numbers[1])
        with pytest.raises(ServiceBusError):
            await sender.cancel_scheduled_messages(numbers[1])
        assert await peek(receiver) == []
        await lab.pass_time(61)
        got = await one(receiver)
        assert (str(got), got.sequence_number) == ("kept", 1)

    run(scenario, {"orders": ["s"]})


def test_expiry_and_delivery_counts(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver, dead = await asyncio.gather(
            lab.topic_sender(), lab.subscriber("s"), lab.subscriber("s", **DEAD)
        )
        await send(sender, "abandoned")
        await receiver.abandon_message(await one(receiver))
        found = await one(dead)
        assert (str(found), found.dead_letter_reason) == ("abandoned", "MaxDeliveryCountExceeded")
        await send(sender, "expired")
        await lab.pass_time(31)
        found = await one(dead)
        assert (str(found), found.dead_letter_reason) == ("expired", "TTLExpiredException")

    settings = SubscriptionSettings(max_delivery_count=1, dead_lettering_on_message_expiration=True)
    run(scenario, topic(TopicSettings(default_message_time_to_live=30_000), s=subscription(settings=settings)))


def test_a_filter_that_fails(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, fine, dead = await asyncio.gather(
            lab.topic_sender(), lab.subscriber("fine"), lab.subscriber("broken", **DEAD)
        )
        await send(sender, "a", application_properties={"n": 1})
        found = await one(dead)
        assert (str(found), found.dead_letter_reason) == ("a", "FilterEvaluationException")
        assert found.dead_letter_error_description
        assert str(await one(fine)) == "a"

    run(scenario, topic(fine=subscription(), broken=subscription(Rule("r", SqlFilter("n / 0 > 1")))))


def test_forwarding(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, to_in, out, last, dead_of_dying = await asyncio.gather(
            lab.topic_sender(),
            lab.sender("inbound"),
            lab.receiver("outbound"),
            lab.subscriber("last"),
            lab.subscriber("dying"),
        )
        await send(sender, "1")
        got = await one(out)
        assert (str(got), got.enqueued_sequence_number) == ("1", 1)
        await send(to_in, "2")
        assert bodies(await receive(last, 2)) == ["1", "2"]
        assert str(await one(out)) == "2"
        await dead_of_dying.dead_letter_message(await one(dead_of_dying))
        assert str(await one(out)) == "1"

    out = SubscriptionSettings(forward_to="outbound")
    dying = SubscriptionSettings(forward_dead_lettered_messages_to="outbound")
    topics = topic(out=subscription(settings=out), last=subscription(), dying=subscription(settings=dying))
    run(scenario, topics, inbound=QueueSettings(forward_to="orders"), outbound=QueueSettings())


def test_what_a_topic_does_not_take(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.topic_sender(), lab.subscriber("s"))
        await send(sender, "x" * 200_000, "x" * 200_000, "x" * 200_000, "x" * 200_000, "x" * 200_000)
        with pytest.raises(ServiceBusQuotaExceededError):
            await send(sender, "x" * 200_000)
        deleting = await lab.subscriber("s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        await receive(deleting, 2)
        await send(sender, "same", "same", message_id="1")
        seen = await peek(receiver)
        assert [len(str(each)) for each in seen[-2:]] == [200_000, 4]
        off = TopicSettings(status=EntityStatus.DISABLED, max_size_in_megabytes=1, requires_duplicate_detection=True)
        await asyncio.to_thread(lab.broker.update_topic, "orders", off)
        with pytest.raises(MessagingEntityDisabledError):
            await send(sender, "refused")
        with pytest.raises(MessagingEntityDisabledError):
            await lab.subscriber("s")

    settings = TopicSettings(max_size_in_megabytes=1, requires_duplicate_detection=True)
    run(scenario, topic(settings, s=subscription()))


def test_a_ping_is_taken_and_reaches_nobody(run: Run) -> None:
    """G3."""

    async def scenario(lab: Lab) -> None:
        sender, receiver = await asyncio.gather(lab.topic_sender(), lab.subscriber("s"))
        await send(sender, "", content_type="application/vnd.ms-servicebus-ping")
        await send(sender, "after")
        got = await one(receiver)
        assert (str(got), got.sequence_number) == ("after", 1)
        assert bodies(await peek(receiver)) == ["after"]

    run(scenario, {"orders": ["s"]})


def test_nobody_receives_from_a_topic_or_sends_to_a_subscription(run: Run) -> None:
    async def scenario(lab: Lab) -> None:
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.receiver("orders")
        with pytest.raises(MessagingEntityNotFoundError):
            await lab.topic_sender("orders/Subscriptions/s")

    run(scenario, {"orders": ["s"]})


# --- what is kept ----------------------------------------------------------------------------------------------------


async def fill(lab: Lab) -> None:
    sender, red, everything = await asyncio.gather(lab.topic_sender(), lab.subscriber("red"), lab.subscriber("all"))
    await send(sender, "1", "2", application_properties={"color": "red"})
    await send(sender, "3")
    await sender.schedule_messages(ServiceBusMessage("later"), lab.clock.utc(86_400))
    await red.complete_message((await receive(red, 2))[0])
    await everything.complete_message(await one(everything))


async def check(lab: Lab) -> None:
    sender, red, everything = await asyncio.gather(lab.topic_sender(), lab.subscriber("red"), lab.subscriber("all"))
    assert bodies(await peek(red)) == ["2"]
    assert bodies(await peek(everything)) == ["2", "3"]
    await send(sender, "4", application_properties={"color": "red"})
    got = await receive(red, 2)
    assert [(str(each), each.sequence_number, each.enqueued_sequence_number) for each in got] == [
        ("2", 2, 2),
        ("4", 3, 5),
    ]
    for each in got:
        await red.complete_message(each)
    for each in await receive(everything, 3):
        await everything.complete_message(each)


KEPT = topic(red=subscription(RED), all=subscription())


def stored_bodies(data: Path) -> int:
    with closing(sqlite3.connect(data / "localhost.db")) as plain:
        return int(plain.execute("SELECT count(*) FROM payload").fetchone()[0])


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_topics_are_kept_when_the_broker_is_stopped(kind: str, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        await fill(lab)
        assert stored_bodies(tmp_path) == 3  # "1" has gone everywhere; "2" and "3" are there once, and "later"
        await lab.restart()
        await check(lab)
        assert stored_bodies(tmp_path) == 1
        await lab.pass_time(86_401)
        assert str(await one(await lab.subscriber("all"))) == "later"

    play(scenario, Sdk(kind), {}, tmp_path, topics=KEPT)


def test_topics_are_kept_when_the_broker_is_killed(tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        await fill(lab)
        await asyncio.to_thread(lab.broker.kill)
        await lab.close_clients()
        await asyncio.to_thread(lab.broker.start)
        await check(lab)
        assert stored_bodies(tmp_path) == 1

    play(scenario, Sdk("aio"), {}, tmp_path, topics=KEPT, process=True)
